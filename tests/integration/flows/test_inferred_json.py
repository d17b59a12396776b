"""A job of JSON without declared fields: columns are inferred once for a dataset, by its first work unit.

They are fixed with the first closed sequence, in spite of kills.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from confluent_kafka import Producer
from pyspark.sql import SparkSession

from distcommit import Job
from tests.jobs.in_commit import killed_in_commit
from tests.jobs.kafka_job import KafkaJob, kafka_job

JSON = {"type": "json", "keep_column": False}
OWN = {**JSON, "datasets": [{"match": "p*", "evolution": "pin"}]}
Records = dict[int, list[dict[str, Any]]]
"""Records by partition."""


def send(job: KafkaJob, topic: str, records: Records) -> None:
    producer = Producer({"bootstrap.servers": job.broker.bootstrap_servers})
    for partition, of_it in records.items():
        for record in of_it:
            producer.produce(topic, json.dumps(record).encode(), partition=partition)
            job.produced += 1
    assert producer.flush(30) == 0


def schemas(job: KafkaJob) -> dict[str, list[int]]:
    code, status, errors = job.cli("status")
    assert code in (0, 1), errors[-3000:]
    return {row["dataset"]: row["schemas"].get("json", []) for row in status["datasets"]}


def killed_in_its_commit(job: KafkaJob) -> None:
    assert killed_in_commit(job.path, job.start), "no run was killed in the middle of its commit"


def put(job: KafkaJob, topic: str) -> list[Path]:
    """Return the columns of a topic that runs have stored."""
    return sorted((job.folder / "store" / "schemas" / topic / "json").glob("0*.json"))


def kill_after_columns_are_stored(job: KafkaJob) -> int:
    """Kill a run as soon as it has stored columns, and return the newest number."""
    with job.start() as run:
        while not run.has_ended and not any(put(job, topic) for topic in job.topics):
            run.wait(0.002)
        run.kill()
    return max(int(path.stem) for topic in job.topics for path in put(job, topic))


def columns(folder: Path, topic: str) -> set[tuple[str, str]]:
    """Return name and type of the columns of a topic's files that do not come from the source."""
    schemas = [pq.read_schema(path) for path in (folder / "output" / topic).rglob("*.parquet")]
    return {(f.name, str(f.type)) for schema in schemas for f in schema if not f.name.startswith("kafka_")}


def values(folder: Path, topic: str, *names: str) -> Counter[tuple[Any, ...]]:
    """Return the values of these fields, None for absent ones; read by pyarrow alone."""
    counts = Counter[tuple[Any, ...]]()
    for path in (folder / "output" / topic).rglob("*.parquet"):
        rows = pq.read_table(path, partitioning=None)
        read = [rows[name].to_pylist() if name in rows.column_names else [None] * rows.num_rows for name in names]
        counts.update(zip(*read, strict=True))
    return counts


@pytest.mark.slow
@pytest.mark.long
def test_inferred_columns_are_fixed_by_the_first_closed_sequence_for_all_readers_of_a_dataset(tmp_path: Path) -> None:
    with kafka_job(
        tmp_path,
        {"evolves": 2, "pinned": 2},
        source={"records_per_work_unit": 5},
        converters=[JSON],
        on_rejected="divert",
        commit={"buckets": 8, "min_interval_ms": 60_000},
        sink={"partition_by": None},
    ) as job:
        first: Records = {
            0: [{"id": n, "only": {"in": "0"}} for n in range(10)],
            1: [{"id": 100 + n, "of": [1.5]} for n in range(10)],
        }
        for topic in job.topics:
            send(job, topic, first)
        died = kill_after_columns_are_stored(job)
        unpinned = {topic for topic in job.topics if not schemas(job).get(topic)}
        assert unpinned, "all were done before the kill"

        # The columns of a killed run are never fixed: the next run infers them again.
        job.run()
        pinned = schemas(job)
        assert set(pinned) == {"evolves", "pinned"}
        assert all(pinned.values())
        assert all(min(pinned[topic]) > died for topic in unpinned)
        assert not [path for topic in unpinned for path in put(job, topic) if int(path.stem) <= died]
        audit = job.audit()
        assert (audit.exact, audit.rejected, audit.records) == (True, 0, job.produced)
        for topic in job.topics:
            assert columns(tmp_path, topic) >= {("id", "int64")}
            content = values(tmp_path, topic, "id")
            assert content == Counter((n,) for n in (*range(10), *range(100, 110)))

        # A later run: records with another type are rejected, other fields follow the dataset's policy, and a kill
        # changes
        # neither.
        job.write(converters=[OWN])
        send(job, "evolves", {0: [{"id": 200, "new": "x"}], 1: [{"id": "201"}, {"id": 202, "newer": True}]})
        # Many work units, so many files: the commit takes long enough to be killed in.
        send(job, "evolves", {partition: [{"id": 1000 + n} for n in range(200)] for partition in (0, 1)})
        killed_in_its_commit(job)
        job.run()
        after = schemas(job)
        assert after["pinned"] == pinned["pinned"]
        assert after["evolves"][: len(pinned["evolves"])] == pinned["evolves"]
        assert len(after["evolves"]) > len(pinned["evolves"])
        assert columns(tmp_path, "evolves") >= {("new", "string"), ("newer", "bool"), ("id", "int64")}
        assert values(tmp_path, "evolves", "id", "new", "newer") >= Counter({(200, "x", None): 1, (202, None, True): 1})

        before = columns(tmp_path, "pinned")
        send(job, "pinned", {0: [{"id": 200, "new": "x"}], 1: [{"id": 201.5}]})
        job.run()
        assert schemas(job) == after
        assert columns(tmp_path, "pinned") == before
        audit = job.audit()
        assert (audit.exact, audit.rejected, audit.records) == (True, 2, job.produced - 2), audit

        # Rejected records follow the fixed columns too.
        job.write(converters=[{"type": "sql", "columns": {"value": "'{\"id\": 7}'"}}, OWN])
        code, _, errors = job.cli("dataset reprocess", "pinned")
        assert code == 0, errors[-3000:]
        assert values(tmp_path, "pinned", "id")[7,] == 2, "one of them is one of the first"
        assert schemas(job) == after
        audit = job.audit()
        assert (audit.exact, audit.rejected, audit.records) == (True, 1, job.produced - 1), audit


def test_lost_inferred_columns_stop_only_their_dataset_with_a_remedy(tmp_path: Path, spark: SparkSession) -> None:
    with kafka_job(tmp_path, {"a": 1, "b": 1}, converters=[JSON]) as job:
        for topic in job.topics:
            send(job, topic, {0: [{"id": 1}]})
        assert Job.from_file(job.path, session=spark).run().succeeded
        for path in (tmp_path / "store" / "schemas" / "a").rglob("*.json"):
            path.unlink()
        for topic in job.topics:
            send(job, topic, {0: [{"id": 2}]})
        reasons = {
            reason.subject: reason.text for reason in Job.from_file(job.path, session=spark).run().reasons.entries
        }
        assert list(reasons) == ["a"]
        assert "restore it from a backup of the store, or declare the converter's fields" in reasons["a"]
        job.write(converters=[{**JSON, "fields": {"id": "int64"}}])
        assert Job.from_file(job.path, session=spark).run().succeeded
        job.assert_exact()

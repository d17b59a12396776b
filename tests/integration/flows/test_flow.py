"""A job file with converters, checkers and a fork, by the command line: each record has exactly one outcome in each
branch."""

from __future__ import annotations

import copy
import json
import random
from collections import Counter
from pathlib import Path
from typing import Any, cast

import fastavro
import pyarrow.dataset as ds
import pytest
from confluent_kafka import Producer
from pyspark.sql import SparkSession

from distcommit import Job
from distcommit.app.auditing.audit import AuditResult
from distcommit.engine.driver.run import RunResult
from tests.jobs.in_commit import killed_in_commit
from tests.jobs.kafka_job import DAY_MS, FIRST_DAY_MS, KafkaJob, kafka_job

FLOW: dict[str, Any] = {
    "sink": None,
    "on_rejected": "divert",
    "converters": [
        {"type": "json", "keep_column": False, "fields": {"n": "int64", "kind": "string", "tags": ["string"]}},
        {"type": "sql", "where": "kind <> 'noise'", "columns": {"twice": "n * 2"}},
    ],
    "row_checkers": [{"type": "range", "column": "n", "min": 0}],
    "fork": {
        "type": "every_match",
        "when": {"large": {"column": "n", "op": ">=", "value": 50}},
        "unmatched": "small",
        "branches": {
            "large": {
                "converters": [{"type": "explode", "column": "tags"}, {"type": "drop", "columns": ["kafka_offset"]}],
                "row_checkers": [{"type": "not_null", "columns": ["kind"], "on_failure": "divert"}],
                "sink": {"partition_by": {"granularity": "day"}},
                "task_checkers": [{"type": "fraction_rejected", "max": 1.0}],
            },
            "small": {
                "sink": {"format": "avro", "compression": "none"},
                "task_checkers": [{"type": "row_count", "min": 1_000_000, "level": "optional"}],
            },
        },
    },
}


def produce(job: KafkaJob, records: int, seed: int = 1, days: int = 1) -> list[tuple[str, bytes]]:
    """Send records of all kinds to each topic, day by day in turn, and return them."""
    chance, sent = random.Random(seed), list[tuple[str, bytes]]()
    producer = Producer({"bootstrap.servers": job.broker.bootstrap_servers})
    for topic in job.topics:
        for place in range(records):
            number, kind = chance.randrange(-10, 100), chance.choice(["a", "b", "noise", None])
            tags = chance.sample(["x", "y", "z"], chance.randrange(4))
            value = json.dumps({"n": number, "kind": kind, "tags": tags}).encode()
            value = chance.choice([value] * 9 + [b"no JSON", b'{"n": "one"}'])
            producer.produce(topic, value, partition=0, timestamp=FIRST_DAY_MS + place % days * DAY_MS)
            sent.append((topic, value))
    assert producer.flush(30) == 0
    job.produced += len(sent)
    return sent


def expected(sent: list[tuple[str, bytes]]) -> dict[str, Counter[Any]]:
    """Compute the expected output in plain Python."""
    outcome: dict[str, Counter[Any]] = {name: Counter() for name in ("large", "small", "errors", "errors/large")}
    for _, value in sent:
        try:
            record = json.loads(value)
            number, kind = record["n"], record["kind"]
            if not isinstance(number, int):
                raise TypeError(number)
        except (ValueError, KeyError, TypeError):
            outcome["errors"][value] += 1
            continue
        if kind is None or kind == "noise":  # SQL: null is not true
            continue
        if number < 0:
            outcome["errors"][value] += 1
        elif number >= 50:
            outcome["large"].update((number, tag) for tag in record["tags"])
        else:
            outcome["small"][number] += 1
    return outcome


def published(folder: Path) -> dict[str, Counter[Any]]:
    """Return the content of the output files, read independently of the audit."""
    content: dict[str, Counter[Any]] = {name: Counter() for name in ("large", "small", "errors", "errors/large")}
    output = folder / "output"
    for topic in (path for path in output.iterdir() if not path.name.startswith((".", "_"))):
        large = [str(path) for path in topic.glob("large/**/*.parquet")]
        if large:
            rows = ds.dataset(large).to_table()
            assert "kafka_offset" not in rows.schema.names
            content["large"].update(zip(rows["n"].to_pylist(), rows["tags"].to_pylist(), strict=True))
        for path in topic.glob("small/**/*.avro"):
            with path.open("rb") as file:
                records = [cast(dict[str, Any], record) for record in fastavro.reader(file)]
            assert all(record["twice"] == 2 * record["n"] for record in records)
            content["small"].update(record["n"] for record in records)
    for path in output.glob("_rejected/**/*.parquet"):
        rows = ds.dataset(str(path)).to_table()
        (branch,) = {name or "" for name in rows["error_branch"].to_pylist()}
        content[f"errors/{branch}" if branch else "errors"].update(rows["value"].to_pylist())
    return content


def files_of(sent: list[tuple[str, bytes]], days: int) -> Counter[str]:
    """Return how many files one run must write, by branch: `large` one a day, `small` one a record."""
    counts: Counter[str] = Counter()
    for topic in {topic for topic, _ in sent}:
        own = [expected([item]) for item in sent if item[0] == topic]
        counts["large"] += len({place % days for place, item in enumerate(own) if item["large"]})
        counts["small"] += sum(item["small"].total() for item in own)
        counts["errors"] += any(item["errors"] for item in own)
    return counts


def files_in(folder: Path) -> Counter[str]:
    output = folder / "output"
    there = {
        "large": output.glob("t*/large/**/*.parquet"),
        "small": output.glob("t*/small/**/*.avro"),
        "errors": output.glob("_rejected/**/*.parquet"),
    }
    return Counter({branch: len(list(paths)) for branch, paths in there.items()})


def require_exact(audit: AuditResult, records: int) -> None:
    for branch in ("large", "small"):
        rows = [row for row in audit.partitions if row.branch == branch]
        assert sum(row.published + row.rejected + row.filtered for row in rows) == records, branch
    audit.partitions = []
    assert audit.exact, audit


def test_each_record_has_one_outcome_in_each_branch(tmp_path: Path, spark: SparkSession) -> None:
    settings, days = copy.deepcopy(FLOW), 3
    settings["fork"]["branches"]["small"]["sink"]["target_file_bytes"] = 1  # a file for each record
    with kafka_job(tmp_path, {"t0": 1, "t1": 1}, **settings) as job:
        sent = produce(job, 60, days=days)
        files = files_of(sent, days)
        first: RunResult = Job.from_file(job.path, session=spark).run()
        more = produce(job, 30, seed=2, days=days)
        sent, files = sent + more, files + files_of(more, days)
        second = Job.from_file(job.path, session=spark).run()
        audit = job.audit()
        status = Job.from_file(job.path).status()
    assert first.succeeded
    assert second.succeeded
    assert published(tmp_path) == expected(sent)
    require_exact(audit, len(sent))
    assert min(files.values()) > 1, "several in each branch"
    assert files_in(tmp_path) == files
    assert first.totals.files_published + second.totals.files_published == audit.files == files.total()
    assert status.last_run is not None
    flow = {(item.branch, item.construct): item for item in status.last_run.totals.flow.constructs}
    assert flow["", "json"].records_in == 60
    assert flow["", "json"].rejected > 0
    assert flow["", "sql"].filtered > 0
    checks = {item.checker: (item.passed, item.failed) for item in status.last_run.totals.flow.checks}
    assert checks == {"fraction_rejected": (2, 0), "row_count": (0, 2)}
    assert {note.kind for note in status.last_run.notes.entries} == {"check"}
    assert str(tmp_path / "output" / "t0" / "large") in status.datasets[0].published_in


@pytest.mark.slow
def test_fork_killed_in_mid_commit_is_exact_in_the_end(tmp_path: Path) -> None:
    with kafka_job(tmp_path, {f"t{n:02d}": 1 for n in range(30)}, **FLOW, commit={"min_interval_ms": 60_000}) as job:
        sent, kills = produce(job, 60), 0
        for seed in (2, 3, 4):
            kills += killed_in_commit(job.path, job.start)
            sent += produce(job, 20, seed)
        job.run()
        assert kills, "no run was killed in the middle of its commit"
        assert published(tmp_path) == expected(sent)
        require_exact(job.audit(), len(sent))

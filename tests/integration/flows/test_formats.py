"""A job that forks to files of all formats, in folders by fields and by hour.

Each record is published once in each branch after kills in mid-commit, a lost store, and the reprocessing of
rejected records.
"""

from __future__ import annotations

import json
import random
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import duckdb
import pyarrow.orc as pa_orc
import pyarrow.parquet as pq
import pytest
from confluent_kafka import Producer
from pyspark.sql import SparkSession

from distcommit import Job
from distcommit.app.auditing.audit import AuditResult
from tests.jobs.in_commit import killed_in_commit
from tests.jobs.kafka_job import FIRST_DAY_MS, KafkaJob, kafka_job

HOUR_MS = 3_600_000
KINDS = ["a", "b/c", "ü", "", None]
FLOW: dict[str, Any] = {
    "sink": None,
    "on_rejected": "divert",
    "converters": [{"type": "json", "keep_column": False, "fields": {"n": "int64", "kind": "string"}}],
    "fork": {
        "type": "all",
        "branches": {
            "hourly": {
                "sink": {
                    "partition_by": {"granularity": "hour"},
                    "sort_by": [{"column": "n", "order": "descending"}],
                    "columns": {"n": {"encoding": "delta_binary_packed"}, "kind": {"bloom_filter": True}},
                }
            },
            "lines": {
                "sink": {
                    "format": "jsonl",
                    "compression": "gzip",
                    "partition_by": [{"field": "kind"}, {"granularity": "day"}],
                }
            },
            "table": {
                "converters": [{"type": "drop", "columns": ["headers"]}],
                "sink": {"format": "csv", "compression": "gzip", "sort_by": [{"column": "n"}]},
            },
            "orc": {
                "sink": {
                    "format": "orc",
                    "partition_by": {"field": "kafka_partition"},
                    "columns": {"kind": {"bloom_filter": True}},
                }
            },
        },
    },
}
Sent = Counter[tuple[int, str | None]]


def produce(job: KafkaJob, records: int, seed: int) -> Sent:
    """Send records, some of which are not JSON, to each topic, and return the expected records of each branch."""
    chance, sent = random.Random(seed), Sent()
    producer = Producer({"bootstrap.servers": job.broker.bootstrap_servers})
    for topic in job.topics:
        for _ in range(records):
            number, kind = chance.randrange(1000), chance.choice(KINDS)
            value, time_ms = (
                json.dumps({"n": number, "kind": kind}).encode(),
                FIRST_DAY_MS + chance.randrange(30) * HOUR_MS,
            )
            if chance.randrange(10) == 0:
                value = b"no JSON"
            else:
                sent[number, kind] += 1
            producer.produce(topic, value, partition=0, timestamp=time_ms)
            job.produced += 1
    assert producer.flush(30) == 0
    return sent


def published(folder: Path) -> dict[str, Sent]:
    """Return the content of each branch's files, read independently of the audit."""
    content = {name: Sent() for name in ("hourly", "lines", "table", "orc")}
    for path in (folder / "output").glob("t*/hourly/*/*.parquet"):
        columns = pq.read_table(path, partitioning=None).select(["n", "kind"]).to_pydict()
        assert columns["n"] == sorted(columns["n"], reverse=True)
        content["hourly"].update(zip(columns["n"], columns["kind"], strict=True))
    for path in (folder / "output").glob("t*/orc/kafka_partition=0/*.orc"):
        columns = pa_orc.read_table(path).to_pydict()
        content["orc"].update(zip(columns["n"], columns["kind"], strict=True))
    duck = duckdb.connect()
    types = "allow_quoted_nulls = false, types = {'n': 'BIGINT', 'kind': 'VARCHAR'}, union_by_name = true"
    for branch, read in (
        ("lines", f"read_json('{folder}/output/t*/lines/*/*/*.jsonl.gz', hive_partitioning = false)"),
        ("table", f"read_csv('{folder}/output/t*/table/*.csv.gz', {types})"),
    ):
        content[branch].update((n, kind) for n, kind in duck.execute(f"SELECT n, kind FROM {read}").fetchall())
    return content


def require_exact(job: KafkaJob, sent: Sent, audit: AuditResult) -> None:
    content = published(job.folder)
    assert content == dict.fromkeys(content, sent)
    for branch in content:
        rows = [row for row in audit.partitions if row.branch == branch]
        assert sum(row.published + row.rejected for row in rows) >= job.produced, branch
    audit.partitions = []
    assert audit.exact, audit
    assert audit.files_without_sum == 0


def test_each_format_has_each_record_once_also_after_a_lost_store_and_reprocessing(
    tmp_path: Path, spark: SparkSession
) -> None:
    with kafka_job(tmp_path, {"t0": 1, "t1": 1}, **FLOW) as job:
        sent = produce(job, 60, 1)
        assert Job.from_file(job.path, session=spark).run().succeeded
        sent += produce(job, 20, 2)
        assert Job.from_file(job.path, session=spark).run().succeeded
        require_exact(job, sent, job.audit())
        before = Job.from_file(job.path).status()
        shutil.rmtree(tmp_path / "store")
        assert Job.from_file(job.path).rebuild().written
        after = Job.from_file(job.path).status()
        assert [row.positions for row in after.datasets] == [row.positions for row in before.datasets]
        require_exact(job, sent, job.audit())
        converters = [{**FLOW["converters"][0], "column": "again"}]
        job.write(converters=[{"type": "sql", "columns": {"again": "'{\"n\": -1}'"}}, *converters])
        wrong = job.audit().rejected
        assert wrong > 0
        for topic in job.topics:
            assert Job.from_file(job.path, session=spark).reprocess(topic).succeeded
        sent[-1, None] += wrong
        require_exact(job, sent, job.audit())
        assert job.audit().rejected == 0


def test_other_readers_agree_with_spark_about_folders_and_files(tmp_path: Path, spark: SparkSession) -> None:
    with kafka_job(tmp_path, {"t0": 1}, **FLOW) as job:
        sent = produce(job, 60, 1)
        assert Job.from_file(job.path, session=spark).run().succeeded
    output, total = tmp_path / "output" / "t0", sum(sent.values())
    frames = {
        "hourly": spark.read.option("recursiveFileLookup", True).parquet(f"{output}/hourly"),
        "lines": spark.read.option("basePath", f"{output}/lines").json(f"{output}/lines/*/*"),
        "table": spark.read.options(header=True, emptyValue="").csv(f"{output}/table"),
        "orc": spark.read.orc(f"{output}/orc"),
    }
    for branch, frame in frames.items():
        assert frame.count() == total, branch
        assert sum(int(row.n) for row in frame.select("n").collect()) == sum(n * c for (n, _), c in sent.items()), (
            branch
        )
    assert filters_by_orc_itself(spark, output / "orc") == {"kind"}
    for kind in filter(None, KINDS):
        required = sum(count for (_, sent_kind), count in sent.items() if sent_kind == kind)
        assert frames["orc"].where(frames["orc"].kind == kind).count() == required, "no filter hides existing values"
    kinds = {row.kind for row in frames["lines"].select("kind").distinct().collect()}
    assert kinds == {kind or None for kind in KINDS}


def filters_by_orc_itself(spark: SparkSession, folder: Path) -> set[str]:
    """Return the columns with Bloom filters, by Apache ORC's own reader in Spark's process."""
    java: Any = spark._jvm
    columns = set[str]()
    for path in folder.rglob("*.orc"):
        options = java.org.apache.orc.OrcFile.readerOptions(java.org.apache.hadoop.conf.Configuration())
        reader = java.org.apache.orc.OrcFile.createReader(java.org.apache.hadoop.fs.Path(str(path)), options)
        for stripe in reader.getStripes():
            streams = reader.rows().readStripeFooter(stripe).getStreamsList()
            numbers = {item.getColumn() for item in streams if item.getKind().toString() == "BLOOM_FILTER_UTF8"}
            columns |= {reader.getSchema().findSubtype(number).getFullFieldName() for number in numbers}
    return columns


def test_sink_that_cannot_hold_the_columns_is_refused_before_the_run(tmp_path: Path) -> None:
    with kafka_job(tmp_path, {"t0": 1}, sink={"format": "csv"}) as job:
        job.produce(3)
        code, _, errors = job.cli("run")
    assert code == 2
    assert "column=headers" in errors
    assert not (tmp_path / "output" / "t0").exists()


@pytest.mark.slow
@pytest.mark.long
def test_all_formats_killed_in_mid_commit_are_exact_in_the_end(tmp_path: Path) -> None:
    with kafka_job(tmp_path, {f"t{n}": 1 for n in range(6)}, **FLOW, commit={"min_interval_ms": 60_000}) as job:
        sent, kills = produce(job, 20, 1), 0
        for seed in (2, 3):
            kills += killed_in_commit(job.path, job.start)
            sent += produce(job, 5, seed)
        job.run()
        assert kills, "no run was killed in the middle of its commit"
        require_exact(job, sent, job.audit())
        shutil.rmtree(tmp_path / "store")
        assert Job.from_file(job.path).rebuild().written
        require_exact(job, sent, job.audit())

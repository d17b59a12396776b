"""`distcommit dataset reprocess` of a topic's rejected records, killed in its midst, and the requests that it
refuses."""

from __future__ import annotations

import random
import re
import signal
import sqlite3
import time
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml
from confluent_kafka import Producer
from pyspark.sql import SparkSession

from distcommit import Job
from distcommit.app.demo.killed_run import RunProcess
from distcommit.core.errors import ConfigurationError, ConflictError
from distcommit.core.records.read_failure_records import DatasetReadFailure
from distcommit.core.support.io_batching import run_alone
from distcommit.core.watermark import Watermark
from distcommit.protocol import next_log_record
from distcommit.stores.operator import operator_actions
from distcommit.stores.state.job_store import JobStore
from tests.jobs.kafka_job import KafkaJob, kafka_job
from tests.jobs.victims import strike

WITHOUT_MESSAGE = [{"type": "json", "fields": {"n": "int64"}}]
WITH_TEXT = [{"type": "json", "fields": {"n": "string"}}]
RECORDS = 300


def produce(job: KafkaJob, topic: str, *values: bytes, partition: int = 0) -> None:
    producer = Producer({"bootstrap.servers": job.broker.bootstrap_servers})
    for value in values:
        producer.produce(topic, value, key=b"k", headers=[("h", b"1")], partition=partition)
    assert producer.flush(30) == 0
    job.produced += len(values)


def produce_rejected_records(job: KafkaJob) -> None:
    """Produce records of dataset `bad`: every third has text instead of a number, and one is not JSON."""
    produce(job, "good", b'{"n":1}')
    produce(job, "bad", *(b'{"n":1}' if n % 3 else b'{"n":"two"}' for n in range(RECORDS)), b"not json")
    code, result, errors = job.cli("run")
    assert (code, result["totals"]["records_rejected"]) == (0, RECORDS // 3 + 1), errors[-3000:]
    job.assert_exact()


def killed_once(job: KafkaJob, pattern: str, what: str) -> None:
    """Kill the command as soon as such a file exists."""
    command = ["dataset", "reprocess", str(job.path), what, "--json"]
    with RunProcess(command, job.folder / "killed.out", job.folder / "killed.err") as run:
        deadline_s = time.monotonic() + 120
        while not list(job.folder.glob(pattern)) and time.monotonic() < deadline_s:
            assert run.wait(0.002) is None, run.stderr.read_text()[-3000:]
        assert strike(run, "all", signal.SIGKILL, random.Random(1))


def rejected(job: KafkaJob) -> int:
    return job.audit().rejected


@pytest.mark.slow
@pytest.mark.parametrize(
    ("pattern", "what"),
    [
        pytest.param("staging/*/bucket=*/*/tombstone/*", "bad", marks=pytest.mark.long),
        ("output/_rejected/bad/_*", "--all"),
    ],
)
def test_killed_reprocess_leaves_each_record_in_one_place(tmp_path: Path, pattern: str, what: str) -> None:
    with kafka_job(tmp_path, {"good": 1, "bad": 1}, converters=WITHOUT_MESSAGE, on_rejected="divert") as job:
        produce_rejected_records(job)
        job.write(converters=WITH_TEXT, readers={"kept_snapshots": 2})
        killed_once(job, pattern, what)
        produce(job, "bad", b'{"n":"three"}')
        code, result, errors = job.cli("run")
        assert code == 0, errors[-3000:]
        job.assert_exact()
        assert rejected(job) in (1, RECORDS // 3 + 1)
        code, result, errors = job.cli("dataset reprocess", what)
        assert (code, result["totals"]["records_rejected"]) == (0, 1), errors[-3000:]
        job.assert_exact()
        assert rejected(job) == 1
        assert job.cli("run")[0] == 0
        job.assert_exact()
        assert list(tmp_path.glob("output/_rejected/bad/_*")) == []
        assert len(list(tmp_path.glob("output/_rejected/bad/*.parquet"))) == 1


def test_reprocessed_records_keep_kafka_s_columns(tmp_path: Path, spark: SparkSession) -> None:
    with kafka_job(tmp_path, {"bad": 1}, converters=WITHOUT_MESSAGE, on_rejected="divert") as job:
        produce(job, "bad", b'{"n":1}', b'{"n":"two"}')
        assert Job.from_file(job.path, session=spark).run().succeeded
        job.write(converters=WITH_TEXT)
        produce(job, "bad", b'{"n":"two"}')
        assert Job.from_file(job.path, session=spark).reprocess("bad").totals.records_published == 1
        errors = spark.read.parquet(str(tmp_path / "output" / "_rejected" / "bad"))
        assert errors.count() == 1, "readers of tables pass over the tombstone"
        assert Job.from_file(job.path, session=spark).run().succeeded
        job.assert_exact()
        tables = [spark.read.parquet(str(path)).drop("kafka_offset", "kafka_timestamp") for path in data(tmp_path)[1:]]
        first, second = (table.collect() for table in tables)
        assert first == second
        assert tables[0].schema == tables[1].schema


def test_an_upsert_keeps_the_newest_row_when_older_ones_are_reprocessed_twice(
    tmp_path: Path, spark: SparkSession
) -> None:
    """The run that reads a row of another partition compares it, also once it was rejected again."""
    flow: dict[str, Any] = {
        "converters": [{"type": "json", "fields": {"k": "string", "v": "string"}}],
        "on_rejected": "divert",
        "sink": {"type": "sqlite", "path": str(tmp_path / "rows.db"), "mode": "upsert", "keys": ["k"]},
    }
    digits = [{"type": "regex", "column": "v", "pattern": "[0-9]+"}]
    with kafka_job(tmp_path, {"t": 2}) as job:
        job.path.write_text(yaml.safe_dump({**job.config, **flow, "row_checkers": digits}))
        rejected_of_a, rejected_of_b, rejected_of_c = (b'{"k":"%c","v":"mended"}' % key for key in b"abc")
        produce(job, "t", rejected_of_a, b'{"k":"a","v":"2"}', b'{"k":"b","v":"1"}', rejected_of_b, rejected_of_c)
        assert Job.from_file(job.path, session=spark).run().totals.records_rejected == 3
        produce(job, "t", b'{"k":"c","v":"3"}', partition=1)
        assert Job.from_file(job.path, session=spark).run().totals.records_rejected == 0
        again = Job.from_file(job.path, session=spark).reprocess("t")
        assert (again.succeeded, again.totals.records_rejected) == (True, 3)
        job.path.write_text(yaml.safe_dump({**job.config, **flow}))
        assert Job.from_file(job.path, session=spark).reprocess("t").totals.records_published == 3
        with closing(sqlite3.connect(tmp_path / "rows.db")) as file:
            assert file.execute("SELECT k, v FROM t ORDER BY 1").fetchall() == [("a", "2"), ("b", "mended"), ("c", "3")]
        job.assert_exact()


def data(folder: Path) -> list[Path]:
    """Return the published files of records, the oldest first."""
    return sorted((folder / "output" / "bad").rglob("*.parquet"), key=lambda path: path.name)


def test_refused_reprocess_is_reported_and_changes_nothing(tmp_path: Path, spark: SparkSession) -> None:
    with kafka_job(tmp_path, {"good": 1, "bad": 1}, converters=WITHOUT_MESSAGE, on_rejected="divert") as job:
        with pytest.raises(ConfigurationError, match="the store does not exist"):
            Job.from_file(job.path).reprocess("bad")
        produce(job, "good", b'{"n":1}')
        produce(job, "bad", b"not json")
        assert Job.from_file(job.path, session=spark).run().succeeded
        before = files(tmp_path)
        for urn, reason in {"good": "nothing to reprocess", "none": "does not know this dataset"}.items():
            with pytest.raises(ConfigurationError, match=reason):
                Job.from_file(job.path).reprocess(urn)
        at_least_once = ["commit.delivery=at_least_once"]
        replacing = ["sink.publish=replace_partitions", "sink.partition_by=[{field: kafka_partition}]"]
        table = ["sink.type=sqlite", f"sink.path={tmp_path}/rows.db", "sink.mode=replace"]
        for settings, reason in (
            (at_least_once, "at least once can't reprocess.*To do: set commit.delivery to exactly_once"),
            (table, "mode is replace can't reprocess.*To do: set mode to append"),
            (replacing, "replaces partitions can't reprocess.*To do: correct the job or its source, and read"),
        ):
            code, _, errors = job.cli(
                "dataset reprocess", "--all", *(word for name in settings for word in ("--set", name))
            )
            assert code == 2
            assert re.search(reason, " ".join(errors.split())), errors
            with pytest.raises(ConfigurationError, match=reason):
                Job.from_file(job.path, settings).reprocess("bad")
        for words in (["good"], [], ["bad", "--all"]):
            code, _, errors = job.cli("dataset reprocess", *words)
            assert code == 2
            assert "Traceback" not in errors
        assert files(tmp_path) == before
        stop(Job.from_file(job.path).open_store(create=False), "bad")
        with pytest.raises(
            ConflictError, match=r"no run plans this dataset.*release the dataset with retry; then reprocess"
        ):
            Job.from_file(job.path).reprocess("bad")


def stop(store: JobStore, urn: str) -> None:
    """Stop the dataset by a run that could not read it."""
    log = store.bucket_log(store.bucket_of(urn))
    epoch, low = log.refresh().fence_epoch + 1, log.refresh().state_of(urn).watermark
    run_alone(log.settle(partial(next_log_record.fence, epoch=epoch, run_id="another")))
    failures = [DatasetReadFailure(urn, low, Watermark({"0": 9}), "SourceError: gone")]
    run_alone(log.settle(partial(next_log_record.read_failures, epoch=epoch, failures=failures, stop_after=1)))


@pytest.mark.slow
def test_records_of_an_open_sequence_are_not_reprocessed(tmp_path: Path) -> None:
    with kafka_job(tmp_path, {"good": 1, "bad": 1}, converters=WITHOUT_MESSAGE, on_rejected="divert") as job:
        produce_rejected_records(job)
        killed_once(job, "output/_rejected/bad/_*", "bad")
        store = Job.from_file(job.path).open_store(create=False)
        status = {row.dataset: row.status for row in Job.from_file(job.path).status().datasets}["bad"]
        if status == "pending":  # otherwise it was not caught in time
            with pytest.raises(ConflictError, match=r"between its sequences.*pending"):
                Job.from_file(job.path).reprocess("bad")
            operator_actions.quarantine(store, "bad", "me")
            with pytest.raises(ConflictError, match=r"between its sequences.*quarantined"):
                Job.from_file(job.path).reprocess("bad")
            operator_actions.abandon(store, "bad", "me")
            job.assert_exact()
            assert rejected(job) == RECORDS // 3 + 1


def files(folder: Path) -> dict[str, Any]:
    return {str(path): path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}

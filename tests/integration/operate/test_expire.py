"""`distcommit dataset expire` by the command line, killed in the middle of its commit and repeated."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from confluent_kafka import Producer
from pyspark.sql import SparkSession

from distcommit import read
from distcommit.app.demo.killed_run import RunProcess
from distcommit.app.jobs.job import Job
from distcommit.core.errors import ConfigurationError, SnapshotExpiredError
from tests.jobs.kafka_job import DAY_MS, FIRST_DAY_MS, KafkaJob, kafka_job

TOPICS = {f"t{number:02d}": 1 for number in range(8)}


def age_of_first_day() -> str:
    """Return an age that the first day of the records exceeds and the second does not."""
    ends_ms = (FIRST_DAY_MS // DAY_MS + 1) * DAY_MS
    return f"{int((time.time() * 1000 - ends_ms) / 3_600_000)}h"


@pytest.mark.slow
def test_expire_killed_in_its_commit_is_finished_by_the_repeated_command(tmp_path: Path, spark: SparkSession) -> None:
    with kafka_job(tmp_path, TOPICS, commit={"min_interval_ms": 0}) as job:
        job.produce(4, days=2)
        here = Job.from_file(job.path, session=spark)
        assert here.run().succeeded
        older, age = read(job.path), age_of_first_day()
        command = ["dataset", "expire", str(job.path), "--older-than", age]
        with RunProcess(command, tmp_path / "killed.out", tmp_path / "killed.err") as run:
            while not run.has_ended and not list(tmp_path.glob("output/_rejected/*/*.tombstone")):
                time.sleep(0.001)
            assert not run.has_ended, run.stderr.read_text()[-3000:]
            run.kill()
        done = here.expire(age)
        assert (done.succeeded, done.deleted) == (True, True), done
        audit = job.audit()
        assert (audit.exact, audit.expired, audit.records) == (True, 16, 16)
        assert {path.parent.name for path in tmp_path.glob("output/t*/*/*.parquet")} == {"2023-11-15"}
        assert all(read(job.path).to_arrow(topic).num_rows == 2 for topic in TOPICS)
        with pytest.raises(SnapshotExpiredError, match="requested the deletion of files older than"):
            older.files()
        assert here.status().expiry_request is not None
        assert here.verify_store().is_well
        job.produce(2, days=2)
        assert here.run().succeeded
        assert job.audit().exact


@pytest.mark.slow
@pytest.mark.long
def test_expire_of_rejected_records_killed_in_mid_work_is_finished_by_the_repeated_command(
    tmp_path: Path, spark: SparkSession
) -> None:
    """Two records of each topic are not JSON; one of them was rejected long ago."""
    converters = [{"type": "json", "fields": {"n": "int64"}}]
    with kafka_job(tmp_path, TOPICS, commit={"min_interval_ms": 0}, converters=converters, on_rejected="divert") as job:
        here, age = Job.from_file(job.path, session=spark), age_of_first_day()
        for written_long_ago in (True, False):
            job.produce(2)
            produce_bad(job)
            assert here.run().succeeded
            for path in tmp_path.glob("output/_rejected/*/*.parquet"):
                if written_long_ago:
                    os.utime(path, (FIRST_DAY_MS / 1000, FIRST_DAY_MS / 1000))
        command = ["dataset", "expire", str(job.path), "--older-than", age]
        with RunProcess(command, tmp_path / "killed.out", tmp_path / "killed.err") as run:
            while not run.has_ended and not list(tmp_path.glob("output/_rejected/*/*.tombstone")):
                time.sleep(0.001)
            assert not run.has_ended, run.stderr.read_text()[-3000:]
            run.kill()
        assert here.expire(age).deleted
        audit = job.audit()
        assert (audit.exact, audit.rejected, audit.expired) == (True, 8, 8 * 5)
        assert len(list(tmp_path.glob("output/_rejected/*/*.parquet"))) == 8
        assert here.reprocess_all().totals.records_read == 8


def produce_bad(job: KafkaJob) -> None:
    """Produce a record that is not JSON, on the first day, to each topic."""
    producer = Producer({"bootstrap.servers": job.broker.bootstrap_servers})
    for topic in job.topics:
        producer.produce(topic, "no JSON", partition=0, timestamp=FIRST_DAY_MS)
        job.produced += 1
    assert producer.flush(60) == 0


def test_expire_is_only_for_files_that_are_appended_or_replaced_by_partition(tmp_path: Path) -> None:
    with kafka_job(tmp_path, {"t": 1}, sink={"partition_by": None, "publish": "replace"}) as job:
        with pytest.raises(ConfigurationError, match=r"sink\.publish: replace"):
            Job.from_file(job.path).expire("1d", dry_run=True)
        job.write(sink={"publish": "append"}, commit={"delivery": "at_least_once"})
        with pytest.raises(ConfigurationError, match="at_least_once"):
            Job.from_file(job.path).expire("1d")
        job.write(sink={"type": "sqlite", "database": str(tmp_path / "db")}, commit={"delivery": "exactly_once"})
    assert not (tmp_path / "store").exists()

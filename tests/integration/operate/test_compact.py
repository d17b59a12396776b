"""`distcommit dataset compact` by the command line: killed in its midst, read at snapshots, and refused jobs."""

from __future__ import annotations

import time
from pathlib import Path

import duckdb
import pyarrow.parquet as pq
import pytest
import yaml
from pyspark.sql import SparkSession

from distcommit import read
from distcommit.app.demo.killed_run import RunProcess
from distcommit.app.jobs.job import Job
from distcommit.core.errors import ConfigurationError
from tests.jobs.kafka_job import KafkaJob, kafka_job

TOPICS = {f"t{number:02d}": 1 for number in range(4)}
DAYS = 2


def data_files(folder: Path) -> list[Path]:
    return sorted(folder.glob("output/t*/*/*.parquet"))


def assert_every_record_is_read_once(job: KafkaJob) -> None:
    job.assert_exact()
    snapshot = read(job.path)
    assert snapshot.to_pyarrow_dataset().count_rows() == job.produced
    for topic in job.topics:
        rows = snapshot.to_duckdb(topic, duckdb.connect()).aggregate("count(*), count(distinct kafka_offset)")
        assert rows.fetchall() == [(job.produced // len(job.topics),) * 2]


def kill_at(job: KafkaJob, pattern: str) -> None:
    """Kill the command as soon as it has made such a file."""
    before = {*job.folder.glob(pattern)}
    command = ["dataset", "compact", str(job.path)]
    with RunProcess(command, job.folder / "killed.out", job.folder / "killed.err") as run:
        while not run.has_ended and before.issuperset(job.folder.glob(pattern)):
            time.sleep(0.001)
        assert not run.has_ended, run.stderr.read_text()[-3000:]
        run.kill()


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_killed_compaction_leaves_each_record_in_one_place(tmp_path: Path, spark: SparkSession) -> None:
    with kafka_job(tmp_path, TOPICS, readers={"kept_snapshots": 2}) as job:
        here = Job.from_file(job.path, session=spark)
        for pattern in ("staging/*/bucket=*/*/merged/*", "staging/*/bucket=*/*/tombstone/*", "output/_rejected/*/_*"):
            for _ in range(2):
                job.produce(4, days=DAYS)
                assert here.run().succeeded
            kill_at(job, pattern)
            job.produce(4, days=DAYS)
            assert here.run().succeeded
            assert_every_record_is_read_once(job)
        code, result, errors = job.cli("dataset compact", "--dry-run")
        assert (code, result["datasets"]) == (0, len(TOPICS)), errors[-3000:]
        assert_every_record_is_read_once(job)
        older = read(job.path)
        done = here.compact()
        assert (done.succeeded, done.files_after) == (True, DAYS * len(TOPICS)), done
        assert done.files_before == result["files_before"]
        assert older.to_pyarrow_dataset().count_rows() == job.produced, "the older snapshot shows the old files"
        assert_every_record_is_read_once(job)
        for _ in range(2):
            assert here.run().succeeded
        assert_every_record_is_read_once(job)
        assert len(data_files(tmp_path)) == DAYS * len(TOPICS)
        assert list(tmp_path.glob("output/_rejected/*/_*")) == []
        assert here.verify_store().is_well
        for path in data_files(tmp_path):
            offsets = pq.read_table(path)["kafka_offset"].to_pylist()
            assert offsets == sorted(offsets)


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.timeout(300)
def test_killed_compaction_by_the_policy_of_the_job_file_leaves_each_record_in_one_place(
    tmp_path: Path, spark: SparkSession
) -> None:
    policy = {"min_files": 3, "after": "1s"}
    with kafka_job(tmp_path, TOPICS, readers={"kept_snapshots": 2}, compact=policy) as job:
        here = Job.from_file(job.path, session=spark)
        assert here.run().succeeded
        for pattern in ("staging/*/bucket=*/*/merged/*", "output/_rejected/*/_*"):
            while here.compact(dry_run=True).datasets < len(TOPICS):
                job.produce(4, days=DAYS)
                assert here.run().succeeded
            kill_at(job, pattern)
            job.produce(4, days=DAYS)
            assert here.run().succeeded
            assert_every_record_is_read_once(job)
        assert here.compact().succeeded
        for _ in range(2):
            assert here.run().succeeded
        assert len(data_files(tmp_path)) <= 2 * DAYS * len(TOPICS), "two files are too few for the policy"
        assert_every_record_is_read_once(job)
        assert here.verify_store().is_well


def test_policy_of_the_job_file_leaves_files_that_are_few_or_young(tmp_path: Path, spark: SparkSession) -> None:
    with kafka_job(tmp_path, {"t": 1}, sink={"partition_by": None}) as job:
        for _ in range(2):
            job.produce(1)
            assert Job.from_file(job.path, session=spark).run().succeeded

        def datasets(**policy: object) -> int:
            job.write(compact=policy or None)
            code, result, errors = job.cli("dataset compact", "--dry-run")
            assert code == 0, errors[-3000:]
            return int(result["datasets"])

        assert datasets() == 1, "a command without a policy merges two files of any age"
        time.sleep(0.2)
        assert datasets(min_files=2, after=0.1) == 1
        assert datasets(min_files=3, after=0.1) == 0
        assert datasets(min_files=2, after="1h") == 0
        job.write(compact={"min_files": 3, "after": 0.1})
        assert Job.from_file(job.path, session=spark).compact().datasets == 0
        assert_every_record_is_read_once(job)


@pytest.mark.slow
def test_store_is_rebuilt_from_the_footers_of_merged_files(tmp_path: Path, spark: SparkSession) -> None:
    with kafka_job(tmp_path, TOPICS, readers={"kept_snapshots": 2}) as job:
        here = Job.from_file(job.path, session=spark)
        for _ in range(3):
            job.produce(4, days=DAYS)
            assert here.run().succeeded
        assert here.compact(["t00", "t01"]).datasets == 2
        for _ in range(2):
            assert here.run().succeeded
        assert len(data_files(tmp_path)) == DAYS * (1 + 1 + 3 + 3)
        (tmp_path / "store").rename(tmp_path / "lost")
        code, _, errors = job.cli("store rebuild")
        assert code == 0, errors[-3000:]
        job.produce(4, days=DAYS)
        assert here.run().succeeded
        assert_every_record_is_read_once(job)


def test_compact_is_only_for_files_that_are_appended_exactly_once(tmp_path: Path) -> None:
    with kafka_job(tmp_path, {"t": 1}, sink={"publish": "replace_partitions"}) as job:
        with pytest.raises(ConfigurationError, match=r"sink\.publish: replace_partitions"):
            Job.from_file(job.path).compact(dry_run=True)
        job.write(sink={"publish": "append"}, commit={"delivery": "at_least_once"})
        with pytest.raises(ConfigurationError, match="at_least_once"):
            Job.from_file(job.path).compact()
        to_table = {"sink": {"type": "sqlite", "path": str(tmp_path / "db")}, "commit": {"buckets": 8}}
        job.path.write_text(yaml.safe_dump({**job.config, **to_table}))
        with pytest.raises(ConfigurationError, match="whose sink is not `files`"):
            Job.from_file(job.path).compact()
    assert not (tmp_path / "store").exists()

"""Jobs with the store on another file system than staging and output: killed, run again, audited, read, and refused."""

from __future__ import annotations

import random
import shutil
import time
import uuid
from pathlib import Path

import pytest

import distcommit
from distcommit import Job
from distcommit.app.demo.killed_run import CommitWatcher
from tests.jobs.in_commit import killed_in_commit
from tests.jobs.kafka_job import KafkaJob, kafka_job
from tests.servers.hdfs import HdfsServer
from tests.servers.s3 import S3Server

TOPICS = {f"t{number:02d}": 2 for number in range(8)}


@pytest.fixture
def bucket(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> str:
    for name, value in s3_server.environment.items():
        monkeypatch.setenv(name, value)
    return s3_server.make_bucket()


def kill_twice_and_finish(job: KafkaJob, seed: int) -> None:
    """Kill a run at a random moment and another one in its commit. Then run to the end and audit."""
    job.has_own_processes = True
    job.produce(4, days=2)
    watcher = CommitWatcher(Job.from_file(job.path).open_store(create=True))
    with job.start() as run:
        while not run.has_ended and not watcher.run_has_begun():
            time.sleep(0.05)
        assert not run.has_ended, run.stderr.read_text()[-3000:]
        time.sleep(random.Random(seed).uniform(0, 6))
        run.kill()
    job.produce(2, days=2)
    assert killed_in_commit(job.path, job.start)
    store = Job.from_file(job.path).open_store(create=False)
    logs = [store.bucket_log(bucket) for bucket in range(store.buckets)]
    pending = sum(len(list(log.refresh().pending())) for log in logs)
    assert pending
    assert job.run()["totals"]["sequences_replayed"] == pending
    job.assert_exact()


@pytest.mark.slow
def test_killed_runs_with_a_local_store_and_output_on_s3_are_exact(tmp_path: Path, bucket: str) -> None:
    with kafka_job(tmp_path, TOPICS, commit={"min_interval_ms": 0, "buckets": 4}) as job:
        data = {name: f"s3://{bucket}/jobs/clicks/{name}" for name in ("staging", "output")}
        job.write(paths={"store": str(tmp_path / "store"), **data})
        kill_twice_and_finish(job, 1)
        by_job = distcommit.read(job.path)
        by_folders = distcommit.read({"store": str(tmp_path / "store"), "output": data["output"]})
        assert by_job.to_arrow().num_rows == by_folders.to_arrow().num_rows == job.produced

        # a second store of the same output
        job.write(paths={"store": str(tmp_path / "other"), **data})
        code, _, errors = job.cli("run")
        assert (code, "FOLDER_OF_ANOTHER_STORE" in errors) == (5, True), errors
        assert not (tmp_path / "other" / "store.json").exists()
        job.write(paths={"store": str(tmp_path / "other"), **data}, job="second")
        code, _, errors = job.cli("run")
        assert (code, "FOLDER_OF_ANOTHER_JOB" in errors) == (2, True), errors

        # the lost store is rebuilt from the output
        job.write(paths={"store": str(tmp_path / "store"), **data}, job="test")
        shutil.rmtree(tmp_path / "store")
        code, report, errors = job.cli("store rebuild")
        assert (code, report["written"]) == (0, True), errors
        shutil.copytree(tmp_path / "store", tmp_path / "moved")
        shutil.rmtree(tmp_path / "store")
        job.write(paths={"store": str(tmp_path / "moved"), **data})
        job.produce(1)
        assert job.run()["succeeded"]
        job.assert_exact()


@pytest.mark.slow
def test_killed_runs_with_a_store_on_hdfs_and_output_on_s3_are_exact(
    tmp_path: Path, bucket: str, hdfs_server: HdfsServer
) -> None:
    with kafka_job(tmp_path, TOPICS, commit={"min_interval_ms": 0, "buckets": 4}) as job:
        name = uuid.uuid4().hex
        data = {folder: f"s3://{bucket}/{name}/{folder}" for folder in ("staging", "output")}
        job.write(paths={"store": f"hdfs://{hdfs_server.authority}/jobs/{name}/store", **data})
        kill_twice_and_finish(job, 2)


@pytest.mark.slow
def test_killed_runs_with_a_store_on_hdfs_and_local_output_are_exact(tmp_path: Path, hdfs_server: HdfsServer) -> None:
    with kafka_job(tmp_path, TOPICS, commit={"min_interval_ms": 0, "buckets": 4}) as job:
        folders = {"store": f"hdfs://{hdfs_server.authority}/jobs/{uuid.uuid4().hex}/store"}
        job.write(paths={**folders, "staging": "staging", "output": "output"})
        kill_twice_and_finish(job, 3)

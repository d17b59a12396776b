"""The main job on clusters: a lost worker of a standalone cluster, twin tasks, executors without the package, and
Spark Connect."""

from __future__ import annotations

import contextlib
import random
import shutil
import signal
import sys
import sysconfig
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from distcommit import Job
from distcommit.app.demo.killed_run import CommitWatcher, RunProcess
from distcommit.core.errors import DistcommitError
from tests.integration.parts.held_source import HELD
from tests.jobs.kafka_job import PACKAGE_ROOT, KafkaJob, kafka_job
from tests.jobs.victims import strike
from tests.servers.spark import SparkCluster, SparkConnectServer

TOPICS = {f"t{n:02d}": 2 for n in range(40)}


def on(cluster: SparkCluster, **conf: str) -> dict[str, Any]:
    """Return the job file's `spark` section for the cluster; executors import the package and the tests from this
    folder."""
    always = {
        "spark.driver.host": "127.0.0.1",
        "spark.executor.memory": "512m",
        "spark.executorEnv.PYTHONPATH": str(PACKAGE_ROOT),
    }
    return {"master": cluster.master, "partitions": 8, "conf": {**always, **conf}}


def until_it_commits(job: KafkaJob, run: RunProcess, watcher: CommitWatcher) -> None:
    """Wait until some dataset is sealed and not closed."""
    while not watcher.run_has_begun():
        assert run.wait(0.05) is None, run.stderr.read_text()[-3000:]
    pending = False
    while not pending:
        assert run.wait(0.001) is None, "the run ended before a commit was seen"
        with contextlib.suppress(DistcommitError, OSError):  # an outside reader may meet a log that is being truncated
            pending = bool(watcher.pending())


@pytest.mark.long
@pytest.mark.slow
def test_worker_lost_in_mid_commit_leaves_the_run_exact(tmp_path: Path, spark_cluster: SparkCluster) -> None:
    """SIGKILL hits a worker with its executor and their Python workers; the same run ends exactly."""
    with kafka_job(tmp_path, TOPICS, commit={"min_interval_ms": 0}, spark=on(spark_cluster)) as job:
        job.produce(4, days=3)
        watcher = CommitWatcher(Job.from_file(job.path).open_store(create=True))
        with job.start() as run:
            until_it_commits(job, run, watcher)
            spark_cluster.kill_worker(1)
            try:
                assert run.wait(200) == 0, run.stderr.read_text()[-3000:]
            finally:
                spark_cluster.start_worker(1)
        job.assert_exact()


def write_held_job(folder: Path, spark: dict[str, Any]) -> Path:
    """Write a job of a hundred datasets, one of which waits for the file `release`."""
    source = {
        "type": "python",
        "class": "tests.integration.parts.held_source:HeldSource",
        "options": {"release": str(folder / "release")},
    }
    job = {"job": "held", "source": source, "paths": {name: name for name in ("store", "staging", "output")}}
    path = folder / "job.yaml"
    path.write_text(yaml.safe_dump({**job, "spark": spark}))
    return path


@pytest.mark.slow
def test_a_speculative_twin_reads_and_commits_beside_the_task(tmp_path: Path, spark_cluster: SparkCluster) -> None:
    """The twin runs on the other worker. Both wait for the same file, then both continue, and one attempt wins."""
    speculation = {
        "spark.speculation": "true",
        "spark.speculation.interval": "100ms",
        "spark.speculation.multiplier": "1.01",
        "spark.speculation.quantile": "0.5",
    }
    path = write_held_job(tmp_path, on(spark_cluster, **speculation))
    with RunProcess(["run", str(path), "--json"], tmp_path / "out", tmp_path / "err") as run:
        deadline_s = time.monotonic() + 200
        attempts: list[int] = []
        while 2 not in attempts and time.monotonic() < deadline_s:
            assert run.wait(0.2) is None, (tmp_path / "err").read_text()[-3000:]
            folders = [p.name.partition(".")[0] for p in tmp_path.glob("staging/*/bucket=*/*.*")]
            attempts = [folders.count(unit) for unit in set(folders)]
        assert 2 in attempts, "no task was started twice"
        (tmp_path / "release").touch()
        assert run.wait(200) == 0, (tmp_path / "err").read_text()[-3000:]
    audit = Job.from_file(path).audit(deep=True)
    assert audit.exact
    assert (audit.datasets, audit.records) == (100, 199)
    assert HELD in {row.dataset for row in audit.partitions}


@pytest.mark.long
@pytest.mark.slow
def test_dynamically_allocated_executors_leave_the_run_exact(tmp_path: Path, spark_cluster: SparkCluster) -> None:
    """Dynamic allocation ends idle executors between the Spark jobs of a run and requests new ones."""
    conf = {
        "spark.dynamicAllocation.enabled": "true",
        "spark.dynamicAllocation.minExecutors": "0",
        "spark.dynamicAllocation.executorIdleTimeout": "1s",
        "spark.executor.cores": "1",
    }
    with kafka_job(tmp_path, TOPICS, spark=on(spark_cluster, **conf)) as job:
        for _ in range(2):
            job.produce(3, days=2)
            job.run()
        job.assert_exact()


def python_without_distcommit(folder: Path) -> Path:
    """Return a Python with all dependencies of the package but without the package, from any working folder."""
    site = folder / "site"
    site.mkdir()
    for place in {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}:
        for entry in Path(place).iterdir():
            if "distcommit" not in entry.name and not (site / entry.name).exists():
                (site / entry.name).symlink_to(entry)
    python = folder / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH="{site}" exec "{sys.executable}" -S -P "$@"\n')
    python.chmod(0o755)
    return python


@pytest.mark.long
@pytest.mark.slow
def test_executors_without_the_package_are_an_error_with_a_remedy(tmp_path: Path) -> None:
    """Nothing is read, and the next run, whose executors have the package, is exact."""
    python = python_without_distcommit(tmp_path)
    with kafka_job(tmp_path, {"a": 1}) as job:
        job.has_own_processes = True
        job.produce(3)
        code, _, errors = job.cli("run", "--set", f"spark.conf={{spark.pyspark.python: {python}}}")
        assert code == 2, errors[-3000:]
        error = errors[errors.rindex("error: ") :]
        assert "No module named 'distcommit'" in error
        assert f"python={python}" in error
        for way in ("spark.pyspark.python", "spark.submit.pyFiles", "spark.archives"):
            assert way in error
        job.run()
        job.assert_exact()


@pytest.mark.slow
def test_package_is_sent_to_executors_with_the_job(tmp_path: Path, spark_cluster: SparkCluster) -> None:
    """Executors have the dependencies of the package and receive the package itself as a zip."""
    package = shutil.make_archive(str(tmp_path / "distcommit"), "zip", PACKAGE_ROOT, "distcommit")
    spark = on(spark_cluster, **{"spark.submit.pyFiles": package})
    spark["conf"]["spark.pyspark.python"] = str(python_without_distcommit(tmp_path))
    with kafka_job(tmp_path, {"a": 2, "b": 1}, spark=spark) as job:
        job.produce(5)
        job.run()
        job.assert_exact()


@pytest.mark.slow
def test_main_job_is_exact_over_spark_connect(tmp_path: Path, spark_connect: SparkConnectServer) -> None:
    """A client without a JVM runs the same job; its number of tasks must be set."""
    with kafka_job(tmp_path, TOPICS, spark={"remote": spark_connect.remote}) as job:
        job.produce(3, days=2)
        code, _, errors = job.cli("run")
        assert code == 2
        assert "spark.partitions above 0" in errors
        job.write(spark={"partitions": 4})
        assert job.run()["totals"]["datasets_published"] == len(TOPICS)
        job.assert_exact()


@pytest.mark.long
@pytest.mark.slow
def test_connect_client_killed_in_mid_commit_is_exact_after_the_next_run(
    tmp_path: Path, spark_connect: SparkConnectServer
) -> None:
    """The killed client's tasks continue at the server beside those of the next run."""
    spark = {"remote": spark_connect.remote, "partitions": 4}
    with kafka_job(tmp_path, TOPICS, commit={"min_interval_ms": 0}, spark=spark) as job:
        for _ in range(3):
            job.produce(4, days=3)
            watcher = CommitWatcher(Job.from_file(job.path).open_store(create=True))
            with job.start() as run:
                until_it_commits(job, run, watcher)
                assert strike(run, "all", signal.SIGKILL, random.Random(1))
            job.run()
            job.assert_exact()


@pytest.mark.slow
def test_missing_connect_server_is_a_clear_error(tmp_path: Path) -> None:
    with kafka_job(tmp_path, {"a": 1}, spark={"remote": "sc://127.0.0.1:9", "partitions": 1}) as job:
        code, _, errors = job.cli("run")
        assert code == 2
        assert "the Spark Connect server does not respond [remote=sc://127.0.0.1:9]" in errors

"""Streaming queries that commit their micro-batches by a job, started again from their checkpoints."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from distcommit import Job
from distcommit.app.demo.killed_run import CommitWatcher
from distcommit.core.errors import ConfigurationError
from distcommit.protocol.paths.shared_names import OWNERSHIP_FOLDER
from tests.integration.parts.stream_job import DATASETS, produce, start, write_job
from tests.jobs.kafka_job import PACKAGE_ROOT, kafka_job


def published(folder: Path) -> list[int]:
    """Return the number of each published row, and check its dataset."""
    numbers: list[int] = []
    for path in (folder / "output").rglob("*.parquet"):
        table = pq.read_table(path, partitioning=None)
        assert set(table["shop"].to_pylist()) == {path.relative_to(folder / "output").parts[0]}
        numbers += table["n"].to_pylist()
    return sorted(numbers)


@pytest.mark.slow
def test_repeated_micro_batch_publishes_nothing_twice(tmp_path: Path, spark: SparkSession) -> None:
    """First the query dies after a commit that its checkpoint does not know.

    Then a dataset cannot be published, and the query ends with the others committed. The query is started again each
    time.
    """
    job = Job.from_file(write_job(tmp_path))
    for batch in range(2):
        produce(tmp_path, batch * 100, 100)
    calls: list[int] = []

    def dies_after_its_commit(batch: DataFrame, batch_id: int) -> None:
        job.on_batch(batch, batch_id)
        calls.append(batch_id)
        if calls == [0, 1]:
            raise RuntimeError("power cut")

    with pytest.raises(StreamingQueryException, match="power cut"):
        start(tmp_path, spark, dies_after_its_commit).awaitTermination()
    assert published(tmp_path) == list(range(200))
    start(tmp_path, spark, dies_after_its_commit).awaitTermination()
    assert calls == [0, 1, 1]
    assert published(tmp_path) == list(range(200))

    produce(tmp_path, 200, 50)
    blocked, aside = tmp_path / "output" / "shop-03", tmp_path / "aside"
    blocked.rename(aside)
    blocked.write_text("no folder")
    with pytest.raises(StreamingQueryException, match="not committed as a whole"):
        start(tmp_path, spark, dies_after_its_commit).awaitTermination()
    blocked.unlink()
    aside.rename(blocked)
    assert len(published(tmp_path)) == 250 - len(range(203, 250, DATASETS))
    start(tmp_path, spark, dies_after_its_commit).awaitTermination()
    assert calls == [0, 1, 1, 2]
    assert published(tmp_path) == list(range(250))
    audit = job.audit(deep=True)
    assert (audit.exact, audit.records, audit.datasets) == (True, 250, DATASETS)
    assert [path.name for path in (tmp_path / "staging").iterdir()] == [OWNERSHIP_FOLDER], "spools are gone"


def test_micro_batch_triggers_a_run_of_a_job_with_its_own_source(tmp_path: Path, spark: SparkSession) -> None:
    """A job with a source of its own takes a micro-batch as the signal to read new records there."""
    with kafka_job(tmp_path, {"a": 2}) as job:
        job.produce(5)
        produce(tmp_path, 0, 1)
        start(tmp_path, spark, Job.from_file(job.path).on_batch).awaitTermination()
        job.produce(3)
        produce(tmp_path, 1, 1)
        start(tmp_path, spark, Job.from_file(job.path).on_batch).awaitTermination()
        job.assert_exact()


def test_frame_that_is_not_a_micro_batch_is_refused(tmp_path: Path, spark: SparkSession) -> None:
    job = Job.from_file(write_job(tmp_path))
    with pytest.raises(ConfigurationError, match="not called by a streaming query"):
        job.on_batch(spark.range(3).selectExpr("'a' AS shop", "id AS n"), 0)
    with pytest.raises(ConfigurationError, match="must not be set for micro-batches"):
        Job.from_file(write_job(tmp_path), ["limits.seconds=5"])


@pytest.mark.parametrize(
    ("column", "says"), [("store", "no column that names the dataset"), ("n", "does not name each row's dataset")]
)
def test_column_without_a_dataset_name_is_refused(tmp_path: Path, spark: SparkSession, column: str, says: str) -> None:
    job = Job.from_file(write_job(tmp_path), [f"source.dataset_column={column}"])
    produce(tmp_path, 0, 5)
    with pytest.raises(StreamingQueryException, match=says):
        start(tmp_path, spark, job.on_batch).awaitTermination()
    assert not list((tmp_path / "output").rglob("*.parquet"))


@pytest.mark.slow
@pytest.mark.parametrize("times", [1, pytest.param(3, marks=pytest.mark.long)])
def test_query_killed_in_mid_commit_is_exact_after_its_restart(tmp_path: Path, times: int) -> None:
    """SIGKILL while datasets are sealed and not closed; the query is started again until it has read everything."""
    path = write_job(tmp_path)
    for batch in range(6):
        produce(tmp_path, batch * 120, 120)
    command = [sys.executable, "-m", "tests.integration.parts.stream_job", str(tmp_path)]
    for kills in range(times + 1):
        watcher = CommitWatcher(Job.from_file(path).open_store(create=True))
        with subprocess.Popen(command, cwd=PACKAGE_ROOT, start_new_session=True, stderr=subprocess.DEVNULL) as query:
            deadline_s = time.monotonic() + 200
            while kills < times and not watcher.pending():
                assert query.poll() is None, "the query ended before a commit was seen"
                assert time.monotonic() < deadline_s
            if kills < times:
                os.killpg(query.pid, signal.SIGKILL)
            assert query.wait(200) == (0 if kills == times else -signal.SIGKILL)
    assert published(tmp_path) == list(range(720))
    assert Job.from_file(path).audit(deep=True).exact

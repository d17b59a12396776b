"""`distcommit store repair`, killed in its midst: the repeated command finishes, and each record is published once."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from distcommit import Job
from distcommit.app.demo.killed_run import RunProcess
from distcommit.stores.logs.fencing import UNFINISHED_REBUILD, newer_runs
from tests.jobs.kafka_job import KafkaJob, kafka_job

TOPICS = {f"t{number}": 1 for number in range(8)}
STUCK = sorted(TOPICS)[1:]
DAYS = 30
WAIT_S, TRIES = 120, 4


@contextmanager
def job_that_has_run(folder: Path, spark: SparkSession) -> Iterator[KafkaJob]:
    with kafka_job(folder, TOPICS, commit={"buckets": 2}) as job:
        job.produce(DAYS, days=DAYS)
        assert Job.from_file(job.path, session=spark).run().succeeded
        yield job


def half_published(job: KafkaJob, spark: SparkSession) -> list[Path]:
    """Run once more so that some datasets are sealed with no file published, because a file blocks their folders.

    Return the staged files of these datasets.
    """
    job.produce(DAYS, days=DAYS)
    folders = [job.folder / "output" / topic for topic in STUCK]
    for path in folders:
        path.rename(job.folder / path.name)
        path.touch()
    assert not Job.from_file(job.path, session=spark).run().succeeded
    for path in folders:
        path.unlink()
        (job.folder / path.name).rename(path)
    assert Job.from_file(job.path).status().counts["pending"] == len(STUCK)
    staged = list((job.folder / "staging").rglob("*.parquet"))
    assert len(staged) == len(STUCK) * DAYS
    return staged


def killed(job: KafkaJob, is_in_its_midst: Callable[[], bool]) -> bool:
    """Start a repair and, if it is caught in the middle of its work, kill all of its processes."""
    out = job.folder / "repair"
    with RunProcess(
        ["store", "repair", str(job.path), "--json"], out.with_suffix(".out"), out.with_suffix(".err")
    ) as repair:
        until_s = time.monotonic() + WAIT_S
        while not repair.has_ended and not is_in_its_midst():
            assert time.monotonic() < until_s, out.with_suffix(".err").read_text()
            time.sleep(0.0005)
        repair.freeze()
        return not repair.has_ended and is_in_its_midst()


def mended(job: KafkaJob, problem: str) -> dict[str, Any]:
    code, result, errors = job.cli("store repair")
    assert code == 0, (result, errors[-3000:])
    assert [row["outcome"] for row in result["rows"] if row["id"] == problem] == ["done"], result
    assert not result["remaining"]
    return result


@pytest.mark.slow
def test_repair_killed_during_replay_is_finished_by_the_repeated_command(spark: SparkSession, tmp_path: Path) -> None:
    with job_that_has_run(tmp_path, spark) as job:
        for _ in range(TRIES):
            staged = half_published(job, spark)

            def some_are_published(staged: list[Path] = staged) -> bool:
                return 0 < sum(path.exists() for path in staged) < len(staged)

            if killed(job, some_are_published):
                break
        else:
            pytest.fail("no repair was caught in its midst")
        assert some_are_published()
        mended(job, "COMMIT_PENDING")
        job.assert_exact()


@pytest.mark.slow
def test_repair_killed_during_rebuild_is_finished_by_the_repeated_command(spark: SparkSession, tmp_path: Path) -> None:
    with job_that_has_run(tmp_path, spark) as job:
        half_published(job, spark)
        newest = max((tmp_path / "store" / "log" / "bucket=00000").glob("*.seg"))
        newest.write_bytes(newest.read_bytes()[: newest.stat().st_size // 2])
        store = Job.from_file(job.path).open_store(create=False)
        assert killed(job, lambda: newer_runs(store) == UNFINISHED_REBUILD)
        mended(job, "STORE_OUTDATED")
        assert Job.from_file(job.path, session=spark).run().succeeded
        job.assert_exact()

"""`distcommit repair` killed from outside in its midst: the same command goes on, and all is there once."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from distcommit import Job
from distcommit.app.demo.kill import CommitWatcher, RunProcess
from distcommit.stores.fencing import UNFINISHED_REBUILD, newer_runs
from tests.jobs.kafka_job import KafkaJob, kafka_job

TOPICS = {f"t{number:02d}": 1 for number in range(16)}
STUCK = sorted(TOPICS)[::2]
DAYS = 12
WAIT_S = 60


@contextmanager
def half_published(folder: Path, spark: SparkSession) -> Iterator[KafkaJob]:
    """Half of the datasets of the second run are sealed, and none of their files published: where their folders belong
    there was something else."""
    with kafka_job(folder, TOPICS, commit={"buckets": 2}, sink={"partition_by": {"granularity": "day"}}) as job:
        for again in (False, True):
            job.produce(DAYS, days=DAYS)
            folders = [path for path in (folder / "output").glob("t*") if again and path.name in STUCK]
            for path in folders:
                path.rename(folder / path.name)
                path.touch()
            assert Job.from_file(job.path, session=spark).run().succeeded is not again
            for path in folders:
                path.unlink()
                (folder / path.name).rename(path)
        assert Job.from_file(job.path).status().counts["pending"] == len(STUCK)
        yield job


def killed_once(job: KafkaJob, has_begun: Callable[[], bool], is_in_its_midst: Callable[[], bool]) -> None:
    """Starts a repair, and kills all of its processes in the middle of what it does. Once it has begun it goes on by
    instants only."""
    out = job.folder / "repair"
    with RunProcess(["repair", str(job.path), "--json"], out.with_suffix(".out"), out.with_suffix(".err")) as repair:
        until_s = time.monotonic() + WAIT_S
        while not is_in_its_midst():
            assert not repair.has_ended, out.with_suffix(".out").read_text()
            assert time.monotonic() < until_s, out.with_suffix(".err").read_text()
            if has_begun():
                repair.thaw()
                time.sleep(0.0003)
                repair.freeze()
            else:
                time.sleep(0.001)
        repair.freeze()
        assert is_in_its_midst()
        repair.kill()


def mended(job: KafkaJob, what: str) -> dict[str, Any]:
    code, result, errors = job.cli("repair")
    assert code == 0, (result, errors[-3000:])
    assert [row["mended"] for row in result["rows"] if what in row["what"]] == ["done"], result
    assert not result["left"]
    return result


@pytest.mark.slow
def test_killed_as_it_replays_the_same_command_goes_on(spark: SparkSession, tmp_path: Path) -> None:
    with half_published(tmp_path, spark) as job:
        staged = list((tmp_path / "staging").rglob("*.parquet"))
        assert len(staged) == len(STUCK) * DAYS

        def some_are_published() -> bool:
            return 0 < sum(path.exists() for path in staged) < len(staged)

        watcher = CommitWatcher(Job.from_file(job.path).open_store(create=False))
        killed_once(job, watcher.run_has_begun, some_are_published)
        mended(job, "sealed and not closed")
        job.assert_exact()


@pytest.mark.slow
def test_killed_as_it_rebuilds_the_same_command_goes_on(spark: SparkSession, tmp_path: Path) -> None:
    with half_published(tmp_path, spark) as job:
        newest = max((tmp_path / "store" / "log" / "bucket=00000").glob("*.seg"))
        newest.write_bytes(newest.read_bytes()[: newest.stat().st_size // 2])
        store = Job.from_file(job.path).open_store(create=False)
        killed_once(job, lambda: False, lambda: newer_runs(store) == UNFINISHED_REBUILD)
        mended(job, "the store is older")
        assert Job.from_file(job.path, session=spark).run().succeeded
        job.assert_exact()

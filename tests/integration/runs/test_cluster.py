"""A job on a real Kafka, HDFS and Spark cluster, disturbed in its commit; at size: `python -m tests.cluster`."""

from __future__ import annotations

import random
from contextlib import ExitStack
from pathlib import Path

import pytest

from distcommit.app.demo.killed_run import CommitWatcher
from distcommit.app.jobs.job import Job
from tests.checkers.soak import SERVERS, Server, soak
from tests.cluster.main_job import Size, main_job
from tests.cluster.sinks import run_sinks
from tests.cluster.soak import OnServers

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


def _silent(text: str) -> None:
    pass


def test_main_job_is_exact_after_its_driver_and_a_worker_are_killed(tmp_path: Path) -> None:
    result = main_job(Size(120, 2, 12_000, 100, 8, 512), tmp_path, _silent)
    assert result.exact
    assert result.records_published == result.records_produced == 12_000
    driver_killed, worker_killed, last = result.runs
    assert driver_killed.exit_code == -9
    assert 40 <= driver_killed.committed < worker_killed.committed <= last.committed == 120
    assert driver_killed.pending
    assert last.pending == 0
    assert all(row.driver_python_mb and row.driver_jvm_mb for row in result.runs)
    assert result.idle is not None
    assert (result.idle.committed, result.idle.datasets_published, result.idle.replayed) == (120, 0, 0)


def test_fan_out_to_files_table_and_topic_is_exact_in_spite_of_kills(tmp_path: Path) -> None:
    result = run_sinks(tmp_path, _silent, topics=12, records=1200, kills=2, only=["fan_out"])
    assert result.is_exact, result
    counts = result.targets["fan_out"]
    assert (counts.produced, counts.visible, counts.kills) == (1200, 3 * 1200, 2)


@pytest.mark.long
@pytest.mark.parametrize("servers", [SERVERS[:2], SERVERS[2:]], ids="-and-".join)
def test_main_job_is_exact_though_servers_restart_in_mid_commit(tmp_path: Path, servers: tuple[Server, ...]) -> None:
    at, chance = OnServers(), random.Random(1)
    with ExitStack() as stack:
        job = stack.enter_context(at.open_job(tmp_path))
        for server in servers:
            job.produce(2, days=2)
            watcher = CommitWatcher(Job.from_file(job.path).open_store(create=True))
            with job.start() as run:
                while not run.has_ended and not watcher.pending():
                    run.wait(0.01)
                assert not run.has_ended, run.stderr.read_text()[-3000:]
                at.restart(server, chance)
                assert run.wait(300) is not None
            at.wait_until_idle()
            job.run()
            job.assert_exact()


@pytest.mark.long
def test_short_soak_finds_no_violation(tmp_path: Path) -> None:
    result = soak(0, 1, tmp_path, _silent, at=OnServers(), rounds=2)
    assert not result.violations
    assert (result.duplicates, result.missing) == (0, 0)
    assert result.rounds == 2
    assert result.struck
    assert result.records_published == result.records_produced > 0

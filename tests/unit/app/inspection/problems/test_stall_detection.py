"""Stall detection: a live run without progress is reported, independently of the clocks.

A run that shows any activity is not reported. A run that waits too long for its epoch is.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from distcommit.app.admin import operator_progress as signs
from distcommit.app.admin import rebuild_job, rebuild_plan
from distcommit.app.admin.operator_progress import EVERY_S, signs_of_life
from distcommit.app.auditing.files.read_published_files import PublishedFolder
from distcommit.app.auditing.offsets.joined_branches import folders_of
from distcommit.app.inspection.problems.problem_kind import Problem
from distcommit.app.inspection.problems.stall_detection import STALLED_S
from distcommit.app.inspection.recorded_runs import RunStatus
from distcommit.app.jobs.job import Job
from distcommit.core.errors import LockHeldError
from distcommit.core.records.run_counts import RunCounts
from distcommit.core.records.run_outcome import RunOutcome
from distcommit.engine.system_clock import SystemClock
from distcommit.protocol.paths.staging import SPOOLED_FRAMES
from distcommit.protocol.paths.store import BEGUN, JOB_LOG, LOCK, PROGRESS, RUNS, TASK_STATES, record_name, run_name
from distcommit.stores.history.run_records import RunBeginning, RunFacts, RunRecord, put_beginning, put_record
from distcommit.stores.logs import rebucket_logs
from distcommit.stores.logs.fencing import begin_run
from distcommit.stores.logs.rebucket_logs import Move, rebucket
from distcommit.stores.state.job_lock import JobLock
from tests.jobs.large_store import make_large_store
from tests.simulation.world import SimulatedClock
from tests.unit.app.reading.test_snapshot_reader import NAMES, Place

_RUN = "20990101T000000-000000000001"
_NS = 1_000_000_000


class LiveRun:
    """A run that has begun on this machine. `epoch` is its epoch."""

    def __init__(self, folder: Path) -> None:
        self.job = Job.from_file(make_large_store(folder, 8))
        self.store = self.job.open_store(create=False)
        self.root = Path(self.store.roots.store)
        self.epoch = begin_run(self.store, _RUN)
        began_ms = SystemClock().now_ms()
        put_beginning(
            self.store, RunBeginning(1, "large", _RUN, self.epoch, "run", "ann", began_ms, RunFacts(host="there"))
        )
        (self.root / PROGRESS / run_name(_RUN)).mkdir(parents=True)

    def stalled_for(self, seconds: float, now_ns: int) -> None:
        """Date all files of the store and staging so long before the last renewal of the lease."""
        for path in (*self.root.rglob("*"), *Path(self.store.roots.staging).rglob("*")):
            os.utime(path, ns=(now_ns, now_ns - int(seconds * _NS)))
        for path in (self.root / LOCK, *(self.root / LOCK).rglob("*")):
            os.utime(path, ns=(now_ns, now_ns))

    def reported(self) -> list[str]:
        problems = self.job.status().problems
        for problem in problems:
            if problem.id == "RUN_STALLED":
                assert problem.command == f"distcommit cancel {self.job._folders.path}"
        return [problem.finding for problem in problems if problem.id == "RUN_STALLED"]


@pytest.fixture
def run(tmp_path: Path) -> LiveRun:
    return LiveRun(tmp_path)


@contextmanager
def alive(run: LiveRun, *, shared: bool = False) -> Iterator[None]:
    with JobLock(run.store.fs, run.store.roots.store, _RUN, 3600, SystemClock(), shared=shared):
        yield


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("clock_is_off_s", [-86_400, 0, 86_400])
def test_live_run_without_progress_is_reported_as_stalled_by_the_file_system_clock_alone(
    run: LiveRun, clock_is_off_s: int, shared: bool
) -> None:
    now_ns = SystemClock().now_ms() * 1_000_000 + clock_is_off_s * _NS
    with alive(run, shared=shared):
        run.stalled_for(STALLED_S - 1, now_ns)
        assert run.reported() == []
        run.stalled_for(STALLED_S + 334, now_ns)
        (reported,) = run.reported()
        assert reported.startswith(f"the run of epoch {run.epoch} has made no progress for 1,234 s")
        assert reported.endswith("although its driver on there is alive")
    assert run.reported() == [], "a dead run must not be reported as stalled"


@pytest.mark.parametrize(
    "sign",
    [
        f"store/{PROGRESS}/{run_name(_RUN)}",
        f"store/{TASK_STATES}/{run_name(_RUN)}",
        f"store/{JOB_LOG}",
        "store/log/bucket=00003",
        f"staging/{SPOOLED_FRAMES}/nonce/dataset",
    ],
)
def test_slow_run_with_any_sign_of_life_is_not_reported_as_stalled(run: LiveRun, sign: str, tmp_path: Path) -> None:
    moving = tmp_path / sign
    moving.mkdir(parents=True, exist_ok=True)
    with alive(run):
        now_ns = SystemClock().now_ms() * 1_000_000
        run.stalled_for(10 * STALLED_S, now_ns)
        assert run.reported()
        os.utime(moving, ns=(now_ns, now_ns - 60 * _NS))
        assert run.reported() == []


def test_rebuild_that_reads_for_long_is_not_reported_as_stalled(run: LiveRun) -> None:
    clock = SimulatedClock()
    with alive(run), signs_of_life(run.store, _RUN, clock) as tick:
        now_ns = SystemClock().now_ms() * 1_000_000
        run.stalled_for(10 * STALLED_S, now_ns)
        tick()
        assert run.reported(), "the first tick must not write a sign of life yet"
        clock.sleep(EVERY_S)
        for _ in range(3):
            tick()
            assert run.reported() == []
    assert not (run.root / PROGRESS / run_name(_RUN)).exists()


def to_rebuild(tmp_path: Path) -> Path:
    """Return the path of a job file whose store has a damaged log."""
    place = Place(tmp_path)
    place.run(3)
    newest = max(Path(place.store().bucket_log(0).folder).glob("*.seg"))
    newest.write_bytes(b"torn")
    job = tmp_path / "job.yaml"
    job.write_text(
        "job: job\nsource: {type: kafka, brokers: 'a:1', topics: [d0]}\ncommit: {buckets: 2, durability: none}\n"
        f"paths: {{store: {place.roots.store}, staging: {place.roots.staging}, output: {place.roots.output}}}\n"
    )
    return job


def test_rebuild_writes_a_sign_of_life_for_each_dataset_that_it_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = to_rebuild(tmp_path)
    progress_files: list[set[str]] = []

    def watched(*arguments: Any) -> Iterator[PublishedFolder]:
        for folder in folders_of(*arguments):
            yield folder
            progress_files.append({path.name for path in (tmp_path / "store" / PROGRESS).glob("*/*")})

    monkeypatch.setattr(rebuild_plan, "folders_of", watched)
    monkeypatch.setattr(signs, "EVERY_S", 0)
    assert Job.from_file(job).rebuild().written
    before_lock, under_lock = progress_files[: len(NAMES)], progress_files[len(NAMES) :]
    assert not any(before_lock), "no sign of life may precede the lock"
    assert [len(names) for names in under_lock] == [1] * len(NAMES)
    assert len(set().union(*under_lock)) == len(NAMES), "each dataset must have its own sign of life"
    assert not list((tmp_path / "store" / PROGRESS).glob("*"))


def test_stalled_rebuild_is_reported_with_its_process_and_the_printed_command_repairs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = to_rebuild(tmp_path)
    job, reports = Job.from_file(path), list[list[Problem]]()

    def stall_and_die(*_: Any) -> Iterator[PublishedFolder]:
        """Date all files back, query the status, and die."""
        now_ns = SystemClock().now_ms() * 1_000_000
        for entry in (*(tmp_path / "store").rglob("*"), *(tmp_path / "staging").rglob("*")):
            os.utime(entry, ns=(now_ns, now_ns - 1234 * _NS))
        for entry in (tmp_path / "store" / LOCK, *(tmp_path / "store" / LOCK).rglob("*")):
            os.utime(entry, ns=(now_ns, now_ns))
        assert not job.cancel(wait_s=0).ended, "cancel does not detect stalled rebuilds"
        with pytest.raises(LockHeldError):
            job.rebuild()
        status = job.status()
        assert status.runs[0].status is RunStatus.RUNNING
        reports.append([stalled for stalled in status.problems if stalled.id == "REBUILD_STALLED"])
        raise RuntimeError("killed")
        yield

    with monkeypatch.context() as patched:
        plan = job.rebuild(dry_run=True)
        patched.setattr(rebuild_job, "plan_rebuild", lambda *_, **__: plan)
        patched.setattr(rebuild_plan, "folders_of", stall_and_die)
        with pytest.raises(RuntimeError, match="killed"):
            job.rebuild()
    ((problem,),) = reports
    assert problem.finding.startswith("the rebuild of epoch ")
    assert f" has made no progress for 1,234 s although process {os.getpid()} on " in problem.finding
    assert problem.command == f"distcommit store rebuild {path}"
    assert job.rebuild().written
    assert job.status().problems == []


def test_run_is_not_stalled_within_the_usual_duration_of_the_job(run: LiveRun) -> None:
    took_ms = 5 * STALLED_S * 1000
    for epoch in (run.epoch + 1, run.epoch + 2):  # records of other runs
        record = RunRecord(
            1, "large", f"r{epoch}", epoch, "run", "ann", 1, 1 + took_ms, RunOutcome.SUCCEEDED, "", "", (), RunCounts()
        )
        put_record(run.store, record)
    with alive(run):
        now_ns = SystemClock().now_ms() * 1_000_000
        run.stalled_for(4 * STALLED_S, now_ns)
        assert run.reported() == []
        run.stalled_for(6 * STALLED_S, now_ns)
        assert run.reported()


def test_beginning_of_a_run_is_a_sign_of_life(run: LiveRun) -> None:
    with alive(run):
        now_ns = SystemClock().now_ms() * 1_000_000
        run.stalled_for(2 * STALLED_S, now_ns)
        os.utime(run.root / RUNS / record_name(run.epoch, BEGUN), ns=(now_ns, now_ns))
        assert run.reported() == []


@pytest.mark.parametrize("shared", [False, True])
def test_live_run_that_waits_too_long_for_its_epoch_is_reported_with_its_process(run: LiveRun, shared: bool) -> None:
    def reported(waits_s: float, lease_s: float = 3600) -> list[str]:
        began = datetime.now(UTC) - timedelta(seconds=waits_s)
        run_id = f"{began:%Y%m%dT%H%M%S}-000000000001"
        with JobLock(run.store.fs, run.store.roots.store, run_id, lease_s, SystemClock(), shared=shared):
            problems = run.job.status().problems
        not_started = [problem for problem in problems if problem.id == "RUN_NOT_STARTED"]
        assert [problem.command for problem in not_started] == [f"distcommit run {run.job._folders.path}"] * len(
            not_started
        )
        return [problem.finding for problem in not_started]

    assert reported(STALLED_S - 60) == []
    (text,) = reported(2 * STALLED_S)
    assert f"a run has had no epoch for 1,80{text.partition('1,80')[2][0]} s: process {os.getpid()} on " in text
    assert reported(0) == []


def test_stalled_rebucket_is_reported_with_its_process_and_command(
    run: LiveRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rebucket_logs, "_require_movable", lambda *_: None)  # this store has pending sequences

    class StopsError(Exception):
        pass

    def stop(step: str) -> None:
        if step == "end logs":
            raise StopsError

    with JobLock(run.store.fs, run.store.roots.store, "moves", 3600, SystemClock()):
        with pytest.raises(StopsError):
            rebucket(run.store, Move(run.store.buckets + 1), "moves", stop)
        run.stalled_for(2 * STALLED_S, SystemClock().now_ms() * 1_000_000)
        problems = run.job.status().problems
    (stalled,) = (problem for problem in problems if problem.id == "REBUCKET_STALLED")
    assert stalled.finding.startswith(f"the move to {run.store.buckets + 1} buckets has made no progress for ")
    assert f"although process {os.getpid()} on " in stalled.finding
    assert stalled.command == f"distcommit store rebucket --buckets={run.store.buckets + 1} {run.job._folders.path}"


def test_run_whose_id_contains_no_time_is_not_reported_as_waiting(run: LiveRun) -> None:
    with JobLock(run.store.fs, run.store.roots.store, "waiting", 3600, SystemClock()):
        assert not [problem for problem in run.job.status().problems if problem.id == "RUN_NOT_STARTED"]

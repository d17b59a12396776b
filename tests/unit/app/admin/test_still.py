"""A live run that does not get on is told, and one that does anything at all is not; whatever clocks say. So is one
that waits for its epoch for too long."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from distcommit.app.admin import rebuild_job, rebuild_plan
from distcommit.app.admin import signs_of_life as signs
from distcommit.app.admin.signs_of_life import EVERY_S, signs_of_life
from distcommit.app.auditing.joined import folders_of
from distcommit.app.auditing.published import PublishedFolder
from distcommit.app.inspection.problems.kinds import Problem
from distcommit.app.inspection.problems.stall_detection import STALLED_S
from distcommit.app.inspection.runs import RunStatus
from distcommit.app.job import Job
from distcommit.core.errors import LockHeldError
from distcommit.core.run_outcome import RunOutcome
from distcommit.engine.clock import SystemClock
from distcommit.protocol.paths.staging import SPOOLED_FRAMES
from distcommit.protocol.paths.store import BEGUN, JOB_LOG, LOCK, PROGRESS, RUNS, TASK_STATES, record_name, run_name
from distcommit.stores.history.run_records import RunBeginning, RunFacts, RunRecord, put_beginning, put_record
from distcommit.stores.logs import rebucket as stores_rebucket
from distcommit.stores.logs.fencing import begin_run
from distcommit.stores.logs.rebucket import Move, rebucket
from distcommit.stores.state.job_lock import JobLock
from tests.jobs.large_store import make_large_store
from tests.simulation.world import SimulatedClock
from tests.unit.app.job_file.test_readers import NAMES, Place

_RUN = "20990101T000000-000000000001"
_NS = 1_000_000_000


class LiveRun:
    """One on this machine that has begun; `epoch`: its own."""

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

    def stood_for(self, seconds: float, now_ns: int) -> None:
        """Everything in the store is of so long before the lease was renewed last, by the file system's clock."""
        for path in (*self.root.rglob("*"), *Path(self.store.roots.staging).rglob("*")):
            os.utime(path, ns=(now_ns, now_ns - int(seconds * _NS)))
        for path in (self.root / LOCK, *(self.root / LOCK).rglob("*")):
            os.utime(path, ns=(now_ns, now_ns))

    def told(self) -> list[str]:
        troubles = self.job.status().troubles
        for trouble in troubles:
            if trouble.id == "RUN_STALLED":
                assert trouble.command == f"distcommit cancel {self.job._folders.path}"
        return [trouble.what for trouble in troubles if trouble.id == "RUN_STALLED"]


@pytest.fixture
def run(tmp_path: Path) -> LiveRun:
    return LiveRun(tmp_path)


@contextmanager
def alive(run: LiveRun, *, shared: bool = False) -> Iterator[None]:
    with JobLock(run.store.fs, run.store.roots.store, _RUN, 3600, SystemClock(), shared=shared):
        yield


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("clock_is_off_s", [-86_400, 0, 86_400])
def test_a_live_run_of_which_nothing_moves_is_told_with_its_end_by_the_file_system_s_clock_alone(
    run: LiveRun, clock_is_off_s: int, shared: bool
) -> None:
    now_ns = SystemClock().now_ms() * 1_000_000 + clock_is_off_s * _NS
    with alive(run, shared=shared):
        run.stood_for(STALLED_S - 1, now_ns)
        assert run.told() == []
        run.stood_for(STALLED_S + 334, now_ns)
        (told,) = run.told()
        assert told.startswith(f"the run of epoch {run.epoch} has made no progress for 1,234 s")
        assert told.endswith("although its driver on there is alive")
    assert run.told() == [], "it lives no more"


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
def test_a_run_that_is_slow_and_does_anything_is_not_told(run: LiveRun, sign: str, tmp_path: Path) -> None:
    moving = tmp_path / sign
    moving.mkdir(parents=True, exist_ok=True)
    with alive(run):
        now_ns = SystemClock().now_ms() * 1_000_000
        run.stood_for(10 * STALLED_S, now_ns)
        assert run.told()
        os.utime(moving, ns=(now_ns, now_ns - 60 * _NS))
        assert run.told() == []


def test_a_rebuild_that_reads_for_long_is_not_told(run: LiveRun) -> None:
    clock = SimulatedClock()
    with alive(run), signs_of_life(run.store, _RUN, clock) as tick:
        now_ns = SystemClock().now_ms() * 1_000_000
        run.stood_for(10 * STALLED_S, now_ns)
        tick()
        assert run.told(), "as soon as that it says nothing"
        clock.sleep(EVERY_S)
        for _ in range(3):
            tick()
            assert run.told() == []
    assert not (run.root / PROGRESS / run_name(_RUN)).exists()


def to_rebuild(tmp_path: Path) -> Path:
    """The file of a job with a log that has to be rebuilt."""
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


def test_a_rebuild_says_that_it_gets_on_as_it_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = to_rebuild(tmp_path)
    seen: list[set[str]] = []

    def watched(*arguments: Any) -> Iterator[PublishedFolder]:
        for folder in folders_of(*arguments):
            yield folder
            seen.append({path.name for path in (tmp_path / "store" / PROGRESS).glob("*/*")})

    monkeypatch.setattr(rebuild_plan, "folders_of", watched)
    monkeypatch.setattr(signs, "EVERY_S", 0)
    assert Job.from_file(job).rebuild().written
    looked, held = seen[: len(NAMES)], seen[len(NAMES) :]
    assert not any(looked), "before it holds the lock"
    assert [len(names) for names in held] == [1] * len(NAMES)
    assert len(set().union(*held)) == len(NAMES), "another one for each dataset"
    assert not list((tmp_path / "store" / PROGRESS).glob("*"))


def test_a_rebuild_that_stands_still_is_told_with_its_process_and_once_that_is_gone_the_command_mends_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = to_rebuild(tmp_path)
    job, seen = Job.from_file(path), list[list[Problem]]()

    def ends(*_: Any) -> Iterator[PublishedFolder]:
        """Lets nobody see it move; asks; and dies."""
        now_ns = SystemClock().now_ms() * 1_000_000
        for each in (*(tmp_path / "store").rglob("*"), *(tmp_path / "staging").rglob("*")):
            os.utime(each, ns=(now_ns, now_ns - 1234 * _NS))
        for each in (tmp_path / "store" / LOCK, *(tmp_path / "store" / LOCK).rglob("*")):
            os.utime(each, ns=(now_ns, now_ns))
        assert not job.cancel(wait_s=0).ended, "it does not look for that"
        with pytest.raises(LockHeldError):
            job.rebuild()
        status = job.status()
        assert status.runs[0].status is RunStatus.RUNNING
        seen.append([trouble for trouble in status.troubles if trouble.id == "REBUILD_STALLED"])
        raise RuntimeError("killed")
        yield

    with monkeypatch.context() as patched:
        plan = job.rebuild(dry_run=True)
        patched.setattr(rebuild_job, "plan_rebuild", lambda *_, **__: plan)
        patched.setattr(rebuild_plan, "folders_of", ends)
        with pytest.raises(RuntimeError, match="killed"):
            job.rebuild()
    ((told,),) = seen
    assert told.what.startswith("the rebuild of epoch ")
    assert f" has made no progress for 1,234 s although process {os.getpid()} on " in told.what
    assert told.command == f"distcommit store rebuild {path}"
    assert job.rebuild().written
    assert job.status().troubles == []


def test_what_runs_of_the_job_usually_take_is_waited_for(run: LiveRun) -> None:
    took_ms = 5 * STALLED_S * 1000
    for epoch in (run.epoch + 1, run.epoch + 2):  # of others: which they are does not matter
        record = RunRecord(
            1, "large", f"r{epoch}", epoch, "run", "ann", 1, 1 + took_ms, RunOutcome.SUCCEEDED, "", "", (), {}
        )
        put_record(run.store, record)
    with alive(run):
        now_ns = SystemClock().now_ms() * 1_000_000
        run.stood_for(4 * STALLED_S, now_ns)
        assert run.told() == []
        run.stood_for(6 * STALLED_S, now_ns)
        assert run.told()


def test_its_beginning_is_a_sign_too(run: LiveRun) -> None:
    with alive(run):
        now_ns = SystemClock().now_ms() * 1_000_000
        run.stood_for(2 * STALLED_S, now_ns)
        os.utime(run.root / RUNS / record_name(run.epoch, BEGUN), ns=(now_ns, now_ns))
        assert run.told() == []


@pytest.mark.parametrize("shared", [False, True])
def test_a_live_run_that_waits_for_its_epoch_is_told_with_its_process_once_it_has_for_too_long(
    run: LiveRun, shared: bool
) -> None:
    def told(waits_s: float, lease_s: float = 3600) -> list[str]:
        began = datetime.now(UTC) - timedelta(seconds=waits_s)
        run_id = f"{began:%Y%m%dT%H%M%S}-000000000001"
        with JobLock(run.store.fs, run.store.roots.store, run_id, lease_s, SystemClock(), shared=shared):
            troubles = run.job.status().troubles
        found = [trouble for trouble in troubles if trouble.id == "RUN_NOT_STARTED"]
        assert [trouble.command for trouble in found] == [f"distcommit run {run.job._folders.path}"] * len(found)
        return [trouble.what for trouble in found]

    assert told(STALLED_S - 60) == []
    (what,) = told(2 * STALLED_S)
    assert f"a run has had no epoch for 1,80{what.partition('1,80')[2][0]} s: process {os.getpid()} on " in what
    assert told(0) == []


def test_a_move_to_other_buckets_that_stands_still_is_told_as_what_it_is(
    run: LiveRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stores_rebucket, "_require_movable", lambda *_: None)  # this store has something pending

    class StopsError(Exception):
        pass

    def stop(step: str) -> None:
        if step == "end logs":
            raise StopsError

    with JobLock(run.store.fs, run.store.roots.store, "moves", 3600, SystemClock()):
        with pytest.raises(StopsError):
            rebucket(run.store, Move(run.store.buckets + 1), "moves", stop)
        run.stood_for(2 * STALLED_S, SystemClock().now_ms() * 1_000_000)
        troubles = run.job.status().troubles
    (told,) = (trouble for trouble in troubles if trouble.id == "REBUCKET_STALLED")
    assert told.what.startswith(f"the move to {run.store.buckets + 1} buckets has made no progress for ")
    assert f"although process {os.getpid()} on " in told.what
    assert told.command == f"distcommit store rebucket --buckets={run.store.buckets + 1} {run.job._folders.path}"


def test_of_a_run_whose_id_tells_no_time_nobody_knows_how_long_it_waits(run: LiveRun) -> None:
    with JobLock(run.store.fs, run.store.roots.store, "waiting", 3600, SystemClock()):
        assert not [trouble for trouble in run.job.status().troubles if trouble.id == "RUN_NOT_STARTED"]

"""The job lock: who holds it, who may take it over and when, on a simulated machine with a clock that never waits."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest

from distcommit.core.errors import LockHeldError
from distcommit.fs.posix_calls.local import LocalFileSystem
from distcommit.fs.posix_calls.posix import RealPosixCalls
from distcommit.stores.state.job_lock import (
    JobLock,
    LockRecord,
    _process_start,
    holders,
    is_alive,
    is_overdue,
    release_overdue,
)
from distcommit.testing.fakes.faulty_calls import Operation
from tests.simulation.simulated_posix import SimulatedPosix
from tests.simulation.world import SimulatedFileSystem
from tests.unit.engine.driver.machines import QuickClock

TTL = 3000.0
ROOT = "/store"


def make_fs() -> SimulatedFileSystem:
    fs = SimulatedFileSystem(SimulatedPosix())
    fs.make_folders(ROOT)
    return fs


def lock(fs: LocalFileSystem, run_id: str, clock: QuickClock, ttl: float = TTL, root: str = ROOT) -> JobLock:
    return JobLock(fs, root, run_id, ttl, clock)


def records(fs: LocalFileSystem, root: str = ROOT) -> list[LockRecord]:
    while True:
        names = sorted(entry.name for entry in fs.list_folder(f"{root}/lock") if entry.name.endswith(".json"))
        with suppress(FileNotFoundError):  # renewed meanwhile
            return [msgspec.json.decode(fs.read(f"{root}/lock/{name}"), type=LockRecord) for name in names]


def put(fs: LocalFileSystem, number: int, data: bytes, root: str = ROOT) -> None:
    fs.make_folders(f"{root}/lock")
    assert fs.put_if_absent(f"{root}/lock/{number:012d}.json", data)


def holder(clock: QuickClock, **changes: object) -> LockRecord:
    """The record of a live run on another machine."""
    mine = LockRecord("other", "run-1", "elsewhere", 4711, "1", clock.now_ms(), TTL)
    return msgspec.structs.replace(mine, **changes)


def is_free(fs: LocalFileSystem, clock: QuickClock) -> bool:
    try:
        with lock(fs, "asking", clock):
            return True
    except LockHeldError:
        return False


def test_a_lock_held_by_a_live_process_is_refused_and_its_holder_is_named() -> None:
    fs, clock = make_fs(), QuickClock()
    with lock(fs, "run-1", clock):
        clock.sleep(7)
        with pytest.raises(LockHeldError) as caught, lock(fs, "run-2", clock):
            pass
        assert caught.value.ids == {"run": "run-1"}
        assert caught.value.found == f"process {os.getpid()} on {socket.gethostname()}, lease renewed 7 s ago"
        assert "3000 s after its last renewal" in caught.value.todo
        assert [record.run_id for record in records(fs)] == ["run-1"]


def test_a_released_lock_is_free_at_once() -> None:
    fs, clock = make_fs(), QuickClock()
    for run_id in ("run-1", "run-2", "run-3"):
        with lock(fs, run_id, clock):
            assert [record.released for record in records(fs)] == [False]
        assert [(record.run_id, record.released) for record in records(fs)] == [(run_id, True)]


def test_a_lock_is_released_by_a_run_that_fails() -> None:
    fs, clock = make_fs(), QuickClock()
    with pytest.raises(ZeroDivisionError), lock(fs, "run-1", clock):
        raise ZeroDivisionError
    assert is_free(fs, clock)


def test_the_lock_of_a_process_of_this_machine_that_died_is_taken_over_at_once() -> None:
    fs, clock = make_fs(), QuickClock()
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    alive = holder(clock, host=socket.gethostname(), pid=process.pid, process_start=_process_start(process.pid))
    put(fs, 5, msgspec.json.encode(alive))
    assert not is_free(fs, clock)
    process.communicate(b"\n", timeout=30)
    assert is_free(fs, clock)


def test_a_process_id_that_was_used_again_holds_nothing() -> None:
    fs, clock = make_fs(), QuickClock()
    put(fs, 1, msgspec.json.encode(holder(clock, host=socket.gethostname(), pid=os.getpid(), process_start="1")))
    assert is_free(fs, clock)


def test_the_lock_of_another_machine_lasts_until_its_lease_has_run_out() -> None:
    fs, clock = make_fs(), QuickClock()
    put(fs, 1, msgspec.json.encode(holder(clock)))
    clock.sleep(TTL - 1)
    assert not is_free(fs, clock)
    clock.sleep(1)
    assert is_free(fs, clock)


@pytest.mark.parametrize("data", [b"", b"{", b'{"owner_id": 5}', b"\xff\xfe", b"[]"])
def test_an_unreadable_record_holds_nothing_up(data: bytes) -> None:
    fs, clock = make_fs(), QuickClock()
    put(fs, 9, data)
    with lock(fs, "run-1", clock):
        assert [record.run_id for record in records(fs)] == ["run-1"]
        assert not is_free(fs, clock)


def test_of_two_who_want_it_at_once_one_gets_it_and_the_other_is_told_by_whom() -> None:
    calls, clock = SimulatedPosix(), QuickClock()
    fs = SimulatedFileSystem(calls)
    fs.make_folders(ROOT)
    first = lock(fs, "first", clock)
    second = lock(fs, "second", clock)

    def race(operation: Operation) -> None:
        if operation.kind == "rename":  # the first has looked, and is about to put its record
            calls.gate = None
            second.__enter__()

    calls.gate = race
    with pytest.raises(LockHeldError) as caught, first:
        pass
    assert caught.value.ids == {"run": "second"}
    assert [record.run_id for record in records(fs)] == ["second"]
    second.__exit__(None, None, None)
    assert is_free(fs, clock)


def test_who_was_slow_to_put_its_record_does_not_get_a_lock_that_was_taken_and_renewed_meanwhile(
    tmp_path: Path,
) -> None:
    clock, root = QuickClock(), str(tmp_path)
    renewals = Renewals(clock)
    quick = lock(LocalFileSystem(renewals), "quick", clock, 0.03, root)

    class SlowCalls(RealPosixCalls):
        def rename_noreplace(self, source: str, target: str) -> None:
            quick.__enter__()  # the slow one has looked, and is about to put its record
            renewals.wait_for(3)
            super().rename_noreplace(source, target)

    try:
        with pytest.raises(LockHeldError) as caught, lock(LocalFileSystem(SlowCalls()), "slow", clock, TTL, root):
            pass
        assert caught.value.ids == {"run": "quick"}
    finally:
        quick.__exit__(None, None, None)


def test_of_many_who_want_it_at_once_exactly_one_gets_it(tmp_path: Path) -> None:
    fs, clock = LocalFileSystem(), QuickClock()
    locks = [JobLock(fs, str(tmp_path), f"run-{number}", TTL, clock) for number in range(8)]
    barrier = threading.Barrier(len(locks))

    def want(wanted: JobLock) -> JobLock | None:
        barrier.wait()
        try:
            return wanted.__enter__()
        except LockHeldError:
            return None

    with ThreadPoolExecutor(len(locks)) as pool:
        winners = [won for won in pool.map(want, locks) if won is not None]
    assert len(winners) == 1
    winners[0].__exit__(None, None, None)


class Renewals(RealPosixCalls):
    """Tells when a lock record was published, and lets time pass with each."""

    def __init__(self, clock: QuickClock, seconds: float = 0) -> None:
        super().__init__()
        self._clock, self._seconds = clock, seconds
        self._puts, self._changed = 0, threading.Condition()

    def fsync_folder(self, path: str) -> None:
        super().fsync_folder(path)
        with self._changed:
            self._puts += 1
            self._clock.sleep(self._seconds)
            self._changed.notify_all()

    def wait_for(self, puts: int) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: self._puts >= puts, timeout=10)


def test_a_holder_renews_its_lease_and_keeps_the_lock_far_beyond_one_term(tmp_path: Path) -> None:
    clock, root = QuickClock(), str(tmp_path)
    ttl = 0.03  # renewed every 10 ms of real time; the clock passes 20 ms with each renewal
    renewals = Renewals(clock, 0.02)
    fs = LocalFileSystem(renewals)
    began = clock.seconds
    with lock(fs, "run-1", clock, ttl, root):
        renewals.wait_for(6)
        assert clock.seconds - began > 3 * ttl
        newest = records(fs, root)[-1]
        assert newest.renewed_ms > began * 1000 + 2 * ttl * 1000
        assert newest.run_id == "run-1"
    assert records(fs, root)[-1].released


def test_a_holder_whose_lock_was_taken_over_neither_renews_nor_releases_it(tmp_path: Path) -> None:
    fs, clock, root = LocalFileSystem(), QuickClock(), str(tmp_path)
    mine = lock(fs, "run-1", clock, 0.03, root)
    mine.__enter__()
    put(fs, 900, msgspec.json.encode(holder(clock)), root)
    mine._thread.join(timeout=10)
    assert not mine._thread.is_alive()
    mine.__exit__(None, None, None)
    assert records(fs, root)[-1] == holder(clock)


def test_runs_that_do_not_hold_the_lock_hold_nobody_off_and_say_that_they_live(
    caplog: pytest.LogCaptureFixture,
) -> None:
    fs, clock = make_fs(), QuickClock()
    with (
        JobLock(fs, ROOT, "first", TTL, clock, shared=True),
        JobLock(fs, ROOT, "second", TTL, clock, shared=True),
        lock(fs, "third", clock),
    ):
        found = holders(fs, ROOT)
        assert {run_id: is_alive(holder, clock) for run_id, holder in found.items()} == dict.fromkeys(
            ("first", "second", "third"), True
        )
        clock.sleep(TTL + 1)
        assert not any(is_alive(holder, clock) for holder in found.values())
    assert {run_id: holder.released for run_id, holder in holders(fs, ROOT).items()} == {"third": True}
    assert "not released" not in caplog.text


def test_who_should_have_renewed_its_lease_loses_the_lock_and_gives_nothing_up_that_others_have_then() -> None:
    fs, clock = make_fs(), QuickClock()
    with lock(fs, "frozen", clock):
        clock.sleep(TTL / 3)
        assert not release_overdue(fs, ROOT, "frozen", clock), "it may just be about to renew it"
        clock.sleep(TTL / 3)
        assert not is_free(fs, clock)
        assert not release_overdue(fs, ROOT, "another", clock)
        assert release_overdue(fs, ROOT, "frozen", clock)
        names = fs.list_folder(f"{ROOT}/lock")
    assert fs.list_folder(f"{ROOT}/lock") == names, "as it wakes, the lock is not its own any more"
    assert is_free(fs, clock)


@pytest.mark.parametrize("ahead_s", [1, 60, TTL - 1])
def test_the_lock_of_another_machine_whose_clock_is_ahead_holds_until_its_lease_has_run_out(ahead_s: float) -> None:
    fs, clock = make_fs(), QuickClock()
    record = holder(clock, renewed_ms=clock.now_ms() + round(ahead_s * 1000))
    put(fs, 1, msgspec.json.encode(record))
    with pytest.raises(LockHeldError, match=f"by a clock that is {ahead_s:.0f} s ahead of the clock here"):
        lock(fs, "run-2", clock).__enter__()
    assert not is_overdue(record, clock)
    assert not release_overdue(fs, ROOT, "run-1", clock)
    clock.sleep(ahead_s + TTL - 0.5)
    assert not is_free(fs, clock)
    clock.sleep(1)
    assert is_free(fs, clock)


@pytest.mark.parametrize("ahead_s", [TTL, 10 * TTL, 10 * 365 * 86_400])
def test_a_renewal_far_in_the_future_does_not_hold_the_lock_for_ever(ahead_s: float) -> None:
    fs, clock = make_fs(), QuickClock()
    put(fs, 1, msgspec.json.encode(holder(clock, renewed_ms=clock.now_ms() + round(ahead_s * 1000))))
    assert is_free(fs, clock)
    with lock(fs, "run-2", clock):
        assert [each.run_id for each in records(fs)] == ["run-2"]
        assert not is_free(fs, clock), "it is held by a clock that is right"


@pytest.mark.parametrize("ahead_s", [1, TTL / 2])
def test_a_run_without_the_lock_on_a_machine_whose_clock_is_ahead_counts_as_alive(ahead_s: float) -> None:
    fs, theirs, ours = make_fs(), QuickClock(), QuickClock()
    theirs.sleep(ahead_s)
    with JobLock(fs, ROOT, "run-1", TTL, theirs, shared=True):
        (record,) = holders(fs, ROOT).values()
        elsewhere = msgspec.structs.replace(record, host="elsewhere", renewed_ms=ours.now_ms() + round(ahead_s * 1000))
        assert is_alive(elsewhere, ours)
        assert not is_overdue(elsewhere, ours)
        ours.sleep(ahead_s + TTL * 0.6)
        assert is_overdue(elsewhere, ours)

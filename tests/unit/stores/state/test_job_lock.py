"""The job lock: its holder and takeovers, on a simulated machine with a clock that never waits."""

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
from distcommit.fs.local_disk.local_file_system import LocalFileSystem
from distcommit.fs.local_disk.posix_calls import RealPosixCalls
from distcommit.stores.state.job_lock import (
    JobLock,
    LockRecord,
    _process_start,
    holders,
    is_alive,
    is_held,
    is_renewal_late,
    release_late_lock,
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
        with suppress(FileNotFoundError):  # the lease was renewed meanwhile
            return [msgspec.json.decode(fs.read(f"{root}/lock/{name}"), type=LockRecord) for name in names]


def put(fs: LocalFileSystem, number: int, data: bytes, root: str = ROOT) -> None:
    fs.make_folders(f"{root}/lock")
    assert fs.put_if_absent(f"{root}/lock/{number:012d}.json", data)


def holder(clock: QuickClock, **changes: object) -> LockRecord:
    """Return the record of a live run on another machine."""
    record = LockRecord("other", "run-1", "elsewhere", 4711, "1", clock.now_ms(), TTL)
    return msgspec.structs.replace(record, **changes)


def is_free(fs: LocalFileSystem, clock: QuickClock) -> bool:
    try:
        with lock(fs, "asking", clock):
            return True
    except LockHeldError:
        return False


def test_lock_held_by_a_live_process_is_refused_and_its_holder_is_named() -> None:
    fs, clock = make_fs(), QuickClock()
    with lock(fs, "run-1", clock):
        clock.sleep(7)
        with pytest.raises(LockHeldError) as caught, lock(fs, "run-2", clock):
            pass
        assert caught.value.ids == {"run": "run-1"}
        assert caught.value.found == f"process {os.getpid()} on {socket.gethostname()}, lease renewed 7 s ago"
        assert "3000 s after its last renewal" in caught.value.todo
        assert [record.run_id for record in records(fs)] == ["run-1"]


def test_released_lock_is_free_at_once() -> None:
    fs, clock = make_fs(), QuickClock()
    for run_id in ("run-1", "run-2", "run-3"):
        with lock(fs, run_id, clock):
            assert [record.released for record in records(fs)] == [False]
        assert [(record.run_id, record.released) for record in records(fs)] == [(run_id, True)]


def test_failed_run_releases_its_lock() -> None:
    fs, clock = make_fs(), QuickClock()
    with pytest.raises(ZeroDivisionError), lock(fs, "run-1", clock):
        raise ZeroDivisionError
    assert is_free(fs, clock)


def test_lock_of_a_dead_process_on_this_machine_is_taken_over_at_once() -> None:
    fs, clock = make_fs(), QuickClock()
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    alive = holder(clock, host=socket.gethostname(), pid=process.pid, process_start=_process_start(process.pid))
    put(fs, 5, msgspec.json.encode(alive))
    assert not is_free(fs, clock)
    process.communicate(b"\n", timeout=30)
    assert is_free(fs, clock)


def test_reused_process_id_does_not_hold_the_lock() -> None:
    fs, clock = make_fs(), QuickClock()
    put(fs, 1, msgspec.json.encode(holder(clock, host=socket.gethostname(), pid=os.getpid(), process_start="1")))
    assert is_free(fs, clock)


def test_lock_of_another_machine_is_held_until_its_lease_expires() -> None:
    fs, clock = make_fs(), QuickClock()
    put(fs, 1, msgspec.json.encode(holder(clock)))
    clock.sleep(TTL - 1)
    assert not is_free(fs, clock)
    clock.sleep(1)
    assert is_free(fs, clock)


@pytest.mark.parametrize("data", [b"", b"{", b'{"owner_id": 5}', b"\xff\xfe", b"[]"])
def test_unreadable_lock_record_does_not_hold_the_lock(data: bytes) -> None:
    fs, clock = make_fs(), QuickClock()
    put(fs, 9, data)
    with lock(fs, "run-1", clock):
        assert [record.run_id for record in records(fs)] == ["run-1"]
        assert not is_free(fs, clock)


def test_only_one_of_two_concurrent_runs_takes_the_lock_and_the_error_of_the_other_names_the_holder() -> None:
    calls, clock = SimulatedPosix(), QuickClock()
    fs = SimulatedFileSystem(calls)
    fs.make_folders(ROOT)
    first = lock(fs, "first", clock)
    second = lock(fs, "second", clock)

    def race(operation: Operation) -> None:
        if operation.kind == "rename":  # the first run has read the lock and is about to put its record
            calls.gate = None
            second.__enter__()

    calls.gate = race
    with pytest.raises(LockHeldError) as caught, first:
        pass
    assert caught.value.ids == {"run": "second"}
    assert [record.run_id for record in records(fs)] == ["second"]
    second.__exit__(None, None, None)
    assert is_free(fs, clock)


def test_slow_run_does_not_take_a_lock_that_was_taken_and_renewed_meanwhile(
    tmp_path: Path,
) -> None:
    clock, root = QuickClock(), str(tmp_path)
    renewals = Renewals(clock)
    quick = lock(LocalFileSystem(renewals), "quick", clock, 0.03, root)

    class SlowCalls(RealPosixCalls):
        def rename_noreplace(self, source: str, target: str) -> None:
            quick.__enter__()  # the slow run has read the lock and is about to put its record
            renewals.wait_for(3)
            super().rename_noreplace(source, target)

    try:
        with pytest.raises(LockHeldError) as caught, lock(LocalFileSystem(SlowCalls()), "slow", clock, TTL, root):
            pass
        assert caught.value.ids == {"run": "quick"}
    finally:
        quick.__exit__(None, None, None)


def test_exactly_one_of_many_concurrent_runs_takes_the_lock(tmp_path: Path) -> None:
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
    """System calls that count published lock records and advance the clock with each."""

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


def test_holder_that_renews_its_lease_keeps_the_lock_beyond_one_term(tmp_path: Path) -> None:
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


def test_holder_whose_lock_was_taken_over_neither_renews_nor_releases_it(tmp_path: Path) -> None:
    fs, clock, root = LocalFileSystem(), QuickClock(), str(tmp_path)
    own_lock = lock(fs, "run-1", clock, 0.03, root)
    own_lock.__enter__()
    put(fs, 900, msgspec.json.encode(holder(clock)), root)
    own_lock._thread.join(timeout=10)
    assert not own_lock._thread.is_alive()
    own_lock.__exit__(None, None, None)
    assert records(fs, root)[-1] == holder(clock)


def test_runs_without_the_lock_block_no_other_run_and_count_as_alive(
    caplog: pytest.LogCaptureFixture,
) -> None:
    fs, clock = make_fs(), QuickClock()
    with (
        JobLock(fs, ROOT, "first", TTL, clock, shared=True),
        JobLock(fs, ROOT, "second", TTL, clock, shared=True),
        lock(fs, "third", clock),
    ):
        running = holders(fs, ROOT)
        assert {run_id: is_alive(holder, clock) for run_id, holder in running.items()} == dict.fromkeys(
            ("first", "second", "third"), True
        )
        clock.sleep(TTL + 1)
        assert not any(is_alive(holder, clock) for holder in running.values())
    assert {run_id: holder.released for run_id, holder in holders(fs, ROOT).items()} == {"third": True}
    assert "not released" not in caplog.text


def test_run_with_an_overdue_lease_loses_the_lock_and_does_not_release_it_for_others() -> None:
    fs, clock = make_fs(), QuickClock()
    with lock(fs, "frozen", clock):
        clock.sleep(TTL / 3)
        assert not release_late_lock(fs, ROOT, "frozen", clock), "the run may be about to renew its lease"
        clock.sleep(TTL / 3)
        assert not is_free(fs, clock)
        assert not release_late_lock(fs, ROOT, "another", clock)
        assert release_late_lock(fs, ROOT, "frozen", clock)
        names = fs.list_folder(f"{ROOT}/lock")
    assert fs.list_folder(f"{ROOT}/lock") == names, "the run must not release a lock that it lost"
    assert is_free(fs, clock)


@pytest.mark.parametrize("ahead_s", [1, 60, TTL - 1])
def test_lock_of_another_machine_with_a_fast_clock_is_held_until_its_lease_expires(ahead_s: float) -> None:
    fs, clock = make_fs(), QuickClock()
    record = holder(clock, renewed_ms=clock.now_ms() + round(ahead_s * 1000))
    put(fs, 1, msgspec.json.encode(record))
    with pytest.raises(LockHeldError, match=f"by a clock that is {ahead_s:.0f} s ahead of the clock here"):
        lock(fs, "run-2", clock).__enter__()
    assert not is_renewal_late(record, clock)
    assert not release_late_lock(fs, ROOT, "run-1", clock)
    clock.sleep(ahead_s + TTL - 0.5)
    assert not is_free(fs, clock)
    clock.sleep(1)
    assert is_free(fs, clock)


@pytest.mark.parametrize("ahead_s", [TTL, 10 * TTL, 10 * 365 * 86_400])
def test_renewal_far_in_the_future_does_not_hold_the_lock_for_ever(ahead_s: float) -> None:
    fs, clock = make_fs(), QuickClock()
    put(fs, 1, msgspec.json.encode(holder(clock, renewed_ms=clock.now_ms() + round(ahead_s * 1000))))
    assert is_free(fs, clock)
    with lock(fs, "run-2", clock):
        assert [record.run_id for record in records(fs)] == ["run-2"]
        assert not is_free(fs, clock), "a holder with a correct clock must keep the lock"


@pytest.mark.parametrize("ahead_s", [1, TTL / 2])
def test_run_without_the_lock_on_a_machine_with_a_fast_clock_counts_as_alive(ahead_s: float) -> None:
    fs, fast_clock, local_clock = make_fs(), QuickClock(), QuickClock()
    fast_clock.sleep(ahead_s)
    with JobLock(fs, ROOT, "run-1", TTL, fast_clock, shared=True):
        (record,) = holders(fs, ROOT).values()
        elsewhere = msgspec.structs.replace(
            record, host="elsewhere", renewed_ms=local_clock.now_ms() + round(ahead_s * 1000)
        )
        assert is_alive(elsewhere, local_clock)
        assert not is_renewal_late(elsewhere, local_clock)
        local_clock.sleep(ahead_s + TTL * 0.6)
        assert is_renewal_late(elsewhere, local_clock)


def test_lock_is_held_from_its_acquisition_to_its_release() -> None:
    fs, clock = make_fs(), QuickClock()
    assert not is_held(fs, ROOT, clock)
    with lock(fs, "r1", clock):
        assert is_held(fs, ROOT, clock)
    assert not is_held(fs, ROOT, clock)

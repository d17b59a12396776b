"""Programs for the crash explorer: runs that compete for the job's lock."""

from __future__ import annotations

import errno
import os
from typing import cast

import msgspec

from distcommit.core.errors import LockHeldError
from distcommit.stores.state.job_lock import JobLock, LockRecord, release_late_lock
from tests.simulation.programs.parts import Meddling, Program, new_machine, put_file, require_refused
from tests.simulation.simulated_posix import SimulatedPosix
from tests.simulation.stepped_lock import SteppedLock
from tests.simulation.world import ROOTS, SimulatedClock, SimulatedFileSystem

_LEASE_S = 30


def _hold_lock(machine: SimulatedPosix) -> None:
    clock = SimulatedClock()
    with JobLock(SimulatedFileSystem(machine), ROOTS.store, "r1", 30, clock):
        clock.sleep(1)


def _lock_again(machine: SimulatedPosix) -> str:
    clock = SimulatedClock()
    clock.sleep(100)  # past any lease
    with JobLock(SimulatedFileSystem(machine), ROOTS.store, "r2", 30, clock):
        return ""


def _contend(machine: SimulatedPosix) -> None:
    """Require that the lock is refused while its holder lives, and taken over from a dead or unreadable holder."""
    clock = SimulatedClock()

    def lock(run: str) -> SteppedLock:
        return SteppedLock(SimulatedFileSystem(machine), ROOTS.store, run, _LEASE_S, clock)

    late, other = lock("late"), lock("other")
    with late:
        clock.sleep(_LEASE_S - 1)
        late.renew()
        clock.sleep(_LEASE_S - 1)
        require_refused([other.__enter__], LockHeldError)
        clock.sleep(1)
        with other:
            late.renew()
            if late.is_mine() or not other.is_mine():
                raise AssertionError("the late one took it back")
    _leave(machine, b"not a record")
    with lock("third"):
        pass
    dead = LockRecord("dead", "dead", other._record.host, 1 << 30, "1", clock.now_ms(), _LEASE_S)
    _leave(machine, msgspec.json.encode(dead))
    with lock("fourth"):
        pass
    puts = Meddling(machine, lambda name, arguments: name == "rename_noreplace", lambda: None, _fail, _fail)
    with SteppedLock(SimulatedFileSystem(puts.as_calls()), ROOTS.store, "fifth", _LEASE_S, clock) as fifth:
        cast(SteppedLock, fifth).renew()  # which fails, and so does its release: the lease expires
    require_refused([lock("sixth").__enter__], LockHeldError)


def _stuck(machine: SimulatedPosix) -> None:
    """The lock is taken from a run that should have renewed it; another run begins, and the first one wakes."""
    clock, fs = SimulatedClock(), SimulatedFileSystem(machine)
    late, other = (SteppedLock(fs, ROOTS.store, run, _LEASE_S, clock) for run in ("late", "other"))
    with late:
        clock.sleep(_LEASE_S * 0.6)
        if release_late_lock(fs, ROOTS.store, "another", clock) or not release_late_lock(
            fs, ROOTS.store, "late", clock
        ):
            raise AssertionError("it is another's lock that was taken away, or none")
        with other:
            late.renew()
            if late.is_mine() or not other.is_mine():
                raise AssertionError("the late one took it back")
            if release_late_lock(fs, ROOTS.store, "other", clock):
                raise AssertionError("the lock was taken from one that has just begun")


def _fail() -> None:
    raise OSError(errno.EIO, os.strerror(errno.EIO))


def _leave(machine: SimulatedPosix, data: bytes) -> None:
    """Write a newest record of another holder."""
    folder = f"{ROOTS.store}/lock"
    numbers = [int(entry.name.removesuffix(".json")) for entry in machine.scandir(folder)]
    put_file(machine, f"{folder}/{max(numbers) + 1:012d}.json", data)


LOCK = (
    Program("lock", new_machine, _hold_lock, _lock_again),
    Program("lock-stuck", new_machine, _stuck, _lock_again),
    Program("lock-contended", new_machine, _contend, _lock_again),
)

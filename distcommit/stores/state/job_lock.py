"""The job lock: politeness between healthy runs of one job. Safety rests on epochs, not on it.

Lock records are numbered and put-if-absent, so that of two who want it one wins; the newest is in force. A holder
renews its lease by writing a newer record; whoever finds the lease run out, or the holder's process dead on this
machine, takes over.

A run that is not to hold the lock keeps such records in a folder of its own, so that others can tell that it is alive.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
import uuid
from types import TracebackType
from typing import Annotated

import msgspec

from distcommit.core.errors import LockHeldError
from distcommit.core.ports import Clock, FileSystem
from distcommit.decoding import from_json
from distcommit.protocol.paths.store import LOCK, is_run_name, number_of, numbered_name, run_name
from distcommit.stores.folders.deletion import delete_tree
from distcommit.stores.state.documents import UNREADABLE

logger = logging.getLogger(__name__)


class LockRecord(msgspec.Struct, frozen=True):
    """Who holds the lock. Times are milliseconds since 1970; `process_start` tells a reused process id."""

    owner_id: str
    run_id: str
    host: str
    pid: int
    process_start: str
    renewed_ms: Annotated[int, msgspec.Meta(ge=0, le=1 << 53)]
    lease_ttl_s: float
    released: bool = False


class JobLock:
    """Holds the lock of one job while in a `with` block, renewing the lease from a thread.

    Args:
        fs: where the store is.
        store_root: its folder.
        run_id: for whom.
        lease_ttl_s: how long the lock outlives its last renewal.
        clock: the time.
        shared: whether it holds nobody off, and only says that the run is alive.

    Raises:
        LockHeldError: on entering, if a live run holds it; says which, where and since when.
    """

    def __init__(
        self, fs: FileSystem, store_root: str, run_id: str, lease_ttl_s: float, clock: Clock, *, shared: bool = False
    ) -> None:
        self._fs, self._folder, self._clock = fs, f"{store_root}/{LOCK}", clock
        self._shared = shared
        if shared:
            self._folder += f"/{run_name(run_id)}"
        self._mine = LockRecord(
            uuid.uuid4().hex, run_id, socket.gethostname(), os.getpid(), _process_start(os.getpid()), 0, lease_ttl_s
        )
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._renew, name="job-lock", daemon=True)

    def __enter__(self) -> JobLock:
        self._fs.make_folders(self._folder)
        while True:
            number, holder = self._newest()
            if holder is not None and is_alive(holder, self._clock):
                raise LockHeldError(
                    "another run of this job is alive",
                    run=holder.run_id,
                    expected="no run of this job",
                    found=f"process {holder.pid} on {holder.host}, {_renewal(holder, self._clock)}",
                    todo="wait for it, or stop it: its lease runs out"
                    f" {holder.lease_ttl_s:g} s after its last renewal, and what it had sealed is then replayed",
                )
            if holder is not None and not holder.released:
                logger.warning("taking over the job lock of dead run %s", holder.run_id)
            if not self._put(number + 1, released=False):
                continue
            newest = self._newest()[1]  # a number that was deleted can be put again: only the newest record counts
            if newest is not None and newest.owner_id == self._mine.owner_id:
                break
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()
        try:
            number, holder = self._newest()
            if holder is not None and holder.owner_id == self._mine.owner_id:
                self._put(number + 1, released=True)
            if self._shared:
                delete_tree(self._fs, self._folder)
        except OSError as failure:  # the lease runs out by itself
            logger.warning("job lock not released: %s", failure)

    def _renew(self) -> None:
        while not self._stop.wait(self._mine.lease_ttl_s / 3):
            try:
                number, holder = self._newest()
                if holder is None or holder.owner_id != self._mine.owner_id:
                    logger.warning("the job lock was taken over; this run goes on until it is fenced")
                    return
                self._put(number + 1, released=False)
            except OSError as error:
                logger.warning("job lock not renewed: %s", error)

    def _put(self, number: int, *, released: bool) -> bool:
        record = msgspec.structs.replace(self._mine, renewed_ms=self._clock.now_ms(), released=released)
        won = self._fs.put_if_absent(f"{self._folder}/{numbered_name(number)}", msgspec.json.encode(record))
        if won:
            for older in self._numbers():
                if older < number:
                    self._fs.delete(f"{self._folder}/{numbered_name(older)}")
        return won

    def _newest(self) -> tuple[int, LockRecord | None]:
        return _newest(self._fs, self._folder)

    def _numbers(self) -> list[int]:
        return _numbers(self._fs, self._folder)


def _renewal(holder: LockRecord, clock: Clock) -> str:
    """Return when a holder renewed its lease, also where its clock is ahead of this machine's."""
    seconds = (clock.now_ms() - holder.renewed_ms) / 1000
    if seconds < 0:
        return f"lease renewed by a clock that is {-seconds:.0f} s ahead of the clock here"
    return f"lease renewed {seconds:.0f} s ago"


def holders(fs: FileSystem, store_root: str) -> dict[str, LockRecord]:
    """Who holds the lock, and who runs without holding it, by run id: alive or not. Reads only."""
    found = (_newest(fs, each)[1] for each in _folders(fs, store_root))
    return {holder.run_id: holder for holder in found if holder is not None}


def is_alive(holder: LockRecord, clock: Clock) -> bool:
    """Whether the holder lives, as far as can be told from here."""
    if holder.released:
        return False
    if holder.host == socket.gethostname() and _process_start(holder.pid) != holder.process_start:
        return False
    # a renewal in the future, by a clock that is off, must not hold the lock for ever
    return abs(clock.now_ms() - holder.renewed_ms) < holder.lease_ttl_s * 1000


def is_overdue(holder: LockRecord, clock: Clock) -> bool:
    """Whether a holder that counts as alive should have renewed its lease by now, and has not: it is dead on another
    machine, frozen, or cut off from the store. It renews after a third of the lease."""
    return is_alive(holder, clock) and clock.now_ms() - holder.renewed_ms > holder.lease_ttl_s * 500


def release_overdue(fs: FileSystem, store_root: str, run_id: str, clock: Clock) -> bool:
    """Takes the lock, or its sign of life, from a run that should have renewed it: others may begin at once. Safe, as
    safety rests on epochs: should it wake, it finds the lock taken over, and goes on until it is fenced.

    Returns:
        whether it was taken away.
    """
    for folder in _folders(fs, store_root):
        number, holder = _newest(fs, folder)
        if holder is None or holder.run_id != run_id or not is_overdue(holder, clock):
            continue
        taken = msgspec.structs.replace(holder, owner_id=uuid.uuid4().hex, released=True)
        return fs.put_if_absent(f"{folder}/{numbered_name(number + 1)}", msgspec.json.encode(taken))
    return False


def _folders(fs: FileSystem, store_root: str) -> list[str]:
    """Where the lock is, and where runs that do not hold it say that they are alive."""
    folder = f"{store_root}/{LOCK}"
    return [folder, *(f"{folder}/{e.name}" for e in fs.list_folder(folder) if e.is_folder and is_run_name(e.name))]


def _newest(fs: FileSystem, folder: str) -> tuple[int, LockRecord | None]:
    while numbers := _numbers(fs, folder):
        try:
            path = f"{folder}/{numbered_name(max(numbers))}"
            return max(numbers), from_json(fs.read(path), LockRecord)
        except FileNotFoundError:  # renewed meanwhile
            continue
        except UNREADABLE:
            logger.warning("unreadable lock record %s is taken for released", path)
            return max(numbers), None
    return 0, None


def _numbers(fs: FileSystem, folder: str) -> list[int]:
    numbers = (number_of(entry.name) for entry in fs.list_folder(folder))
    return [number for number in numbers if number is not None]


def _process_start(pid: int) -> str:
    """When a process of this machine began, in the kernel's ticks; empty if there is none (or no /proc)."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
            fields = file.read().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] in "ZX" else fields[19]

"""The job lock, which keeps healthy runs of one job apart; safety depends on epochs instead.

Lock records are numbered and put if absent, and the newest is valid. The holder renews its lease by records. A
contender takes over if the lease has expired, or the holder's process on the same machine is dead.

A run without the lock keeps such records in a folder of the run, as a sign of life.
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
from distcommit.core.interfaces.clock import Clock
from distcommit.core.interfaces.file_system import FileSystem
from distcommit.core.support.decoding import from_json
from distcommit.protocol.paths.store import LOCK, is_run_name, number_of, numbered_name, run_name
from distcommit.stores.folders.folder_trees import delete_tree
from distcommit.stores.state.checksummed_json import UNREADABLE

logger = logging.getLogger(__name__)


class LockRecord(msgspec.Struct, frozen=True):
    """A record of a lock holder.

    Attributes:
        owner_id: unique id of the holder.
        run_id: id of the holder's run.
        host: host name of the holder.
        pid: process id of the holder.
        process_start: start time of the process in kernel ticks, which distinguishes a reused process id.
        renewed_ms: time of this renewal, in milliseconds since 1970.
        lease_ttl_s: seconds from the renewal to the end of the lease.
        released: whether the holder has released the lock.
    """

    owner_id: str
    run_id: str
    host: str
    pid: int
    process_start: str
    renewed_ms: Annotated[int, msgspec.Meta(ge=0, le=1 << 53)]
    lease_ttl_s: float
    released: bool = False


class JobLock:
    """The lock of one job, held in a `with` block. A thread renews its lease.

    Args:
        run_id: id of the run that takes the lock.
        lease_ttl_s: seconds from the last renewal to the end of the lease.
        shared: whether to give only a sign of life, without excluding other runs.

    Raises:
        LockHeldError: on entering, if a live run holds the lock. The error has its run, host and last renewal.
    """

    def __init__(
        self, fs: FileSystem, store_root: str, run_id: str, lease_ttl_s: float, clock: Clock, *, shared: bool = False
    ) -> None:
        self._fs, self._folder, self._clock = fs, f"{store_root}/{LOCK}", clock
        self._shared = shared
        if shared:
            self._folder += f"/{run_name(run_id)}"
        self._record = LockRecord(
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
                    todo="wait for it, or stop it: its lease expires"
                    f" {holder.lease_ttl_s:g} s after its last renewal, and its sealed sequences are then replayed",
                )
            if holder is not None and not holder.released:
                logger.warning("taking over the job lock of dead run %s", holder.run_id)
            if not self._put(number + 1, released=False):
                continue
            newest = self._newest()[1]  # a deleted number can be put again: only the newest record counts
            if newest is not None and newest.owner_id == self._record.owner_id:
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
            if holder is not None and holder.owner_id == self._record.owner_id:
                self._put(number + 1, released=True)
            if self._shared:
                delete_tree(self._fs, self._folder)
        except OSError as failure:  # the lease expires
            logger.warning("job lock not released: %s", failure)

    def _renew(self) -> None:
        while not self._stop.wait(self._record.lease_ttl_s / 3):
            try:
                number, holder = self._newest()
                if holder is None or holder.owner_id != self._record.owner_id:
                    logger.warning("the job lock was taken over; this run continues until it is fenced")
                    return
                self._put(number + 1, released=False)
            except OSError as error:
                logger.warning("job lock not renewed: %s", error)

    def _put(self, number: int, *, released: bool) -> bool:
        record = msgspec.structs.replace(self._record, renewed_ms=self._clock.now_ms(), released=released)
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
    seconds = (clock.now_ms() - holder.renewed_ms) / 1000
    if seconds < 0:
        return f"lease renewed by a clock that is {-seconds:.0f} s ahead of the clock here"
    return f"lease renewed {seconds:.0f} s ago"


def holders(fs: FileSystem, store_root: str) -> dict[str, LockRecord]:
    """Return the newest record of the lock holder and of each run with a sign of life, by run id, also of dead runs."""
    records = (_newest(fs, folder)[1] for folder in _folders(fs, store_root))
    return {holder.run_id: holder for holder in records if holder is not None}


def is_held(fs: FileSystem, store_root: str, clock: Clock) -> bool:
    holder = JobLock(fs, store_root, "", 1, clock)._newest()[1]
    return holder is not None and is_alive(holder, clock)


def is_alive(holder: LockRecord, clock: Clock) -> bool:
    if holder.released:
        return False
    if holder.host == socket.gethostname() and _process_start(holder.pid) != holder.process_start:
        return False
    # A renewal in the future, by a clock that is off, must not hold the lock forever.
    return abs(clock.now_ms() - holder.renewed_ms) < holder.lease_ttl_s * 1000


def is_renewal_late(holder: LockRecord, clock: Clock) -> bool:
    """Return whether a live holder has not renewed for half of its lease; renewals are due after a third.

    It may be dead on another machine, frozen, or cut off from the store.
    """
    return is_alive(holder, clock) and clock.now_ms() - holder.renewed_ms > holder.lease_ttl_s * 500


def release_late_lock(fs: FileSystem, store_root: str, run_id: str, clock: Clock) -> bool:
    """Release the lock or sign of life of a late run, so that other runs can start; return whether that worked.

    This is safe: if the late run wakes, it continues until it is fenced.
    """
    for folder in _folders(fs, store_root):
        number, holder = _newest(fs, folder)
        if holder is None or holder.run_id != run_id or not is_renewal_late(holder, clock):
            continue
        released = msgspec.structs.replace(holder, owner_id=uuid.uuid4().hex, released=True)
        return fs.put_if_absent(f"{folder}/{numbered_name(number + 1)}", msgspec.json.encode(released))
    return False


def _folders(fs: FileSystem, store_root: str) -> list[str]:
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
            logger.warning("lock record %s is unreadable; it is treated as released", path)
            return max(numbers), None
    return 0, None


def _numbers(fs: FileSystem, folder: str) -> list[int]:
    numbers = (number_of(entry.name) for entry in fs.list_folder(folder))
    return [number for number in numbers if number is not None]


def _process_start(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
            fields = file.read().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] in "ZX" else fields[19]

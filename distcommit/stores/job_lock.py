"""The job lock: politeness between healthy runs of one job. Safety rests on epochs, not on it.

Lock records are numbered and put-if-absent, so that of two who want it one wins; the newest is in force. A holder
renews its lease by writing a newer record; whoever finds the lease run out, or the holder's process dead on this
machine, takes over.
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

from distcommit.model.errors import LockHeldError
from distcommit.model.ports import Clock, FileSystem
from distcommit.protocol.paths import number_of, numbered_name
from distcommit.stores.documents import UNREADABLE

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

    Raises:
        LockHeldError: on entering, if a live run holds it; says which, where and since when.
    """

    def __init__(self, fs: FileSystem, store_root: str, run_id: str, lease_ttl_s: float, clock: Clock) -> None:
        self._fs, self._folder, self._clock = fs, f"{store_root}/lock", clock
        self._mine = LockRecord(
            uuid.uuid4().hex, run_id, socket.gethostname(), os.getpid(), _process_start(os.getpid()), 0, lease_ttl_s
        )
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._renew, name="job-lock", daemon=True)

    def __enter__(self) -> JobLock:
        self._fs.make_folders(self._folder)
        while True:
            number, holder = self._newest()
            if holder is not None and self._alive(holder):
                raise LockHeldError(
                    "another run of this job is alive",
                    run=holder.run_id,
                    expected="no run of this job",
                    found=f"process {holder.pid} on {holder.host}, lease renewed"
                    f" {(self._clock.now_ms() - holder.renewed_ms) / 1000:.0f} s ago",
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
        while numbers := self._numbers():
            try:
                path = f"{self._folder}/{numbered_name(max(numbers))}"
                return max(numbers), msgspec.json.decode(self._fs.read(path), type=LockRecord)
            except FileNotFoundError:  # renewed meanwhile
                continue
            except UNREADABLE:
                logger.warning("unreadable lock record %s is taken for released", path)
                return max(numbers), None
        return 0, None

    def _numbers(self) -> list[int]:
        numbers = (number_of(entry.name) for entry in self._fs.list_folder(self._folder))
        return [number for number in numbers if number is not None]

    def _alive(self, holder: LockRecord) -> bool:
        if holder.released:
            return False
        if holder.host == socket.gethostname() and _process_start(holder.pid) != holder.process_start:
            return False
        # a renewal in the future, by a clock that is off, must not hold the lock for ever
        return abs(self._clock.now_ms() - holder.renewed_ms) < holder.lease_ttl_s * 1000


def _process_start(pid: int) -> str:
    """When a process of this machine began, in the kernel's ticks; empty if there is none (or no /proc)."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
            fields = file.read().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] in "ZX" else fields[19]

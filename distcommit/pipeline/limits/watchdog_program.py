"""The program of the watchdog process, isolated and without imports of distcommit before a failure, so that it starts
fast.

The worker writes deadlines into shared memory without waking the program.
"""

from __future__ import annotations

import mmap
import os
import select
import signal
import struct
import sys
import time

DEADLINE = struct.Struct("<d")
"""Deadline on the clock of `time.monotonic`; 0 while no converter or checker runs."""
SIZES = struct.Struct("<4I")
"""Byte lengths of the construct's name, and of import path, store and work unit at `TEXTS_AT`."""
SIZES_AT, NAME_AT, TEXTS_AT = 8, 64, 4096
_POLL_S = 0.5
_RETRY_S = 1.0


class Worker:
    """The watched worker. After its end, another process may have its pid.

    Args:
        pid: process id.
        pidfd: process descriptor; if -1, the worker must still be the parent.
    """

    def __init__(self, pid: int, pidfd: int) -> None:
        self._pid, self._pidfd = pid, pidfd

    def has_ended(self, within_s: float) -> bool:
        """Wait up to `within_s` seconds; return whether the worker has ended."""
        if self._pidfd >= 0:
            return bool(select.select([self._pidfd], [], [], within_s)[0])
        if os.getppid() == self._pid:
            time.sleep(within_s)
        return os.getppid() != self._pid

    def kill(self) -> None:
        if self._pidfd >= 0:
            try:
                signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)
            except ProcessLookupError:
                return
        elif os.getppid() == self._pid:
            os.kill(self._pid, signal.SIGKILL)


class StuckConstruct:
    """A construct past its deadline, with data for the record."""

    def __init__(self, deadline_s: float, construct: str, import_path: str, store: bytes, work_unit: bytes) -> None:
        self.deadline_s, self.construct = deadline_s, construct
        self.import_path, self.store, self.work_unit = import_path, store, work_unit


class SharedMemory:
    """Memory that the worker writes.

    Args:
        descriptor: file descriptor of the memory.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._memory = mmap.mmap(descriptor, TEXTS_AT, prot=mmap.PROT_READ)

    def stuck(self) -> StuckConstruct | None:
        (deadline_s,) = DEADLINE.unpack_from(self._memory)
        if not deadline_s or time.monotonic() < deadline_s:
            return None
        name, *sizes = SIZES.unpack_from(self._memory, SIZES_AT)
        texts, begin = [], TEXTS_AT
        for size in sizes:
            texts.append(_read(self._descriptor, size, begin))
            begin += size
        path, store, unit = texts
        construct = self._memory[NAME_AT : NAME_AT + name].decode(errors="replace")
        stuck = StuckConstruct(deadline_s, construct, path.decode(), store, unit)
        time.sleep(0.05)
        return stuck if self.is_stuck(stuck) else None

    def is_stuck(self, stuck: StuckConstruct) -> bool:
        return bool(DEADLINE.unpack_from(self._memory) == (stuck.deadline_s,))


def watch(shared: SharedMemory, worker: Worker, record_s: float) -> None:
    """Wait for a deadline to pass, record the failure durably, and kill the worker.

    Returns when the worker has ended. After `record_s` seconds without a record, the worker is killed anyway.
    """
    while not worker.has_ended(_POLL_S):
        stuck = shared.stuck()
        if stuck is None:
            continue
        import threading  # noqa: PLC0415 - for a fast start

        is_recorded: list[bool] = []
        recording = threading.Thread(target=_record, args=(shared, stuck, is_recorded), daemon=True)
        recording.start()
        recording.join(record_s)
        if is_recorded or shared.is_stuck(stuck):
            sys.stderr.write(f"construct {stuck.construct!a} does not return from native code: worker killed\n")
            sys.stderr.flush()
            worker.kill()
            os._exit(0)  # the recording thread may wait for the store


def _record(shared: SharedMemory, stuck: StuckConstruct, is_recorded: list[bool]) -> None:
    """Record the failure, retrying until it is durable or the construct returned.

    Runs in a thread; appends True to `is_recorded`.
    """
    if not stuck.work_unit:
        return
    sys.path[:] = stuck.import_path.split("\n")
    while shared.is_stuck(stuck):
        try:
            from distcommit.stores.state.stuck_work_unit_record import failure_of  # noqa: PLC0415 - for a fast start

            failure = failure_of(stuck.store, stuck.work_unit, stuck.construct)
            if not shared.is_stuck(stuck):  # imports take a while
                return
            failure.put()
        except Exception as error:  # noqa: BLE001 - any failure is retried: the worker must not hang forever
            sys.stderr.write(f"a stuck work unit could not be recorded: {type(error).__name__}\n")
            time.sleep(_RETRY_S)
        else:
            is_recorded.append(True)
            return


def _read(descriptor: int, size: int, offset: int) -> bytes:
    data = b""
    while len(data) < size:
        chunk = os.pread(descriptor, size - len(data), offset + len(data))
        if not chunk:
            return b""  # the worker is writing the next work unit: the deadline has changed
        data += chunk
    return data


def main() -> None:
    """Watch the worker. Arguments: shared memory, process descriptor, pid, seconds for the record."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends it to all processes, but the driver ends the run
    descriptor, pidfd, pid = map(int, sys.argv[1:4])
    watch(SharedMemory(descriptor), Worker(pid, pidfd), float(sys.argv[4]))


if __name__ == "__main__":
    main()

"""A process that kills the worker if native code exceeds its time limit.

Well after the limit, the process durably records the work unit as failed, and kills the worker. The next attempt skips
that work unit (`engine.reading.worker_deaths`).
"""

from __future__ import annotations

import logging
import mmap
import os
import pickle
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType

from distcommit.core.support.child_program_source import program_text
from distcommit.core.work_units import TaskState
from distcommit.pipeline.limits import watchdog_program
from distcommit.pipeline.limits.time_limit import watched_by
from distcommit.pipeline.limits.watchdog_program import DEADLINE, NAME_AT, SIZES, SIZES_AT, TEXTS_AT
from distcommit.pipeline.task_flow import TaskFlow
from distcommit.stores.state.task_states import TaskStateWriter

logger = logging.getLogger(__name__)

LEAST_MARGIN_S = 5
"""Minimum seconds after the limit in which the signal may still end the call. The margin is also at least as long as
the limit."""


class Watchdog:
    """The watchdog process of one task. It runs within the block, if the flow has converters or checkers and a limit.

    Args:
        writer: writes the run's task states. Only the watchdog process uses it.
        least_margin_s: see `LEAST_MARGIN_S`.
        record_s: seconds after which the worker is killed even if the store cannot be written.
    """

    def __init__(
        self, flow: TaskFlow, writer: TaskStateWriter, least_margin_s: float = LEAST_MARGIN_S, record_s: float = 60
    ) -> None:
        self._flow, self._writer, self._least_margin_s, self._record_s = flow, writer, least_margin_s, record_s
        self._stack = ExitStack()
        self._memory: mmap.mmap | None = None
        self._descriptor, self._unit_at = -1, 0
        self._sizes = (0, 0, 0)

    def __enter__(self) -> Watchdog:
        flow = self._flow
        if flow.construct_seconds and (flow.fork is not None or flow.stages or any(b.stages for b in flow.branches)):
            try:
                self._start()
            except Exception:
                self._stop()
                logger.warning("the watchdog of constructs in native code could not be started", exc_info=True)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._stop()

    @contextmanager
    def working_on(self, bucket: int, failed: TaskState) -> Iterator[None]:
        """Set the failure to record if a construct in the block is stuck.

        Args:
            failed: state of a failed attempt.
        """
        if self._memory is None:
            yield
            return
        self._put_unit(pickle.dumps((bucket, failed)))
        try:
            yield
        finally:
            self._put_unit(b"")

    def begin(self, seconds: float, construct: str) -> None:
        """Start the clock; outside `working_on`, no failure is recorded."""
        if self._memory is None:
            return
        name = construct.encode()[: TEXTS_AT - NAME_AT]
        SIZES.pack_into(self._memory, SIZES_AT, len(name), *self._sizes)
        self._memory[NAME_AT : NAME_AT + len(name)] = name
        DEADLINE.pack_into(self._memory, 0, time.monotonic() + seconds + max(seconds, self._least_margin_s))

    def end(self) -> None:
        if self._memory is not None:
            DEADLINE.pack_into(self._memory, 0, 0.0)

    def _put_unit(self, unit: bytes) -> None:
        _write(self._descriptor, unit, self._unit_at)
        self._sizes = (*self._sizes[:2], len(unit))

    def _start(self) -> None:
        """Start the process, whose input is in memory that others cannot open."""
        path = "\n".join(_import_path()).encode()
        store = pickle.dumps((self._flow.hidden, self._writer))
        self._descriptor = os.memfd_create("distcommit-watchdog")
        self._stack.callback(os.close, self._descriptor)
        os.ftruncate(self._descriptor, TEXTS_AT)
        _write(self._descriptor, path + store, TEXTS_AT)
        self._sizes, self._unit_at = (len(path), len(store), 0), TEXTS_AT + len(path) + len(store)
        memory = self._stack.enter_context(mmap.mmap(self._descriptor, TEXTS_AT))
        pidfd = _pidfd()
        passed = [self._descriptor] if pidfd < 0 else [self._descriptor, pidfd]
        try:
            process = subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", program_text(watchdog_program)]
                + [str(number) for number in (self._descriptor, pidfd, os.getpid(), self._record_s)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=passed,
            )
        finally:
            if pidfd >= 0:
                os.close(pidfd)
        self._stack.callback(_end, process)
        self._stack.enter_context(watched_by(self))
        self._memory = memory

    def _stop(self) -> None:
        self._memory = None
        self._stack.close()


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()


def _pidfd() -> int:
    try:
        return os.pidfd_open(os.getpid())
    except (AttributeError, OSError):
        return -1


def _import_path() -> list[str]:
    """Return the import path, without a working folder that lacks distcommit."""
    spec = find_spec("distcommit")
    home = str(Path(spec.origin).parents[1]) if spec is not None and spec.origin else ""
    folders = [os.path.abspath(folder) for folder in sys.path if folder]
    return [folder for folder in folders if folder == home or folder != os.getcwd()]


def _write(descriptor: int, data: bytes, offset: int) -> None:
    while data:
        written = os.pwrite(descriptor, data, offset)
        data, offset = data[written:], offset + written

"""Custom converters that fail, are slow, hang, block in native code, or kill their worker."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator

import psutil
import pyarrow as pa
import pyarrow.compute as pc

from distcommit.core.interfaces.constructs import Converted, Converter
from distcommit.core.work_units import WorkUnit


class Breaking(Converter):
    """Raise at a batch that has a record with that number in its column `n`."""

    def __init__(self, number: int) -> None:
        self.number = number

    def convert(self, output_schema: pa.Schema | None, batch: pa.RecordBatch, unit: WorkUnit) -> Iterator[Converted]:
        if pc.any(pc.equal(batch.column("n"), self.number)).as_py():
            raise ZeroDivisionError(f"n is {self.number}")
        yield Converted(batch)


class Slow(Converter):
    """Take that long for each batch."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def convert(self, output_schema: pa.Schema | None, batch: pa.RecordBatch, unit: WorkUnit) -> Iterator[Converted]:
        time.sleep(self.seconds)
        yield Converted(batch)


class Endless(Converter):
    """Never return from a batch that has a record with that number in its column `n`."""

    def __init__(self, number: int) -> None:
        self.number = number

    def convert(self, output_schema: pa.Schema | None, batch: pa.RecordBatch, unit: WorkUnit) -> Iterator[Converted]:
        while pc.any(pc.equal(batch.column("n"), self.number)).as_py():
            time.sleep(0.01)
        yield Converted(batch)


class Native(Converter):
    """Block in native code that holds the interpreter, at a batch that has a record with that number."""

    def __init__(self, number: int) -> None:
        self.number = number

    def convert(self, output_schema: pa.Schema | None, batch: pa.RecordBatch, unit: WorkUnit) -> Iterator[Converted]:
        if pc.any(pc.equal(batch.column("n"), self.number)).as_py():
            sum(range(10**15))
        yield Converted(batch)


class Killing(Converter):
    """Kill the worker at a batch that has a record with that number, as the kernel does when memory runs out.

    `session`: kill all processes of the worker's session, as the end of a container does.
    """

    def __init__(self, number: int, *, session: bool = False) -> None:
        self.number, self.session = number, session

    def convert(self, output_schema: pa.Schema | None, batch: pa.RecordBatch, unit: WorkUnit) -> Iterator[Converted]:
        if pc.any(pc.equal(batch.column("n"), self.number)).as_py():
            others = psutil.pids() if self.session else []
            for pid in [pid for pid in others if pid != os.getpid() and _in_this_session(pid)]:
                os.kill(pid, signal.SIGKILL)
            os.kill(os.getpid(), signal.SIGKILL)
        yield Converted(batch)


def _in_this_session(pid: int) -> bool:
    try:
        return os.getsid(pid) == os.getsid(0)
    except ProcessLookupError:
        return False

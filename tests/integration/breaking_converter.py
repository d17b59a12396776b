"""Custom converters that fail, hang, or block in native code."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from distcommit.core.interfaces.constructs import Converted, Converter


class Breaking(Converter):
    """Raise at a batch that has a record with that number in its column `n`."""

    def __init__(self, number: int) -> None:
        self.number = number

    def convert(self, batch: pa.RecordBatch) -> Iterator[Converted]:
        if pc.any(pc.equal(batch.column("n"), self.number)).as_py():
            raise ZeroDivisionError(f"n is {self.number}")
        yield Converted(batch)


class Endless(Converter):
    """Never return from a batch that has a record with that number in its column `n`."""

    def __init__(self, number: int) -> None:
        self.number = number

    def convert(self, batch: pa.RecordBatch) -> Iterator[Converted]:
        while pc.any(pc.equal(batch.column("n"), self.number)).as_py():
            time.sleep(0.01)
        yield Converted(batch)


class Native(Converter):
    """Block in native code that holds the interpreter, at a batch that has a record with that number."""

    def __init__(self, number: int) -> None:
        self.number = number

    def convert(self, batch: pa.RecordBatch) -> Iterator[Converted]:
        if pc.any(pc.equal(batch.column("n"), self.number)).as_py():
            sum(range(10**15))
        yield Converted(batch)

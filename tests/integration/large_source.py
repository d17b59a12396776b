"""A source of records of ten megabytes each, one a batch, which tells how much memory its worker took meanwhile."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from distcommit.core.interfaces.source import Extraction, Extractor
from distcommit.core.watermark import Watermark, as_offset
from distcommit.core.work import WorkUnit
from distcommit.testing.fakes.model_source import ModelDataset, ModelSource
from tests.integration.named_source import NamedSource

SIZE = 10_000_000
_STATUS, _RESET = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def text(offset: int) -> str:
    """What a record holds: letters of which no two records have the same, and which do not all look alike."""
    piece = random.Random(offset).randbytes(5_000).hex()
    return piece * (SIZE // len(piece))


def value(offset: int) -> bytes:
    """A record as it comes. Of three one is no JSON, and one has a number below 0."""
    kind = offset % 3
    return f'{"no JSON: " * (kind == 1)}{{"n": {-1 if kind == 2 else offset}, "text": "{text(offset)}"}}'.encode()


class LargeSource(NamedSource):
    """One dataset. `peak`: a file for how many bytes the worker's memory grew, at most, while it read."""

    def __init__(self, records: int, peak: str) -> None:
        super().__init__([])
        self._model = ModelSource({"large": ModelDataset({"0": records})})
        self.peak = peak

    def open(self) -> Extractor:
        return LargeExtractor(self.peak)


class LargeExtractor(Extractor):
    def __init__(self, peak: str) -> None:
        self._peak = peak
        _RESET.write_text("5")  # the most that was resident is what is resident now
        self._before = _resident("VmRSS")

    def extract(self, unit: WorkUnit) -> Extraction:
        return LargeExtraction(unit)

    def close(self) -> None:
        Path(self._peak).write_text(str(_resident("VmHWM") - self._before))


class LargeExtraction(Extraction):
    def __init__(self, unit: WorkUnit) -> None:
        self._unit, self._read = unit, 0

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        low, high = (as_offset(mark.positions["0"]) for mark in (self._unit.low, self._unit.expected_high))
        for offset in range(low, high):
            self._read += SIZE
            yield pa.record_batch([["0"], [offset], [value(offset)]], names=["partition", "offset", "value"])

    def actual_high(self) -> Watermark:
        return self._unit.expected_high

    def bytes_read(self) -> int:
        return self._read


def _resident(key: str) -> int:
    """A line of the process's status, in bytes."""
    (line,) = (line for line in _STATUS.read_text(encoding="ascii").splitlines() if line.startswith(f"{key}:"))
    return int(line.split()[1]) << 10

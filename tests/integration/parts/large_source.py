"""A source of ten-megabyte records, one a batch, which reports the memory growth of its worker."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from distcommit.core.interfaces.source import Extraction, Extractor
from distcommit.core.watermark import Watermark, as_offset
from distcommit.core.work_units import WorkUnit
from distcommit.testing.fakes.model_source import ModelDataset, ModelSource
from tests.integration.parts.named_source import NamedSource

SIZE = 10_000_000
_STATUS, _RESET = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def text(offset: int) -> str:
    """Return the text of a record, which compresses badly and differs from each other record's."""
    piece = random.Random(offset).randbytes(5_000).hex()
    return piece * (SIZE // len(piece))


def value(offset: int) -> bytes:
    """Return a raw record. One of three is not JSON, and one has a negative number."""
    kind = offset % 3
    return f'{"no JSON: " * (kind == 1)}{{"n": {-1 if kind == 2 else offset}, "text": "{text(offset)}"}}'.encode()


class LargeSource(NamedSource):
    """Source of one dataset. `peak`: a file for the largest growth of the worker's memory, in bytes, during reading."""

    def __init__(self, records: int, peak: str) -> None:
        super().__init__([])
        self._model = ModelSource({"large": ModelDataset({"0": records})})
        self.peak = peak

    def open(self) -> Extractor:
        return LargeExtractor(self.peak)


class LargeExtractor(Extractor):
    def __init__(self, peak: str) -> None:
        self._peak = peak
        _RESET.write_text("5")  # reset the peak to the present resident size
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
    """Return a size from the process's status, in bytes."""
    (line,) = (line for line in _STATUS.read_text(encoding="ascii").splitlines() if line.startswith(f"{key}:"))
    return int(line.split()[1]) << 10

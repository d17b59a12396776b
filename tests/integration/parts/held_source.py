"""A source of a hundred datasets, one of which blocks until a file appears."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa

from distcommit.core.interfaces.provenance import Provenance
from distcommit.core.interfaces.source import Extraction, Extractor, Source, SourceState
from distcommit.core.watermark import Watermark, as_offset
from distcommit.core.work_units import DatasetPlan, WorkUnit

HELD = "dataset-042"


class HeldSource(Source):
    """Source whose dataset 42 is as large as all others together and blocks while it is read."""

    provenance = Provenance("partition", "offset")

    def __init__(self, release: str, datasets: int = 100) -> None:
        self.release, self.datasets = release, datasets

    def plan(self, owned: Callable[[str], bool], states: SourceState) -> Iterator[DatasetPlan]:
        for number in range(self.datasets):
            urn = f"dataset-{number:03d}"
            if owned(urn) and urn not in states:
                size = self.datasets if urn == HELD else 1
                unit = WorkUnit("", urn, Watermark({"0": 0}), Watermark({"0": size}), size)
                yield DatasetPlan(urn, None, Watermark({"0": 0}), (unit,))

    def open(self) -> Extractor:
        return HeldExtractor(self.release)


class HeldExtractor(Extractor):
    def __init__(self, release: str) -> None:
        self.release = release

    def extract(self, unit: WorkUnit) -> Extraction:
        return HeldExtraction(unit, self.release)

    def close(self) -> None:
        pass


class HeldExtraction(Extraction):
    def __init__(self, unit: WorkUnit, release: str) -> None:
        self.unit, self.release = unit, release

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        if self.unit.dataset_urn == HELD:
            while not Path(self.release).exists():
                time.sleep(0.05)  # the test, another process, creates that file
        high = as_offset(self.unit.expected_high.positions["0"])
        yield pa.record_batch([["0"] * high, list(range(high))], names=["partition", "offset"])

    def actual_high(self) -> Watermark:
        return self.unit.expected_high

    def bytes_read(self) -> int:
        return 0

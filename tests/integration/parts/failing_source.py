"""A source of one-partition datasets whose sizes are options; a file names the datasets that cannot be read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa

from distcommit.core.errors import SourceError
from distcommit.core.interfaces.provenance import Provenance
from distcommit.core.interfaces.source import Extraction, Extractor, Planned, Source, SourceState
from distcommit.core.records.log_records import DatasetState
from distcommit.core.watermark import Watermark, as_offset
from distcommit.core.work_units import DatasetPlan, WorkUnit

BATCH = "batch"
"""Records of a batch: an option of the job, unless a work unit has a property of that name."""


class FailingSource(Source):
    """Source that reads its options in each run.

    `sizes`: records by dataset. `broken`: a file with the names of datasets that cannot be read. `notes`: a folder
    that records the states given to planning and the batches read.
    """

    provenance = Provenance("partition", "offset")

    def __init__(self, sizes: dict[str, int], broken: str, notes: str, batch: int = 100) -> None:
        self.sizes, self.broken, self.notes, self.batch = sizes, broken, notes, batch

    def plan(self, owned: Callable[[str], bool], states: SourceState) -> Iterator[Planned]:
        for urn, size in self.sizes.items():
            state = states.get(urn)
            if not owned(urn):
                continue
            again = states.to_read_again(urn)
            end = as_offset(again.positions["0"]) if again else size
            self._note(urn, f"from {_place(state)} up to {end}, {_failed(state)}")
            stored = state.watermark if state else None
            low = stored or Watermark({"0": 0})
            properties = {BATCH: "7"} if urn == "sevens" else {}
            unit = WorkUnit("", urn, low, Watermark({"0": end}), end - as_offset(low.positions["0"]), properties)
            if unit.size:
                yield DatasetPlan(urn, stored, low if stored is None else Watermark({}), (unit,))

    def open(self) -> Extractor:
        return FailingExtractor(self)

    def _note(self, urn: str, text: str) -> None:
        with (Path(self.notes) / urn).open("a", encoding="utf-8") as file:
            file.write(f"{text}\n")


def _place(state: DatasetState | None) -> int:
    return as_offset(state.watermark.positions["0"]) if state and state.watermark else 0


def _failed(state: DatasetState | None) -> str:
    failure = state.read_failure if state else None
    return f"failed {failure.failed_runs} times, {failure.reason}" if failure else "never failed"


class FailingExtractor(Extractor):
    def __init__(self, source: FailingSource) -> None:
        self.source = source

    def extract(self, unit: WorkUnit) -> Extraction:
        return FailingExtraction(self.source, unit)

    def close(self) -> None:
        pass


class FailingExtraction(Extraction):
    def __init__(self, source: FailingSource, unit: WorkUnit) -> None:
        self.source, self.unit = source, unit

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        low, high = as_offset(self.unit.low.positions["0"]), as_offset(self.unit.expected_high.positions["0"])
        batch = int(self.unit.properties.get(BATCH, self.source.batch))
        for first in range(low, high, batch):
            offsets = list(range(first, min(high, first + batch)))
            (Path(self.source.notes) / f"{self.unit.dataset_urn}.batch").write_text(f"{batch}")
            yield pa.record_batch([["0"] * len(offsets), offsets], names=["partition", "offset"])
            if self.unit.dataset_urn in Path(self.source.broken).read_text(encoding="utf-8").split():
                raise SourceError("a page of the source is damaged", dataset=self.unit.dataset_urn)

    def actual_high(self) -> Watermark:
        return self.unit.expected_high

    def bytes_read(self) -> int:
        return 0

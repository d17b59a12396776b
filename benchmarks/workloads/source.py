"""A source without cost: datasets are numbers, and records follow from their positions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pyarrow as pa

from benchmarks.workloads.tree import dataset_urn
from distcommit.core.interfaces.provenance import Provenance
from distcommit.core.interfaces.source import DatasetProblem, Extraction, Extractor, Source, SourceState
from distcommit.core.records.log_records import DatasetState, DatasetStatus
from distcommit.core.watermark import Watermark, as_offset
from distcommit.core.work_units import DatasetPlan, WorkUnit

SCHEMA = pa.schema([("partition", pa.string()), ("offset", pa.int64())])


@dataclass(frozen=True, slots=True)
class NumberedSource(Source):
    """`datasets` datasets with one partition, each `records` records longer in each of `rounds`.

    The whole source is a few numbers, so that the measured memory is the run's.
    """

    datasets: int
    records: int = 1
    rounds: int = 1
    provenance = Provenance("partition", "offset")

    def plan(self, owned: Callable[[str], bool], states: SourceState) -> Iterator[DatasetPlan | DatasetProblem]:
        end = self.records * self.rounds
        for number in range(self.datasets):
            urn = dataset_urn(number)
            if not owned(urn):
                continue
            state = states.get(urn) or DatasetState(urn)
            low = as_offset(state.watermark.positions["0"]) if state.watermark else 0
            if state.status is not DatasetStatus.IDLE or low >= end:
                continue
            unit = WorkUnit("", urn, Watermark({"0": low}), Watermark({"0": end}), end - low)
            yield DatasetPlan(urn, state.watermark, Watermark({} if state.watermark else {"0": 0}), (unit,))

    def open(self) -> Extractor:
        return _NumberedExtractor()


class _NumberedExtractor(Extractor):
    def extract(self, unit: WorkUnit) -> Extraction:
        return _NumberedExtraction(unit)

    def close(self) -> None:
        pass


@dataclass(frozen=True, slots=True)
class _NumberedExtraction(Extraction):
    unit: WorkUnit

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        offsets = range(as_offset(self.unit.low.positions["0"]), as_offset(self.unit.expected_high.positions["0"]))
        yield pa.record_batch([["0"] * len(offsets), list(offsets)], schema=SCHEMA)

    def actual_high(self) -> Watermark:
        return self.unit.expected_high

    def bytes_read(self) -> int:
        return 0

"""A source whose records are known in advance, for explorers, soaks and property tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from distcommit.model.errors import SourceError
from distcommit.model.log_records import DatasetState, DatasetStatus
from distcommit.model.source import DatasetProblem, Extraction, Extractor, Provenance, Source
from distcommit.model.watermark import Watermark
from distcommit.model.work import DatasetPlan, WorkUnit

SCHEMA = pa.schema([("partition", pa.string()), ("offset", pa.int64()), ("value", pa.string())])


@dataclass(frozen=True, slots=True)
class ModelDataset:
    """What one dataset holds: per partition how many records, and how many work units read each partition.

    `fails`: partitions that can't be read; `short`: how many records at the end of each work unit are left unread.
    """

    partitions: Mapping[str, int]
    units: int = 1
    fails: frozenset[str] = frozenset()
    short: int = 0


@dataclass(frozen=True, slots=True)
class ModelSource(Source):
    """Datasets by URN. Offsets count from 0; record values follow from their place."""

    datasets: Mapping[str, ModelDataset] = field(default_factory=dict)
    provenance = Provenance("partition", "offset")

    def plan(
        self, owned: Callable[[str], bool], states: Mapping[str, DatasetState]
    ) -> Iterator[DatasetPlan | DatasetProblem]:
        for urn, dataset in self.datasets.items():
            state = states.get(urn) or DatasetState(urn)
            if not owned(urn) or state.status is not DatasetStatus.IDLE:
                continue
            stored = state.watermark.positions if state.watermark else {}
            start = {partition: 0 for partition in dataset.partitions if partition not in stored}
            units = [
                WorkUnit("", urn, Watermark({partition: low}), Watermark({partition: high}), high - low)
                for partition, end in dataset.partitions.items()
                for low, high in _ranges(int(stored.get(partition, 0)), end, dataset.units)
                if low < high or partition in start
            ]
            if units:
                yield DatasetPlan(urn, state.watermark, Watermark(dict(start)), tuple(units))

    def open(self) -> Extractor:
        return _ModelExtractor(self)


def _ranges(low: int, high: int, units: int) -> Iterator[tuple[int, int]]:
    if low == high:
        yield low, high
    for place in range(units):
        first, last = low + (high - low) * place // units, low + (high - low) * (place + 1) // units
        if first < last:
            yield first, last


@dataclass(slots=True)
class _ModelExtractor(Extractor):
    source: ModelSource

    def extract(self, unit: WorkUnit) -> Extraction:
        return _ModelExtraction(self.source.datasets[unit.dataset_urn], unit)

    def close(self) -> None:
        pass


@dataclass(slots=True)
class _ModelExtraction(Extraction):
    dataset: ModelDataset
    unit: WorkUnit

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        high = self.actual_high().positions
        for partition, low in self.unit.low.positions.items():
            if partition in self.dataset.fails:
                raise SourceError("this partition can't be read", dataset=self.unit.dataset_urn, partition=partition)
            offsets = list(range(int(low), int(high[partition])))
            if offsets:
                values = [f"{self.unit.dataset_urn}/{partition}/{offset}" for offset in offsets]
                yield pa.record_batch([[partition] * len(offsets), offsets, values], schema=SCHEMA)

    def actual_high(self) -> Watermark:
        low, high = self.unit.low.positions, self.unit.expected_high.positions
        return Watermark({p: max(int(low[p]), int(high[p]) - self.dataset.short) for p in high})

    def bytes_read(self) -> int:
        return 0

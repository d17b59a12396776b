"""A source with known records, to test sinks, constructs and whole jobs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import cast

import pyarrow as pa
from msgspec import structs

from distcommit.core.errors import SourceError
from distcommit.core.interfaces.provenance import Provenance
from distcommit.core.interfaces.source import (
    DatasetProblem,
    Extraction,
    Extractor,
    Lag,
    Planned,
    SkippedDataset,
    Source,
    SourceState,
    stored_incarnations,
)
from distcommit.core.records.fixed_settings import FixedSetting, SourceFact
from distcommit.core.records.log_records import DatasetState, DatasetStatus
from distcommit.core.watermark import Watermark, as_offset
from distcommit.core.work_units import DatasetPlan, SkippedRange, WorkUnit

SCHEMA = pa.schema([("partition", pa.string()), ("offset", pa.int64()), ("value", pa.string())])


class WorkerKilled(BaseException):
    """The simulated death of the worker that reads a partition."""


@dataclass(frozen=True, slots=True)
class ModelDataset:
    """The content of one dataset.

    Attributes:
        partitions: the number of records of each partition.
        units: the number of work units for each partition.
        fails: partitions that cannot be read.
        short: the number of records at the end of each work unit that are not read.
        bad: an offset of a partition that cannot be read, although earlier offsets can.
        expired: the first offset of a partition that the source still has.
        holes: offsets of a partition without a record.
        problem: why the dataset cannot be planned.
        incarnation: the incarnation of the offsets. A dataset cannot be planned if it was read with another one.
        kills: partitions that kill the worker that reads them.
    """

    partitions: Mapping[str, int]
    units: int = 1
    fails: frozenset[str] = frozenset()
    short: int = 0
    bad: Mapping[str, int] = field(default_factory=dict)
    expired: Mapping[str, int] = field(default_factory=dict)
    holes: Mapping[str, frozenset[int]] = field(default_factory=dict)
    problem: str = ""
    incarnation: str = ""
    kills: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class ModelSource(Source):
    """A source with known datasets. Offsets count from 0, and each value names its dataset, partition and offset.

    Attributes:
        datasets: the datasets.
        refuses: an operation that fails for the source as a whole: "plan", "open", "close" or "lags".
        careless: whether the source ignores stored states and also plans datasets without work units. Both violate the
            contract and must do no harm.
        weight: the factor from records to the size of a work unit.
        behind_s: the age of a dataset's first unread record.
    """

    datasets: Mapping[str, ModelDataset] = field(default_factory=dict)
    refuses: str = ""
    careless: bool = False
    weight: int = 1
    behind_s: Mapping[str, float] = field(default_factory=dict)
    provenance = Provenance("partition", "offset")

    def plan(self, owned: Callable[[str], bool], states: SourceState) -> Iterator[Planned]:
        if self.refuses == "plan":
            raise SourceError("the source is unreachable")
        for urn, dataset in self.datasets.items():
            state = DatasetState(urn) if self.careless else states.get(urn) or DatasetState(urn)
            if not owned(urn) or state.status is not DatasetStatus.IDLE:
                continue
            if dataset.problem:
                yield DatasetProblem(urn, dataset.problem)
                continue
            if state.watermark is not None and state.watermark.incarnation not in ("", dataset.incarnation):
                yield DatasetProblem(urn, f"expected {state.watermark.incarnation}, found {dataset.incarnation}")
                continue
            retried_end = states.to_read_again(urn)
            plan = _plan(urn, _up_to(retried_end, dataset, state.watermark), state.watermark)
            if plan.work_units or self.careless:
                units = tuple(structs.replace(unit, size=unit.size * self.weight) for unit in plan.work_units)
                yield structs.replace(plan, work_units=units)
        if self.careless:
            yield from _nonsense(states)

    def incarnations(self, states: Mapping[str, DatasetState]) -> Mapping[str, str]:
        return stored_incarnations(
            states, {urn: self.datasets[urn].incarnation for urn in states if urn in self.datasets}
        )

    def lags(self, states: Mapping[str, DatasetState]) -> Iterable[Lag]:
        if self.refuses == "lags":
            raise SourceError("the source is unreachable")
        return [Lag(urn, 1, seconds) for urn, seconds in self.behind_s.items() if urn in states]

    def open(self) -> Extractor:
        if self.refuses == "open":
            raise ConnectionError("the source cannot be opened")
        return _ModelExtractor(self)


def _nonsense(states: SourceState) -> Iterator[Planned]:
    """Yield the additional output of a careless source: facts, skipped datasets, and impossible plans."""
    states.anywhere("of no bucket that is known")
    yield SourceFact("kind", FixedSetting("model"))
    yield SkippedDataset("passed over", "by a rule of its own")
    yield cast(DatasetPlan, "no plan")
    low, high = Watermark({"0": 1}), Watermark({"0": 2})
    for urn, unit in {
        "of-another": WorkUnit("", "other", low, high, 1),
        "too-small": WorkUnit("", "too-small", low, high, -1),
        "backwards": WorkUnit("", "backwards", high, low, 1),
        "not-stored": WorkUnit("", "not-stored", low, Watermark({"0": float("nan")}), 1),
    }.items():
        yield DatasetPlan(urn, None, low, (unit,))
    twice = _plan("twice", ModelDataset({}), None)
    yield from (twice, twice)


def _up_to(retried_end: Watermark | None, dataset: ModelDataset, stored: Watermark | None) -> ModelDataset:
    """Return the dataset up to the end of the range to read again."""
    if retried_end is None or retried_end.incarnation != dataset.incarnation:
        return dataset
    reached = stored.positions if stored else {}
    ends = {
        partition: min(
            end, max(as_offset(retried_end.positions.get(partition, end)), as_offset(reached.get(partition, 0)))
        )
        for partition, end in dataset.partitions.items()
    }
    return replace(dataset, partitions=ends)


def _plan(urn: str, dataset: ModelDataset, stored: Watermark | None) -> DatasetPlan:
    """Plan everything between the stored watermark and the end. Expired offsets are skipped."""
    reached = {partition: as_offset(position) for partition, position in stored.positions.items()} if stored else {}
    oldest = {partition: dataset.expired.get(partition, 0) for partition in dataset.partitions}
    start = {partition: first for partition, first in oldest.items() if partition not in reached}
    incarnation = dataset.incarnation
    skipped = tuple(
        SkippedRange(partition, low, oldest[partition], "expired", incarnation=incarnation)
        for partition, low in reached.items()
        if low < oldest.get(partition, 0)
    )
    units = tuple(
        WorkUnit(
            "", urn, Watermark({partition: low}, incarnation), Watermark({partition: high}, incarnation), high - low
        )
        for partition, end in dataset.partitions.items()
        for low, high in _ranges(max(oldest[partition], reached.get(partition, 0)), end, dataset.units)
        if low < high or partition in start
    )
    return DatasetPlan(urn, stored, Watermark(dict(start), incarnation), units, skipped)


def _ranges(low: int, high: int, units: int) -> Iterator[tuple[int, int]]:
    if low == high:
        yield low, high
    for index in range(units):
        first, last = low + (high - low) * index // units, low + (high - low) * (index + 1) // units
        if first < last:
            yield first, last


@dataclass(slots=True)
class _ModelExtractor(Extractor):
    source: ModelSource

    def extract(self, unit: WorkUnit) -> Extraction:
        return _ModelExtraction(self.source.datasets[unit.dataset_urn], unit)

    def close(self) -> None:
        if self.source.refuses == "close":
            raise ConnectionError("the source cannot be closed")


@dataclass(slots=True)
class _ModelExtraction(Extraction):
    dataset: ModelDataset
    unit: WorkUnit
    _reached: dict[str, int] = field(default_factory=dict)

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        high = self._ends()
        for partition, low in self.unit.low.positions.items():
            if partition in self.dataset.kills:
                raise WorkerKilled
            if partition in self.dataset.fails:
                raise self._error(partition)
            bad = self.dataset.bad.get(partition, -1)
            for begin, end in self._batches(as_offset(low), high[partition], bad):
                if begin == bad < end:
                    raise self._error(partition)
                self._reached[partition] = end
                holes = self.dataset.holes.get(partition, frozenset())
                offsets = [offset for offset in range(begin, end) if offset not in holes]
                if offsets:
                    values = [f"{self.unit.dataset_urn}/{partition}/{offset}" for offset in offsets]
                    yield pa.record_batch([[partition] * len(offsets), offsets, values], schema=SCHEMA)
            self._reached[partition] = high[partition]

    @staticmethod
    def _batches(low: int, high: int, bad: int) -> list[tuple[int, int]]:
        """Return one batch, or two if an offset in between is bad: the offsets before it, and the rest."""
        if not low <= bad < high:
            return [(low, high)]
        return [(low, bad), (bad, high)] if low < bad else [(bad, high)]

    def _error(self, partition: str) -> SourceError:
        return SourceError("a partition cannot be read", dataset=self.unit.dataset_urn, partition=partition)

    def _ends(self) -> dict[str, int]:
        low, high = self.unit.low.positions, self.unit.expected_high.positions
        return {p: max(as_offset(low[p]), as_offset(high[p]) - self.dataset.short) for p in high}

    def actual_high(self) -> Watermark:
        return Watermark({**self.unit.low.positions, **self._reached}, self.dataset.incarnation)

    def bytes_read(self) -> int:
        return 0

    def holes(self) -> list[SkippedRange]:
        high = self.actual_high().positions
        return [
            SkippedRange(partition, offset, offset + 1, "no record", True, self.dataset.incarnation)
            for partition, offsets in self.dataset.holes.items()
            if partition in high
            for offset in sorted(offsets)
            if as_offset(self.unit.low.positions[partition]) <= offset < as_offset(high[partition])
        ]

"""Contract of sources, as a pytest class to subclass; see `testing.contracts`."""

from __future__ import annotations

import contextlib
import pickle
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import TYPE_CHECKING

import msgspec
import pytest
from msgspec.structs import replace

from distcommit.core.commit_groups import CommitGroups
from distcommit.core.dataset_urn import check_urn
from distcommit.core.errors import DistcommitError
from distcommit.core.interfaces.source import (
    DatasetProblem,
    Extractor,
    Planned,
    SkippedDataset,
    Source,
    SourceState,
)
from distcommit.core.records.deferred_records import DeferredRecords
from distcommit.core.records.fixed_settings import SourceFact
from distcommit.core.records.log_records import DatasetState, DatasetStatus, OpenSequence
from distcommit.core.records.sealed_sequences import SealedSequence
from distcommit.core.support.decoding import from_json
from distcommit.core.watermark import Watermark, as_offset, at_or_past
from distcommit.core.work_units import DatasetPlan, WorkUnit
from distcommit.engine.planning.plan_checks import check_plan
from distcommit.pipeline.position_check import PositionCheck

if TYPE_CHECKING:
    import pyarrow as pa


class SourceContract(ABC):
    """Contract of sources: plans cover the source from the stored watermark on, without gap or overlap. A work unit
    yields the same records each time.

    class TestMySource(SourceContract):
        def make_source(self):
            return MySource(...)

        def holds(self):                               # records by dataset and source partition
            return {"orders": {"0": 10, "1": 7}, "empty": {"0": 0}}
    """

    @abstractmethod
    def make_source(self) -> Source:
        """Return the source, with at least two datasets, one of them with several records. The data must not change
        during the tests."""

    @abstractmethod
    def holds(self) -> Mapping[str, Mapping[str, int]]:
        """Return the number of records of each partition of each dataset; 0 for a dataset that does not count
        records."""

    @pytest.fixture
    def source(self) -> Source:
        """Return the source after pickling, as on an executor."""
        sent: Source = pickle.loads(pickle.dumps(self.make_source()))
        return sent

    @pytest.fixture
    def extractor(self, source: Source) -> Iterator[Extractor]:
        opened = source.open()
        yield opened
        opened.close()
        opened.close()

    @staticmethod
    def planned(
        elements: Iterable[Planned],
    ) -> list[DatasetPlan | DatasetProblem]:
        """Return the elements that are plans or problems of datasets, without facts and skipped datasets."""
        return [
            planned for planned in elements if not isinstance(planned, SourceFact | SkippedDataset | DeferredRecords)
        ]

    def plan(self, source: Source, states: Mapping[str, DatasetState] | None = None) -> dict[str, DatasetPlan]:
        """Return all plans. A problem fails the test."""
        planned = self.planned(source.plan(lambda urn: True, SourceState(states or {})))
        plans = {plan.dataset_urn: plan for plan in planned if isinstance(plan, DatasetPlan)}
        assert len(plans) == len(planned), f"a dataset is repeated, or has a problem: {planned}"
        return plans

    def reached(self, plan: DatasetPlan) -> Watermark:
        """Return the end of the plan, after checking that its work units continue each other in each partition."""
        at = {**(plan.planned_low.positions if plan.planned_low else {}), **plan.start.positions}
        for unit in sorted(plan.work_units, key=lambda unit: sorted(unit.low.positions.items())):
            assert unit.dataset_urn == plan.dataset_urn
            assert unit.can_end_at(unit.known_end)
            for partition, low in unit.low.positions.items():
                assert at[partition] == low, f"a gap or an overlap before {unit}"
                at[partition] = unit.known_end.positions[partition]
        return Watermark(at, plan.start.incarnation)

    def read_to(self, extractor: Extractor, plan: DatasetPlan, units: Iterable[WorkUnit]) -> Watermark:
        """Read the work units and return the dataset's watermark afterwards."""
        at = dict(plan.start.positions)
        for unit in units:
            extraction = extractor.extract(unit)
            for _ in extraction:
                pass
            at.update(extraction.actual_high().positions)
        return Watermark(at, plan.start.incarnation)

    def count(self, extractor: Extractor, unit: WorkUnit) -> int:
        """Read a work unit to its end and return its number of records."""
        extraction = extractor.extract(unit)
        rows = sum(int(batch.num_rows) for batch in extraction)
        high = extraction.actual_high()
        assert unit.can_end_at(high)
        assert extraction.bytes_read() >= 0
        return rows

    def test_first_plan_covers_all_records(self, source: Source, extractor: Extractor) -> None:
        plans = self.plan(source)
        assert plans.keys() == self.holds().keys()
        for urn, plan in plans.items():
            assert check_urn(urn)
            assert plan.planned_low is None
            assert self.reached(plan).positions.keys() == plan.start.positions.keys() == self.holds()[urn].keys()
            extractor.announce(plan.work_units)
            read = sum(self.count(extractor, unit) for unit in plan.work_units)
            assert read == sum(self.holds()[urn].values())

    def test_planning_twice_gives_the_same(self, source: Source) -> None:
        assert self.plan(source) == self.plan(source) == self.plan(self.make_source())

    def test_only_owned_datasets_are_planned(self, source: Source) -> None:
        for urn in self.holds():
            planned = self.planned(source.plan(lambda requested, urn=urn: requested == urn, SourceState()))  # type: ignore[misc]
            assert [plan.dataset_urn for plan in planned] == [urn]
        assert self.planned(source.plan(lambda urn: False, SourceState())) == []

    def test_fixed_settings_and_facts_are_the_same_each_time(self, source: Source) -> None:
        assert source.fixed_settings() == self.make_source().fixed_settings()
        facts = [fact for _ in range(2) for fact in source.plan(bool, SourceState()) if isinstance(fact, SourceFact)]
        assert facts[: len(facts) // 2] == facts[len(facts) // 2 :]

    def test_datasets_that_are_not_idle_are_not_planned(self, source: Source) -> None:
        for status in (DatasetStatus.PENDING, DatasetStatus.QUARANTINED, DatasetStatus.REVOKING):
            busy = {
                urn: DatasetState(urn, OpenSequence(status, SealedSequence(urn, 1, None, None, ())))
                for urn in list(self.holds())[:1]
            }
            assert self.plan(source, busy).keys() == self.holds().keys() - busy.keys()

    def test_plan_is_empty_after_everything_was_read(self, source: Source, extractor: Extractor) -> None:
        ends = {urn: self.read_to(extractor, plan, plan.work_units) for urn, plan in self.plan(source).items()}
        after = self.plan(source, {urn: DatasetState(urn, watermark=end) for urn, end in ends.items()})
        for urn, plan in after.items():
            assert plan.planned_low == self.reached(plan) == ends[urn]
            assert sum(self.count(extractor, unit) for unit in plan.work_units) == 0

    def test_next_plan_continues_where_the_last_one_ended(self, source: Source, extractor: Extractor) -> None:
        for urn, plan in self.plan(source).items():
            begin = plan.start.positions
            first = next(u for u in plan.work_units if all(begin[p] == low for p, low in u.low.positions.items()))
            done = self.read_to(extractor, plan, [first])
            again = self.plan(source, {urn: DatasetState(urn, watermark=done)}).get(urn)
            read = self.count(extractor, first)
            remainder = sum(self.count(extractor, unit) for unit in again.work_units) if again else 0
            assert read + remainder == sum(self.holds()[urn].values())
            assert again is None or again.planned_low == done

    def test_work_unit_yields_the_same_records_each_time(self, source: Source, extractor: Extractor) -> None:
        with contextlib.closing(source.open()) as other:
            for plan in self.plan(source).values():
                for unit in plan.work_units:
                    first, again = extractor.extract(unit), other.extract(unit)
                    assert self.rows_by_partition(source, first) == self.rows_by_partition(source, again)
                    assert first.actual_high() == again.actual_high()

    def test_position_between_two_batches_covers_exactly_the_batches_before(
        self, source: Source, extractor: Extractor
    ) -> None:
        """The rest of the work unit has all other records, or the position is unknown. Policy `partial` commits a
        failed attempt up to this position."""
        for plan in self.plan(source).values():
            for unit in plan.work_units:
                complete = self.rows_by_partition(source, extractor.extract(unit))
                small = replace(unit, properties={**unit.properties, "max_bytes": "1"})
                batches = sum(1 for _ in extractor.extract(small))
                for count in sorted({1, batches // 2, batches}) if batches else ():
                    extraction = extractor.extract(small)
                    first_rows = self.rows_by_partition(source, islice(iter(extraction), count))
                    try:
                        reached = extraction.actual_high()
                    except DistcommitError:
                        continue
                    assert unit.can_end_at(reached)
                    assert all(at_or_past(reached.positions[h.partition], h.high) for h in extraction.holes())
                    remainder = self.rows_by_partition(source, extractor.extract(replace(unit, low=reached)))
                    both = {name: [*first_rows.get(name, ()), *remainder.get(name, ())] for name in complete}
                    assert self.comparable(source, both) == self.comparable(source, complete)

    @staticmethod
    def comparable(source: Source, rows: Mapping[object, Iterable[object]]) -> dict[object, list[object]]:
        """Return the records, ignoring the order of records without provenance."""
        if source.provenance is not None:
            return {name: list(of) for name, of in rows.items()}
        return {name: [*sorted(map(repr, of))] for name, of in rows.items()}

    @staticmethod
    def rows_by_partition(source: Source, batches: Iterable[pa.RecordBatch]) -> dict[object, list[object]]:
        """Return the records in order, by partition."""
        rows: dict[object, list[object]] = {}
        for batch in batches:
            for row in batch.to_pylist():
                rows.setdefault(row[source.provenance.partition_column] if source.provenance else "", []).append(row)
        return rows

    def test_provenance_columns_match_the_work_unit(self, source: Source, extractor: Extractor) -> None:
        if source.provenance is None:
            return
        for plan in self.plan(source).values():
            for unit in plan.work_units:
                at = {p: low for p, low in unit.low.positions.items() if isinstance(low, int)}
                extraction = extractor.extract(unit)
                for batch in extraction:
                    partitions = batch[source.provenance.partition_column].to_pylist()
                    offsets = batch[source.provenance.offset_column].to_pylist()
                    for partition, offset in zip(map(str, partitions), offsets, strict=True):
                        assert at[partition] <= offset
                        at[partition] = offset + 1
                reached = extraction.actual_high().positions
                assert all(end <= as_offset(reached[partition]) for partition, end in at.items())

    def test_claimed_positions_are_past_the_delivered_records(self, source: Source, extractor: Extractor) -> None:
        """A run rejects other positions, because their records would be read again."""
        for plan in self.plan(source).values():
            for unit in plan.work_units:
                small = replace(unit, properties={**unit.properties, "max_bytes": "1"})
                extraction, delivered = extractor.extract(small), PositionCheck(small, source.provenance)
                for batch in extraction:
                    delivered.take(batch, extraction.holes())
                    try:
                        reached = extraction.actual_high()
                    except DistcommitError:
                        continue
                    delivered.compare(reached)
                delivered.compare(extraction.actual_high())

    def test_skipped_and_planned_ranges_follow_the_watermark(self, source: Source, extractor: Extractor) -> None:
        first = self.plan(source)
        ends = {urn: self.read_to(extractor, plan, plan.work_units) for urn, plan in first.items()}
        after = self.plan(source, {urn: DatasetState(urn, watermark=end) for urn, end in ends.items()})
        for plan in (*first.values(), *after.values()):
            assert check_plan(plan, lambda urn: True, (), CommitGroups()) == plan

    def test_plans_survive_storing(self, source: Source) -> None:
        for plan in self.plan(source).values():
            assert from_json(msgspec.json.encode(plan), DatasetPlan) == plan

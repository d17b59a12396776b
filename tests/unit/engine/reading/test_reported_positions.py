"""Positions and ranges that a source reports are compared with its plan and with the records that it delivered."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pytest
from msgspec.structs import replace

from distcommit.core.interfaces.source import Extraction, Extractor
from distcommit.core.watermark import Watermark, as_offset
from distcommit.core.work_units import DatasetPlan, SkippedRange, WorkUnit
from distcommit.protocol.seal_decision import CommitPolicy
from distcommit.testing.fakes.model_source import ModelDataset, ModelSource
from tests.simulation.world import World
from tests.unit.engine.driver.machines import Machine, OddSource, audit, go, published, source

PARTIAL, FULL = World(policy=CommitPolicy.PARTIAL), World()


def lagging(unit: WorkUnit, high: Watermark, *, by: int) -> Watermark:
    """Return the position before the last records, as of an extractor that advances it when the next batch is
    requested.
    """
    first = unit.low.positions
    return Watermark({p: max(as_offset(first[p]), as_offset(at) - by) for p, at in high.positions.items()})


@pytest.mark.parametrize("world", [PARTIAL, FULL], ids=["partial", "full"])
@pytest.mark.parametrize("by", [1, 2])
def test_position_that_lags_behind_the_records_duplicates_none(world: World, by: int) -> None:
    machine = Machine()
    behind = OddSource(
        {"a": ModelDataset({"0": 8}, bad={"0": 6}), "b": ModelDataset({"0": 5})}, highs=partial(lagging, by=by)
    )
    failed = go(world, machine, behind)
    assert not failed.succeeded
    assert any(
        "reports a position before its last delivered record" in reason.text for reason in failed.reasons.entries
    )
    assert go(world, machine, source(a=8, b=5)).succeeded
    audit_result = audit(world, machine)
    assert (audit_result.exact, audit_result.records, audit_result.duplicates) == (True, 13, 0)


@dataclass(frozen=True)
class Replanned(ModelSource):
    """A model source with another plan for dataset `a`."""

    change: Callable[[DatasetPlan], DatasetPlan] = field(default=lambda plan: plan)

    def plan(self, owned: Any, states: Any) -> Iterator[Any]:
        for planned in ModelSource.plan(self, owned, states):
            if isinstance(planned, DatasetPlan) and planned.dataset_urn == "a":
                yield self.change(planned)
            else:
                yield planned


def skipping(low: int, high: int) -> Callable[[DatasetPlan], DatasetPlan]:
    return lambda plan: replace(plan, skipped=(SkippedRange("0", low, high, "by a source of one's own"),))


def beginning_at(low: int) -> Callable[[DatasetPlan], DatasetPlan]:
    def change(plan: DatasetPlan) -> DatasetPlan:
        return replace(plan, work_units=tuple(replace(unit, low=Watermark({"0": low})) for unit in plan.work_units))

    return change


WRONG = {
    "in the middle of a plan": skipping(6, 7),
    "below the watermark": skipping(0, 2),
    "from below the watermark on": skipping(2, 5),
    "behind its end": skipping(9, 12),
    "backwards": skipping(4, 3),
    "over what is read": skipping(4, 6),
    "a unit below the watermark": beginning_at(2),
}


@pytest.mark.parametrize("change", WRONG.values(), ids=WRONG)
def test_ranges_that_contradict_the_plan_stop_their_dataset_and_move_nothing(
    change: Callable[[DatasetPlan], DatasetPlan],
) -> None:
    machine, grown = Machine(), source(a=9, b=5)
    assert go(FULL, machine, source(a=4, b=2)).succeeded
    refused = go(FULL, machine, Replanned(grown.datasets, change=change))
    assert [(reason.subject, reason.kind) for reason in refused.reasons.entries] == [("a", "not planned")]
    assert FULL.watermarks(machine) == {"a": Watermark({"0": 4}), "b": Watermark({"0": 5})}
    assert go(FULL, machine, grown).succeeded
    audit_result = audit(FULL, machine)
    assert (audit_result.exact, audit_result.records, audit_result.skipped) == (True, 14, 0)


def test_range_skipped_right_behind_the_watermark_is_recorded() -> None:
    machine = Machine()
    assert go(FULL, machine, source(a=4)).succeeded

    def change(plan: DatasetPlan) -> DatasetPlan:
        return beginning_at(6)(skipping(4, 6)(plan))

    assert go(FULL, machine, Replanned(source(a=9).datasets, change=change)).succeeded
    audit_result = audit(FULL, machine)
    assert (audit_result.exact, audit_result.records, audit_result.skipped) == (True, 7, 2)


@dataclass
class _Again(Extraction):
    inner: Extraction
    holes_claimed: tuple[SkippedRange, ...] = ()
    times: int = 1

    def __iter__(self) -> Iterator[Any]:
        for batch in self.inner:
            for _ in range(self.times):
                yield batch

    def actual_high(self) -> Watermark:
        return self.inner.actual_high()

    def bytes_read(self) -> int:
        return 0

    def holes(self) -> tuple[SkippedRange, ...]:
        return self.holes_claimed


@dataclass
class _Extractor(Extractor):
    inner: Extractor
    change: Callable[[Extraction], Extraction]

    def extract(self, unit: WorkUnit) -> Extraction:
        return self.change(self.inner.extract(unit))

    def close(self) -> None:
        self.inner.close()


@dataclass(frozen=True)
class Extracting(ModelSource):
    """A model source with other extractions."""

    change: Callable[[Extraction], Extraction] = field(default=lambda extraction: extraction)

    def open(self) -> Extractor:
        return _Extractor(ModelSource.open(self), self.change)


@pytest.mark.parametrize(
    ("change", "expected_error"),
    [
        (lambda inner: _Again(inner, times=2), "or twice"),
        (lambda inner: _Again(inner, (SkippedRange("0", 1, 3, "no record", True),)), "reports a hole where"),
    ],
)
def test_records_delivered_twice_or_reported_as_holes_fail_their_work_unit(
    change: Callable[[Extraction], Extraction], expected_error: str
) -> None:
    machine = Machine()
    refused = go(FULL, machine, Extracting(source(a=4).datasets, change=change))
    assert not refused.succeeded
    assert expected_error in refused.reasons.entries[0].text
    assert not published(machine)

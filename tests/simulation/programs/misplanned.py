"""A program for the crash explorer: a source plans some datasets against the contract, and reports what it leaves."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from msgspec.structs import replace

from distcommit.core.interfaces.source import Planned, SourceState
from distcommit.core.records.deferred_records import DeferredRecords
from distcommit.core.work_units import DatasetPlan, SkippedRange, WorkUnit
from distcommit.testing.fakes.model_source import ModelDataset, ModelSource
from tests.simulation.programs.parts import SOURCE, Program, new_machine
from tests.simulation.simulated_posix import SimulatedPosix
from tests.simulation.world import World

_WORLD = World(buckets=2)


def _of_another(unit: WorkUnit) -> WorkUnit:
    return replace(unit, dataset_urn="b")


def _of_no_size(unit: WorkUnit) -> WorkUnit:
    return replace(unit, size=-1)


_DAMAGE: dict[str, Callable[[WorkUnit], WorkUnit]] = {"stray": _of_another, "huge": _of_no_size}
_HOLE = SkippedRange("0", 1, 2, "it begins after the watermark", is_hole=True)
_ODD = {name: ModelDataset({"0": 2}, units=2) for name in (*_DAMAGE, "hole")}


class MisplanningSource(ModelSource):
    """Plans "stray" with a work unit of another dataset, "huge" with a size that is no number of records, and "hole"
    with a skipped range that does not begin at the watermark."""

    def plan(self, owned: Callable[[str], bool], states: SourceState) -> Iterator[Planned]:
        yield DeferredRecords("b", 2, "they are too new")
        yield DeferredRecords("b", -1, "\ud800")
        for planned in super().plan(owned, states):
            if not isinstance(planned, DatasetPlan):
                yield planned
            elif damage := _DAMAGE.get(planned.dataset_urn):
                yield replace(planned, work_units=tuple(map(damage, planned.work_units)))
            elif planned.dataset_urn == "hole":
                yield replace(planned, skipped=(_HOLE,))
            else:
                yield planned


def _source(*, is_odd: bool) -> ModelSource:
    kind = MisplanningSource if is_odd else ModelSource
    return kind({**SOURCE.datasets, **_ODD})


def _run(machine: SimulatedPosix, *, is_odd: bool = True) -> None:
    _WORLD.run(machine, _source(is_odd=is_odd))


def _violation(machine: SimulatedPosix) -> str:
    """Return a violation: none of these may be committed before the source plans them as it must, then all are."""
    _run(machine)
    if wrong := _ODD.keys() & _WORLD.watermarks(machine).keys():
        return f"{sorted(wrong)} were committed, although their plans are invalid"
    before = _WORLD.watermarks(machine)
    _run(machine, is_odd=False)
    return _WORLD.violation(machine, _source(is_odd=False), before)


MISPLANNED = (Program("misplanned", new_machine, partial(_run, is_odd=True), _violation),)

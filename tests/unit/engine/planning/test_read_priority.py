"""Read priority: datasets that are furthest behind their target are read first, and backlogs last, for a
bounded time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from distcommit.core.interfaces.source import Extraction, Extractor, Lag
from distcommit.core.records.freshness_targets import BEHIND, Freshness
from distcommit.core.records.log_records import DatasetState
from distcommit.core.work_units import WorkUnit
from distcommit.engine.driver.run import RunResult, run
from distcommit.stores.logs.fencing import end_run
from distcommit.testing.fakes.model_source import ModelDataset, ModelSource
from tests.simulation.world import World
from tests.unit.engine.driver.machines import Machine, QuickClock, audit, launch

WORLD = World(buckets=4)
MANY = 12_000


@dataclass(frozen=True)
class AgedSource(ModelSource):
    """A source whose datasets are behind by given seconds. It records the order of reads; each read takes a second."""

    ages: Mapping[str, float] = field(default_factory=dict)
    read: list[str] = field(default_factory=list)
    clock: QuickClock = field(default_factory=QuickClock)

    def lags(self, states: Mapping[str, DatasetState]) -> Iterable[Lag]:
        return [Lag(urn, 50_000, self.ages[urn]) for urn in states if urn in self.ages]

    def open(self) -> Extractor:
        return _Noted(self, super().open())


class _Noted(Extractor):
    def __init__(self, source: AgedSource, inside: Extractor) -> None:
        self._source, self._inside = source, inside

    def announce(self, units: Sequence[WorkUnit]) -> None:
        self._inside.announce(units)

    def extract(self, unit: WorkUnit) -> Extraction:
        self._source.read.append(unit.dataset_urn)
        self._source.clock.sleep(1)
        return self._inside.extract(unit)

    def close(self) -> None:
        self._inside.close()


def aged(sizes: Mapping[str, int], **ages: float) -> AgedSource:
    return AgedSource({urn: ModelDataset({"0": size}) for urn, size in sizes.items()}, ages=ages)


def fresh_run(machine: Machine, source: AgedSource, freshness: Freshness) -> RunResult:
    settings = replace(WORLD.begin(machine, source, source.clock), freshness=freshness)
    result = run(launch, settings)
    end_run(settings.store, settings.epoch, clean=result.succeeded)
    return result


def test_dataset_furthest_behind_its_target_is_read_first() -> None:
    machine, targets = Machine(), Freshness(60, (("soon.*", 5.0), ("never", 0.0)))
    first = aged(dict.fromkeys(("late", "soon", "soon2", "never", "new"), 1))
    fresh_run(machine, first, targets)
    assert {*first.read[:2]} == {"soon", "soon2"}, (
        "with few records no lag is requested: the smallest targets come first"
    )
    assert first.read[-1] == "never"
    sizes = dict.fromkeys(("late", "soon", "soon2", "never", "new"), MANY)
    second = aged(sizes, late=300, soon=20, soon2=2, never=9_999, new=30)
    result = fresh_run(machine, second, targets)
    assert second.read == ["late", "soon", "new", "soon2", "never"], (
        "5, 4, 0.5 and 0.4 times behind, then the dataset without a target"
    )
    notes = {note.subject: note.text for note in result.notes.entries if note.kind == BEHIND}
    assert notes.keys() == {"late", "soon"}
    assert notes["late"] == "300 s behind its source, target 60 s; left for later runs: 38,001 records"
    assert audit(WORLD, machine).exact


def test_backlog_is_read_after_other_datasets_for_a_bounded_time() -> None:
    machine, targets = Machine(), Freshness(10, records_per_run=MANY, slice_s=3.5)
    names = ("big", "large", "huge", "small", "tiny")
    fresh_run(machine, aged(dict.fromkeys(names, 1)), targets)
    sizes = {"big": 1 + MANY, "large": 1 + MANY, "huge": 1 + MANY, "small": 2, "tiny": 2}
    second = aged(sizes, big=500, large=900, huge=700, small=1, tiny=2)
    result = fresh_run(machine, second, targets)
    assert second.read == ["tiny", "small", "large", "huge"], "the time limit is reached before the last dataset"
    assert result.succeeded
    assert result.totals.datasets_unchanged == 1
    third = aged(sizes, big=600)
    assert fresh_run(machine, third, targets).totals.datasets_published == 1
    assert third.read == ["big"], "a backlog is read if nothing else is planned"
    assert audit(WORLD, machine).exact


def test_late_task_still_reads_some_backlog() -> None:
    machine, targets = Machine(), Freshness(10, records_per_run=5, slice_s=0.000_1)
    source = aged({"a": 5, "b": 5})
    result = fresh_run(machine, source, targets)
    assert len(source.read) == 1
    assert result.totals.records_published == 5


def test_source_that_does_not_report_lag_starts_the_run() -> None:
    class Silent(AgedSource):
        def lags(self, states: Mapping[str, DatasetState]) -> Iterator[Lag]:
            raise pa.ArrowInvalid("no broker")

    machine = Machine()
    datasets = {urn: ModelDataset({"0": MANY}) for urn in ("a", "b")}
    for size in (1, MANY):
        datasets = {urn: ModelDataset({"0": size}) for urn in ("a", "b")}
        assert fresh_run(machine, Silent(datasets), Freshness(10)).succeeded
    assert audit(WORLD, machine).exact

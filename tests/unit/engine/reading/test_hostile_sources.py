"""Invalid output of a source for one dataset is reported in a storable form, and the other datasets are published."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from distcommit.core.interfaces.source import DatasetProblem, Extraction, Extractor, SkippedDataset
from distcommit.core.records.deferred_records import DeferredRecords
from distcommit.core.watermark import Watermark
from distcommit.core.work_units import DatasetPlan, SkippedRange, WorkUnit
from distcommit.engine.driver.run import RunResult
from distcommit.testing.fakes.model_source import ModelSource
from tests.models.strategies import no_names, no_plans, no_positions
from tests.simulation.world import World
from tests.unit.engine.driver.machines import Machine, OddSource, go, source

GOOD = source(good=3, other=2)
WORLDS = st.sampled_from([World(), World(buckets=2, partitions=2)])


class TextlessError(Exception):
    def __str__(self) -> str:
        raise ValueError("no text")


@dataclass(frozen=True, slots=True)
class Careless(ModelSource):
    """A source that plans invalid datasets beside valid ones, and checks ownership first."""

    given: tuple[Any, ...] = ()
    asks: bool = True

    def plan(self, owned: Any, states: Any) -> Iterator[Any]:
        for planned in self.given:
            if not self.asks or owned(getattr(planned, "dataset_urn", planned)):
                yield planned
        yield from ModelSource.plan(self, owned, states)


def check_good_ones(world: World, machine: Machine, result: RunResult, expected_reasons: int) -> None:
    assert not result.succeeded
    watermarks = world.watermarks(machine)
    assert {urn: watermarks.get(urn) for urn in GOOD.datasets} == {
        "good": Watermark({"0": 3}),
        "other": Watermark({"0": 2}),
    }
    assert len(result.reasons.entries) == expected_reasons
    msgspec.json.encode(result)
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(result), type=RunResult) == result


@pytest.mark.thorough
@settings(deadline=None, max_examples=40)
@given(world=WORLDS, names=st.lists(no_names(), min_size=1, max_size=3))
@example(world=World(buckets=2, partitions=2), names=["a\udcff", b"topic", None])
def test_invalid_dataset_name_stops_only_its_own_dataset(world: World, names: list[Any]) -> None:
    unit = WorkUnit("", "x", Watermark({"0": 0}), Watermark({"0": 5}), 5)
    plans = tuple(DatasetPlan(name, None, Watermark({"0": 0}), (unit,)) for name in names)
    problems = tuple(DatasetProblem(name, name) for name in names)
    machine = Machine()
    result = go(world, machine, Careless(GOOD.datasets, given=plans + problems))
    check_good_ones(world, machine, result, 2 * len(names))
    assert {reason.kind for reason in result.reasons.entries} == {"not planned"}


@pytest.mark.thorough
@settings(deadline=None, max_examples=40)
@given(world=WORLDS, plan=no_plans("bad"))
@example(world=World(), plan=DatasetPlan("bad", None, Watermark({"0": float("nan")}), ()))
def test_plan_that_cannot_be_stored_or_executed_stops_only_its_own_dataset(world: World, plan: DatasetPlan) -> None:
    machine = Machine()
    result = go(world, machine, Careless(GOOD.datasets, given=(plan,)))
    check_good_ones(world, machine, result, 1)
    assert [(reason.subject, reason.kind) for reason in result.reasons.entries] == [("bad", "not planned")]
    assert "correct the source's plan()" in result.reasons.entries[0].text


@pytest.mark.parametrize("planned", [None, 5, ("bad", None), {"dataset_urn": "bad"}, WorkUnit])
def test_object_that_is_not_a_plan_is_reported(planned: Any) -> None:
    machine = Machine()
    result = go(World(), machine, Careless(GOOD.datasets, given=(planned,), asks=False))
    check_good_ones(World(), machine, result, 1)
    assert f"planned a {type(planned).__name__}; it must be a DatasetPlan" in result.reasons.entries[0].text


def test_dataset_planned_twice_or_by_a_non_owner_does_not_displace_others() -> None:
    world, machine = World(buckets=2, partitions=2), Machine()
    unit = WorkUnit("", "stray", Watermark({"0": 0}), Watermark({"0": 0}), 0)
    stray = DatasetPlan("stray", None, Watermark({"0": 0}), (unit,))
    result = go(world, machine, Careless(GOOD.datasets, given=(stray, stray), asks=False))
    watermarks = world.watermarks(machine)
    assert (watermarks["good"], watermarks["other"]) == (Watermark({"0": 3}), Watermark({"0": 2}))
    texts = sorted(reason.text.partition("found ")[2].partition(".")[0] for reason in result.reasons.entries[:3])
    assert [text.split()[:3] for text in texts] == [["`owned`", "is", "false"]] * 2 + [["it", "was", "planned"]]


@dataclass
class OddExtractor(Extractor):
    source: OddExtractions
    inner: Extractor

    def extract(self, unit: WorkUnit) -> Extraction:
        extraction = self.inner.extract(unit)
        return OddExtraction(self.source, extraction, unit) if unit.dataset_urn == "bad" else extraction

    def close(self) -> None:
        self.inner.close()


@dataclass
class OddExtraction(Extraction):
    source: OddExtractions
    inner: Extraction
    unit: WorkUnit

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        if isinstance(self.source.batches, BaseException):
            raise self.source.batches
        yield from self.source.batches or self.inner

    def actual_high(self) -> Watermark:
        high = self.source.high
        return high if high is not None else self.inner.actual_high()

    def bytes_read(self) -> int:
        size: int = self.source.bytes_read
        return size

    def holes(self) -> Any:
        return self.source.holes


@dataclass(frozen=True, slots=True)
class OddExtractions(ModelSource):
    """A source that extracts the dataset `bad` in an invalid way."""

    high: Any = None
    batches: Any = ()
    bytes_read: Any = 0
    holes: Any = field(default_factory=tuple)

    def open(self) -> Extractor:
        return OddExtractor(self, ModelSource.open(self))


def run_odd(world: World, **odd: Any) -> tuple[Machine, RunResult]:
    machine = Machine()
    return machine, go(world, machine, OddExtractions(source(bad=3, good=3, other=2).datasets, **odd))


@pytest.mark.thorough
@settings(deadline=None, max_examples=40)
@given(world=WORLDS, odd=no_positions())
@example(world=World(), odd=True)
def test_actual_high_watermark_that_cannot_be_stored_fails_only_its_own_dataset(world: World, odd: Any) -> None:
    for high in (Watermark({"0": odd}), Watermark({"0": 3}, odd), Watermark(odd), odd):
        if high is None:
            continue
        machine, result = run_odd(world, high=high)
        check_good_ones(world, machine, result, 1)
        assert [(reason.subject, reason.kind) for reason in result.reasons.entries] == [("bad", "failed")]


@pytest.mark.parametrize(
    "odd",
    [
        {"bytes_read": -1},
        {"bytes_read": 1 << 70},
        {"bytes_read": 1.5},
        {"bytes_read": None},
        {"batches": [None]},
        {"batches": ["text"]},
        {"batches": ValueError("\ud800\x1b[31m")},
        {"batches": TextlessError()},
        {"holes": None},
        {"holes": [("0", 0, 1)]},
        {"holes": [SkippedRange("0", float("nan"), 1, "no record", True)]},
        {"holes": [SkippedRange("0", 0, 1, "no record \udcff", True)]},
        {"holes": [SkippedRange("7", 0, 1, "no record", True)]},
        {"holes": [SkippedRange("0", 2, 9, "no record", True)]},
        {"holes": [SkippedRange("0", 2, 1, "no record", True)]},
        {"holes": [SkippedRange("0", 0, 1, "given up")]},
    ],
)
def test_extraction_of_invalid_values_fails_only_its_own_dataset(odd: dict[str, Any]) -> None:
    machine, result = run_odd(World(), **odd)
    check_good_ones(World(), machine, result, 1)
    assert [(reason.subject, reason.kind) for reason in result.reasons.entries] == [("bad", "failed")]


def test_numbers_of_other_libraries_are_accepted() -> None:
    _, result = run_odd(World(), bytes_read=np.int64(7))
    assert (result.succeeded, result.totals.bytes_read % 7) == (True, 0)


def test_skip_counts_of_a_source_add_up_to_a_storable_number() -> None:
    unit = WorkUnit("", "good", Watermark({"0": 0}), Watermark({"0": 3}), 2**53)
    skipped = tuple(SkippedRange(f"{number}", -(2**63), 2**63 - 1, "expired") for number in range(7, 10))
    plan = DatasetPlan("good", None, Watermark({"0": 0}), (unit,), skipped)
    machine = Machine()
    result = go(World(), machine, Careless(GOOD.datasets, given=(plan,)))
    assert (result.totals.datasets_published, result.totals.positions_lost) == (2, 2**53)
    assert [reason.text.partition("found ")[2][:20] for reason in result.reasons.entries] == ["it was planned twice"]
    msgspec.json.encode(result)


def test_source_error_without_text_still_yields_a_reason() -> None:
    def broken() -> None:
        raise TextlessError

    machine = Machine()
    result = go(World(), machine, OddSource(GOOD.datasets, opening=broken))
    assert {reason.text for reason in result.reasons.entries} == {"TextlessError: <a TextlessError without a text>"}


@pytest.mark.parametrize("urn", ["\0", "a\nb", "\x1b[31mred", "\u202eabc", "..", "a" * 1024])
def test_any_valid_text_is_a_dataset_name(urn: str) -> None:
    machine, named = Machine(), source(good=3, **{urn: 2})
    assert go(World(), machine, named).succeeded
    assert World().violation(machine, named, {}) == ""


@pytest.mark.parametrize("world", [World(), World(buckets=2, partitions=2)])
def test_deferred_records_are_summed_by_cause_and_are_not_a_failure(world: World) -> None:
    given = [DeferredRecords(f"d{number:02d}", number, "ties \udcff") for number in range(1, 31)]
    given += [DeferredRecords("odd", -1, "ties \udcff"), DeferredRecords("new", 2, "young")]
    result = go(world, Machine(), Careless(GOOD.datasets, given=tuple(given)))
    assert (result.succeeded, result.totals.datasets_skipped) == (True, 0)
    causes = {cause.cause: cause for cause in result.totals.deferred.causes}
    ties, young = causes["ties \\udcff"], causes["young"]
    assert (ties.datasets, ties.records, ties.is_minimum) == (31, sum(range(31)) + 1, True)
    assert list(ties.largest.items()) == [(f"d{number:02d}", number) for number in range(30, 20, -1)]
    assert (young.datasets, young.records, young.is_minimum, young.largest) == (1, 2, False, {"new": 2})
    msgspec.json.encode(result)


@pytest.mark.parametrize("world", [World(), World(buckets=2, partitions=2)])
def test_skipped_offsets_of_a_source_are_reported_and_are_not_a_failure(world: World) -> None:
    machine, names = Machine(), [f"__{number}" for number in range(50)]
    passed = tuple(SkippedDataset(name, "internal \udcff") for name in names)
    result = go(world, machine, Careless(GOOD.datasets, given=passed))
    assert (result.succeeded, result.totals.datasets_skipped, result.reasons.entries) == (True, 0, ())
    assert (len(result.notes.entries) < 50, len(result.notes.entries) + result.notes.omitted_count) == (True, 50)
    assert {(note.kind, note.text) for note in result.notes.entries} == {("passed over", "internal \\udcff")}
    msgspec.json.encode(result)

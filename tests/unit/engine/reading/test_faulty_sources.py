"""Faulty sources: a dataset that can't be planned, opened or read fails alone, with a reason."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from distcommit.core.errors import SourceError, SourceUnavailableError, TransientError
from distcommit.core.interfaces.source import DatasetProblem
from distcommit.core.watermark import Watermark, as_offset
from distcommit.core.work_units import DatasetPlan, WorkUnit
from tests.simulation.world import World
from tests.unit.engine.committing.situations import SIX, WORLD, check_recovery, rows, sealed_but_not_published
from tests.unit.engine.driver.machines import STAGING, Machine, OddSource, begin_ingest, fails, go, ingest_all, source


def refuse(unit: WorkUnit) -> None:
    if unit.dataset_urn == "b":
        raise SourceError("bad header \udcff")


def behind(unit: WorkUnit, high: Watermark) -> Watermark:
    return Watermark({p: as_offset(v) - 1 for p, v in unit.low.positions.items()}) if unit.dataset_urn == "b" else high


def beyond(unit: WorkUnit, high: Watermark) -> Watermark:
    return Watermark({p: as_offset(v) + 1 for p, v in high.positions.items()}) if unit.dataset_urn == "b" else high


def elsewhere(unit: WorkUnit, high: Watermark) -> Watermark:
    return Watermark({**high.positions, "99": 1}) if unit.dataset_urn == "b" else high


def raising(unit: WorkUnit, high: Watermark) -> Watermark:
    if unit.dataset_urn == "b":
        raise ZeroDivisionError("a bug in the source")
    return high


@pytest.mark.parametrize(
    ("odd", "expected_error"),
    [
        ({"extracting": refuse}, "SOURCE_FAILED: bad header \\udcff"),
        ({"highs": behind}, "outside its work unit"),
        ({"highs": beyond}, "outside its work unit"),
        ({"highs": elsewhere}, "outside its work unit"),
        ({"highs": raising}, "ZeroDivisionError: a bug in the source"),
    ],
)
def test_faulty_extraction_fails_its_own_dataset_with_a_reason(odd: dict[str, Any], expected_error: str) -> None:
    machine, good = Machine(), source(a=3, b=2, c=1)
    result = go(WORLD, machine, OddSource(good.datasets, **odd))
    assert not result.succeeded
    assert (result.totals.datasets_published, result.totals.datasets_failed) == (2, 1)
    assert [(r.subject, r.kind, expected_error in r.text) for r in result.reasons.entries] == [("b", "failed", True)]
    assert set(WORLD.watermarks(machine)) == {"a", "c"}
    check_recovery(machine, good)


def gone() -> None:
    raise SourceError("broker gone \udcff")


@pytest.mark.parametrize("where", ["announcing", "opening"])
def test_source_that_cannot_be_opened_fails_its_work_units_not_the_run(where: str) -> None:
    machine, good = Machine(), source(a=3, b=2)
    odd: dict[str, Any] = {where: gone}
    result = go(WORLD, machine, OddSource(good.datasets, **odd))
    assert (result.succeeded, result.totals.datasets_failed, result.totals.work_units_failed) == (False, 2, 2)
    assert {r.text for r in result.reasons.entries} == {"SOURCE_FAILED: broker gone \\udcff"}
    check_recovery(machine, good)


def test_extractor_that_cannot_be_closed_costs_nothing() -> None:
    machine, good = Machine(), source(a=3, b=2)
    assert go(WORLD, machine, OddSource(good.datasets, closing=gone)).succeeded
    assert WORLD.violation(machine, good, {}) == ""


def test_source_that_fails_twice_is_read_by_the_third_attempt_of_the_task() -> None:
    machine, good = Machine(), source(a=3)
    calls: list[int] = []

    def flaky() -> None:
        calls.append(1)
        if len(calls) < 3:
            gone()

    settings, tasks = begin_ingest(WORLD, machine, OddSource(good.datasets, opening=flaky))
    reports = ingest_all(replace(settings, task_attempts=3), tasks)
    assert sum(report.counts.work_units_failed for report in reports) == 0
    assert sorted(row.outcome for row in rows(settings)) == ["failed", "failed", "succeeded"]
    check_recovery(machine, good)


def test_datasets_that_cannot_be_planned_or_named_are_skipped_with_their_reason() -> None:
    def bad() -> Iterator[DatasetPlan | DatasetProblem]:
        for urn in ("bad\udcff", "", "x" * 2000):
            unit = WorkUnit("", urn, Watermark({"0": 0}), Watermark({"0": 5}), 5)
            yield DatasetPlan(urn, None, Watermark({"0": 0}), (unit,))
        yield DatasetProblem("odd\udcff", "no such topic \udcff")

    machine, good = Machine(), source(a=3)
    result = go(WORLD, machine, OddSource(good.datasets, planning=bad))
    assert (result.succeeded, result.totals.datasets_skipped, result.totals.datasets_published) == (False, 4, 1)
    assert [reason.kind for reason in result.reasons.entries] == ["not planned"] * 4
    assert result.reasons.entries[3].subject == "odd\\udcff"
    assert WORLD.violation(machine, good, {}) == ""


def test_source_that_cannot_plan_is_reported_after_pending_sequences_were_replayed() -> None:
    def broken() -> Iterator[DatasetPlan | DatasetProblem]:
        raise SourceError("broker gone")

    machine = Machine()
    sealed_but_not_published(machine, source(a=3))
    with pytest.raises(SourceUnavailableError, match="no dataset could be planned") as caught:
        go(WORLD, machine, OddSource(source(a=5).datasets, planning=broken))
    assert "broker gone" in caught.value.found
    assert WORLD.watermarks(machine) == {"a": Watermark({"0": 3})}
    check_recovery(machine, source(a=5))


@pytest.mark.parametrize("part", ["/store/plans/", STAGING + "/0000000002", "/store/task_states/"])
def test_storage_that_cannot_take_the_plan_is_not_blamed_on_the_source(part: str) -> None:
    machine = Machine()
    WORLD.store(machine)
    machine.faults.append(fails(errno.ENOSPC, "mkdir", part))
    with pytest.raises(TransientError, match="the plan cannot be stored") as caught:
        go(WORLD, machine, source(a=3))
    assert not isinstance(caught.value, SourceUnavailableError)


def test_partition_whose_planning_fails_is_a_reason_and_the_others_continue() -> None:
    calls: list[int] = []

    def broken_once() -> Iterator[DatasetPlan | DatasetProblem]:
        calls.append(1)
        if len(calls) == 1:
            raise SourceError("broker gone")
        return iter(())

    world, machine = World(buckets=2, partitions=2), Machine()
    result = go(world, machine, OddSource(SIX.datasets, planning=broken_once))
    assert not result.succeeded
    assert result.totals.datasets_published == 3
    assert [(reason.subject, reason.kind) for reason in result.reasons.entries] == [("partition 0", "not planned")]
    check_recovery(machine, SIX, world)

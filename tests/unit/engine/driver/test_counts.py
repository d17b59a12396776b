"""Counts are values that add up in any grouping and that encoding does not change."""

from __future__ import annotations

from typing import Any, get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import astuple

from distcommit.core.records.run_counts import (
    BranchFailures,
    CheckCounts,
    FlowCounts,
    RunCounts,
    SinkCounter,
    SinkCounts,
)
from distcommit.core.records.run_reasons import MAX_REASONS, Reason, Reasons
from distcommit.core.work_units import ConstructCounts
from distcommit.engine.committing.recover import RecoverReport
from distcommit.engine.driver.run import RecoverResult, RunResult
from distcommit.engine.driver.task_reports import Report, Tally, sum_reports
from distcommit.engine.planning.plan_partition import PlanReport
from distcommit.engine.run_events import Event
from distcommit.stores.history.attempt_counts import Attempt
from distcommit.stores.history.run_records import CancelRequest, RecordedPhase, RunBeginning, RunFacts, RunRecord
from distcommit.stores.history.run_table import TableRow, TaskIdentity, TaskRows

STRUCTS: list[type[msgspec.Struct]] = [
    *(
        RunCounts,
        FlowCounts,
        CheckCounts,
        BranchFailures,
        SinkCounts,
        SinkCounter,
        Reason,
        Reasons,
        *get_args(Event),
        Report,
    ),
    *(RunResult, RecoverResult, RecoverReport, PlanReport, TaskIdentity, TableRow, TaskRows, Attempt),
    *(RunRecord, RecordedPhase, RunBeginning, RunFacts, CancelRequest),
]
NUMBERS = st.integers(0, 1 << 40)
NAMES = tuple(name for name in RunCounts.__struct_fields__ if name not in ("deferred", "flow"))
CONSTRUCTS = st.builds(ConstructCounts, st.sampled_from("ab"), st.just("json"), NUMBERS, NUMBERS, NUMBERS)
CHECKS = st.builds(CheckCounts, st.sampled_from("ab"), st.just("rows"), st.booleans(), NUMBERS, NUMBERS)
FAILURES = st.builds(BranchFailures, st.sampled_from("ab"), st.just("json"), NUMBERS)
SINKS = st.builds(SinkCounts, st.sampled_from("ab"), st.just("files"), NUMBERS, NUMBERS, NUMBERS)
COUNTERS = st.builds(SinkCounter, st.sampled_from("ab"), st.just("files"), st.just("sent"), NUMBERS)
PARTS = (CONSTRUCTS, CHECKS, FAILURES, SINKS, COUNTERS)
FLOWS = st.builds(FlowCounts, *(st.lists(each, max_size=1).map(tuple) for each in PARTS))
SOME = st.dictionaries(st.sampled_from(NAMES), NUMBERS, max_size=5)
COUNTS = st.builds(lambda numbers, flow: RunCounts(**numbers, flow=flow), SOME, FLOWS)


def as_sets(counts: RunCounts) -> tuple[Any, ...]:
    """Return all counts; those of the flow without an order."""
    flow = counts.flow
    return (
        *astuple(counts)[:-1],
        set(flow.constructs),
        set(flow.checks),
        set(flow.failures),
        *map(set, (flow.sinks, flow.counters)),
    )


def reasons_of(number: int) -> Reasons:
    return sum((Reasons.of(f"dataset {place}", "failed", "why") for place in range(number)), Reasons())


@given(st.lists(COUNTS, min_size=1, max_size=6), st.data())
def test_counts_add_up_field_by_field_in_any_grouping(parts: list[RunCounts], data: st.DataObject) -> None:
    before, none = [*map(astuple, parts)], RunCounts()
    cut = data.draw(st.integers(0, len(parts)))
    total = sum(parts, none)
    assert as_sets(sum(parts[:cut], none) + sum(parts[cut:], none)) == as_sets(total)
    assert total + none == none + total == total == RunCounts.total(parts)
    assert RunCounts.total([]) == none
    for name in NAMES:
        assert getattr(total, name) == sum(getattr(part, name) for part in parts)
    for check in total.flow.checks:
        same = [part for counts in parts for part in counts.flow.checks if part.mandatory == check.mandatory]
        assert check.passed == sum(part.passed for part in same if part.branch == check.branch)
    assert [*map(astuple, parts)] == before


def test_counts_are_frozen_numbers() -> None:
    assert {type(getattr(RunCounts(), name)) for name in NAMES} == {int}
    with pytest.raises(AttributeError):
        setattr(RunCounts(), NAMES[0], 1)


@given(COUNTS, st.sets(st.sampled_from(NAMES)))
def test_selected_counts_are_kept_and_all_others_are_zero(counts: RunCounts, names: set[str]) -> None:
    selected = counts.only(*names)
    assert {name: getattr(selected, name) for name in names} == {name: getattr(counts, name) for name in names}
    assert selected.not_zero.keys() <= names
    assert not selected.flow


@given(st.lists(COUNTS, max_size=4))
def test_totals_of_a_run_are_the_sums_of_its_phases(phases: list[RunCounts]) -> None:
    assert sum_reports(map(Report, phases)).counts == RunCounts.total(phases)


@given(st.lists(st.integers(0, 2 * MAX_REASONS), max_size=4))
def test_first_reasons_are_kept_and_the_others_counted(numbers: list[int]) -> None:
    parts = [*map(reasons_of, numbers)]
    together, backwards = sum(parts, Reasons()), Reasons()
    for part in reversed(parts):
        backwards = part + backwards
    assert together == backwards
    assert len(together.entries) == min(sum(numbers), MAX_REASONS)
    assert len(together.entries) + together.omitted_count == sum(numbers)
    assert together.entries == tuple(reason for part in parts for reason in part)[:MAX_REASONS]
    assert bool(together) == (sum(numbers) > 0)


def test_report_is_unchanged_by_encoding_and_adds_up_on_the_driver() -> None:
    tally = Tally()
    for place in range(MAX_REASONS + 3):
        tally.add(RunCounts(datasets_skipped=1))
        tally.add_reason(f"dataset {place}", "not planned", "why")
    report = tally.report(2)
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(report), type=Report) == report
    total = sum_reports([report] * 6)
    assert total.counts.datasets_skipped == 6 * (MAX_REASONS + 3)
    assert (len(total.reasons.entries), total.reasons.omitted_count) == (100, 6 * (MAX_REASONS + 3) - 100)

"""Counts are values that add up in any grouping and that encoding does not change."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import asdict, astuple

from distcommit.engine.driver.counts import CommitCounts, Counts, DrainCounts, IngestCounts, PlanCounts, RecoverCounts
from distcommit.engine.driver.reports import (
    MAX_REASONS,
    Reasons,
    Report,
    Tally,
    Totals,
    counts_by_name,
    sum_reports,
    totals_of,
)

KINDS: tuple[type[Counts], ...] = (CommitCounts, RecoverCounts, PlanCounts, IngestCounts, DrainCounts)
PHASES = KINDS[1:]
NUMBERS = st.integers(0, 1 << 40)


def counts_of(kind: type[Counts]) -> st.SearchStrategy[Any]:
    return st.tuples(*[NUMBERS] * len(kind.__struct_fields__)).map(lambda numbers: kind(*numbers))


def reasons_of(number: int) -> Reasons:
    return sum((Reasons.of(f"dataset {place}", "failed", "why") for place in range(number)), Reasons())


@given(st.sampled_from(KINDS).flatmap(lambda kind: st.lists(counts_of(kind), min_size=1, max_size=6)), st.data())
def test_counts_add_up_field_by_field_in_any_grouping(parts: list[Any], data: st.DataObject) -> None:
    before, none = [*map(astuple, parts)], type(parts[0])()
    cut = data.draw(st.integers(0, len(parts)))
    total = sum(parts, none)
    assert sum(parts[:cut], none) + sum(parts[cut:], none) == total
    assert total + none == none + total == total == type(none).total(parts)
    assert type(none).total([]) == none
    assert astuple(total) == tuple(map(sum, zip(*before, strict=True)))
    assert [*map(astuple, parts)] == before


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_counts_are_frozen_numbers_and_different_phases_do_not_add_up(kind: type[Counts]) -> None:
    assert {type(number) for number in asdict(kind()).values()} == {int}
    with pytest.raises(AttributeError):
        setattr(kind(), kind.__struct_fields__[0], 1)
    other = next(another for another in KINDS if another is not kind)
    with pytest.raises(TypeError):
        kind() + other()


@given(st.tuples(*map(counts_of, PHASES)))
def test_totals_are_the_sums_of_the_phases_by_name(phases: tuple[Any, ...]) -> None:
    totals = totals_of([Report(counts) for counts in phases], oldest_held_epoch=7)
    assert totals.oldest_held_epoch == 7
    total_fields = asdict(totals)
    assert {name: total_fields[name] for name in counts_by_name(phases)} == counts_by_name(phases)
    assert sum(counts_by_name(phases).values()) == sum(map(sum, map(astuple, phases)))
    assert Totals(oldest_held_epoch=7) == totals_of([Report(kind()) for kind in PHASES], 7)


@given(st.lists(st.integers(0, 2 * MAX_REASONS), max_size=4))
def test_first_reasons_are_kept_and_the_others_counted(numbers: list[int]) -> None:
    parts = [*map(reasons_of, numbers)]
    together, backwards = sum(parts, Reasons()), Reasons()
    for part in reversed(parts):
        backwards = part + backwards
    assert together == backwards
    assert len(together.kept) == min(sum(numbers), MAX_REASONS)
    assert len(together.kept) + together.more == sum(numbers)
    assert together.kept == tuple(reason for part in parts for reason in part)[:MAX_REASONS]
    assert bool(together) == (sum(numbers) > 0)


def test_report_is_unchanged_by_encoding_and_adds_up_on_the_driver() -> None:
    tally = Tally(PlanCounts())
    for place in range(MAX_REASONS + 3):
        tally.add(PlanCounts(datasets_skipped=1))
        tally.add_reason(f"dataset {place}", "not planned", "why")
    report = tally.report(2)
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(report), type=Report[PlanCounts]) == report
    total = sum_reports([report] * 6, PlanCounts())
    assert total.counts.datasets_skipped == 6 * (MAX_REASONS + 3)
    assert (len(total.reasons.kept), total.reasons.more) == (100, 6 * (MAX_REASONS + 3) - 100)

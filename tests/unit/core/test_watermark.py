"""Positions of every type: their order, and how watermark types encode values."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distcommit.core.commit_groups import CommitGroups
from distcommit.core.interfaces.source import DatasetProblem
from distcommit.core.interfaces.watermark_types import (
    CompositeWatermark,
    LongWatermark,
    StringWatermark,
    TimestampWatermark,
    WatermarkType,
)
from distcommit.core.support.storable_check import storable
from distcommit.core.watermark import Position, Watermark, at_or_past, format_position
from distcommit.core.work_units import DatasetPlan, SkippedRange, WorkUnit, merge_ranges, positions_lost
from distcommit.engine.planning.plan_checks import check_plan
from tests.models import strategies

POSITIONS = strategies.positions() | st.sampled_from([(), (1,), (1, "a"), (1, "b"), (1, 2), (2,), (1.0,), "a", 1])
TEXTS = st.text(st.characters(codec="utf-8"), max_size=5)
LONGS = st.integers(-(2**63), 2**63 - 1)
TIMES = st.datetimes(
    datetime(2, 1, 1), datetime(9998, 1, 1), timezones=st.sampled_from([UTC, timezone(timedelta(hours=-5))])
)
PAIR = CompositeWatermark(TimestampWatermark(), LongWatermark(), StringWatermark())
VALUES: list[tuple[WatermarkType[Any], st.SearchStrategy[Any]]] = [
    (LongWatermark(), LONGS),
    (StringWatermark(), TEXTS),
    (TimestampWatermark(), TIMES),
    (PAIR, st.tuples(TIMES, st.integers(0, 2), TEXTS)),
    (PAIR, st.tuples(TIMES) | st.tuples(TIMES, LONGS) | st.just(())),
]


@given(POSITIONS, POSITIONS, POSITIONS)
def test_positions_of_one_type_are_ordered(a: Position, b: Position, c: Position) -> None:
    assert at_or_past(a, a)
    assert (at_or_past(a, b) and at_or_past(b, a)) is (a == b)
    if at_or_past(a, b) and at_or_past(b, c):
        assert at_or_past(a, c)


def test_composite_positions_are_ordered_by_the_first_element_that_differs() -> None:
    ordered: list[Position] = [(), (1,), (1, "a"), (1, "a", 0), (1, "b"), (2,), (2, "a")]
    for place, position in enumerate(ordered):
        assert [at_or_past(position, other) for other in ordered] == [place >= before for before in range(len(ordered))]


@pytest.mark.parametrize(("one", "other"), [((1, "a"), (1, 2)), ((1,), 1), (("a",), "a"), ((), 0), ((), "")])
def test_position_is_never_past_one_of_another_type(one: Position, other: Position) -> None:
    assert not at_or_past(one, other)
    assert not at_or_past(other, one)
    with pytest.raises(ValueError, match="would go back"):
        Watermark({"": one}).advanced({"": other})


@given(st.dictionaries(st.text(max_size=3), strategies.positions(), max_size=3))
def test_stored_watermarks_are_read_back_equal(positions: dict[str, Position]) -> None:
    watermark = Watermark(positions, "i")
    try:
        stored = storable(watermark)
    except ValueError:
        return  # text that is not Unicode
    assert stored == watermark
    assert msgspec.convert(msgspec.to_builtins(watermark), Watermark) == watermark
    assert all(type(stored.positions[name]) is type(position) for name, position in positions.items())


def test_values_that_are_equal_once_stored_are_not_positions() -> None:
    for wrong in ((float("nan"),), ((1,),), (None,), (True,)):
        with pytest.raises(ValueError, match="Expected"):
            storable(Watermark({"": wrong}))  # type: ignore[dict-item]


def test_composite_ranges_are_merged_and_cannot_be_counted() -> None:
    ranges = [SkippedRange("", (1, "a"), (2,), "one"), SkippedRange("", (2,), (2, "b"), "two")]
    assert merge_ranges(ranges) == (SkippedRange("", (1, "a"), (2, "b"), "two"),)
    assert positions_lost(ranges) == 2


def test_composite_position_is_shown_in_the_form_that_sets_it() -> None:
    assert [format_position(p) for p in ((7, "a b"), "a b", 7)] == ['[7,"a b"]', "a b", "7"]
    assert format_position((7, "x" * 99)) == f'[7,"{"x" * 76}...'


@pytest.mark.parametrize(("kind", "values"), VALUES)
def test_types_keep_the_order_of_their_values_and_decode_them(
    kind: WatermarkType[Any], values: st.SearchStrategy[Any]
) -> None:
    @given(values, values)
    def holds(one: Any, other: Any) -> None:
        a, b = kind.to_position(one), kind.to_position(other)
        assert at_or_past(a, b) is (one >= other)
        assert (a == b) is (one == other)
        assert kind.from_position(storable(Watermark({"": a})).positions[""]) == one

    holds()


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (LongWatermark(), 2**63),
        (LongWatermark(), "1"),
        (LongWatermark(), True),
        (StringWatermark(), 1),
        (TimestampWatermark(), datetime(2026, 1, 1)),
        (TimestampWatermark(), datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=1)))),
        (PAIR, (datetime(2026, 1, 1, tzinfo=UTC), 1, "a", 2)),
        (PAIR, [1]),
        (CompositeWatermark(PAIR), ((),)),
    ],
)
def test_values_without_a_position_are_rejected(kind: WatermarkType[Any], value: Any) -> None:
    with pytest.raises(ValueError, match=r"\S"):
        kind.to_position(value)


@pytest.mark.parametrize("text", ["2026-01-01", "2026-01-01T00:00:00Z", "2026-01-01T00:00:00.000000+00:00", "x", 1])
def test_times_whose_text_order_differs_are_rejected(text: Position) -> None:
    with pytest.raises(ValueError, match=r"time|Invalid"):
        TimestampWatermark().from_position(text)


def test_fixed_setting_of_a_type_distinguishes_encodings() -> None:
    class Newer(LongWatermark):
        version = 2

    assert LongWatermark().pin().value == "long 1"
    assert Newer().pin().value == "long 2"
    assert PAIR.pin().value == "composite (timestamp 1, long 1, string 1) 1"
    assert CompositeWatermark(Newer()).pin().value == "composite (long 2) 1"


def test_attempt_without_expected_high_may_end_anywhere_from_low_on() -> None:
    unit = WorkUnit("u", "d", Watermark({"0": 5, "1": (1,)}, "i"), Watermark({"1": (2,)}, "i"), 1)
    assert unit.known_end == Watermark({"0": 5, "1": (2,)}, "i")
    assert unit.can_end_at(Watermark({"0": 5, "1": (1, "x")}, "i"))
    assert unit.can_end_at(Watermark({"0": 10**9, "1": (2,)}, "i"))
    for wrong in ({"0": 4, "1": (1,)}, {"0": 5, "1": (2, "a")}, {"0": 5}, {"0": "6", "1": (2,)}, {"0": 5, "1": 2}):
        assert not unit.can_end_at(Watermark(wrong, "i"))  # type: ignore[arg-type]
    assert not unit.can_end_at(Watermark({"0": 5, "1": (1,)}, "j"))
    assert not unit.can_end_at(Watermark({"0": 5, "1": (1,), "2": 0}, "i"))


def test_plan_may_omit_the_end_of_a_partition_and_nothing_else() -> None:
    def checked(low: Watermark, high: Watermark) -> object:
        return check_plan(
            DatasetPlan("d", None, low, (WorkUnit("", "d", low, high, 1),)), lambda urn: True, (), CommitGroups()
        )

    low = Watermark({"0": 5, "1": (1,)}, "i")
    for high in (Watermark({}, "i"), Watermark({"1": (2,)}, "i")):
        assert isinstance(checked(low, high), DatasetPlan)
    for high in (Watermark({}), Watermark({"0": 4}, "i"), Watermark({"1": (0,)}, "i"), Watermark({"2": 1}, "i")):
        assert isinstance(checked(low, high), DatasetProblem)

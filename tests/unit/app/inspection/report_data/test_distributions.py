"""Distributions of measured values: nearest-rank percentiles, histogram bins, and skew."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from distcommit.app.inspection.report_data.distributions import Bin, percentile, skew_of, spread_of


def test_percentile_is_always_one_of_the_values() -> None:
    hundred = list(range(1, 101))
    assert [percentile(hundred, share) for share in (50, 90, 99, 100)] == [50, 90, 99, 100]
    assert [percentile([7], share) for share in (1, 50, 99)] == [7, 7, 7]
    assert percentile([1, 9], 50) == 1


def test_value_on_the_edge_of_a_bin_belongs_to_it() -> None:
    spread = spread_of([50, 51, 100])
    assert spread is not None
    assert spread.bins == [Bin(50, 1), Bin(100, 2)]
    longest = spread_of([300_001])
    assert longest is not None
    assert longest.bins[-1] == Bin(None, 1)


@given(st.lists(st.integers(0, 10**7), min_size=1))
def test_each_value_is_in_exactly_one_bin(values: list[int]) -> None:
    spread = spread_of(values)
    assert spread is not None
    assert sum(bin_.count for bin_ in spread.bins) == spread.count == len(values)
    assert spread.bins[-1].count > 0
    assert min(values) <= spread.p50_ms <= spread.p90_ms <= spread.p99_ms <= spread.max_ms == max(values)


def test_empty_values_have_no_spread_and_a_single_task_has_no_skew() -> None:
    assert spread_of([]) is None
    assert skew_of("a task", "records", [("t", 9)]) is None
    skew = skew_of("a task", "records", [("u", 90), ("t", 10), ("v", 11)])
    assert skew is not None
    assert (skew.count, skew.median, skew.max, skew.subject) == (3, 11, 90, "u")

"""How numbers are spread: nearest rank, nothing lost between bins, the largest against the usual."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from distcommit.app.inspection.measures import Bin, percentile, skew_of, spread_of


def test_percentiles_are_values_that_are_there() -> None:
    hundred = list(range(1, 101))
    assert [percentile(hundred, share) for share in (50, 90, 99, 100)] == [50, 90, 99, 100]
    assert [percentile([7], share) for share in (1, 50, 99)] == [7, 7, 7]
    assert percentile([1, 9], 50) == 1


def test_a_value_on_the_edge_of_a_bin_is_in_it() -> None:
    found = spread_of([50, 51, 100])
    assert found is not None
    assert found.bins == [Bin(50, 1), Bin(100, 2)]
    longest = spread_of([300_001])
    assert longest is not None
    assert longest.bins[-1] == Bin(None, 1)


@given(st.lists(st.integers(0, 10**7), min_size=1))
def test_each_value_is_in_one_bin(values: list[int]) -> None:
    found = spread_of(values)
    assert found is not None
    assert sum(each.count for each in found.bins) == found.count == len(values)
    assert found.bins[-1].count > 0
    assert min(values) <= found.p50_ms <= found.p90_ms <= found.p99_ms <= found.most_ms == max(values)


def test_of_nothing_there_is_no_spread_and_of_one_no_skew() -> None:
    assert spread_of([]) is None
    assert skew_of("a task", "records", [("t", 9)]) is None
    found = skew_of("a task", "records", [("u", 90), ("t", 10), ("v", 11)])
    assert found is not None
    assert (found.count, found.median, found.most, found.who) == (3, 11, 90, "u")

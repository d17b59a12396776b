"""Ranges of positions without published records."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from distcommit.core.watermark import as_offset
from distcommit.core.work_units import SkippedRange, merge_ranges

RANGES = st.lists(
    st.builds(
        lambda partition, low, size, is_hole: SkippedRange(partition, low, low + size, f"from {low}", is_hole),
        st.sampled_from(["0", "1"]),
        st.integers(0, 20),
        st.integers(0, 5),
        st.booleans(),
    )
)


def positions(ranges: list[SkippedRange] | tuple[SkippedRange, ...]) -> set[tuple[str, bool, int]]:
    return {(r.partition, r.is_hole, at) for r in ranges for at in range(as_offset(r.low), as_offset(r.high))}


@given(RANGES)
def test_merged_ranges_cover_the_same_positions_in_no_more_ranges(ranges: list[SkippedRange]) -> None:
    merged = merge_ranges(ranges)
    assert positions(merged) == positions(ranges)
    assert len(merged) <= len(ranges)
    assert merge_ranges(merged) == merged


def test_runs_that_each_meet_one_control_record_leave_one_range() -> None:
    met = [SkippedRange(str(partition), at, at + 1, "no record", True) for at in range(2_000) for partition in range(2)]
    assert merge_ranges(met) == (
        SkippedRange("0", 0, 2_000, "no record", True),
        SkippedRange("1", 0, 2_000, "no record", True),
    )


def test_ranges_of_another_kind_or_place_are_not_merged() -> None:
    expired, hole = SkippedRange("0", 1, 2, "expired"), SkippedRange("0", 2, 3, "no record", True)
    elsewhere, text = SkippedRange("0", 3, 4, "no record", True, "new"), SkippedRange("0", "b", "c", "expired")
    apart = SkippedRange("0", 5, 6, "no record", True)
    assert merge_ranges([expired, hole, elsewhere, text, apart]) == (expired, hole, elsewhere, text, apart)


def test_merged_range_has_the_reason_of_the_later_one() -> None:
    assert merge_ranges([SkippedRange("0", "a", "c", "old"), SkippedRange("0", "c", "d", "new")]) == (
        SkippedRange("0", "a", "d", "new"),
    )

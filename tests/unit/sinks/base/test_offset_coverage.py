"""Offset coverage of rows: collected, added, and subtracted again."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distcommit.core.interfaces.ledger import Covered
from distcommit.core.interfaces.provenance import Provenance
from distcommit.core.interfaces.sink import Filtered, Origin, Origins
from distcommit.core.work_units import SkippedRange
from distcommit.sinks.base.offset_coverage import OffsetCoverage, added, covered_in, without
from distcommit.sinks.files.offset_sets import OffsetSets, parsed

ORIGIN = Origin(Provenance("partition", "offset"), "topic-id")
NUMBERS = st.frozensets(st.integers(0, 60), max_size=20)


def text(numbers: frozenset[int], partition: str = "0") -> str:
    sets = OffsetSets()
    for number in numbers:
        sets.add_range(partition, number, number + 1)
    return sets.to_text() if numbers else ""


@st.composite
def disjoint(draw: st.DrawFn) -> tuple[Covered, Covered]:
    """Draw two coverages without a common position, as of two epochs of a dataset."""
    first: list[frozenset[int]] = draw(st.lists(NUMBERS, min_size=3, max_size=3))
    then: list[frozenset[int]] = draw(st.lists(NUMBERS, min_size=3, max_size=3))
    later = [(numbers - before) for before, numbers in zip(first, then, strict=True)]
    incarnations = draw(st.sampled_from([("i", "i"), ("i", "j")]))
    one, other = (
        Covered(
            incarnation=name,
            offsets=text(numbers[0]),
            holes=text(numbers[1]),
            filtered={"main": text(numbers[2])} if numbers[2] else {},
            rows=draw(st.integers(1, 9)),
        )
        for name, numbers in zip(incarnations, (first, later), strict=True)
    )
    return one, other


def content_of(parts: tuple[Covered, ...]) -> list[Any]:
    """Return the content of coverages independently of the text of their offset sets."""

    def numbers(stored: str) -> list[int]:
        return list(parsed(stored).offsets("0"))

    return [
        (p.incarnation, numbers(p.offsets), numbers(p.holes), {b: numbers(t) for b, t in p.filtered.items()}, p.rows)
        for p in parts
    ]


def batch(*offsets: int) -> pa.RecordBatch:
    return pa.record_batch({"partition": pa.array(["0"] * len(offsets)), "offset": pa.array(offsets, pa.int64())})


def test_coverage_contains_written_skipped_and_filtered_offsets() -> None:
    covering = OffsetCoverage(Origin(ORIGIN.provenance, "topic-id", makes_several=True))
    covering.add(batch(0, 1), None)
    covering.add(pa.record_batch({"x": [1]}), Origins(pa.array(["0"]), pa.array([4])))
    covering.note_holes([SkippedRange("0", 2, 4, "no record", True, "topic-id")])
    assert covering.note_filtered(Filtered({"main": text(frozenset({5}))}, {}))
    (coverage,) = covered_in([{"covered": covering.covered()}])
    assert (coverage.incarnation, coverage.rows, coverage.makes_several, coverage.duplicates) == (
        "topic-id",
        3,
        True,
        0,
    )
    assert list(parsed(coverage.offsets).offsets("0")) == [0, 1, 4]
    assert list(parsed(coverage.holes).offsets("0")) == [2, 3]
    assert list(parsed(coverage.filtered["main"]).offsets("0")) == [5]


def test_filtered_offsets_are_not_noted_without_rows() -> None:
    covering = OffsetCoverage(ORIGIN)
    assert not covering.note_filtered(Filtered({"main": text(frozenset({5}))}, {}))
    assert covering.rows == 0


def test_source_without_provenance_has_only_row_counts() -> None:
    covering = OffsetCoverage(Origin())
    covering.add(batch(0, 1), None)
    assert covered_in([{"covered": covering.covered()}]) == (Covered(rows=2),)
    assert not covering.note_filtered(Filtered({}, {"sql": 1})), "only an error file could record it"


@given(disjoint())
def test_subtracted_part_leaves_the_coverage_as_if_never_added(parts: tuple[Covered, Covered]) -> None:
    one, other = parts
    assert content_of(without(added(one, other), [other])) == content_of(added(one))
    assert without(added(one), [one]) == ()


@given(disjoint())
def test_order_of_added_parts_decides_only_the_last_one(parts: tuple[Covered, Covered]) -> None:
    one, other = parts
    assert sorted(content_of(added(one, other)), key=str) == sorted(content_of(added(other, one)), key=str)
    assert content_of(added(one, other)) == content_of(added(*added(one), *added(other)))


@given(NUMBERS, NUMBERS)
def test_offsets_in_two_parts_are_counted_as_duplicates(first: frozenset[int], then: frozenset[int]) -> None:
    (coverage,) = added(Covered(offsets=text(first), rows=1), Covered(offsets=text(then), rows=1))
    assert coverage.duplicates == len(first & then)
    assert set(parsed(coverage.offsets).offsets("0")) == first | then


@pytest.mark.parametrize("count", [0, 1, 3])
def test_partitions_and_incarnations_are_separate(count: int) -> None:
    parts = [Covered(incarnation=str(n), offsets=text(frozenset({1}), str(n)), rows=1) for n in range(count)]
    assert added(*parts) == tuple(parts)
    assert without(parts, parts[:1]) == tuple(parts[1:])

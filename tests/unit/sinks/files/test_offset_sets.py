"""Offset sets: exact for any order and layout of additions, and never wrong after damage."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from itertools import pairwise

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distcommit.core.errors import ConfigurationError, CorruptError, SourceError, UnknownVersionError
from distcommit.core.interfaces.provenance import Provenance
from distcommit.sinks.files.offset_sets import OFFSETS_VERSION, OffsetSets

ORIGIN = Provenance("partition", "offset")
OFFSETS = st.one_of(st.integers(0, 300), st.integers(0, 2**40), st.integers(2**63 - 10, 2**63 - 1))
ROWS = st.lists(st.tuples(st.integers(0, 4), OFFSETS), max_size=120)
Rows = list[tuple[int, int]]


def batch_of(rows: Rows, partition_type: pa.DataType | None = None) -> pa.RecordBatch:
    kind = partition_type or pa.int32()
    named = [str(p) if pa.types.is_string(kind) else p for p, _ in rows]
    return pa.record_batch({"partition": pa.array(named, kind), "offset": pa.array([o for _, o in rows], pa.int64())})


def sets_of(rows: Rows) -> OffsetSets:
    sets = OffsetSets()
    sets.add(batch_of(rows), ORIGIN)
    return sets


def expected_of(rows: Rows) -> set[tuple[str, int]]:
    return {(str(partition), offset) for partition, offset in rows}


def content_of(sets: OffsetSets) -> set[tuple[str, int]]:
    return {(partition, offset) for partition in sets.partitions() for offset in sets.offsets(partition)}


@given(ROWS, st.sampled_from([pa.int32(), pa.int64(), pa.string()]))
def test_batches_add_up_to_exactly_their_rows(rows: Rows, partition_type: pa.DataType) -> None:
    sets = OffsetSets()
    sets.add(batch_of(rows[: len(rows) // 2], partition_type), ORIGIN)
    sets.add(pa.Table.from_batches([batch_of(rows[len(rows) // 2 :], partition_type)]), ORIGIN)
    assert content_of(sets) == expected_of(rows)
    assert sets.count() == len(expected_of(rows))


@pytest.mark.parametrize("step", [1, 2, 3])
@pytest.mark.parametrize("count", [1, 7, 8, 9, 100, 70_000])
def test_dense_and_sparse_sequences_are_exact(count: int, step: int) -> None:
    offsets = list(range(5, 5 + count * step, step))
    random.Random(1).shuffle(offsets)
    for order in (sorted(offsets), offsets):
        sets = sets_of([(0, offset) for offset in order])
        assert list(sets.offsets("0")) == sorted(offsets)


def test_slices_chunks_and_dictionaries_are_read_like_plain_columns() -> None:
    whole = batch_of([(p, 10 * p + i) for i in range(10) for p in range(3)], pa.string())
    table = pa.Table.from_batches([whole.slice(3, 9), whole.slice(20)])
    encoded = table.set_column(0, "partition", table.column(0).dictionary_encode())
    plain, dictionary = OffsetSets(), OffsetSets()
    plain.add(table, ORIGIN)
    dictionary.add(encoded, ORIGIN)
    rows = table.to_pylist()
    assert content_of(plain) == content_of(dictionary) == {(row["partition"], row["offset"]) for row in rows}


@given(ROWS, ROWS)
def test_set_operations_equal_those_of_python_sets(left: Rows, right: Rows) -> None:
    a, b = sets_of(left), sets_of(right)
    ours, theirs = expected_of(left), expected_of(right)
    assert content_of(a.union(b)) == ours | theirs
    assert content_of(a.intersection(b)) == ours & theirs
    assert content_of(a.difference(b)) == ours - theirs
    assert content_of(a) == ours, "operands are unchanged"
    a.update(b)
    assert content_of(a) == ours | theirs
    assert content_of(b) == theirs


def test_offsets_missing_from_files_are_a_difference() -> None:
    promised = OffsetSets()
    promised.add_range("0", 100, 200)
    promised.add_range("1", 5, 5)
    assert promised.partitions() == ["0"]
    missing = promised.difference(sets_of([(0, offset) for offset in range(100, 200) if offset != 150]))
    assert content_of(missing) == {("0", 150)}


@given(ROWS)
def test_text_round_trip(rows: Rows) -> None:
    sets = sets_of(rows)
    text = sets.to_text()
    assert text.isascii()
    assert "\n" not in text
    assert OffsetSets.from_text(text) == sets
    assert content_of(OffsetSets.from_text(text)) == expected_of(rows)


@given(ROWS, st.randoms())
def test_equal_sets_have_texts_of_equal_sets(rows: Rows, rng: random.Random) -> None:
    one_by_one = OffsetSets()
    for row in rng.sample(rows, len(rows)):
        one_by_one.add(batch_of([row]), ORIGIN)
    assert OffsetSets.from_text(one_by_one.to_text()) == sets_of(rows) == one_by_one


def test_million_consecutive_offsets_have_a_short_text() -> None:
    sets = OffsetSets()
    sets.add_range("0", 10**12, 10**12 + 1_000_000)
    assert len(sets.to_text()) < 500


@given(ROWS.filter(bool), st.data())
def test_damaged_text_never_passes_for_another_set(rows: Rows, data: st.DataObject) -> None:
    sets = sets_of(rows)
    text = sets.to_text()
    place = data.draw(st.integers(0, len(text) - 1))
    damaged = text[:place] + data.draw(st.characters(codec="utf-8")) + text[place + 1 :]
    try:
        parsed_sets = OffsetSets.from_text(damaged)
    except CorruptError:
        return
    assert parsed_sets == sets


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        "[]",
        "null",
        "\x00",
        '{"version":1}',
        '{"version":"1"}',
        '{"version":1,"checksum":"","partitions":{}}',
        '{"version":1,"checksum":"0","partitions":{"0":"***"}}',
        '{"version":1,"checksum":"0","partitions":{"0":"\ud800"}}',
    ],
)
def test_garbage_is_corrupt(text: str) -> None:
    with pytest.raises(CorruptError):
        OffsetSets.from_text(text)


def test_later_version_is_named() -> None:
    later = json.dumps({"version": OFFSETS_VERSION + 1, "something": "else"})
    with pytest.raises(UnknownVersionError, match=f"version {OFFSETS_VERSION + 1}"):
        OffsetSets.from_text(later)


FUZZ = """
import random
from pyroaring import BitMap64
rng = random.Random(7)
for _ in range(5000):
    bitmap = BitMap64(rng.sample(range(1 << rng.choice([8, 20, 40])), rng.randrange(1, 200)))
    bitmap.run_optimize()
    raw = bytearray(bitmap.serialize())
    for _ in range(rng.randrange(1, 5)):
        raw[rng.randrange(len(raw))] = rng.randrange(256)
    raw = raw[: rng.randrange(len(raw))] if rng.random() < 0.3 else raw
    try:
        found = BitMap64.deserialize(bytes(raw))
    except (ValueError, IndexError, OverflowError):
        continue
    len(found), found | bitmap, found - bitmap, found.serialize()
"""


def test_bitmap_library_raises_on_garbage_and_does_not_crash() -> None:
    run = subprocess.run([sys.executable, "-c", FUZZ], capture_output=True, text=True, check=False, timeout=120)
    assert (run.returncode, run.stderr) == (0, "")


@pytest.mark.parametrize(
    ("partitions", "offsets"), [([0, None], [1, 2]), ([0, 0], [1, None]), ([0, 0], [1, -1]), ([None], [1])]
)
@pytest.mark.parametrize("times", [1, 20])
def test_row_without_origin_is_rejected(partitions: list[int | None], offsets: list[int | None], times: int) -> None:
    partitions, offsets = partitions * times, offsets * times
    batch = pa.record_batch({"partition": pa.array(partitions, pa.int32()), "offset": pa.array(offsets, pa.int64())})
    with pytest.raises(SourceError, match="has no source offset"):
        OffsetSets().add(batch, ORIGIN)


@pytest.mark.parametrize(
    "batch",
    [
        pa.record_batch({"partition": pa.array([1])}),
        pa.record_batch({"partition": pa.array([1.0]), "offset": pa.array([1])}),
        pa.record_batch({"partition": pa.array([1]), "offset": pa.array(["1"])}),
        pa.RecordBatch.from_arrays([pa.array([1])] * 3, names=["partition", "offset", "offset"]),
    ],
)
def test_columns_that_can_not_contain_the_origin_are_rejected(batch: pa.RecordBatch) -> None:
    with pytest.raises(ConfigurationError):
        OffsetSets().add(batch, ORIGIN)


def test_ranges_are_the_runs_between_gaps() -> None:
    sets = OffsetSets()
    assert list(sets.ranges("0")) == []
    for low, high in ((0, 3), (5, 6), (2**33, 2**33 + 10**9)):
        sets.add_range("0", low, high)
    assert list(sets.ranges("0")) == [(0, 3), (5, 6), (2**33, 2**33 + 10**9)]
    assert list(sets.ranges("1")) == []


@given(st.sets(st.integers(0, 40)))
def test_ranges_contain_exactly_the_offsets(offsets: set[int]) -> None:
    sets = OffsetSets()
    for offset in offsets:
        sets.add_range("0", offset, offset + 1)
    ranges = list(sets.ranges("0"))
    assert {offset for low, high in ranges for offset in range(low, high)} == offsets
    assert all(before[1] < after[0] for before, after in pairwise(ranges))

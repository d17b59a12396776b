"""Content sums of records: equal for records written and read back, different for any other records."""

from __future__ import annotations

import random
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from distcommit.core.errors import ConfigurationError
from distcommit.core.work_units import sum_content
from distcommit.fs.local_disk.local_file_system import LocalFileSystem
from distcommit.sinks.files.content_sum import as_text, content_sum
from distcommit.sinks.files.footer import read_footer, read_records
from distcommit.sinks.files.formats.encoders import FileFormat
from distcommit.sinks.files.sink import FileSink
from tests.unit.covered_values import covered_array
from tests.unit.sinks.files.attempts import FORMATS, LEAST, files_in, numbered

Values = st.SearchStrategy[Any]


def ints(bits: int, low: int | None = None) -> Values:
    return st.integers(-(1 << bits - 1) if low is None else low, (1 << bits - (low is None)) - 1)


def decimals(digits: int) -> Values:
    largest = 10**digits - 1
    return st.integers(-largest, largest).map(lambda unscaled: Decimal(f"{unscaled}E-2"))


FLOATS = st.floats(allow_nan=True) | st.sampled_from([0.0, -0.0, float("nan"), -float("nan")])
TEXTS = st.text(st.characters(codec="utf-8"), max_size=9)
BYTES = st.binary(max_size=9)
BOTH: list[tuple[pa.DataType, Values]] = [
    (pa.binary(), BYTES),
    (pa.large_binary(), BYTES),
    (pa.string(), TEXTS),
    (pa.large_string(), TEXTS),
    (pa.bool_(), st.booleans()),
    *((kind, ints(kind.bit_width)) for kind in (pa.int8(), pa.int16(), pa.int32(), pa.int64())),
    *((kind, ints(kind.bit_width, 0)) for kind in (pa.uint8(), pa.uint16(), pa.uint32())),
    (pa.float32(), st.floats(width=32)),
    (pa.float64(), FLOATS),
    (pa.date32(), ints(32)),
    (pa.timestamp("ms", "UTC"), ints(64)),
    (pa.timestamp("us", "Europe/Brussels"), ints(64)),
    (pa.timestamp("us"), ints(64)),
    (pa.dictionary(pa.int32(), pa.string()), TEXTS),
]
"""Types that both formats support."""
PARQUET = [
    *BOTH,
    (pa.uint64(), ints(64, 0)),
    (pa.float16(), st.floats(width=16)),
    (pa.date64(), ints(31).map(lambda day: day * 86_400_000)),
    (pa.time32("s"), st.integers(0, 86_399)),
    (pa.time32("ms"), st.integers(0, 86_399_999)),
    (pa.time64("us"), st.integers(0, 86_399_999_999)),
    (pa.time64("ns"), st.integers(0, 86_399_999_999_999)),
    (pa.timestamp("s"), ints(54)),
    (pa.timestamp("s", "Asia/Tokyo"), ints(54)),
    (pa.timestamp("ns", "UTC"), ints(64)),
    (pa.duration("s"), ints(64)),
    (pa.duration("ns"), ints(64)),
    (pa.decimal128(9, 2), decimals(9)),
    (pa.decimal128(38, 2), decimals(38)),
    (pa.decimal256(76, 2), decimals(76)),
    (pa.binary(3), st.binary(min_size=3, max_size=3)),
    (pa.null(), st.none()),
    (pa.dictionary(pa.int8(), pa.int64()), ints(64)),
]
"""Types that Parquet supports, except views."""
NANOS = st.integers(-(2**63) + 1, 2**63 - 1)
ORC = [
    *(column for column in BOTH if not pa.types.is_timestamp(column[0])),
    (pa.timestamp("s"), NANOS.map(lambda ns: ns // 10**9)),
    (pa.timestamp("ms", "UTC"), NANOS.map(lambda ns: ns // 10**6)),
    (pa.timestamp("us", "Europe/Brussels"), NANOS.map(lambda ns: ns // 10**3)),
    (pa.timestamp("ns", "UTC"), NANOS),
    (pa.decimal128(9, 2), decimals(9)),
    (pa.decimal128(38, 2), decimals(38)),
]
"""Types that ORC supports, except times that pyarrow reads back as other values."""
TEXT = [
    *BOTH,
    (pa.uint64(), ints(64, 0)),
    (pa.time32("s"), ints(32)),
    (pa.time32("ms"), st.integers(-5, 86_400_005)),
    (pa.time64("us"), st.integers(0, 86_399_999_999) | ints(64)),
    (pa.time64("ns"), ints(64)),
    (pa.timestamp("s"), ints(54)),
    (pa.timestamp("us", "UTC"), st.integers(-62_135_596_800 * 10**6, 253_402_300_800 * 10**6)),
    (pa.timestamp("ns", "Asia/Tokyo"), ints(64)),
    (pa.decimal128(9, 2), decimals(9)),
    (pa.decimal128(38, 2), decimals(38)),
    (pa.decimal256(76, 2), decimals(76)),
    (pa.binary(3), st.binary(min_size=3, max_size=3)),
]
"""Types that JSON lines and CSV support."""
Column = tuple[pa.DataType, Values]


def lists_of(item: Column) -> list[Column]:
    lists = st.lists(or_null(item[1]), max_size=3)
    return [(pa.list_(item[0]), lists), (pa.large_list(item[0]), lists)]


def structs_of(fields: list[Column]) -> Column:
    names = [f"f{place}" for place in range(len(fields))]
    kind = pa.struct([(name, field[0]) for name, field in zip(names, fields, strict=True)])
    return kind, st.fixed_dictionaries({name: or_null(f[1]) for name, f in zip(names, fields, strict=True)})


def or_null(values: Values) -> Values:
    return values | st.none()


def nested(inner: st.SearchStrategy[Column]) -> st.SearchStrategy[Column]:
    return inner.map(lists_of).flatmap(st.sampled_from) | st.lists(inner, min_size=1, max_size=3).map(structs_of)


def only_parquet(inner: st.SearchStrategy[Column]) -> st.SearchStrategy[Column]:
    fixed = inner.map(lambda c: (pa.list_(c[0], 2), st.lists(or_null(c[1]), min_size=2, max_size=2)))
    maps = inner.map(lambda c: (pa.map_(pa.string(), c[0]), st.lists(st.tuples(TEXTS, or_null(c[1])), max_size=3)))
    return nested(inner) | fixed | maps


def top_level(columns: list[Column]) -> st.SearchStrategy[Column]:
    return st.sampled_from([column for column in columns if pa.types.is_dictionary(column[0])])


def within(columns: list[Column]) -> st.SearchStrategy[Column]:
    """Return types that lists and structs may contain too; pyarrow 26 crashes when it writes a nested dictionary or
    view."""
    return st.sampled_from([column for column in columns if not pa.types.is_dictionary(column[0])])


COLUMNS: dict[FileFormat, st.SearchStrategy[Column]] = {
    "avro": top_level(BOTH) | st.recursive(within(BOTH), nested, max_leaves=4),
    "orc": top_level(ORC) | st.recursive(within(ORC), nested, max_leaves=4),
    "jsonl": top_level(TEXT) | st.recursive(within(TEXT), nested, max_leaves=4),
    "csv": st.sampled_from(TEXT),
    "parquet": top_level(PARQUET) | st.recursive(within(PARQUET), only_parquet, max_leaves=4),
}


@st.composite
def tables(draw: st.DrawFn, form: FileFormat) -> pa.Table:
    """Draw a table in batches; some are slices of larger ones, and some have nulls above values."""
    columns = draw(st.lists(COLUMNS[form], min_size=1, max_size=4))
    schema = pa.schema([(f"c{place}", kind) for place, (kind, _) in enumerate(columns)])
    batches = []
    for _ in range(draw(st.integers(1, 3))):
        rows = draw(st.integers(1, 8))
        repeated = draw(st.sampled_from([1, 1, 40]))  # a column may then have only one value
        drawn = [(kind, draw(st.lists(or_null(values), min_size=rows, max_size=rows))) for kind, values in columns]
        chosen_by = draw(st.none() | st.randoms(use_true_random=False))
        arrays = [array_of(kind, values * repeated, chosen_by) for kind, values in drawn]
        batch = pa.RecordBatch.from_arrays(arrays, schema=schema)
        batches.append(batch[draw(st.integers(0, rows - 1)) :])
    return pa.Table.from_batches(batches)


def array_of(kind: pa.DataType, values: list[Any], chosen_by: random.Random | None) -> pa.Array:
    if pa.types.is_dictionary(kind):
        return pa.array(values, kind.value_type).dictionary_encode().cast(kind)
    return pa.array(values, kind) if chosen_by is None else covered_array(kind, values, chosen_by)


class Memory:
    """A staged file, as encoders see it."""

    def __init__(self) -> None:
        self.data = bytearray()

    @property
    def size_bytes(self) -> int:
        return len(self.data)

    def write(self, data: bytes) -> int:
        self.data += data
        return len(data)


class InMemory(LocalFileSystem):
    """A file system with one file under any name."""

    scheme = "memory"

    def __init__(self, data: bytes) -> None:
        super().__init__()
        self.data = data

    def read(self, path: str) -> bytes:
        return self.data


def read_back(rows: pa.Table, form: FileFormat) -> pa.Table:
    memory, sink = Memory(), FileSink(format=form, compression=LEAST.get(form, "none"))
    sink.encoder(rows.schema).finish(rows.combine_chunks(), {}, memory)  # type: ignore[arg-type]
    return read_records(InMemory(bytes(memory.data)), f"/file{sink.ending}")


@pytest.mark.thorough
@pytest.mark.parametrize("form", FORMATS)
@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_records_read_back_have_the_same_content_sum(form: FileFormat, data: st.DataObject) -> None:
    rows = data.draw(tables(form))
    try:
        back = read_back(rows, form)
    except ConfigurationError:  # ORC: some times, and nulls in structs
        assume(form != "orc")
        raise
    assert content_sum(back) == content_sum(rows)


STRUCTS = pa.array([None, {"f": b"a"}, {"f": None}, {"f": b"x"}], pa.struct([("f", pa.binary())]))


@pytest.mark.parametrize("first", [0, 1, 2])
def test_slice_of_structs_is_read_back_from_orc(first: int) -> None:
    """pyarrow's own writer uses the null bitmap of the rows before the slice."""
    rows = pa.table({"c": STRUCTS.slice(first)})
    assert read_back(rows, "orc").to_pylist() == rows.to_pylist()


def test_structs_that_pyarrow_writes_wrongly_to_orc_are_rejected() -> None:
    inner = [{"g": value} for value in STRUCTS.to_pylist()]
    rows = pa.table({"c": pa.array(inner, pa.struct([("g", STRUCTS.type)]))})
    with pytest.raises(ConfigurationError, match="writes wrong values of these records to ORC"):
        read_back(rows, "orc")


VIEWS: list[tuple[pa.DataType, list[Any]]] = [
    (pa.string_view(), ["", "a text of more than twelve bytes", None]),
    (pa.binary_view(), [b"", b"\xff" * 20, None]),
    (pa.list_view(pa.int8()), [[], [1, None], None]),
    (pa.large_list_view(pa.string()), [["a"], None, []]),
]


@pytest.mark.parametrize(
    ("kind", "values"), VIEWS, ids=lambda value: str(value) if isinstance(value, pa.DataType) else ""
)
def test_views_have_the_content_sum_of_their_values(kind: pa.DataType, values: list[Any]) -> None:
    rows = pa.table({"c": pa.array(values * 3, kind)})
    assert content_sum(read_back(rows, "parquet")) == content_sum(rows)
    plain = {pa.string_view(): pa.string(), pa.binary_view(): pa.binary()}.get(kind)
    assert content_sum(rows) == content_sum(pa.table({"c": pa.array(values * 3, plain or pa.list_(kind.value_type))}))


# -- what makes another sum, and what does not


ROWS = pa.table(
    {
        "kafka_partition": pa.array([0, 0, 1, 1], pa.int32()),
        "kafka_offset": pa.array([7, 8, 7, 8], pa.int64()),
        "key": pa.array([b"k", None, b"", b"k"], pa.binary()),
        "value": pa.array([b"one", b"two", b"one", None], pa.binary()),
        "headers": pa.array(
            [[("a", b"1"), ("b", None)], [], None, [("a", b"1")]],
            pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
        ),
        "time": pa.array([1, 2, 3, None], pa.timestamp("ms", "UTC")),
        "price": pa.array([0.5, None, float("nan"), 2.0], pa.float64()),
    }
)
Change = Callable[[list[dict[str, Any]]], object]


def with_change(change: Change) -> pa.Table:
    rows = ROWS.to_pylist()
    change(rows)
    return pa.Table.from_pylist(rows, schema=ROWS.schema)


def swapped(column: str, first: int, second: int) -> Change:
    def swap(rows: list[dict[str, Any]]) -> None:
        rows[first][column], rows[second][column] = rows[second][column], rows[first][column]

    return swap


def put(column: str, row: int, value: Any) -> Change:
    return lambda rows: rows[row].__setitem__(column, value)


OTHERS: dict[str, Change] = {
    **{f"{column} swapped": swapped(column, 0, 1) for column in ROWS.column_names if column != "kafka_partition"},
    "values of the same offset swapped between partitions": swapped("value", 1, 3),
    "key and value swapped": lambda rows: rows[0].update(key=rows[0]["value"], value=rows[0]["key"]),
    "a null is an empty value": put("key", 1, b""),
    "an empty value is a null": put("key", 2, None),
    "no headers are a null": put("headers", 1, None),
    "headers are none": put("headers", 2, []),
    "headers in another order": lambda rows: rows[0]["headers"].reverse(),
    "one header more": lambda rows: rows[3]["headers"].append({"key": None, "value": None}),
    "a header's value moved to the next one": put(
        "headers", 0, [{"key": "a", "value": None}, {"key": "b", "value": b"1"}]
    ),
    "a time later": put("time", 0, 2),
    "no price": put("price", 2, None),
    "a price of a bit more": put("price", 0, 0.5000000000000001),
    "a record twice": lambda rows: rows.append(rows[0]),
    "a record twice more": lambda rows: rows.extend([rows[0]] * 2),
    "a record missing": lambda rows: rows.pop(),
}


@pytest.mark.parametrize("change", OTHERS.values(), ids=OTHERS)
def test_changed_records_have_another_content_sum(change: Change) -> None:
    assert content_sum(with_change(change)) != content_sum(ROWS)


@pytest.mark.parametrize("kind", [pa.string(), pa.binary(), pa.large_string()])
@pytest.mark.parametrize(
    "texts",
    [
        [str(n % 7) for n in range(3001)],
        [None if n % 3 else str(n % 5) for n in range(3001)],
        [None if n < 100 else "x" for n in range(3001)],
        [str(max(n - 100, 0)) for n in range(3001)],
        ["" if n else "x" for n in range(3001)],
    ],
    ids=["few", "few and nulls", "nulls first", "few at first", "one other"],
)
def test_column_of_few_values_has_the_same_sum_as_value_by_value(kind: pa.DataType, texts: list[Any]) -> None:
    rows = pa.table({"n": range(3001), "text": pa.array(texts).cast(kind)})[1:]
    parts = [content_sum(rows.slice(start, 100)) for start in range(0, 3000, 100)]
    assert content_sum(rows.combine_chunks()) == sum(parts) % (1 << 64)


def test_renamed_column_has_another_content_sum() -> None:
    names = ["key" if name == "value" else "value" if name == "key" else name for name in ROWS.column_names]
    assert content_sum(ROWS.rename_columns(names)) != content_sum(ROWS)


@settings(deadline=None)
@given(st.permutations(range(4)), st.integers(0, 4), st.permutations(ROWS.column_names))
def test_order_does_not_matter_and_sums_of_parts_add_up(order: list[int], cut: int, columns: list[str]) -> None:
    rows = ROWS.take(pa.array(order)).select(columns)
    assert content_sum(rows) == content_sum(ROWS)
    parts = [content_sum(rows[:cut]), content_sum(rows[cut:])]
    assert sum_content(map(as_text, parts)) == as_text(content_sum(ROWS))


@pytest.mark.thorough
def test_content_sum_does_not_depend_on_the_batch_size() -> None:
    seeded = random.Random(5)
    values = [seeded.randbytes(seeded.choice((0, 5, 300_000))) if n % 7 else None for n in range(40)] * 300
    rows = pa.table({"n": range(12_000), "v": pa.array(values, pa.binary()), "same": ["create"] * 12_000})
    whole = content_sum(rows)
    for size in (1000, 5000, 11_999):
        parts = [content_sum(rows[start : start + size]) for start in range(0, 12_000, size)]
        assert sum(parts) % 2**64 == whole
    small = pa.Table.from_batches(rows.to_batches(max_chunksize=99))
    assert content_sum(small) == whole


def test_unknown_part_makes_the_whole_sum_unknown() -> None:
    assert sum_content([]) == ""
    assert sum_content(["00000000000000ff", ""]) == ""
    assert sum_content(["00000000000000ff", "ffffffffffffff01"]) == "0000000000000000"


@pytest.mark.parametrize("form", FORMATS)
def test_files_contain_the_content_sum_of_their_records(tmp_path: Path, form: FileFormat) -> None:
    files = files_in(tmp_path, FileSink(format=form, target_file_bytes=2000), row_group_bytes=500)
    for start in range(0, 300, 50):
        files.write(numbered(start, 50, random_bytes=20))
    prepared = files.prepare_commit()
    assert len(prepared.files) > 2
    sums = []
    for output in prepared.files:
        path = f"{tmp_path}/{output.staged_path}"
        footer = read_footer(LocalFileSystem(), path)
        assert footer is not None
        assert footer.content_sum == as_text(content_sum(read_records(LocalFileSystem(), path)))
        sums.append(footer.content_sum)
    assert len(set(sums)) == len(sums)
    assert prepared.content_sum == sum_content(sums)

"""Compatibility of schemas: as a relation, and by reading files of several schemas as one table."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from functools import reduce
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distcommit.schemas.evolution import compare_schemas, nullable

SCALARS = [
    *(pa.int32(), pa.int64(), pa.uint32(), pa.uint64(), pa.float32(), pa.float64(), pa.bool_(), pa.string()),
    *(pa.binary(), pa.date32(), pa.timestamp("ms", "UTC"), pa.timestamp("us", "UTC"), pa.timestamp("us")),
    *(pa.decimal128(9, 2), pa.decimal128(18, 2), pa.decimal128(18, 4), pa.decimal256(40, 2)),
]
TYPES = st.recursive(
    st.sampled_from(SCALARS),
    lambda below: st.one_of(
        below.map(pa.list_),
        below.map(lambda kind: pa.map_(pa.string(), kind)),
        st.lists(st.tuples(st.sampled_from("ab"), below), min_size=1, max_size=2, unique_by=lambda pair: pair[0]).map(
            pa.struct
        ),
    ),
    max_leaves=3,
)
FIELDS = st.builds(pa.field, st.sampled_from("abc"), TYPES, st.just(True) | st.booleans())
SCHEMAS = st.lists(FIELDS, max_size=3, unique_by=lambda field: field.name).map(pa.schema)


def in_order(schema: pa.Schema | None) -> Any:
    """Return the fields sorted by name, at all depths."""
    return None if schema is None else sorted(map(_field, schema), key=str)


def _field(field: pa.Field) -> Any:
    return field.name, field.nullable, _type(field.type)


def _type(kind: pa.DataType) -> Any:
    if pa.types.is_struct(kind):
        return sorted(map(_field, kind), key=str)
    if pa.types.is_list(kind):
        return "list", _field(kind.value_field)
    if pa.types.is_map(kind):
        return "map", _field(kind.item_field)
    return str(kind)


@pytest.mark.thorough
@given(SCHEMAS, SCHEMAS)
@settings(max_examples=300, deadline=None)
def test_compatibility_is_symmetric(one: pa.Schema, two: pa.Schema) -> None:
    there, back = compare_schemas(one, two), compare_schemas(two, one)
    assert there.kind == back.kind
    assert in_order(there.merged) == in_order(back.merged)
    assert len(there.reasons) == len(back.reasons)
    assert (there.merged is None) == bool(there.reasons) == (there.kind == "incompatible")


@pytest.mark.thorough
@given(st.lists(SCHEMAS, min_size=3, max_size=3))
@settings(max_examples=500, deadline=None)
def test_merged_schema_does_not_depend_on_the_order_of_merging(schemas: list[pa.Schema]) -> None:
    """Merging schemas one by one, from any end, results in the same schema or in none."""

    def joined(of: list[pa.Schema]) -> pa.Schema | None:
        return reduce(
            lambda merged, next_schema: None if merged is None else compare_schemas(merged, next_schema).merged,
            of[1:],
            of[0],
        )

    nullable = [pa.schema([field.with_nullable(True) for field in schema]) for schema in schemas]
    one, two, three = nullable
    merged_schemas = [joined(order) for order in ([one, two, three], [three, two, one], [two, three, one])]
    assert len({str(in_order(schema)) for schema in merged_schemas}) == 1


@given(SCHEMAS)
def test_schema_is_identical_to_itself_and_compatible_with_its_merged_schema(schema: pa.Schema) -> None:
    assert compare_schemas(schema, schema).kind == "identical"
    assert compare_schemas(schema, pa.schema(list(schema)[::-1])).kind == "identical"


@pytest.mark.thorough
@given(SCHEMAS, SCHEMAS)
@settings(max_examples=300, deadline=None)
def test_both_schemas_are_compatible_with_their_merged_schema(one: pa.Schema, two: pa.Schema) -> None:
    merged = compare_schemas(one, two).merged
    if merged is not None:
        for schema in (one, two):
            again = compare_schemas(merged, schema)
            assert in_order(again.merged) == in_order(merged)


WIDER = [
    (pa.int32(), pa.int64(), pa.int64()),
    (pa.uint32(), pa.uint64(), pa.uint64()),
    (pa.float32(), pa.float64(), pa.float64()),
    (pa.int32(), pa.float64(), pa.float64()),
    (pa.int32(), pa.float32(), pa.float64()),
    (pa.int64(), pa.float64(), None),
    (pa.int32(), pa.uint32(), None),
    (pa.int32(), pa.string(), None),
    (pa.string(), pa.binary(), None),
    (pa.dictionary(pa.int32(), pa.string()), pa.string(), pa.string()),
    (pa.decimal128(9, 2), pa.decimal128(18, 2), pa.decimal128(18, 2)),
    (pa.decimal128(38, 2), pa.decimal256(40, 2), pa.decimal256(40, 2)),
    (pa.decimal128(9, 2), pa.decimal128(18, 4), None),
    (pa.timestamp("ms", "UTC"), pa.timestamp("us", "UTC"), pa.timestamp("us", "UTC")),
    (pa.timestamp("us"), pa.timestamp("us", "UTC"), None),
    (pa.date32(), pa.timestamp("us"), None),
    (pa.list_(pa.int32()), pa.list_(pa.int64()), pa.list_(pa.int64())),
    (pa.list_(pa.int32()), pa.int32(), None),
    (pa.map_(pa.string(), pa.int32()), pa.map_(pa.string(), pa.int64()), pa.map_(pa.string(), pa.int64())),
    (
        pa.struct([("a", pa.int32())]),
        pa.struct([("b", pa.bool_())]),
        pa.struct([("a", pa.int32()), ("b", pa.bool_())]),
    ),
]


@pytest.mark.parametrize(("old", "new", "wider"), WIDER)
def test_merged_type_is_the_wider_one(old: pa.DataType, new: pa.DataType, wider: pa.DataType | None) -> None:
    for pair in ((old, new), (new, old)):
        merged = compare_schemas(*(pa.schema([("x", kind)]) for kind in pair)).merged
        assert (None if merged is None else _type(merged.field("x").type)) == (None if wider is None else _type(wider))


def test_column_that_is_nullable_in_one_schema_is_nullable_in_the_merged_one() -> None:
    never, at_times = (pa.schema([pa.field("x", pa.int32(), nullable=is_nullable)]) for is_nullable in (False, True))
    for pair in ((never, at_times), (at_times, never)):
        comparison = compare_schemas(*pair)
        assert (comparison.kind, comparison.merged) == ("compatible", at_times)
    assert compare_schemas(never, never).merged == never


def test_reasons_name_the_columns_at_all_depths() -> None:
    existing = pa.schema(
        [
            ("price", pa.int64()),
            ("buyer", pa.struct([pa.field("name", pa.string()), pa.field("zip", pa.int32(), nullable=False)])),
            ("tags", pa.list_(pa.struct([("n", pa.int32())]))),
            ("counts", pa.map_(pa.string(), pa.int32())),
        ]
    )
    changed = pa.schema(
        [
            ("price", pa.string()),
            ("buyer", pa.struct([("name", pa.int32())])),
            ("tags", pa.list_(pa.struct([("n", pa.bool_())]))),
            ("counts", pa.map_(pa.string(), pa.date32())),
            pa.field("id", pa.int64(), nullable=False),
        ]
    )
    assert compare_schemas(existing, changed).reasons == (
        "price is string here, and int64 before",
        "buyer.name is int32 here, and string before",
        "buyer.zip is missing, and is not nullable",
        "tags[].n is bool here, and int32 before",
        "counts.* is date32[day] here, and int32 before",
        "id is new, and is not nullable",
    )


def values(schema: pa.Schema) -> pa.Table:
    """Return a record with a value in each column, and one without any."""
    return pa.Table.from_pylist([{field.name: _value(field.type) for field in schema}, {}], schema=schema)


def _value(kind: pa.DataType) -> Any:
    if pa.types.is_dictionary(kind):
        return _value(kind.value_type)
    if pa.types.is_struct(kind):
        return {field.name: _value(field.type) for field in kind}
    if pa.types.is_list(kind):
        return [_value(kind.value_type)]
    if pa.types.is_map(kind):
        return [("k", _value(kind.item_type))]
    plain: dict[pa.DataType, Any] = {pa.bool_(): True, pa.string(): "7", pa.binary(): b"7"}
    return plain.get(kind, Decimal(7) if pa.types.is_decimal(kind) else 7)


NESTED = [
    (pa.list_(pa.struct([("a", pa.int32())])), pa.list_(pa.struct([("b", pa.string()), ("a", pa.int64())]))),
    (pa.struct([("s", pa.struct([("a", pa.int32())]))]), pa.struct([("s", pa.struct([("b", pa.date32())]))])),
]


@pytest.mark.parametrize(("old", "new"), [*((old, new) for old, new, wider in WIDER if wider), *NESTED])
@pytest.mark.parametrize("first", [True, False])
def test_files_of_compatible_types_are_read_as_one_table(old: pa.DataType, new: pa.DataType, first: bool) -> None:
    require_one_table([pa.schema([("x", kind)]) for kind in ((old, new) if first else (new, old))])


@pytest.mark.thorough
@given(st.lists(SCHEMAS, min_size=2, max_size=3))
@settings(max_examples=150, deadline=None)
def test_files_of_compatible_schemas_are_read_as_one_table(schemas: list[pa.Schema]) -> None:
    require_one_table([pa.schema([field.with_nullable(True) for field in schema]) for schema in schemas])


def require_one_table(nullable: list[pa.Schema]) -> None:
    """Check that files of these schemas are read as one table if the schemas are compatible."""
    merged: pa.Schema | None = nullable[0]
    for schema in nullable[1:]:
        merged = None if merged is None else compare_schemas(merged, schema).merged
    if merged is None or not len(merged):
        return
    with TemporaryDirectory() as folder:
        paths = []
        for number, schema in enumerate(nullable):
            if len(schema):
                paths.append(str(Path(folder) / f"{number}.parquet"))
                pq.write_table(values(schema), paths[-1])
        rows = ds.dataset(paths, schema=merged).to_table()
        assert rows.num_rows == 2 * len(paths)
        expected = [row for schema in nullable if len(schema) for row in widened(values(schema), merged)]
        assert rows.to_pylist() == expected
        read = read_by_duckdb(paths)
        if read is not None:
            assert [comparable_value(row) for row in read.select(merged.names).to_pylist()] == [
                comparable_value(row) for row in expected
            ]


@pytest.mark.thorough
@given(st.lists(SCHEMAS, min_size=2, max_size=2))
@settings(max_examples=200, deadline=None)
def test_nullable_columns_are_incompatible_only_by_their_types(schemas: list[pa.Schema]) -> None:
    plain, free = (compare_schemas(*of) for of in (schemas, list(map(nullable, schemas))))
    assert free.reasons == tuple(reason for reason in plain.reasons if not reason.endswith("and is not nullable"))
    if plain.merged is not None and free.merged is not None:
        assert in_order(free.merged) == in_order(nullable(plain.merged))


LINE = [pa.field("sku", pa.string(), False), pa.field("n", pa.int32(), False)]


@pytest.mark.parametrize("within", [pa.struct, lambda of: pa.list_(pa.field("item", pa.struct(of), False))])
@pytest.mark.parametrize("before", [True, False])
def test_plain_nested_field_of_one_of_two_files_is_read_by_all_readers(
    within: Any, before: bool, tmp_path: Path
) -> None:
    """No merged schema needs to be given: pyarrow, DuckDB and reads of whole commits determine it."""
    kinds = [within(LINE[:1]), within(LINE)] if before else [within(LINE), within(LINE[:1])]
    tables = [values(nullable(pa.schema([("x", kind)]))) for kind in kinds]
    paths = [str(tmp_path / f"{number}.parquet") for number in range(2)]
    for path, table in zip(paths, tables, strict=True):
        pq.write_table(table, path)
    merged = pa.unify_schemas([pq.read_schema(path) for path in paths])
    expected = [row for table in tables for row in widened(table, merged)]
    assert ds.dataset(paths, schema=merged).to_table().to_pylist() == expected
    read = read_by_duckdb(paths)
    assert read is not None
    assert [comparable_value(row) for row in read.to_pylist()] == [comparable_value(row) for row in expected]
    (both,) = pa.concat_tables(tables, promote_options="permissive").schema
    assert both.type == merged.field("x").type


def read_by_duckdb(paths: list[str]) -> pa.Table | None:
    """Return the rows, or None if DuckDB has an internal error: 2.0.1 has one for maps in lists beside other columns.

    Each read has its own database, because an internal error makes a database unusable.
    """
    with duckdb.connect() as database:
        try:
            return database.read_parquet(paths, union_by_name=True).to_arrow_table()
        except (duckdb.InternalException, duckdb.FatalException):
            return None


def widened(table: pa.Table, schema: pa.Schema) -> list[Any]:
    """Convert the records to the merged schema in plain Python."""
    return [{field.name: _widened(row.get(field.name), field.type) for field in schema} for row in table.to_pylist()]


def _widened(value: Any, kind: pa.DataType) -> Any:
    if value is None:
        return None
    if pa.types.is_struct(kind):
        return {field.name: _widened(value.get(field.name), field.type) for field in kind}
    if pa.types.is_list(kind):
        return [_widened(item, kind.value_type) for item in value]
    if pa.types.is_map(kind):
        return [(key, _widened(item, kind.item_type)) for key, item in value]
    return value


def comparable_value(value: Any) -> Any:
    """Return a value as DuckDB returns it: times without a zone are in UTC, and struct fields are in any order."""
    if isinstance(value, dict):
        return {name: comparable_value(below) for name, below in sorted(value.items())}
    if isinstance(value, (list, tuple)):
        return [comparable_value(below) for below in value]
    return value.replace(tzinfo=None) if isinstance(value, datetime) else value

"""Tables of the types that targets store: nested types, and the path of a type that a target does not have."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from distcommit.schemas.storable_types import (
    ALL_LISTS,
    TypeTable,
    UnstorableTypeError,
    contains_type,
    plain_type,
    replace_types,
)

TABLE = TypeTable({pa.uint8(): pa.int16()}, (pa.types.is_int16, pa.types.is_string), maps=True)
TEXTS = TypeTable({}, (pa.types.is_string,), lists=(), structs=False, nested_dictionaries=False)
NULLABLE = TypeTable(
    {},
    (pa.types.is_timestamp, pa.types.is_string),
    derived={pa.types.is_timestamp: lambda _: pa.timestamp("us")},
    lists=ALL_LISTS,
    item_name="element",
    all_nullable=True,
)
REQUIRED = pa.field("item", pa.uint8(), nullable=False)


@pytest.mark.parametrize(
    ("table", "kind", "stored"),
    [
        (TABLE, pa.uint8(), pa.int16()),
        (TABLE, pa.dictionary(pa.int8(), pa.uint8()), pa.int16()),
        (TABLE, pa.large_list(REQUIRED), pa.list_(REQUIRED.with_type(pa.int16()))),
        (
            TABLE,
            pa.map_(pa.string(), pa.struct([("a", pa.uint8())])),
            pa.map_(pa.string(), pa.struct([("a", "int16")])),
        ),
        (TABLE, pa.struct([pa.field("a", pa.uint8(), False)]), pa.struct([pa.field("a", pa.int16(), False)])),
        (NULLABLE, pa.timestamp("s"), pa.timestamp("us")),
        (NULLABLE, pa.list_(pa.string(), 2), pa.list_(pa.field("element", pa.string()))),
        (NULLABLE, pa.struct([pa.field("a", pa.string(), False)]), pa.struct([pa.field("a", pa.string())])),
    ],
)
def test_nested_types_are_stored_with_the_stored_types_of_their_fields(
    table: TypeTable, kind: pa.DataType, stored: pa.DataType
) -> None:
    assert table.stored(kind) == stored
    assert str(table.stored(kind)) == str(stored)


@pytest.mark.parametrize(
    ("table", "kind", "path", "found"),
    [
        (TABLE, pa.int64(), "c", pa.int64()),
        (TABLE, pa.struct([("a", pa.struct([("b", pa.list_(pa.int64()))]))]), "c.a.b", pa.int64()),
        (TABLE, pa.map_(pa.string(), pa.int64()), "c", pa.int64()),
        (TABLE, pa.struct([]), "c", pa.struct([])),
        (TABLE, pa.list_(pa.string(), 2), "c", pa.list_(pa.string(), 2)),
        (TEXTS, pa.list_(pa.string()), "c", pa.list_(pa.string())),
        (TEXTS, pa.struct([("a", pa.string())]), "c", pa.struct([("a", pa.string())])),
        (
            TEXTS,
            pa.dictionary(pa.int8(), pa.list_(pa.string())),
            "c",
            pa.dictionary(pa.int8(), pa.list_(pa.string())),
        ),
    ],
)
def test_missing_type_is_reported_with_the_path_of_its_field(
    table: TypeTable, kind: pa.DataType, path: str, found: pa.DataType
) -> None:
    with pytest.raises(UnstorableTypeError) as error:
        table.stored(kind, "c")
    assert (error.value.path, error.value.kind) == (path, found)


def test_replaced_types_keep_kinds_of_lists_names_and_keys_of_maps() -> None:
    def wider(kind: pa.DataType) -> pa.DataType:
        return pa.int64() if kind == pa.uint8() else kind

    for of in (pa.list_, pa.large_list, lambda item: pa.list_(item, 3)):
        assert replace_types(of(REQUIRED), wider) == of(REQUIRED.with_type(pa.int64()))
        assert str(replace_types(of(REQUIRED), wider, all_nullable=True)) == str(of(pa.field("item", pa.int64())))
    assert replace_types(pa.map_(pa.uint8(), pa.uint8()), wider) == pa.map_(pa.uint8(), pa.int64())
    assert replace_types(pa.struct([("a", pa.uint8())]), wider) == pa.struct([("a", pa.int64())])


@pytest.mark.parametrize(
    "of", [pa.list_, lambda kind: pa.map_(pa.string(), kind), lambda kind: pa.struct([("a", kind)])]
)
def test_types_are_found_at_any_depth(of: Any) -> None:
    assert contains_type(of(of(pa.date32())), pa.types.is_date32)
    assert not contains_type(of(of(pa.date32())), pa.types.is_date64)


def test_plain_type_is_that_of_the_values() -> None:
    assert plain_type(pa.dictionary(pa.int8(), pa.string_view())) == pa.string()
    assert plain_type(pa.run_end_encoded(pa.int32(), pa.float16())) == pa.float32()
    assert plain_type(pa.json_()) == pa.string()

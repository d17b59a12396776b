"""Schemas of records and of Delta tables: whether records fit a table, and whether files can be added to it."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha256

import pyarrow as pa
from deltalake import DeltaTable

from distcommit.core.errors import ConfigurationError
from distcommit.sinks.databases.column_names import ColumnNames, check_fields

_UNSIGNED = {pa.uint8(): pa.int16(), pa.uint16(): pa.int32(), pa.uint32(): pa.int64(), pa.uint64(): pa.int64()}
_PLAIN = (
    pa.types.is_boolean,
    pa.types.is_signed_integer,
    pa.types.is_float32,
    pa.types.is_float64,
    pa.types.is_date32,
)
_INTEGERS = (pa.int8(), pa.int16(), pa.int32(), pa.int64())
_NAMES = ColumnNames("Delta", without=" ,;{}()\n\t=")
_REFUSED = {
    "delta.setTransactionRetentionDuration": "it would make the table forget what is committed to it",
    "delta.columnMapping.mode": "columns have other names in files",
    "delta.enableRowTracking": "each row has a number",
    "delta.enableIcebergCompatV1": "files are written by other rules",
    "delta.enableIcebergCompatV2": "files are written by other rules",
}
"""Settings of tables to which data files can't be added, or not provably once, with the reason."""
_UNSET = ("none", "false")
_CHECKED = ("delta.invariants", "delta.generationExpression", "delta.identity.start")
"""Metadata of columns whose values a writer must check or generate row by row."""


def storable(schema: pa.Schema) -> pa.Schema:
    """Return the schema in Delta's types, all nullable, without columns that are null in every row.

    Raises:
        ConfigurationError: if Delta has no type for a column, or rejects its name.
    """
    fields = []
    for field in schema:
        if pa.types.is_null(field.type):
            continue
        kind = plain_type(field.type)
        if kind is None:
            raise ConfigurationError(
                "Delta can't store this column",
                id="COLUMN_UNSUPPORTED",
                column=field.name,
                expected="a type that Delta has (times: with a date, at most microseconds)",
                found=str(field.type),
                todo="convert the column before the sink, or leave it out",
            )
        fields.append(pa.field(field.name, kind))
    if not fields:
        raise ConfigurationError(
            "a table must have a column",
            id="COLUMN_UNSUPPORTED",
            expected="records with a column that is not always null",
            found=str(schema),
        )
    _NAMES.check([field.name for field in fields])
    check_fields(pa.schema(fields), _NAMES.database)
    return pa.schema(fields)


def plain_type(kind: pa.DataType) -> pa.DataType | None:
    """Return Delta's type; None if it has none."""
    types = pa.types
    if types.is_dictionary(kind):
        return plain_type(kind.value_type)
    if kind in _UNSIGNED:
        return _UNSIGNED[kind]
    if any(is_one(kind) for is_one in _PLAIN) or (types.is_decimal128(kind) and 0 <= kind.scale <= kind.precision):
        return kind
    if types.is_float16(kind):
        return pa.float32()
    if types.is_date64(kind):
        return pa.date32()
    if types.is_timestamp(kind):
        return pa.timestamp("us", "UTC" if kind.tz else None)
    if types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind):
        return pa.string()
    if types.is_binary(kind) or types.is_large_binary(kind) or types.is_fixed_size_binary(kind):
        return pa.binary()
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        item = plain_type(kind.value_type)
        return None if item is None else pa.list_(pa.field("element", item))
    if types.is_map(kind):
        key, item = plain_type(kind.key_type), plain_type(kind.item_type)
        return None if key is None or item is None else pa.map_(key, item)
    if types.is_struct(kind):
        inner = [(field.name, plain_type(field.type)) for field in kind]
        return None if not inner or any(inner_type is None for _, inner_type in inner) else pa.struct(inner)
    return None


def columns_of(table: DeltaTable) -> pa.Schema:
    """Return the table's columns as an Arrow schema."""
    return pa.schema(table.schema().to_arrow())


def schema_id(table: DeltaTable) -> str:
    """Return a hash of the table's columns."""
    return sha256(table.schema().to_json().encode()).hexdigest()[:32]


def lacking(have: pa.DataType | pa.Schema, want: pa.DataType | pa.Schema, path: str = "") -> Iterator[str]:
    """Yield the problems of storing `want` in `have`: missing columns, and narrower or other types. Both are results of
    `storable`."""
    if isinstance(want, pa.Schema | pa.StructType) and isinstance(have, pa.Schema | pa.StructType):
        there = {field.name: field for field in have}
        for field in want:
            name = f"{path}.{field.name}" if path else field.name
            if field.name in there:
                yield from lacking(there[field.name].type, field.type, name)
            else:
                yield f"no column {name}"
    elif isinstance(want, pa.ListType) and isinstance(have, pa.ListType):
        yield from lacking(have.value_type, want.value_type, f"{path}.element")
    elif isinstance(want, pa.MapType) and isinstance(have, pa.MapType):
        yield from lacking(have.key_type, want.key_type, f"{path}.key")
        yield from lacking(have.item_type, want.item_type, f"{path}.value")
    elif not _takes(have, want):
        yield f"column {path} is {have}, and records have {want}"


def _takes(have: pa.DataType, want: pa.DataType) -> bool:
    if have == want or (have in _INTEGERS and want in _INTEGERS):
        return have == want or _INTEGERS.index(have) > _INTEGERS.index(want)
    if pa.types.is_decimal(have) and pa.types.is_decimal(want):
        return bool(have.scale == want.scale and have.precision >= want.precision)
    return bool(have == pa.float64() and want == pa.float32())


def check_writable(table: DeltaTable, name: str) -> None:
    """Check that data files can be added to a table.

    Raises:
        ConfigurationError: if a setting of the table prevents it.
    """
    configuration = table.metadata().configuration
    problems = [
        f"{key}: {why}"
        for key, why in _REFUSED.items()
        if configuration.get(key, "none").lower() not in ("none", "false")
    ]
    problems += [f"{key}: rows must be checked" for key in configuration if key.startswith("delta.constraints.")]
    problems += [
        f"{key} of column {field.name}"
        for field in table.schema().fields
        for key in _CHECKED
        if key in (field.metadata or {})
    ]
    if problems:
        raise ConfigurationError(
            "data files can't be added to this Delta table",
            id="TABLE_UNUSABLE",
            table=name,
            expected="a table without such settings",
            found="; ".join(problems),
            todo="unset them, or use another table. Nothing was written",
        )

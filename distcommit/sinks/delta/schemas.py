"""Whether records fit Delta tables."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha256

import pyarrow as pa
from deltalake import DeltaTable

from distcommit.core.errors import ConfigurationError
from distcommit.schemas.column_names import ColumnNames, check_fields
from distcommit.schemas.evolution import wider_type
from distcommit.schemas.storable_types import ALL_LISTS, TypeTable, UnstorableTypeError, is_decimal128_in_scale
from distcommit.schemas.table_field_comparison import InnerFields, TableField, missing_from_table
from distcommit.sinks.table_formats.table_refusals import no_columns

_TYPES = TypeTable(
    {
        **{pa.uint8(): pa.int16(), pa.uint16(): pa.int32(), pa.uint32(): pa.int64(), pa.uint64(): pa.int64()},
        **{pa.float16(): pa.float32(), pa.date64(): pa.date32()},
        **{pa.large_string(): pa.string(), pa.string_view(): pa.string(), pa.large_binary(): pa.binary()},
    },
    (
        *(pa.types.is_boolean, pa.types.is_signed_integer, pa.types.is_float32, pa.types.is_float64),
        *(pa.types.is_date32, pa.types.is_string, pa.types.is_binary, is_decimal128_in_scale),
    ),
    derived={
        pa.types.is_timestamp: lambda kind: pa.timestamp("us", "UTC" if kind.tz else None),
        pa.types.is_fixed_size_binary: lambda _: pa.binary(),
    },
    lists=ALL_LISTS,
    maps=True,
    item_name="element",
    all_nullable=True,
)
_NAMES = ColumnNames("Delta", without=" ,;{}()\n\t=")
_REFUSED = {
    "delta.setTransactionRetentionDuration": "it would make the table forget what is committed to it",
    "delta.columnMapping.mode": "columns have other names in files",
    "delta.enableRowTracking": "each row has a number",
    "delta.enableIcebergCompatV1": "files are written by other rules",
    "delta.enableIcebergCompatV2": "files are written by other rules",
}
"""Table settings that the sink does not support, with the reason."""
_CHECKED = ("delta.invariants", "delta.generationExpression", "delta.identity.start")
"""Metadata of columns whose values a writer must check or generate."""


def storable(schema: pa.Schema) -> pa.Schema:
    """Return the schema in Delta's types, without null columns. Raises ConfigurationError if no column remains or one
    is not allowed."""
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
        raise no_columns(str(schema))
    _NAMES.check([field.name for field in fields])
    check_fields(pa.schema(fields), _NAMES.database)
    return pa.schema(fields)


def plain_type(kind: pa.DataType) -> pa.DataType | None:
    try:
        return _TYPES.stored(kind)
    except UnstorableTypeError:
        return None


def columns_of(table: DeltaTable) -> pa.Schema:
    return pa.schema(table.schema().to_arrow())


def schema_id(table: DeltaTable) -> str:
    return sha256(table.schema().to_json().encode()).hexdigest()[:32]


def inner_fields(kind: pa.DataType) -> InnerFields[pa.DataType]:
    match kind:
        case pa.StructType():
            return InnerFields("struct", [_field(field, field.name) for field in kind])
        case pa.ListType():
            return InnerFields("list", [_field(kind.value_field, "element")])
        case pa.MapType():
            return InnerFields("map", [_field(kind.key_field, "key"), _field(kind.item_field, "value")])
    return InnerFields()


def lacking(have: pa.Schema, want: pa.Schema) -> Iterator[str]:
    """Yield the columns of `want` that `have` lacks or has too narrow."""
    return missing_from_table(
        pa.struct(have), pa.struct(want), inner_fields, lambda kind, of: wider_type(kind, of) == kind
    )


def _field(field: pa.Field, name: str) -> TableField[pa.DataType]:
    return TableField(name, name, field.type, not field.nullable)


def check_writable(table: DeltaTable, name: str) -> None:
    configuration = table.metadata().configuration
    problems = [
        f"{key}: {reason}"
        for key, reason in _REFUSED.items()
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

"""Conversion of Arrow columns to the exact types of PostgreSQL, because binary COPY does not check types."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pgpq
import pyarrow as pa
import pyarrow.compute as pc
from pgpq.encoders import StringEncoderBuilder
from pgpq.schema import Jsonb

from distcommit.schemas.column_names import ColumnNames
from distcommit.schemas.evolution import needs_widening
from distcommit.sinks.databases.arrow_conversion import (
    MAX_DIGITS,
    as_json,
    converted,
    decoded,
    no_type,
    plain_type,
    refused_type,
    refused_value,
)
from distcommit.sinks.postgresql.settings import MAX_NAME_BYTES

_UTC = pa.timestamp("us", "UTC")
_SIMPLE: Mapping[str, pa.DataType] = {
    "bool": pa.bool_(),
    "int2": pa.int16(),
    "int4": pa.int32(),
    "int8": pa.int64(),
    "float4": pa.float32(),
    "float8": pa.float64(),
    "text": pa.string(),
    "varchar": pa.string(),
    "bpchar": pa.string(),
    "json": pa.string(),
    "jsonb": pa.string(),
    "bytea": pa.binary(),
    "uuid": pa.binary(16),
    "date": pa.date32(),
    "time": pa.time64("us"),
    "timestamp": pa.timestamp("us"),
    "timestamptz": _UTC,
    "interval": pa.duration("us"),
}
"""Arrow types to send, by the column's type. The Arrow type for `numeric` depends on the column's digits."""
_CREATED_TYPES: Mapping[pa.DataType, str] = {
    pa.bool_(): "boolean",
    pa.int16(): "smallint",
    pa.int32(): "integer",
    pa.int64(): "bigint",
    pa.float32(): "real",
    pa.float64(): "double precision",
    pa.string(): "text",
    pa.binary(): "bytea",
    pa.date32(): "date",
    pa.time64("us"): "time",
    pa.timestamp("us"): "timestamp",
    _UTC: "timestamptz",
    pa.duration("us"): "interval",
}
NAMES = ColumnNames(
    "PostgreSQL",
    most_bytes=MAX_NAME_BYTES,
    reserved=frozenset({"cmax", "cmin", "ctid", "tableoid", "xmax", "xmin"}),
)
_INFINITE = {"date": -(2**31) + 10_957, "timestamp": -(2**63) + 946_684_800_000_000}
"""Arrow's numbers, since 1970, of times that the server reads as `-infinity`: its smallest numbers, since 2000."""
_WIDENED = {_CREATED_TYPES[kind]: kind for kind in (pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.float64())}
_NUMBERS = {32: pa.int32(), 64: pa.int64()}
_FRACTIONS = ("time", "timestamp", "timestamptz")
_VARHDRSZ = 4


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table.

    Attributes:
        name: name in the table.
        kind: its type as in pg_type; for a domain, the underlying type.
        modifier: length or digits of the type, as in pg_attribute; -1 if it has none.
        shown: name and type, for messages.
        has_default: whether inserted rows without the column get another value than null.
    """

    name: str
    kind: str
    modifier: int
    shown: str
    has_default: bool = False


def column_type(field: pa.Field) -> str:
    """Return the type to create a column with; raises ConfigurationError if there is none."""
    kind = pa.string() if pa.types.is_null(field.type) else plain_type(field.type)
    if pa.types.is_fixed_size_binary(kind):
        return "bytea"
    if pa.types.is_decimal(kind) and 0 <= kind.scale <= kind.precision <= MAX_DIGITS:
        return f"numeric({kind.precision}, {kind.scale})"
    if pa.types.is_list(kind) and kind.value_type in _CREATED_TYPES:
        return f"{_CREATED_TYPES[kind.value_type]}[]"
    if pa.types.is_nested(kind):
        return "jsonb"
    if kind in _CREATED_TYPES:
        return _CREATED_TYPES[kind]
    raise no_type("PostgreSQL", field)


def wider_type(field: pa.Field, column: Column) -> str | None:
    """Return the wider number type that the field needs, or None."""
    current_kind = _WIDENED.get(column.shown.removeprefix(f"{column.name} "))
    return (
        column_type(field)
        if current_kind is not None and needs_widening(current_kind, plain_type(field.type))
        else None
    )


def encoder_of(schema: pa.Schema, columns: Mapping[str, Column]) -> pgpq.ArrowToPostgresBinaryEncoder:
    jsonb = {field.name for field in schema if columns[field.name].kind == "jsonb"}
    if not jsonb:
        return pgpq.ArrowToPostgresBinaryEncoder(schema)
    encoders = {field.name: pgpq.ArrowToPostgresBinaryEncoder.infer_encoder(field) for field in schema}
    for name in jsonb:
        encoders[name] = StringEncoderBuilder.new_with_output(schema.field(name), Jsonb())
    return pgpq.ArrowToPostgresBinaryEncoder.new_with_encoders(schema, encoders)


def check_fits(schema: pa.Schema, columns: Mapping[str, Column]) -> None:
    for field in schema:
        column = columns[field.name]
        if _sent(plain_type(field.type), column) is None:
            raise refused_type(field.name, field.type, column.shown)


def fitted(batch: pa.RecordBatch, columns: Mapping[str, Column]) -> pa.RecordBatch:
    """Return the batch in the table's types; raises RefusedError if a value would change."""
    arrays = [_array(array, columns[name]) for name, array in zip(batch.schema.names, batch.columns, strict=True)]
    return pa.record_batch(arrays, names=batch.schema.names)


def _array(array: pa.Array, column: Column) -> pa.Array:
    sent = _sent(plain_type(array.type), column)
    if sent is None:
        raise refused_type(column.name, array.type, column.shown)
    array = decoded(array)
    if column.kind in ("json", "jsonb") and pa.types.is_nested(array.type):
        return as_json(array, column.name, column.shown, negative_zeros=column.kind == "json")
    array = converted(array, sent, column.name, column.shown)
    wrong = _changed(pc.list_flatten(array) if pa.types.is_list(sent) else array, column)
    if wrong:
        raise refused_value(column.name, column.shown, wrong)
    return array


def _changed(array: pa.Array, column: Column) -> str:
    kind = column.kind.removeprefix("_")
    infinite = _INFINITE.get(kind.removesuffix("tz"))
    if infinite is not None and pc.any(pc.equal(array.view(_NUMBERS[array.type.bit_width]), infinite)).as_py():
        return "a time that PostgreSQL reads as `-infinity`"
    if column.modifier < 0 or not len(array):
        return ""
    if kind in _FRACTIONS:
        micros, unit = array.cast(pa.int64()), 10 ** (6 - column.modifier)
        rounded = pc.multiply(pc.divide(micros, unit), unit)
        return "" if micros.equals(rounded) else f"more than {column.modifier} digits of a second, which are rounded"
    if kind == "varchar" and (pc.max(pc.utf8_length(array)).as_py() or 0) > column.modifier - _VARHDRSZ:
        return "text that is too long, of which spaces are cut off"
    return ""


def _sent(kind: pa.DataType, column: Column) -> pa.DataType | None:
    target_kind, sent_kind = column.kind, _SIMPLE.get(column.kind)
    if pa.types.is_null(kind) and (sent_kind is not None or target_kind == "numeric"):
        return sent_kind or pa.decimal128(MAX_DIGITS, 0)
    if target_kind in ("json", "jsonb"):
        return pa.string() if pa.types.is_string(kind) or pa.types.is_nested(kind) else None
    if target_kind == "numeric":
        return _digits(kind, column.modifier)
    if target_kind.startswith("_") and pa.types.is_list(kind):
        below = _sent(kind.value_type, Column(column.name, target_kind[1:], column.modifier, column.shown))
        return None if below is None else pa.list_(below)
    if sent_kind is None or sent_kind == kind:
        return sent_kind
    if target_kind == "bytea" and pa.types.is_fixed_size_binary(kind):
        return sent_kind
    if pa.types.is_integer(sent_kind) and pa.types.is_integer(kind):
        return sent_kind  # the cast checks each value
    return sent_kind if needs_widening(kind, sent_kind) else None


def _digits(kind: pa.DataType, modifier: int) -> pa.DataType | None:
    if not (pa.types.is_integer(kind) or pa.types.is_decimal(kind)):
        return None
    if modifier < 0:
        return kind if pa.types.is_decimal(kind) else pa.decimal128(20, 0)
    precision, scale = (modifier - _VARHDRSZ) >> 16 & 0xFFFF, (modifier - _VARHDRSZ) & 0x7FF
    return pa.decimal128(precision, scale) if scale <= precision <= MAX_DIGITS else None

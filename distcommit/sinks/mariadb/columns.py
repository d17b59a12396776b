"""Conversion of Arrow columns to values that MariaDB stores unchanged. Other values are refused.

Even in strict mode the server rounds decimals, cuts off fractions of seconds and trailing spaces, pads binary values,
and replaces NULL by the present time.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from distcommit.schemas.column_names import ColumnNames
from distcommit.schemas.evolution import needs_widening
from distcommit.sinks.databases.arrow_conversion import (
    MAX_DIGITS,
    PLAIN_TYPES,
    as_json,
    converted,
    decoded,
    has_negative_zero,
    no_type,
    refused_type,
    refused_value,
)

MOST_NAME_CHARACTERS = 64
_TYPES = replace(PLAIN_TYPES, replaced={**PLAIN_TYPES.replaced, pa.uint64(): pa.uint64()})
_INTEGERS = {"tinyint": 8, "smallint": 16, "mediumint": 32, "int": 32, "bigint": 64}
_WIDENED = {
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "mediumint": pa.int16(),  # has all values of 16 bits, and not all of 32
    "int": pa.int32(),
    "float": pa.float32(),
}
_TEXTS = {
    "char": 0,
    "varchar": 0,
    "tinytext": 2**8,
    "text": 2**16,
    "mediumtext": 2**24,
    "longtext": 2**32,
    "json": 2**32,
}
_BYTES = {"binary": 0, "varbinary": 0, "tinyblob": 2**8, "blob": 2**16, "mediumblob": 2**24, "longblob": 2**32}
"""By type, one more than the most bytes of a value; 0 if the column declares its length."""
_CREATED_TYPES: Mapping[pa.DataType, str] = {
    pa.bool_(): "boolean",
    pa.int16(): "smallint",
    pa.int32(): "int",
    pa.int64(): "bigint",
    pa.uint64(): "bigint unsigned",
    pa.float32(): "double",  # most clients show six digits of a `float`
    pa.float64(): "double",
    pa.string(): "longtext",
    pa.null(): "longtext",
    pa.binary(): "longblob",
    pa.binary(16): "binary(16)",
    pa.date32(): "date",
    pa.time64("us"): "time(6)",
    pa.timestamp("us"): "datetime(6)",
    pa.timestamp("us", "UTC"): "datetime(6)",
}
_OF_KEYS: Mapping[str, str] = {"longtext": "varchar(%d)", "longblob": "varbinary(%d)"}
NAMES = ColumnNames("MariaDB", most_characters=MOST_NAME_CHARACTERS, basic_characters=True, ends_in_spaces=False)
_KEY_CHARACTERS = 768
_MOST_SCALE, _WIDEST = 30, 65
_TYPE = re.compile(r"(\w+)(?:\(([^)]*)\))?(.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table.

    Attributes:
        name: name in the table.
        kind: type in lower case, without length and attributes.
        sizes: length or digits of the declared type; empty if it has none.
        unsigned: whether numbers are unsigned.
        nullable: whether the column takes null.
        shown: name, declared type and `not null`, for messages.
        has_default: whether inserted rows without the column get another value than null.
    """

    name: str
    kind: str
    sizes: tuple[int, ...]
    unsigned: bool
    nullable: bool
    shown: str
    has_default: bool

    @property
    def fraction(self) -> int:
        return self.sizes[0] if self.sizes else 0


def column_of(name: str, declared: str, *, nullable: bool, has_default: bool = False) -> Column:
    match = _TYPE.fullmatch(declared)
    kind, inside, after = match.groups() if match else (declared, None, "")
    sizes = tuple(int(size) for size in (inside or "").split(",") if size.strip().isdigit())
    shown = f"{name} {declared}{'' if nullable else ' not null'}"
    return Column(name, kind.lower(), sizes, "unsigned" in after.lower(), nullable, shown, has_default)


def column_type(field: pa.Field, keys: Sequence[str]) -> str:
    """Return the type to create a column with, which can be indexed for `keys`. Raises ConfigurationError if MariaDB
    has no such type."""
    kind = _TYPES.stored(field.type)
    if pa.types.is_decimal(kind) and 0 <= kind.scale <= min(kind.precision, _MOST_SCALE) and kind.precision <= _WIDEST:
        return f"decimal({kind.precision}, {kind.scale})"
    name = _CREATED_TYPES.get(kind) or ("json" if pa.types.is_nested(kind) and not pa.types.is_union(kind) else None)
    if name is None:
        raise no_type("MariaDB", field)
    if field.name not in keys:
        return name
    name = _OF_KEYS.get(name, name)
    return (name % min(255, _KEY_CHARACTERS // len(keys)) if "%d" in name else name) + " not null"


def wider_type(field: pa.Field, column: Column) -> str | None:
    """Return the wider number type that the field needs, or None."""
    kind, current_kind = _TYPES.stored(field.type), column.kind
    if current_kind in _WIDENED and not (column.unsigned if current_kind in _INTEGERS else column.sizes):
        return _CREATED_TYPES[kind] if needs_widening(_WIDENED[current_kind], kind) else None
    return None


def check_fits(schema: pa.Schema, columns: Mapping[str, Column]) -> None:
    for field in schema:
        column = columns[field.name]
        if _sent_type(_TYPES.stored(field.type), column) is None:
            raise refused_type(field.name, field.type, column.shown)


def values(batch: pa.RecordBatch, columns: Mapping[str, Column]) -> Iterator[tuple[Any, ...]]:
    """Return rows with the values to send. Raises RefusedError if the server would change a value."""
    sent = [_sent(array, columns[name]) for name, array in zip(batch.schema.names, batch, strict=True)]
    return zip(*sent, strict=True)


def _sent(array: pa.Array, column: Column) -> list[Any]:
    kind, array = _TYPES.stored(array.type), decoded(array)
    target_kind = _sent_type(kind, column)
    if target_kind is None:
        raise refused_type(column.name, array.type, column.shown)
    if array.null_count and not column.nullable:
        raise refused_value(column.name, column.shown, "null, which the server may replace by a default")
    array = (
        as_json(array, column.name, column.shown)
        if pa.types.is_nested(kind)
        else converted(array, target_kind, column.name, column.shown)
    )
    if pa.types.is_null(kind):
        return [None] * len(array)
    wrong = _changed(array, column)
    if wrong:
        raise refused_value(column.name, column.shown, wrong)
    values: list[Any] = (_texts(array) if pa.types.is_temporal(array.type) else array).to_pylist()
    return values


def _changed(array: pa.Array, column: Column) -> str:
    kind = column.kind
    if kind == "mediumint":
        low, high = (0, 2**24 - 1) if column.unsigned else (-(2**23), 2**23 - 1)
        return "" if _all(pc.and_(pc.greater_equal(array, low), pc.less_equal(array, high))) else "out of range"
    if kind in ("float", "double"):
        if not _all(pc.is_finite(array)):
            return "NaN or infinity, which MariaDB does not have"
        return "-0.0, which MariaDB stores as 0" if has_negative_zero(array) else ""
    if kind in _TEXTS or kind in _BYTES:
        return _too_long(array, column)
    if kind in ("time", "datetime", "timestamp"):
        step = 10 ** (6 - column.fraction)
        numbers = array.view(pa.int64())
        if not _all(pc.equal(pc.multiply(pc.divide(numbers, step), step), numbers)):
            return f"more than {column.fraction} digits of a second"
    if kind in ("date", "datetime", "timestamp"):
        texts = _texts(array)
        inside = pc.and_(pc.match_substring_regex(texts, r"^\d{4}-"), pc.invert(pc.starts_with(texts, "0000")))
        return "" if _all(inside) else "a year that MariaDB does not have"
    return ""


def _too_long(array: pa.Array, column: Column) -> str:
    sizes = pc.binary_length(array.cast(pa.large_binary()))
    most = (_TEXTS | _BYTES)[column.kind]
    if most:
        return "" if _all(pc.less(sizes, most)) else f"more than {most - 1} bytes"
    length = column.sizes[0] if column.sizes else 1
    if column.kind == "binary":
        return "" if _all(pc.equal(sizes, length)) else f"not {length} bytes: others are filled up"
    if column.kind == "char" and not _all(pc.invert(pc.ends_with(array, " "))):
        return "spaces at its end, which a `char` does not keep"
    sizes = pc.utf8_length(array) if column.kind in _TEXTS else sizes
    return "" if _all(pc.less_equal(sizes, length)) else f"longer than {length}"


def _sent_type(kind: pa.DataType, column: Column) -> pa.DataType | None:
    required, types = column.kind, pa.types
    if types.is_null(kind):
        return kind
    if required in _INTEGERS and (types.is_integer(kind) or (types.is_boolean(kind) and required == "tinyint")):
        return getattr(pa, f"{'u' if column.unsigned else ''}int{_INTEGERS[required]}")()
    if required in ("float", "double") and not column.sizes and types.is_floating(kind):
        return None if required == "float" and kind != pa.float32() else kind
    if required == "decimal" and (types.is_integer(kind) or types.is_decimal(kind)):
        precision, scale = column.sizes
        return (pa.decimal128 if precision <= MAX_DIGITS else pa.decimal256)(precision, scale)
    if required in _TEXTS and (types.is_string(kind) or (types.is_nested(kind) and not types.is_union(kind))):
        return None if types.is_nested(kind) and not _TEXTS[required] else pa.string()
    if required in _BYTES and (types.is_binary(kind) or types.is_fixed_size_binary(kind)):
        return pa.binary()
    if (required == "date" and types.is_date32(kind)) or (required == "time" and types.is_time(kind)):
        return kind
    takes_zone = required in ("datetime", "timestamp")  # in UTC, the time zone of the session
    return kind if types.is_timestamp(kind) and (takes_zone if kind.tz else required == "datetime") else None


def _texts(array: pa.Array) -> pa.Array:
    return (array.cast(pa.timestamp("us")) if pa.types.is_timestamp(array.type) else array).cast(pa.string())


def _all(value: pa.Array) -> bool:
    return pc.all(value).as_py() in (True, None)

"""Literals of a job file, converted to the types of columns for comparisons."""

from __future__ import annotations

import math
from collections.abc import Iterable
from datetime import date, datetime
from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc

from distcommit.core.errors import ConfigurationError
from distcommit.schemas.known_columns import find_column
from distcommit.schemas.type_tables import is_text, plain_type

Value = bool | int | float | str | datetime | date
"""A scalar of YAML. A time without a zone is UTC."""

_NOT_COMPARED = (pa.types.is_nested, pa.types.is_null, pa.types.is_interval)


def is_comparable(kind: pa.DataType) -> bool:
    """Return whether values of a type can be compared with one another and with literals."""
    return not any(refused(plain_type(kind)) for refused in _NOT_COMPARED)


def comparable_column(batch: pa.RecordBatch, name: str, construct: str) -> pa.Array:
    """Return a column in its plain type. Raises ConfigurationError if it is missing or can't be compared."""
    check_comparable(batch.schema, name, construct)
    return as_plain(batch.column(name))


def check_comparable(schema: pa.Schema, name: str, construct: str) -> pa.DataType:
    """Return the plain type of a column. Raises ConfigurationError if it is missing or can't be compared."""
    field = find_column(schema, name, construct, is_comparable, "numbers, text, bytes, booleans or times")
    return plain_type(field.type)


def as_plain(column: pa.Array) -> pa.Array:
    """Cast a column to its plain type, such as the values of a dictionary. Also convert -0.0 to 0.0: the two are equal
    but have different hashes.
    """
    if isinstance(column, pa.ExtensionArray):
        return as_plain(column.storage)
    if pa.types.is_run_end_encoded(column.type):
        return as_plain(pc.run_end_decode(column))
    if pa.types.is_dictionary(column.type):
        return as_plain(column.dictionary_decode())
    column = column.cast(plain_type(column.type))
    return pc.add(column, pa.scalar(0, column.type)) if pa.types.is_floating(column.type) else column


def literal_of(value: Value, kind: pa.DataType, construct: str, column: str) -> pa.Scalar:
    """Convert a literal to the type of a column.

    Args:
        construct: name of the converter or fork with the literal, for messages.

    Raises:
        ConfigurationError: if the type has no equal value. For a column of floats, the value may be rounded.
    """
    try:
        return _literal(value, kind)
    except (pa.ArrowException, ArithmeticError, TypeError, ValueError) as error:
        raise ConfigurationError(
            "a construct's value is not valid for the column",
            id="CONSTRUCT_SETTINGS_INVALID",
            construct=construct,
            column=column,
            expected=f"a value of type {kind}",
            found=f"{value!r} ({error})",
            todo="correct the value, or cast the column before this construct",
        ) from error


def array_of(values: Iterable[Value], kind: pa.DataType, construct: str, column: str) -> pa.Array:
    """Convert literals to an array of a column's type. Raises ConfigurationError if it has no equal value for one."""
    return as_plain(pa.array([literal_of(value, kind, construct, column) for value in values], kind))


def _literal(value: Value, kind: pa.DataType) -> pa.Scalar:
    types = pa.types
    match value:
        case bool() if types.is_boolean(kind):
            return pa.scalar(value, kind)
        case int() | float() if types.is_integer(kind) and not isinstance(value, bool) and value == int(value):
            return pa.scalar(int(value), kind)
        case int() | float() if types.is_floating(kind) and not isinstance(value, bool) and not math.isnan(value):
            number = pa.scalar(float(value), pa.float64()).cast(kind)
            if math.isinf(number.as_py()) != math.isinf(value):
                raise ValueError("out of range")
            return number
        case int() | float() if types.is_decimal(kind) and not isinstance(value, bool):
            return pa.scalar(Decimal(str(value)), kind)
        case str() if is_text(kind) or types.is_temporal(kind) or types.is_decimal(kind):
            return pa.scalar(value).cast(kind)
        case datetime() if types.is_timestamp(kind):
            return pa.scalar(value, pa.timestamp("us", kind.tz)).cast(kind)
        case date() if types.is_date(kind) and not isinstance(value, datetime):
            return pa.scalar(value, kind)
        case date() if types.is_timestamp(kind) and not isinstance(value, datetime):
            return _literal(datetime(value.year, value.month, value.day), kind)
    raise TypeError(f"a {type(value).__name__}")

"""Literals of job files and of readers' filters, converted to the types of columns for comparisons."""

from __future__ import annotations

import math
from collections.abc import Iterable
from datetime import date, datetime
from decimal import Decimal

import pyarrow as pa

from distcommit.constructs.expressions.comparable_columns import as_plain
from distcommit.core.errors import ConfigurationError
from distcommit.schemas.storable_types import is_text

Value = bool | int | float | str | datetime | date
"""A scalar of YAML. A time without a zone is UTC."""
_MAX_INT64 = 2**63 - 1


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
    """Convert literals to an array of a column's type. Raises ConfigurationError if the type lacks an equal value."""
    return as_plain(pa.array([literal_of(value, kind, construct, column) for value in values], kind))


def convert_literal(value: Value | Decimal, kind: pa.DataType) -> pa.Scalar:
    """Convert a literal to a type by Arrow's casts, such as text to a time. Floating-point numbers are rounded.

    Raises:
        pa.ArrowException, ArithmeticError: if the literal can't be converted.
    """
    types = pa.types
    if types.is_decimal(kind) and not isinstance(value, str):
        return pa.scalar(Decimal(str(value)), kind)
    if types.is_integer(kind) and isinstance(value, int):
        return pa.scalar(int(value), pa.uint64() if value > _MAX_INT64 else pa.int64()).cast(kind)
    if types.is_timestamp(kind) and isinstance(value, datetime):
        return pa.scalar(value, pa.timestamp("us", kind.tz)).cast(kind)
    return pa.scalar(float(value) if isinstance(value, Decimal) else value).cast(kind)


def _literal(value: Value, kind: pa.DataType) -> pa.Scalar:
    """Convert a literal that is a value of the type. Raises TypeError or ValueError if it is not."""
    types, is_boolean = pa.types, isinstance(value, bool)
    match value:
        case int() | float() if types.is_integer(kind) and not is_boolean and value == int(value):
            value = int(value)
        case int() | float() if types.is_floating(kind) and not is_boolean and not math.isnan(value):
            value = float(value)
        case bool() if types.is_boolean(kind):
            pass
        case int() | float() if types.is_decimal(kind) and not is_boolean:
            pass
        case str() if is_text(kind) or types.is_temporal(kind) or types.is_decimal(kind):
            pass
        case datetime() if types.is_timestamp(kind):
            pass
        case date() if types.is_date(kind) and not isinstance(value, datetime):
            pass
        case date() if types.is_timestamp(kind):
            value = datetime(value.year, value.month, value.day)
        case _:
            raise TypeError(f"a {type(value).__name__}")
    literal = convert_literal(value, kind)
    if isinstance(value, float) and types.is_floating(kind) and math.isinf(literal.as_py()) != math.isinf(value):
        raise ValueError("out of range")
    return literal

"""Literals, converted to the types of columns."""

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
"""A scalar of YAML, whose times without zone are UTC."""


def literal_of(value: Value, kind: pa.DataType, construct: str, column: str) -> pa.Scalar:
    """Convert a literal.

    Args:
        construct: converter or fork, for messages.

    Raises:
        ConfigurationError: if the type has no equal value; floats may be rounded.
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
    """Convert literals; raises ConfigurationError."""
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

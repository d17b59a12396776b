"""Columns of tables: Arrow types and SELECT expressions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time
from typing import Any

import pyarrow as pa
import sqlalchemy as sa
from sqlalchemy import types
from sqlalchemy.dialects import mysql

from distcommit.sources.watermark_column import Kind

__all__ = ["CONVERSION_ERRORS", "Column", "column_of", "kind_of", "watermark_expression"]

_DIGITS_128, _DIGITS_256 = 38, 76
_BINARY_ORDER = {"postgresql": "C", "sqlite": "BINARY"}
_NO_TEXT_POSITIONS = ("CITEXT", "SET")
CONVERSION_ERRORS = (pa.ArrowException, TypeError, ValueError, OverflowError)
_Bytes = types.LargeBinary | types.BINARY | types.VARBINARY | mysql.TINYBLOB | mysql.MEDIUMBLOB | mysql.LONGBLOB


def _boolean(value: object) -> bool:
    if type(value) is int and value in (0, 1):
        return bool(value)
    raise ValueError(f"{value!r:.60} must be 0 or 1")


def _iso(of: type[date] | type[time]) -> Callable[[object], date | time]:
    def parsed(value: object) -> date | time:
        if not isinstance(value, str):
            raise TypeError(f"{value!r:.60} must be text in ISO 8601")
        return of.fromisoformat(value)

    return parsed


_OF_SQLITE: Sequence[tuple[type[types.TypeEngine[Any]], Callable[[Any], Any]]] = (
    (types.Boolean, _boolean),
    (types.DateTime, _iso(datetime)),
    (types.Date, _iso(date)),
    (types.Time, _iso(time)),
)


class _Utf8(types.TypeDecorator[str]):
    """Text that the database compares by UTF-8 bytes."""

    impl = types.LargeBinary
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: object) -> bytes | None:
        return None if value is None else value.encode()

    def process_result_value(self, value: bytes | None, dialect: object) -> str | None:
        return None if value is None else value.decode()


@dataclass(frozen=True, slots=True)
class Column:
    """A column to read.

    Attributes:
        name: the column's name.
        type: the Arrow type of its values.
        expression: the selected expression.
        parse: function that converts a driver's value, if it is not null; None if Arrow accepts the driver's values.
    """

    name: str
    type: pa.DataType
    expression: sa.ColumnElement[Any]
    parse: Callable[[Any], Any] | None = None

    def array(self, values: Sequence[Any]) -> pa.Array:
        """Convert a driver's values to an array.

        Raises:
            ArrowException, TypeError, ValueError, OverflowError: if a value is not of the column's type. SQLite stores
                any value in any column.
        """
        if self.parse is not None:
            values = [None if value is None else self.parse(value) for value in values]
        if pa.types.is_integer(self.type) and any(isinstance(value, float) for value in values):
            raise ValueError("a number that is not whole")
        return pa.array(values, self.type)

    def first_unreadable(self, values: Sequence[Any]) -> tuple[int, str] | None:
        """Return index and reason of the first unconvertible value, or None."""
        for index, value in enumerate(values):
            try:
                self.array([value])
            except CONVERSION_ERRORS as error:
                return index, str(error)
        return None


def column_of(name: str, declared: types.TypeEngine[Any], dialect: str) -> Column | None:
    """Return a column by its declared type; None if there is no Arrow type.

    UUIDs and JSON are text. From SQLite, decimals are read as floats, integers have 64 bits, booleans must be 0 or 1,
    and times text in ISO 8601. MySQL's TIME is a duration and can't be read.
    """
    if dialect == "sqlite" and (parse := next((by for kind, by in _OF_SQLITE if isinstance(declared, kind)), None)):
        return Column(name, _arrow_type(declared, dialect), sa.column(name, types.NullType()), parse)
    if isinstance(declared, types.Uuid | types.JSON):
        text = sa.column(name, types.NullType())
        return Column(name, pa.string(), text if dialect == "sqlite" else sa.cast(text, types.Text()).label(name))
    if dialect == "sqlite" and isinstance(declared, types.Numeric):
        return Column(name, pa.float64(), sa.column(name))
    if isinstance(declared, types.String):
        return Column(name, pa.string(), sa.column(name, types.String()))
    if dialect == "mysql" and isinstance(declared, types.Float):  # MySQL sends six digits of a FLOAT, all of a DOUBLE
        return Column(name, pa.float64(), (sa.column(name) * sa.literal_column("1e0", types.Float())).label(name))
    arrow = _arrow_type(declared, dialect)
    return None if arrow is None else Column(name, arrow, sa.column(name, declared))


def kind_of(declared: types.TypeEngine[Any], dialect: str) -> Kind | None:
    """Return a watermark column's kind; None if its type is unsupported. Times of SQLite are text."""
    if isinstance(declared, types.Integer):
        return Kind.INTEGER
    if isinstance(declared, types.DateTime):
        return Kind.TEXT if dialect == "sqlite" else Kind.TIME
    is_text = isinstance(declared, types.String) and not isinstance(declared, types.Enum)
    return Kind.TEXT if is_text and declared.__visit_name__ not in _NO_TEXT_POSITIONS else None


def watermark_expression(name: str, declared: types.TypeEngine[Any], kind: Kind, dialect: str) -> sa.ColumnElement[Any]:
    """Return the expression that orders the watermark column, text by bytes as in Python."""
    if kind is Kind.TEXT and dialect == "mysql":  # whose collations treat "a" and "a " as equal
        utf8 = sa.cast(sa.column(name, types.String()), mysql.CHAR(charset="utf8mb4"))
        return sa.type_coerce(sa.cast(utf8, types.LargeBinary()), _Utf8())
    if kind is Kind.TEXT and dialect == "postgresql" and isinstance(declared, types.CHAR):  # padded as it comes
        return sa.collate(sa.cast(sa.column(name, types.String()), types.Text()), _BINARY_ORDER[dialect])
    if kind is Kind.TEXT:
        return sa.collate(sa.column(name, types.String()), _BINARY_ORDER[dialect])
    return sa.column(name, declared)


def _arrow_type(declared: types.TypeEngine[Any], dialect: str) -> pa.DataType | None:
    match declared:
        case types.Boolean():
            return pa.bool_()
        case types.Integer() if getattr(declared, "unsigned", False):
            return pa.uint64() if isinstance(declared, types.BigInteger) else pa.int64()
        case types.Integer():
            narrow = pa.int16() if isinstance(declared, types.SmallInteger) else pa.int32()
            return pa.int64() if dialect == "sqlite" or isinstance(declared, types.BigInteger) else narrow
        case types.Float():
            return pa.float64()
        case types.Numeric(precision=int(precision), scale=scale):
            wide = pa.decimal256 if precision > _DIGITS_128 else pa.decimal128
            return wide(precision, scale or 0) if precision <= _DIGITS_256 else None
        case _ if isinstance(declared, _Bytes):
            return pa.binary()
        case types.DateTime(timezone=zoned):
            zoned = zoned or isinstance(declared, mysql.TIMESTAMP)
            return pa.timestamp("us", tz="UTC") if zoned else pa.timestamp("us")
        case types.Date():
            return pa.date32()
        case types.Time(timezone=False) if dialect != "mysql":
            return pa.time64("us")
    return None

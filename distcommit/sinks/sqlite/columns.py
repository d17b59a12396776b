"""Conversion of Arrow columns to values that SQLite stores unchanged. Other values are refused.

SQLite accepts any value in any column and converts it: text that looks like a number becomes a number, and NaN becomes
NULL.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc

from distcommit.schemas.column_names import ColumnNames
from distcommit.sinks.databases.arrow_conversion import (
    PLAIN_TYPES,
    as_json,
    converted,
    decoded,
    has_negative_zero,
    no_type,
    refused_type,
    refused_value,
)

Stored = Literal["INTEGER", "REAL", "TEXT", "BLOB"]
NAMES = ColumnNames("SQLite")
_TYPES = replace(PLAIN_TYPES, replaced={**PLAIN_TYPES.replaced, pa.uint64(): pa.int64()})
"""Arrow types to send. Unsigned integers above SQLite's largest integer are refused."""
_TAKES: Mapping[str, frozenset[Stored]] = {
    "INTEGER": frozenset({"INTEGER"}),
    "NUMERIC": frozenset({"INTEGER"}),
    "REAL": frozenset({"REAL"}),
    "TEXT": frozenset({"TEXT"}),
    "BLOB": frozenset({"BLOB"}),
    "": frozenset({"INTEGER", "REAL", "TEXT", "BLOB"}),
}
"""Types stored unchanged, by the column's affinity."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table.

    Attributes:
        name: name in the table.
        declared: declared type, as written; empty if none is declared.
        in_key: whether the column is part of the primary key.
        has_default: whether inserted rows without the column get another value than null.
    """

    name: str
    declared: str
    in_key: bool
    has_default: bool = False

    @property
    def shown(self) -> str:
        return f"{self.name} {self.declared}".rstrip()

    @property
    def affinity(self) -> str:
        """The type affinity, which depends on words in the declared type (https://sqlite.org/datatype3.html, 3.1)."""
        declared = self.declared.upper()
        if "INT" in declared:
            return "INTEGER"
        if any(part in declared for part in ("CHAR", "CLOB", "TEXT")):
            return "TEXT"
        if not declared or "BLOB" in declared:
            return declared and "BLOB"
        return "REAL" if any(part in declared for part in ("REAL", "FLOA", "DOUB")) else "NUMERIC"


def column_type(field: pa.Field) -> Stored:
    """Return the type to create a column with; raises ConfigurationError if there is none."""
    stored = _stored(_TYPES.stored(field.type))
    if stored is None:
        raise no_type("SQLite", field)
    return stored


def check_fits(schema: pa.Schema, columns: Mapping[str, Column]) -> None:
    for field in schema:
        column, kind = columns[field.name], _TYPES.stored(field.type)
        stored, takes = _stored(kind), _TAKES[column.affinity]
        is_time_text = pa.types.is_temporal(kind) and column.affinity == "NUMERIC"  # `DATETIME`; it is not a number
        if stored is None or not (stored in takes or is_time_text or pa.types.is_null(kind)):
            raise refused_type(field.name, field.type, column.shown)


def values(batch: pa.RecordBatch, columns: Mapping[str, Column]) -> list[tuple[Any, ...]]:
    """Return rows with the values to send. Raises RefusedError if SQLite would change a value."""
    sent = [_sent(array, columns[name]).to_pylist() for name, array in zip(batch.schema.names, batch, strict=True)]
    return [*zip(*sent, strict=True)]


def _sent(array: pa.Array, column: Column) -> pa.Array:
    array, kind = decoded(array), _TYPES.stored(array.type)
    if column.in_key and array.null_count:  # an integer becomes the next number; other nulls are never equal
        raise refused_value(column.name, column.shown, "null in a primary key")
    if pa.types.is_nested(kind):
        return as_json(array, column.name, column.shown)
    array = converted(array, kind, column.name, column.shown)
    if pa.types.is_floating(kind) and pc.any(pc.is_nan(array)).as_py():
        raise refused_value(column.name, column.shown, "NaN, which SQLite stores as NULL")
    if pa.types.is_floating(kind) and has_negative_zero(array):
        raise refused_value(column.name, column.shown, "-0.0, which SQLite stores as 0.0")
    if pa.types.is_temporal(kind):
        array = array.cast(pa.string())
        if pc.any(pc.starts_with(array, "<")).as_py():
            raise refused_value(column.name, column.shown, "a time that has no text")
        return array
    return array.cast(pa.string()) if pa.types.is_decimal(kind) else array


def _stored(kind: pa.DataType) -> Stored | None:
    if pa.types.is_boolean(kind) or pa.types.is_integer(kind):
        return "INTEGER"
    if pa.types.is_floating(kind):
        return "REAL"
    if pa.types.is_binary(kind) or pa.types.is_fixed_size_binary(kind):
        return "BLOB"
    is_text = pa.types.is_string(kind) or pa.types.is_null(kind) or pa.types.is_nested(kind)
    is_text = is_text or pa.types.is_decimal(kind) or (pa.types.is_temporal(kind) and not pa.types.is_duration(kind))
    return "TEXT" if is_text and not pa.types.is_union(kind) else None

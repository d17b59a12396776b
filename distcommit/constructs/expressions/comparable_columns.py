"""Columns in plain types, which can be compared."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from distcommit.schemas.known_columns import find_column
from distcommit.schemas.storable_types import plain_type

_NOT_COMPARED = (pa.types.is_nested, pa.types.is_null, pa.types.is_interval)


def is_comparable(kind: pa.DataType) -> bool:
    """Return whether values can be compared."""
    return not any(refused(plain_type(kind)) for refused in _NOT_COMPARED)


def comparable_column(batch: pa.RecordBatch, name: str, construct: str) -> pa.Array:
    """Return a column in its plain type; raises the errors of `check_comparable`."""
    check_comparable(batch.schema, name, construct)
    return as_plain(batch.column(name))


def check_comparable(schema: pa.Schema, name: str, construct: str) -> pa.DataType:
    """Return a column's plain type; raises ConfigurationError if it is missing or can't be compared."""
    field = find_column(schema, name, construct, is_comparable, "numbers, text, bytes, booleans or times")
    return plain_type(field.type)


def as_plain(column: pa.Array) -> pa.Array:
    """Cast a column to its plain type, with -0.0 as 0.0: the two are equal but have different hashes."""
    if isinstance(column, pa.ExtensionArray):
        return as_plain(column.storage)
    if pa.types.is_run_end_encoded(column.type):
        return as_plain(pc.run_end_decode(column))
    if pa.types.is_dictionary(column.type):
        return as_plain(column.dictionary_decode())
    column = column.cast(plain_type(column.type))
    return pc.add(column, pa.scalar(0, column.type)) if pa.types.is_floating(column.type) else column

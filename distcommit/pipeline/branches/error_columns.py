"""The columns of error files."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pyarrow as pa

ERROR_COLUMNS = ("error_branch", "error_construct", "error_reason")
"""Columns of the rejecting branch (empty: all), the construct, and the reason."""

_SUFFIX = "_of_source"
_CONFLICTING = re.compile(rf"(?:{'|'.join(ERROR_COLUMNS)})(?:{_SUFFIX})*", re.IGNORECASE)
"""Names of source columns to rename: those of error columns and renamed columns, in upper or lower case."""


def error_schema(options: pa.Schema) -> pa.Schema:
    own = [field.with_name(_stored_name(field.name)) for field in options]
    return pa.schema([*own, *(pa.field(name, pa.string()) for name in ERROR_COLUMNS)])


def error_records(records: pa.RecordBatch, *error_columns: Sequence[str]) -> pa.RecordBatch:
    """Return an error file's rows; `error_columns` are values of `ERROR_COLUMNS`."""
    columns = [*records.columns, *(pa.array(values, pa.string()) for values in error_columns)]
    return pa.RecordBatch.from_arrays(columns, schema=error_schema(records.schema))


def given_records(records: pa.RecordBatch, written: pa.Schema) -> pa.RecordBatch:
    """Return rows of an error file as the source's records.

    Args:
        records: rows as read from the file.
        written: the schema of the records that were written. Parquet stores seconds and day-milliseconds as another
            type.
    """
    columns, fields = [], []
    for column, field in zip(records.columns, written, strict=True):
        if field.name not in ERROR_COLUMNS:
            columns.append(_as_type(column, field.type))
            fields.append(field.with_name(_given_name(field.name)))
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))


def _stored_name(name: str) -> str:
    return name + _SUFFIX if _CONFLICTING.fullmatch(name) else name


def _given_name(name: str) -> str:
    return name.removesuffix(_SUFFIX) if _CONFLICTING.fullmatch(name) else name


def _as_type(column: pa.Array, kind: pa.DataType) -> pa.Array:
    if column.type == kind:
        return column
    if pa.types.is_dictionary(kind):
        return column.cast(kind.value_type).dictionary_encode().cast(kind)
    return column.cast(kind)

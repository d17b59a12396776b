"""The columns of error files: what the source gave, under names that leave room for what is said of each record."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pyarrow as pa

ERROR_COLUMNS = ("error_branch", "error_construct", "error_reason")
"""What error branches' records have beside what the source gave: the branch that turned them away (empty: all of them),
the construct, and why."""

_OF_SOURCE = "_of_source"
_TAKEN = re.compile(rf"(?:{'|'.join(ERROR_COLUMNS)})(?:{_OF_SOURCE})*", re.IGNORECASE)
"""Columns of a source that have another name there: those that are called so, in capitals or not, and those whose names
would then be those of others."""


def error_schema(given: pa.Schema) -> pa.Schema:
    """The columns of an error file of records that have those of the source."""
    own = [field.with_name(_stored_name(field.name)) for field in given]
    return pa.schema([*own, *(pa.field(name, pa.string()) for name in ERROR_COLUMNS)])


def error_records(records: pa.RecordBatch, *said: Sequence[str]) -> pa.RecordBatch:
    """Records of the source as an error file has them, with what is said of each in `ERROR_COLUMNS`."""
    columns = [*records.columns, *(pa.array(values, pa.string()) for values in said)]
    return pa.RecordBatch.from_arrays(columns, schema=error_schema(records.schema))


def given_records(records: pa.RecordBatch, written: pa.Schema) -> pa.RecordBatch:
    """Records of an error file as the source gave them.

    Args:
        records: as they were read from it.
        written: the columns that were given to its writer. Parquet has no seconds, and no days in milliseconds.
    """
    columns, fields = [], []
    for column, field in zip(records.columns, written, strict=True):
        if field.name not in ERROR_COLUMNS:
            columns.append(_as_type(column, field.type))
            fields.append(field.with_name(_given_name(field.name)))
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))


def _stored_name(name: str) -> str:
    return name + _OF_SOURCE if _TAKEN.fullmatch(name) else name


def _given_name(name: str) -> str:
    return name.removesuffix(_OF_SOURCE) if _TAKEN.fullmatch(name) else name


def _as_type(column: pa.Array, kind: pa.DataType) -> pa.Array:
    if column.type == kind:
        return column
    if pa.types.is_dictionary(kind):
        return column.cast(kind.value_type).dictionary_encode().cast(kind)
    return column.cast(kind)

"""Comparison of schemas with the columns that a job file declares."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Literal

import pyarrow as pa
from pydantic import Field

from distcommit.schemas.column_types import ColumnType, arrow_type
from distcommit.schemas.evolution import is_narrower

DeclaredColumns = Annotated[dict[str, ColumnType], Field(min_length=1)]
ExtraColumns = Literal["allowed", "refused"]


def misfits(schema: pa.Schema, columns: Mapping[str, object], extra: ExtraColumns) -> Iterator[str]:
    """Yield the reasons why a schema is not compatible with declared columns.

    A declared column is compatible if the schema has it once, with the declared type or a narrower one. Nulls are
    always allowed, so a column of nulls only is compatible.

    Args:
        columns: the declared types by column, as in a job file.
        extra: whether the schema may have further columns.
    """
    for name, written in columns.items():
        indices, declared = schema.get_all_field_indices(name), arrow_type(written)
        if len(indices) != 1:
            yield f"{name} is missing" if not indices else f"{name} exists {len(indices)} times"
        elif not is_narrower(schema.field(indices[0]).type, declared):
            yield f"{name} is {schema.field(indices[0]).type}, not {declared}"
    if extra == "refused":
        yield from (f"{name} is not declared" for name in schema.names if name not in columns)


def describe_columns(columns: Mapping[str, object]) -> str:
    """Return declared columns in Arrow's notation."""
    return ", ".join(f"{name} {arrow_type(written)}" for name, written in columns.items())

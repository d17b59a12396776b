"""Columns that a job file declares, and their compatibility with schemas."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Literal

import pyarrow as pa
from pydantic import Field

from distcommit.constructs.conditions.literals import plain_type
from distcommit.constructs.schemas.column_types import ColumnType, arrow_type

DeclaredColumns = Annotated[dict[str, ColumnType], Field(min_length=1)]
ExtraColumns = Literal["allowed", "refused"]
_types = pa.types
_FAMILIES = (_types.is_floating, _types.is_decimal, _types.is_time, _types.is_duration, _types.is_timestamp)
"""Families of types in which a wider type has all values of a narrower one."""


def misfits(schema: pa.Schema, columns: Mapping[str, object], extra: ExtraColumns) -> Iterator[str]:
    """Yield the reasons why a schema is not compatible with declared columns.

    A column is compatible if it exists once, and its type is the declared one or a narrower one. Nulls are always
    allowed, so an all-null column is compatible.

    Args:
        schema: the schema of records.
        columns: the declared types by column, as in a job file.
        extra: whether other columns are allowed.
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


def is_narrower(kind: pa.DataType, declared: pa.DataType) -> bool:
    """Return whether each value of a type is also a value of the declared type. A struct may have further fields."""
    kind, declared = plain_type(kind), plain_type(declared)
    if _types.is_null(kind) or kind == declared:
        return True
    if _is_list(kind) and _is_list(declared):
        return is_narrower(kind.value_type, declared.value_type)
    if _types.is_map(kind) and _types.is_map(declared):
        return is_narrower(kind.key_type, declared.key_type) and is_narrower(kind.item_type, declared.item_type)
    if _types.is_struct(kind) and _types.is_struct(declared):
        below = [(kind.get_field_index(field.name), field.type) for field in declared]
        return all(index >= 0 and is_narrower(kind.field(index).type, wanted) for index, wanted in below)
    if _types.is_integer(kind) and _types.is_integer(declared):
        signed, declared_signed = _types.is_signed_integer(kind), _types.is_signed_integer(declared)
        if signed and not declared_signed:
            return False
        width = kind.bit_width if signed == declared_signed else kind.bit_width + 1
        return bool(width <= declared.bit_width)
    return _is_narrower_scalar(kind, declared)


def _is_narrower_scalar(kind: pa.DataType, declared: pa.DataType) -> bool:
    if str(kind).removeprefix("large_") == str(declared).removeprefix("large_"):
        return True
    if not any(family(kind) and family(declared) for family in _FAMILIES):
        return False
    if _types.is_timestamp(kind):
        if bool(kind.tz) != bool(declared.tz):
            return False
        kind = pa.timestamp(kind.unit, declared.tz)  # zones affect only the display of times
    both = [pa.schema([pa.field("", side)]) for side in (declared, kind)]
    return bool(pa.unify_schemas(both, promote_options="permissive").field(0).type == declared)


def _is_list(kind: pa.DataType) -> bool:
    return bool(_types.is_list(kind) or _types.is_large_list(kind) or _types.is_fixed_size_list(kind))

"""Columns that a job file declares by name and type, and schemas that are compatible with them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Literal

import pyarrow as pa
from pydantic import AfterValidator, Field

from distcommit.constructs.literals import plain_type

ANY = "any"
_PARAMETRIC = re.compile(
    r"timestamp\[(?P<unit>s|ms|us|ns), ?tz=(?P<zone>[\w+:/-]+)\]|decimal128\((?P<precision>\d+), ?(?P<scale>\d+)\)"
)
_types = pa.types
_FAMILIES = (_types.is_floating, _types.is_decimal, _types.is_time, _types.is_duration)
"""Types of which the wider one has all values of the narrower one."""


def type_named(text: str) -> pa.DataType | None:
    """The type of that name, as Arrow shows it: `int64`, `decimal128(10, 2)`, `timestamp[us, tz=UTC]`; None for `any`.

    Raises:
        ValueError: if there is none, or it is nested.
    """
    if text == ANY:
        return None
    if match := _PARAMETRIC.fullmatch(text):
        if match["unit"]:
            return pa.timestamp(match["unit"], match["zone"])
        return pa.decimal128(int(match["precision"]), int(match["scale"]))
    try:
        return pa.type_for_alias(text)
    except ValueError:
        raise ValueError(
            f"{text!r} names no type; expected one such as int64, double, string, date32, timestamp[us, tz=UTC] or"
            " decimal128(10, 2); `any` for nested ones"
        ) from None


def _checked(text: str) -> str:
    type_named(text)
    return text


DeclaredColumns = Annotated[dict[str, Annotated[str, AfterValidator(_checked)]], Field(min_length=1)]
"""Type names by column, as `type_named`; `any` takes every type."""
ExtraColumns = Literal["allowed", "refused"]


def misfits(schema: pa.Schema, columns: Mapping[str, str], extra: ExtraColumns) -> Iterator[str]:
    """Why records of a schema are not compatible with declared columns; nothing if they are.

    A column is compatible if it is there once, and its type is the declared one or a narrower one: each of its values
    is one of the declared type. What is declared says nothing of nulls: an all-null column is compatible.

    Args:
        schema: of the records.
        columns: type names, by column.
        extra: whether other columns may be there.
    """
    for name, text in columns.items():
        found, declared = schema.get_all_field_indices(name), type_named(text)
        if len(found) != 1:
            yield f"{name} is missing" if not found else f"{name} is there {len(found)} times"
        elif declared is not None and not is_narrower(schema.field(found[0]).type, declared):
            yield f"{name} is {schema.field(found[0]).type}, not {text}"
    if extra == "refused":
        yield from (f"{name} is not declared" for name in schema.names if name not in columns)


def is_narrower(kind: pa.DataType, declared: pa.DataType) -> bool:
    """Whether each value of a type is one of another, which is not nested."""
    kind, declared = plain_type(kind), plain_type(declared)
    if _types.is_null(kind) or kind == declared:
        return True
    if _types.is_integer(kind) and _types.is_integer(declared):
        bits_of_sign = _types.is_signed_integer(declared) - _types.is_signed_integer(kind)
        return bool(bits_of_sign >= 0 and kind.bit_width + bits_of_sign <= declared.bit_width)
    if _types.is_timestamp(kind) and _types.is_timestamp(declared) and bool(kind.tz) != bool(declared.tz):
        return False
    if _types.is_timestamp(kind) and _types.is_timestamp(declared):  # zones are how times are shown
        kind = pa.timestamp(kind.unit, declared.tz)
    elif str(kind).removeprefix("large_") == str(declared).removeprefix("large_"):
        return True
    elif not any(family(kind) and family(declared) for family in _FAMILIES):
        return False
    fields = [pa.schema([pa.field("", each)]) for each in (declared, kind)]
    return bool(pa.unify_schemas(fields, promote_options="permissive").field(0).type == declared)

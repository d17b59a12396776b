"""Columns that constructs ask for."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from distcommit.model.errors import ConfigurationError


def field_of(
    schema: pa.Schema,
    name: str,
    construct: str,
    wanted: Callable[[pa.DataType], bool] = lambda _: True,
    expected: str = "",
) -> pa.Field:
    """The one column of that name.

    Args:
        schema: of the records.
        name: the column's.
        construct: who asks, for messages.
        wanted: whether it can be used with a type.
        expected: which types these are, in words.

    Raises:
        ConfigurationError: if there is none, or several, or its type is another.
    """
    found = schema.get_all_field_indices(name)
    if len(found) != 1:
        raise ConfigurationError(
            "a construct asks for a column that the records do not have" if not found else "two columns have one name",
            construct=construct,
            expected=f"one column {name!r}",
            found=f"columns {', '.join(schema.names) or 'none'}",
            todo="correct the construct's settings, or the converters before it",
        )
    field = schema.field(found[0])
    if not wanted(field.type):
        raise ConfigurationError(
            "a construct can't work with the type of a column",
            construct=construct,
            column=name,
            expected=expected,
            found=str(field.type),
            todo="cast the column before, or name another",
        )
    return field


def unique_names(schema: pa.Schema, construct: str) -> pa.Schema:
    """The schema, if no two of its columns have one name.

    Raises:
        ConfigurationError: else, or if it has no columns.
    """
    twice = sorted({name for name in schema.names if schema.names.count(name) > 1})
    if twice or not schema.names:
        raise ConfigurationError(
            "two columns would have one name" if twice else "no column would be left",
            construct=construct,
            expected="columns of different names",
            found=", ".join(twice) or "none",
            todo="drop or rename one before" if twice else "keep one",
        )
    return schema


def replaced(schema: pa.Schema, name: str, kind: pa.DataType, *, nullable: bool | None = None) -> pa.Schema:
    """The schema with another type for the one column of that name; `nullable`: as it was, unless that says it."""
    place = schema.get_field_index(name)
    field = schema.field(place)
    return schema.set(place, pa.field(name, kind, field.nullable if nullable is None else nullable))

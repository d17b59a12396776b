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

"""How deep types are nested in one another."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from distcommit.core.errors import ConfigurationError

if TYPE_CHECKING:
    import pyarrow as pa

MOST_LEVELS = 96
"""As Parquet counts them: one for a struct, two for a list or a map. With a few more its files can be written, and
nobody can read them again; and no other format holds many more."""

MAX_COLUMNS = 10_000
"""Columns of one schema, those within others included."""
MAX_FIXED_BYTES = 65_536
"""Bytes of all fixed-size binary columns of one schema together: a null takes as many as a value."""


def too_deep(schema: pa.Schema) -> str:
    """The first column with more levels than that; empty if there is none."""
    for field in schema:
        waiting = [(field.type, 0)]
        while waiting:
            kind, levels = waiting.pop()
            if levels > MOST_LEVELS:
                return str(field.name)
            waiting += [(each, levels + more) for each, more in _within(kind)]
    return ""


def check_levels(schema: pa.Schema) -> None:
    """Makes sure that what is written of records of that schema can be read again. Raises ConfigurationError."""
    if column := too_deep(schema):
        raise ConfigurationError(
            "a column is nested too deep to be written",
            column=column,
            expected=f"at most {MOST_LEVELS} levels: one for a struct, two for a list or a map",
            found="more, of which files could be written and not be read again",
            todo="drop or flatten the column before the sink, or have it as text",
        )


def fixed_bytes(schema: pa.Schema) -> int:
    """Return how many bytes all fixed-size binary columns take together in one record, also where they are null."""
    size, waiting = 0, [field.type for field in schema]
    while waiting:
        kind = waiting.pop()
        size += getattr(kind, "byte_width", 0) if not kind.num_fields and str(kind).startswith("fixed_size_bin") else 0
        waiting += [each for each, _ in _within(kind)]
    return size


def _within(kind: pa.DataType) -> Iterator[tuple[pa.DataType, int]]:
    """The types right within a type, and how many levels lower each is."""
    kind = getattr(kind, "storage_type", kind)
    if hasattr(kind, "key_type"):
        yield from ((each, 2) for each in (kind.key_type, kind.item_type))
    elif hasattr(kind, "value_type"):
        yield kind.value_type, 2
    else:
        yield from ((kind.field(number).type, 1) for number in range(kind.num_fields))

"""Limits on nested types and wide schemas."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from distcommit.core.errors import ConfigurationError

if TYPE_CHECKING:
    import pyarrow as pa

MOST_LEVELS = 96
"""Maximum depth as Parquet counts it: one for a struct, two for a list or a map. Slightly deeper files can be written
but never read again, and no other format supports many more levels."""

MAX_COLUMNS = 10_000
"""Maximum number of columns of one schema, including nested ones."""
MAX_FIXED_BYTES = 65_536
"""Maximum total width in bytes of a schema's fixed-size binary columns. A null takes as many bytes as a value."""


def too_deep(schema: pa.Schema) -> str:
    """Return the first column that exceeds MOST_LEVELS; empty if there is none."""
    for field in schema:
        waiting = [(field.type, 0)]
        while waiting:
            kind, levels = waiting.pop()
            if levels > MOST_LEVELS:
                return str(field.name)
            waiting += [(nested, levels + more) for nested, more in _within(kind)]
    return ""


def check_levels(schema: pa.Schema) -> None:
    """Check that files with this schema can be read again after they were written. Raises ConfigurationError."""
    if column := too_deep(schema):
        raise ConfigurationError(
            "a column is nested too deep",
            id="COLUMN_UNSUPPORTED",
            column=column,
            expected=f"at most {MOST_LEVELS} levels: one for a struct, two for a list or a map",
            found="more levels: its files could be written but not read again",
            todo="drop the column before the sink, flatten it, or convert it to text",
        )


def fixed_bytes(schema: pa.Schema) -> int:
    """Return the bytes that all fixed-size binary columns take in one record, also where they are null."""
    size, waiting = 0, [field.type for field in schema]
    while waiting:
        kind = waiting.pop()
        size += getattr(kind, "byte_width", 0) if not kind.num_fields and str(kind).startswith("fixed_size_bin") else 0
        waiting += [nested for nested, _ in _within(kind)]
    return size


def _within(kind: pa.DataType) -> Iterator[tuple[pa.DataType, int]]:
    """Yield the types directly inside a type, each with its additional levels."""
    kind = getattr(kind, "storage_type", kind)
    if hasattr(kind, "key_type"):
        yield from ((nested, 2) for nested in (kind.key_type, kind.item_type))
    elif hasattr(kind, "value_type"):
        yield kind.value_type, 2
    else:
        yield from ((kind.field(number).type, 1) for number in range(kind.num_fields))

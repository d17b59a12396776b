"""Limits on nested types and wide schemas, for every source, format and sink.

A schema of 1 kB can expand to millions of columns, because it can refer to each of its types several times. Columns are
counted during the expansion, before anything of that size exists in memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pyarrow as pa

from distcommit.core.errors import ConfigurationError

MOST_LEVELS = 96
"""Maximum depth as Parquet counts levels: one for a struct, two for a list or a map. Deeper files can be written but
not read.
"""
MAX_NESTING = 64
"""Maximum depth of records, arrays and maps in a schema of a registry or an Avro file."""
MAX_DECLARED_LEVELS = 50
"""Maximum depth of a type in a job file."""
MAX_INFERRED_LEVELS = 20
"""Levels of JSON objects and lists that are searched for fields. Deeper fields are ignored."""
MAX_COLUMNS = 10_000
"""Maximum number of columns of one schema, including nested ones."""
MAX_INFERRED_FIELDS = 1000
"""Maximum number of fields that are inferred from the records of a dataset."""
MAX_SCHEMAS = 1_000
"""Maximum number of registered schemas that the records of one dataset may have."""
MAX_FIXED_BYTES = 65_536
"""Maximum width in bytes of all fixed-size binary columns of a schema together. A null needs as many bytes as a
value.
"""
MAX_SCHEMA_BYTES = 8 << 20
"""Maximum size in bytes of a schema's text and the texts of all schemas that it refers to."""
MAX_RECORD_VALUES = 5_000_000
"""Maximum number of values within lists and maps of one record, after its expansion to columns."""


class UnusableSchemaError(ValueError):
    """Error of a schema without columns, or of two schemas that are not compatible. The text names the problem and the
    field.
    """


class SchemaTooLargeError(UnusableSchemaError):
    """Error of a schema that exceeds a limit. A caller that tries several readings of a schema must re-raise it."""


@dataclass(slots=True)
class Expansion:
    """Counter of the columns that a schema has expanded to so far."""

    columns: int = 0
    """Columns so far, including nested ones."""
    depth: int = 0
    """Present depth of nesting."""
    max_columns: int = MAX_COLUMNS
    """Largest number of columns, including nested ones."""
    max_levels: int = MAX_NESTING
    """Largest depth."""

    @contextmanager
    def column(self, path: str) -> Iterator[None]:
        """Count one column. Columns that are counted within the block are one level deeper.

        Raises:
            SchemaTooLargeError: if there are too many columns or levels.
        """
        self.columns += 1
        self.depth += 1
        try:
            if self.columns > self.max_columns:
                raise SchemaTooLargeError(f"it expands to more than {self.max_columns} columns, which is the limit")
            if self.depth > self.max_levels:
                location = f"{path[:80]}..." if len(path) > 80 else path
                raise SchemaTooLargeError(f"it is nested more than {self.max_levels} levels deep at {location}")
            yield
        finally:
            self.depth -= 1


def too_deep(schema: pa.Schema) -> str:
    """Return the name of the first column with more than MOST_LEVELS levels; empty if there is none."""
    for field in schema:
        waiting = [(field.type, 0)]
        while waiting:
            kind, levels = waiting.pop()
            if levels > MOST_LEVELS:
                return str(field.name)
            waiting += [(nested, levels + more) for nested, more in _within(kind)]
    return ""


def check_levels(schema: pa.Schema) -> None:
    """Raise ConfigurationError if a column is nested too deep, because readers could not read its files."""
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
    """Return the bytes that all fixed-size binary columns need in one record. Nulls need the same space as values."""
    size, waiting = 0, [field.type for field in schema]
    while waiting:
        kind = waiting.pop()
        size += kind.byte_width if pa.types.is_fixed_size_binary(kind) else 0
        waiting += [nested for nested, _ in _within(kind)]
    return size


def _within(kind: pa.DataType) -> Iterator[tuple[pa.DataType, int]]:
    """Yield the types directly inside a type, each with its additional levels."""
    kind = kind.storage_type if isinstance(kind, pa.BaseExtensionType) else kind
    if pa.types.is_map(kind):
        yield from ((nested, 2) for nested in (kind.key_type, kind.item_type))
    elif hasattr(kind, "value_type"):
        yield kind.value_type, 2
    else:
        yield from ((kind.field(number).type, 1) for number in range(kind.num_fields))

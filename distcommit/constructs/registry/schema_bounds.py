"""Bounds on what one registered schema may expand to. They hold for Avro, Protobuf and JSON Schema.

A schema of 1 kB can name each type several times, so that it expands to millions of columns. It is counted while it is
expanded, before anything of that size is built.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from distcommit.constructs.registry.client import MAX_REFERENCES, FoundSchema, UnusableSchemaError
from distcommit.core.support import nesting

MAX_COLUMNS = nesting.MAX_COLUMNS
MAX_NESTING = 64
"""Levels of records, arrays and maps within one another."""
MAX_SCHEMA_BYTES = 8 << 20
"""Bytes of a schema's text, together with all texts that it refers to."""

MAX_RECORD_VALUES = 5_000_000
"""Values of columns within lists and maps that one record may expand to."""


class SchemaTooLargeError(UnusableSchemaError):
    """A schema that exceeds a bound. It can't be used at all, so a caller that tries alternatives must raise it."""


@dataclass(slots=True)
class Expansion:
    """The columns that a schema has expanded to so far."""

    columns: int = 0
    depth: int = 0

    @contextmanager
    def column(self, path: str) -> Iterator[None]:
        """Count one column, and one more level for all columns that are counted within the block.

        Raises:
            SchemaTooLargeError: if there are too many columns, or they are nested too deep.
        """
        self.columns += 1
        self.depth += 1
        try:
            if self.columns > MAX_COLUMNS:
                raise SchemaTooLargeError(f"it expands to more than {MAX_COLUMNS} columns, the most that are allowed")
            if self.depth > MAX_NESTING:
                where = f"{path[:80]}..." if len(path) > 80 else path
                raise SchemaTooLargeError(f"it is nested more than {MAX_NESTING} levels deep at {where}")
            yield
        finally:
            self.depth -= 1


def check_size(found: FoundSchema) -> None:
    """Compare the size of a schema's text and of its references with the bounds.

    Raises:
        SchemaTooLargeError: if it is larger.
    """
    if len(found.references) > MAX_REFERENCES:
        count = len(found.references)
        raise SchemaTooLargeError(f"it refers to {count} schemas, and at most {MAX_REFERENCES} are allowed")
    size = sum(len(text.encode("utf-8", "surrogatepass")) for text in (found.text, *(t for _, t in found.references)))
    if size > MAX_SCHEMA_BYTES:
        raise SchemaTooLargeError(f"its text has {size} bytes, and at most {MAX_SCHEMA_BYTES} are allowed")

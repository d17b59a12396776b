"""Limits on what one schema may expand to, for every format.

A schema of 1 kB can name each type several times, so that it expands to millions of columns. Columns are counted while
the schema is expanded, before anything of that size is built.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from distcommit.core.support import nesting

MAX_COLUMNS = nesting.MAX_COLUMNS
MAX_NESTING = 64
"""Levels of records, arrays and maps within one another."""
MAX_SCHEMA_BYTES = 8 << 20
"""Bytes of a schema's text, including the texts of all schemas that it refers to."""
MAX_RECORD_VALUES = 5_000_000
"""Values of columns within lists and maps that one record may expand to."""


class UnusableSchemaError(ValueError):
    """A schema that has no columns, or a pair of schemas that do not fit. The text names the problem and the field."""


class SchemaTooLargeError(UnusableSchemaError):
    """A schema that exceeds a limit. A caller that tries alternatives must raise it, because no alternative helps."""


@dataclass(slots=True)
class Expansion:
    """Counter of the columns that a schema has expanded to so far."""

    columns: int = 0
    """Columns counted so far, nested ones included."""
    depth: int = 0
    """Levels that are open now."""
    max_columns: int = MAX_COLUMNS
    """Highest number of columns."""
    max_levels: int = MAX_NESTING
    """Highest number of levels."""

    @contextmanager
    def column(self, path: str) -> Iterator[None]:
        """Count one column, and one more level for all columns that are counted within the block.

        Raises:
            SchemaTooLargeError: if there are too many columns, or they are nested too deep.
        """
        self.columns += 1
        self.depth += 1
        try:
            if self.columns > self.max_columns:
                raise SchemaTooLargeError(f"it expands to more than {self.max_columns} columns, which is the limit")
            if self.depth > self.max_levels:
                where = f"{path[:80]}..." if len(path) > 80 else path
                raise SchemaTooLargeError(f"it is nested more than {self.max_levels} levels deep at {where}")
            yield
        finally:
            self.depth -= 1

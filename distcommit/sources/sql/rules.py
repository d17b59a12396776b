"""Which tables are read, and how: what the job file says, as the executors need it. Needs no SQLAlchemy."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TableRules:
    """How one table is read.

    Attributes:
        watermark: the column whose values are positions; empty if the table is read as a whole, anew by each run.
        lookback: how far the end of what is read stays behind.
        columns: what is read; empty for all columns.
        where: a condition in SQL; empty for all rows.
    """

    watermark: str
    lookback: int
    columns: tuple[str, ...] = ()
    where: str = ""


@dataclass(frozen=True, slots=True)
class Tables:
    """Which tables are wanted: named, or matched whole by a pattern, and not excluded by either; and their rules.

    Attributes:
        schema: where they are; None for the connection's own.
        names, patterns, exclude, exclude_patterns: as in the job file.
        rules: those of all tables.
        overrides: those of single ones.
    """

    schema: str | None
    names: tuple[str, ...]
    patterns: tuple[str, ...]
    exclude: tuple[str, ...]
    exclude_patterns: tuple[str, ...]
    rules: TableRules
    overrides: Mapping[str, TableRules]

    def __contains__(self, table: object) -> bool:
        if not isinstance(table, str) or table in self.exclude or _matches(self.exclude_patterns, table):
            return False
        return table in self.names or _matches(self.patterns, table)

    def rules_of(self, table: str) -> TableRules:
        """How that table is read."""
        return self.overrides.get(table, self.rules)


def _matches(patterns: tuple[str, ...], table: str) -> bool:
    return any(re.fullmatch(pattern, table) for pattern in patterns)

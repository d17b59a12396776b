"""Which tables and queries are read, and how: what the job file says, as the executors need it. Needs no SQLAlchemy."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from distcommit.sources.sql.queries import Query


@dataclass(frozen=True, slots=True)
class TableRules:
    """How one table, or query, is read.

    Attributes:
        watermark: the column whose values are positions; empty if the table is read as a whole, anew by each run.
        lookback: how far the end of what is read stays behind.
        columns: what is read; empty for all columns.
        where: a condition in SQL; empty for all rows.
        keys: columns that together are different in each row, if the job file says so.
        query: what stands for the table; None for the table of that name.
        to_newest: whether times are read up to the greatest one, and not up to the present.
    """

    watermark: str
    lookback: int
    columns: tuple[str, ...] = ()
    where: str = ""
    keys: tuple[str, ...] = ()
    query: Query | None = None
    to_newest: bool = False

    @property
    def query_id(self) -> str:
        """Return the id of the query; empty for a table."""
        return self.query.id if self.query is not None else ""


@dataclass(frozen=True, slots=True)
class Tables:
    """Which tables are wanted: named, or matched whole by a pattern, and not excluded by either; which queries; and the
    rules of all of them.

    Attributes:
        schema: where tables are; None for the connection's own.
        names, patterns, exclude, exclude_patterns: as in the job file.
        rules: those of all tables.
        overrides: those of single ones, and of each query.
    """

    schema: str | None
    names: tuple[str, ...]
    patterns: tuple[str, ...]
    exclude: tuple[str, ...]
    exclude_patterns: tuple[str, ...]
    rules: TableRules
    overrides: Mapping[str, TableRules]

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and (self.rules_of(name).query is not None or self.has_table(name))

    def has_table(self, table: str) -> bool:
        """Whether a table of that name is wanted, if there is one."""
        if table in self.exclude or _matches(self.exclude_patterns, table):
            return False
        return table in self.names or _matches(self.patterns, table)

    @property
    def queries(self) -> Sequence[str]:
        """The names of the queries."""
        return [name for name, rules in self.overrides.items() if rules.query is not None]

    def rules_of(self, table: str) -> TableRules:
        """How that table, or query, is read."""
        return self.overrides.get(table, self.rules)


def _matches(patterns: tuple[str, ...], table: str) -> bool:
    return any(re.fullmatch(pattern, table) for pattern in patterns)

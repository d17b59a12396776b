"""Tables and queries to read, and their rules, as the executors need them. Must not import SQLAlchemy."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from distcommit.sources.sql.queries import Query


@dataclass(frozen=True, slots=True)
class TableRules:
    """Rules of one table or query.

    Attributes:
        watermark: the watermark column; empty if each run reads the whole table.
        lookback: distance between the newest value and the end of the range.
        columns: columns to read; empty for all.
        where: a condition in SQL; empty for all rows.
        keys: columns that the job file declares as unique together.
        query: the query; None for the table of that name.
        to_newest: whether times are read up to the greatest one instead of the present.
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
    """Selection of tables, by name or by a pattern of the whole name, without excluded ones; queries; and all rules.

    Attributes:
        schema: schema of the tables; None for the connection's own.
        names, patterns, exclude, exclude_patterns: as in the job file.
        rules: rules of all tables.
        overrides: rules of single tables, and of each query.
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
        """Return whether a table of that name is selected, if it exists."""
        if table in self.exclude or _matches(self.exclude_patterns, table):
            return False
        return table in self.names or _matches(self.patterns, table)

    @property
    def queries(self) -> Sequence[str]:
        """Names of the queries."""
        return [name for name, rules in self.overrides.items() if rules.query is not None]

    def rules_of(self, table: str) -> TableRules:
        """Return the rules of a table or query."""
        return self.overrides.get(table, self.rules)


def _matches(patterns: tuple[str, ...], table: str) -> bool:
    return any(re.fullmatch(pattern, table) for pattern in patterns)

"""Selection of tables and queries; must not import SQLAlchemy."""

from __future__ import annotations

import re
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

from distcommit.core.interfaces.target_identity import Target
from distcommit.core.support.comparable_addresses import database_address
from distcommit.core.watermark import Position
from distcommit.sources.query_checks import Query, tables_in
from distcommit.sources.watermark_column import PARTITION, Kind, is_position

QUERY_SEPARATOR = " of query "
"""Between column and query id in an incarnation."""


@dataclass(frozen=True, slots=True)
class TableRules:
    """The rules of one table or query.

    Attributes:
        watermark: the watermark column; empty if each run reads the whole table.
        lookback: distance of the range's end from the greatest value, or from the present; seconds for times.
        columns: columns to read; empty for all.
        where: a condition in SQL; empty for all rows.
        keys: columns that the job file declares as unique together.
        query: the query; None for the table of that name.
        to_newest: whether a range of times ends before the greatest time instead of the present.
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
        return self.query.id if self.query is not None else ""


@dataclass(frozen=True, slots=True)
class Tables:
    """The selected tables and queries, and the rules of all of them.

    A table is selected by its name or by a pattern of its whole name, unless it is excluded.

    Attributes:
        schema: schema of the tables; None for the connection's own.
        names: names of tables.
        patterns: regular expressions of names of tables.
        exclude: names of excluded tables.
        exclude_patterns: regular expressions of names of excluded tables.
        rules: rules of tables that are not in `overrides`.
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
        """Return whether a table, which need not exist, is selected."""
        if table in self.exclude or _matches(self.exclude_patterns, table):
            return False
        return table in self.names or _matches(self.patterns, table)

    @property
    def queries(self) -> Sequence[str]:
        return [name for name, rules in self.overrides.items() if rules.query is not None]

    def rules_of(self, table: str) -> TableRules:
        return self.overrides.get(table, self.rules)


def _matches(patterns: tuple[str, ...], table: str) -> bool:
    return any(re.fullmatch(pattern, table) for pattern in patterns)


def reads_table(target: Target, url: str, schema: str | None, selection: Tables) -> bool:
    """Return whether the source reads a target, directly or by a query.

    Names in queries ignore case. Without `schema`, a table of any schema counts. Tables that a view reads are not
    detected.
    """
    its_schema, _, table = target.name.rpartition(".")
    if target.kind != "table" or not target.is_in(database_address(url)):
        return False
    parts = urlsplit(url)
    if parts.scheme == "mysql":
        its_schema = its_schema or unquote(parts.path.strip("/"))
    queries = (selection.rules_of(name).query for name in selection.queries)
    for name_parts in (results for query in queries if query for results in tables_in(query.body, parts.scheme)):
        if table.lower() == name_parts[1].lower() and not (
            its_schema and name_parts[0] and name_parts[0].lower() != its_schema.lower()
        ):
            return True
    return selection.has_table(table) and (its_schema == schema or not (its_schema and schema))


def is_incarnation_of(incarnation: str, column: str, query_id: str) -> bool:
    counted, _, of = incarnation.partition(QUERY_SEPARATOR)
    return counted.rpartition(":")[0] == column and of == query_id


def position_problems(datasets: Mapping[str, Mapping[str, Position]], tables: Container[str]) -> Iterator[str]:
    for urn, positions in datasets.items():
        if urn not in tables:
            yield f"{urn!r} is not a table or query of this job (see source.tables, table_patterns, exclude, queries)"
            continue
        for partition, position in positions.items():
            if partition != PARTITION:
                yield f"{urn!r}: {partition!r} is not a partition of a table, which has only {PARTITION!r}"
            elif not (is_position(Kind.INTEGER, position) or isinstance(position, str)):
                yield f"{urn!r}: {position!r} is not a value of a watermark column: an integer, or text"

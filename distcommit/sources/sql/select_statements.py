"""SELECT statements for tables and queries."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine.interfaces import ReflectedColumn

from distcommit.core.errors import SourceError
from distcommit.core.watermark import Position
from distcommit.sources.sql.arrow_columns import Column, column_of, kind_of, watermark_expression
from distcommit.sources.sql.table_reflection import Reflected
from distcommit.sources.sql.table_selection import QUERY_SEPARATOR, TableRules
from distcommit.sources.watermark_column import BEGINNINGS, Kind, position_of, time_at

Source = sa.TableClause | sa.TextClause


@dataclass(frozen=True, slots=True)
class FullTable:
    """A table or query that is read whole.

    Attributes:
        name: name of the table and of the dataset.
        rules: its settings in the job file, such as the condition `where`.
        source: the FROM clause.
        columns: columns to read.
    """

    name: str
    rules: TableRules
    source: Source
    columns: tuple[Column, ...]

    def rows(self) -> sa.Select[Any]:
        return self._of(*(column.expression for column in self.columns))

    def count(self) -> sa.Select[Any]:
        return self._of(sa.func.count())

    def _of(self, *statement: sa.ColumnElement[Any]) -> sa.Select[Any]:
        return sa.select(*statement).select_from(self.source).where(*_chosen(self.rules))


@dataclass(frozen=True, slots=True)
class Table:
    """A table or query that is read in ranges of its watermark column.

    Attributes:
        name: name of the table and of the dataset.
        rules: its settings in the job file, such as the condition `where`.
        source: the FROM clause.
        columns: columns to read.
        mark: expression of the watermark column.
        kind: type of the watermark column.
        has_zone: whether times have a time zone.
        is_unique: whether the watermark column is unique.
        is_indexed: whether an index finds the rows above a position.
        may_be_null: whether the watermark column may be null.
    """

    name: str
    rules: TableRules
    source: Source
    columns: tuple[Column, ...]
    mark: sa.ColumnElement[Any]
    kind: Kind
    has_zone: bool
    is_unique: bool
    is_indexed: bool
    may_be_null: bool

    @property
    def incarnation(self) -> str:
        """Column, kind, and for a query its id."""
        query = self.rules.query
        return self.column if query is None else f"{self.column}{QUERY_SEPARATOR}{query.id}"

    @property
    def column(self) -> str:
        return f"{self.rules.watermark}:{self.kind}"

    def rows(self, low: Position, high: Position) -> sa.Select[Any]:
        """Select the rows of [low, high) in order. The last column is the watermark."""
        selected = sa.select(*(column.expression for column in self.columns), self.mark.label("distcommit_position"))
        return selected.select_from(self.source).where(*self._within(low, high)).order_by(self.mark)

    def count(self, low: Position, high: Position) -> sa.Select[Any]:
        return self._of(sa.func.count()).where(*self._within(low, high))

    def count_from(self, position: Position, most: int) -> sa.Select[Any]:
        """Count at most `most` rows from a position on."""
        rows = self._of(sa.literal_column("1").label("one")).where(self.mark >= self._bound(position), *self._chosen())
        return sa.select(sa.func.count()).select_from(rows.limit(most).subquery())

    def count_both(self, low: Position, high: Position) -> sa.Select[Any]:
        """Count the rows of [low, high) and the rows above, in one pass."""
        is_below = self.mark < self._bound(high)
        counts = (sa.func.count(sa.case((is_below, 1))), sa.func.count(sa.case((sa.not_(is_below), 1))))
        return self._of(*counts).where(*self._from(low), *self._chosen())

    def newest(self) -> sa.Select[Any]:
        return self._of(sa.func.max(self.mark)).where(*self._chosen())

    def nulls(self) -> sa.Select[Any]:
        return self._of(sa.func.count()).where(self.mark.is_(None), *self._chosen())

    def value_after(self, low: Position, high: Position, rows: int) -> sa.Select[Any]:
        """Select the watermark of the row after the first `rows` of [low, high)."""
        return self._of(self.mark).where(*self._within(low, high)).order_by(self.mark).offset(rows).limit(1)

    def values_each(self, low: Position, high: Position, rows: int) -> sa.Select[Any]:
        """Select watermark and number of every `rows`-th row of [low, high), beginning with the first."""
        number = sa.func.row_number().over(order_by=self.mark).label("number")
        numbered = self._of(self.mark.label("value"), number).where(*self._within(low, high)).subquery()
        chosen = sa.select(numbered.c.value, numbered.c.number).where((numbered.c.number - 1) % rows == 0)
        return chosen.order_by(numbered.c.number)

    def next_value(self, position: Position, high: Position) -> sa.Select[Any]:
        """Select the lowest value between both bounds, exclusive."""
        between = (self.mark > self._bound(position), self.mark < self._bound(high))
        return self._of(sa.func.min(self.mark)).where(*between, *self._chosen())

    def position(self, value: Any) -> Position:
        """Return a value's position. Raises SourceError if the value is invalid."""
        try:
            return position_of(self.kind, value)
        except ValueError as error:
            raise self.position_error(error) from error

    def position_error(self, error: ValueError, row: str = "") -> SourceError:
        return SourceError(
            "a value of the watermark column can't be a position",
            id="WATERMARK_VALUE_INVALID",
            table=self.name,
            column=self.rules.watermark,
            **({"row": row} if row else {}),
            expected=f"{self.kind}",
            found=str(error),
            todo=f"correct the row, exclude it by source.overrides.{self.name}.where, or set another column",
        )

    def _of(self, *statement: sa.ColumnElement[Any]) -> sa.Select[Any]:
        return sa.select(*statement).select_from(self.source)

    def _chosen(self) -> list[sa.ColumnElement[Any]]:
        return _chosen(self.rules)

    def _within(self, low: Position, high: Position) -> list[sa.ColumnElement[Any]]:
        return [*self._from(low), self.mark < self._bound(high), *self._chosen()]

    def _from(self, low: Position) -> list[sa.ColumnElement[Any]]:
        return [] if low == BEGINNINGS[self.kind] else [self.mark >= self._bound(low)]

    def _bound(self, position: Position) -> Any:
        if self.kind is Kind.INTEGER:
            return sa.literal(position, sa.BigInteger())  # the end may be above the last value of a narrower column
        if self.kind is Kind.TEXT:
            return position
        return time_at(position) if self.has_zone else time_at(position).replace(tzinfo=None)


def table_of(name: str, reflected: Reflected, rules: TableRules, dialect: str, schema: str | None) -> Table:
    """Return a table to read in ranges.

    Raises:
        SourceError: if a column is missing or has an unsupported type.
    """
    declared = {column["name"]: column for column in reflected.columns}
    columns = _columns(name, reflected, rules, dialect)
    mark = declared.get(rules.watermark)
    kind = kind_of(mark["type"], dialect) if mark else None
    if mark is None or kind is None:
        raise _no_watermark(name, rules, declared)
    return Table(
        name=name,
        rules=rules,
        source=source_of(name, rules, schema),
        columns=columns,
        mark=watermark_expression(rules.watermark, mark["type"], kind, dialect),
        kind=kind,
        has_zone=bool(getattr(mark["type"], "timezone", False)),
        is_unique=rules.watermark in reflected.unique,
        is_indexed=rules.watermark in reflected.indexed and kind is not Kind.TEXT,  # compared by other bytes
        may_be_null=mark["nullable"],
    )


def full_table_of(name: str, reflected: Reflected, rules: TableRules, dialect: str, schema: str | None) -> FullTable:
    """Return a table to read whole.

    Raises:
        SourceError: if a column is missing or has an unsupported type.
    """
    return FullTable(name, rules, source_of(name, rules, schema), _columns(name, reflected, rules, dialect))


def source_of(name: str, rules: TableRules, schema: str | None) -> Source:
    """Return the FROM clause. A query's closing bracket is on a line of its own, because a comment may precede it."""
    if rules.query is None:
        return sa.table(name, schema=schema)
    body = rules.query.body.replace(":", r"\:")  # SQLAlchemy takes :name for a parameter
    return sa.text(f"({body}\n) AS distcommit_query")


def _columns(name: str, reflected: Reflected, rules: TableRules, dialect: str) -> tuple[Column, ...]:
    declared = {column["name"]: column for column in reflected.columns}
    names = rules.columns or tuple(declared)
    columns = {column: column_of(column, declared[column]["type"], dialect) for column in names if column in declared}
    readable = {column: described for column, described in columns.items() if described is not None}
    if unreadable := [column for column in names if column not in readable]:
        raise _unreadable(name, unreadable[0], declared, ", ".join(readable))
    return tuple(readable.values())


def _chosen(rules: TableRules) -> list[sa.ColumnElement[Any]]:
    return [sa.literal_column(f"({rules.where}\n)")] if rules.where else []


def _unreadable(table: str, column: str, declared: Mapping[str, ReflectedColumn], others: str) -> SourceError:
    actual = f"type {declared[column]['type']!r}" if column in declared else "no such column"
    return SourceError(
        "a column can't be read",
        id="SOURCE_VALUE_UNREADABLE",
        table=table,
        column=column,
        expected="integer, decimal with a precision, float, text, bytes, boolean, date, time or timestamp",
        found=actual,
        todo=f"set source.overrides.{table}.columns to [{others}] (a query can CAST it)",
    )


def _no_watermark(table: str, rules: TableRules, declared: Mapping[str, ReflectedColumn]) -> SourceError:
    column = rules.watermark
    actual = f"type {declared[column]['type']!r}" if column in declared else f"columns {', '.join(declared)}"
    instead = "leave the table out: source.exclude" if rules.query is None else f"select it in source.queries.{table}"
    return SourceError(
        f"the {'table' if rules.query is None else 'query'} has no such watermark column",
        id="SOURCE_SETTINGS_INVALID",
        table=table,
        expected=f"column {column!r} of integers, text or timestamps",
        found=actual,
        todo=f"set source.overrides.{table}.watermark, or {instead}",
    )

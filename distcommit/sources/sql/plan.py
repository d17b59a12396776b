"""The plan of one table: the range of its watermark column that is read next.

A range is half-open, and its end is a value that nothing can be added below any more, as far as that can be known:

- behind the greatest one of a column whose integers are unique;
- before the greatest one where several rows may have the same value: the newest group waits for a greater value;
- before the database's own present second, in a column of times: those of the future wait, and those of a second that
  is not over.

Rows that commit later with lower values are what `lookback` is for: the end is that much lower.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime, timedelta
from itertools import pairwise

import sqlalchemy as sa

from distcommit.core.errors import SourceError
from distcommit.core.records.log_records import DatasetState
from distcommit.core.watermark import Position, Watermark, as_offset, at_or_past
from distcommit.core.work import DatasetPlan, WorkUnit
from distcommit.sources.plan_error import PlanError, went_back
from distcommit.sources.reading_again import end_by_itself
from distcommit.sources.snapshots import stored_position
from distcommit.sources.sql.positions import OF_QUERY
from distcommit.sources.sql.tables import Table
from distcommit.sources.watermark_column import BEGINNINGS, PARTITION, Kind, end_of_times, is_position, position_of

__all__ = ["OtherQueryError", "plan_table", "without_value"]


class OtherQueryError(PlanError):
    """A dataset that was read by another query, or a table of its name."""

    def __init__(self, table: Table, mark: Watermark) -> None:
        now, before = (each.partition(OF_QUERY)[2] for each in (table.incarnation, mark.incarnation))
        at = json.dumps(mark.positions)
        super().__init__(
            "the dataset was read by another query than the job file has now: what this one has below the watermark"
            " would be left out",
            remedy=("dataset set-watermark", table.name, at),
            dataset=table.name,
            expected=f"the query {before}" if before else "the table of that name",
            found=f"the query {now}" if now else "the table of that name",
            todo="put it back; or set the watermark by hand (distcommit dataset set-watermark): to where it stands,"
            f" {at}, to go on there by what the job file has now, or to null to begin anew at source.start",
        )


def plan_table(
    connection: sa.Connection,
    table: Table,
    state: DatasetState | None,
    again: Watermark | None = None,
    *,
    from_latest: bool,
    limit: int,
    rows_per_unit: int,
    note: Callable[[str], None],
) -> DatasetPlan | None:
    """The plan of one table; None if there is nothing new.

    Args:
        connection: in a transaction.
        table: the table.
        state: what is stored of the dataset.
        again: where what could not be read was to end, if it is read by itself first. If no row of it is left, that is
            not waited for.
        from_latest: whether a table that was never read begins where it ends now. It gets a work unit even if that is
            empty, so that its position is stored.
        limit: about how many rows one run reads of it, 0 for all. Rows of the same value are read together.
        rows_per_unit: about how many rows a work unit has. Those of the same value are in one.
        note: takes what the operator has to know, once, of a table that is planned.

    Raises:
        OtherQueryError: if its stored position is of another query, or of the table instead.
        PlanError: if its stored position lies behind the column's greatest value.
        SourceError: if its stored position is none of the column, or the column has values that can't be positions.
    """
    beginning = BEGINNINGS[table.kind]
    stored = _stored(table, state)
    end = _end(connection, table, stored, note)
    low = stored if stored is not None else end if from_latest else beginning
    high = end if at_or_past(end, low) else low
    newest, high = high, end_by_itself(again, table.incarnation, low, high)
    size = _count(connection, table, low, high)
    if not size and high != newest:
        high, size = newest, _count(connection, table, low, newest)
    if not size and stored is not None:
        return None
    if limit and size > limit:
        high, size = _cut(connection, table, low, high, limit), limit
    units = _units(connection, table, low, high, size, rows_per_unit)
    start = Watermark({PARTITION: low} if stored is None else {}, table.incarnation)
    return DatasetPlan(table.name, state.watermark if state else None, start, units)


def without_value(connection: sa.Connection, table: Table) -> str:
    """What there is to say of rows that have no value in the watermark column; empty if there are none."""
    rows = connection.scalars(table.nulls()).one() if table.may_be_null else 0
    if not rows:
        return ""
    column, where = table.rules.watermark, f"source.overrides.{table.name}.where"
    error = SourceError(
        "rows have no value in the watermark column, and are never read",
        table=table.name,
        column=column,
        expected="a value in every row",
        found=f"NULL in {rows} rows",
        todo=f"give them one, or leave them out: {where}: {column} IS NOT NULL",
    )
    return str(error)


def _count(connection: sa.Connection, table: Table, low: Position, high: Position) -> int:
    """How many rows the range has."""
    return int(connection.scalars(table.count(low, high)).one()) if high != low else 0


def _mark(table: Table, position: Position) -> Watermark:
    return Watermark({PARTITION: position}, table.incarnation)


def _units(
    connection: sa.Connection, table: Table, low: Position, high: Position, size: int, rows_per_unit: int
) -> tuple[WorkUnit, ...]:
    """The range in work units, each of which begins where the one before it ends: at a value, all of whose rows are in
    the later one."""
    begins, numbers = [low], [1]
    if size > rows_per_unit:
        found = connection.execute(table.values_each(low, high, rows_per_unit)).all()
        placed = [(table.position(value), number) for value, number in found]
        for position, number in placed[1:]:
            if position not in (placed[0][0], begins[-1]):
                begins.append(position)
                numbers.append(number)
    last = max(size, numbers[-1])  # of what has other rows in each statement, there may be more now
    ends, sizes = [*begins[1:], high], [after - number for number, after in pairwise([*numbers, last + 1])]
    return tuple(
        WorkUnit(str(number), table.name, _mark(table, begin), _mark(table, end), rows)
        for number, (begin, end, rows) in enumerate(zip(begins, ends, sizes, strict=True))
    )


def _stored(table: Table, state: DatasetState | None) -> Position | None:
    mark = state.watermark if state else None
    of_other = mark is not None and mark.incarnation != table.incarnation
    if mark is not None and of_other and mark.incarnation.partition(OF_QUERY)[0] == table.column:
        raise OtherQueryError(table, mark)
    return stored_position(table.name, state, table.incarnation, lambda position: is_position(table.kind, position))


def _end(connection: sa.Connection, table: Table, stored: Position | None, note: Callable[[str], None]) -> Position:
    """The end of what may be read now.

    Raises:
        PlanError: if the greatest value lies below what was read already.
    """
    lookback, beginning = table.rules.lookback, BEGINNINGS[table.kind]
    if table.kind is Kind.TIME:
        return _end_of_times(connection, table, stored, note)
    newest = connection.scalars(table.newest()).one()
    if newest is None:  # a queue that was worked off, or truncated: the next rows will tell
        return beginning
    top = table.position(newest)
    if isinstance(top, int) and table.is_unique:
        top += 1
    if stored is not None and not at_or_past(top, stored):
        raise _went_back(table, stored, top)
    if isinstance(top, int):
        return max(top - lookback, as_offset(beginning))
    if lookback:
        raise SourceError(
            "there is no lookback in a column of text",
            table=table.name,
            column=table.rules.watermark,
            expected="source.lookback 0 for this table",
            found=str(lookback),
            todo=f"set source.overrides.{table.name}.lookback to 0, if its rows commit in the order of their values",
        )
    return top


def _end_of_times(
    connection: sa.Connection, table: Table, stored: Position | None, note: Callable[[str], None]
) -> Position:
    """Return the end of what may be read now of a column of times; a first run notes what it jumps over."""
    lookback = table.rules.lookback
    end = end_of_times(connection.scalars(sa.select(sa.func.now())).one(), lookback)
    if not table.rules.to_newest and stored is not None:
        return end
    try:
        newest = connection.scalars(table.newest()).one()
        if newest is not None and not isinstance(newest, datetime):  # such as MariaDB's 0000-00-00, which is a text
            position_of(Kind.TIME, newest)
        before = newest and position_of(Kind.TIME, newest - timedelta(seconds=lookback))
    except (sa.exc.DataError, TypeError, ValueError, OverflowError):  # no time of Python, such as infinity
        if table.rules.to_newest:
            raise
        return end  # it is not read now, and a warning is no reason to fail the dataset
    if not isinstance(newest, datetime):
        return BEGINNINGS[table.kind] if table.rules.to_newest else end
    if at_or_past(before, end):
        return end
    if table.rules.to_newest:
        return stored if stored is not None and at_or_past(stored, before) else before
    note(
        f"the first run ends at {end}, behind the greatest value of {table.rules.watermark},"
        f" {position_of(Kind.TIME, newest)}: rows that are inserted later with times between the two are never read. If"
        " there can be such rows, set source.times_end to newest before they come"
    )
    return end


def _went_back(table: Table, stored: Position, top: Position) -> SourceError:
    if not table.is_unique and isinstance(top, int) and stored == top + 1:
        return _no_key_any_more(table, top)
    return went_back(table.name, stored, top)


def _no_key_any_more(table: Table, top: int) -> SourceError:
    of_query = f"source.overrides.{table.name}.keys"
    return SourceError(
        "the watermark column ends at the value before the watermark, as where it was read while it was a key, and it"
        " is none now: its greatest value could not be told to be the last of its rows",
        dataset=table.name,
        expected=f"a value past {top}, or that {table.rules.watermark} is a key",
        found=f"nothing past {top}, and no key",
        todo=f"if {of_query} or the table's key was taken away: put it back; or leave it so, and it goes on by itself"
        f" once there is a greater value (another row of {top} is then never read). If its newest rows were deleted, it"
        " goes on so, too. If it was restored or filled anew: set the dataset's watermark by hand (distcommit"
        " dataset set-watermark), to null to begin at source.start",
    )


def _cut(connection: sa.Connection, table: Table, low: Position, high: Position, limit: int) -> Position:
    """The end of about `limit` rows: before the row after them, unless all of them have its value."""
    first = table.position(connection.scalars(table.value_after(low, high, 0)).one())
    at = table.position(connection.scalars(table.value_after(low, high, limit)).one())
    if at != first:
        return at
    after = connection.scalars(table.next_value(at, high)).one()
    return high if after is None else table.position(after)

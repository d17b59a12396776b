"""The next range of one table: from its watermark to an end below which no row should be added any more.

The end (exclusive) depends on the watermark column:

- unique integers: after the greatest value;
- other integers and text: before the greatest value, because more rows with it may follow;
- timestamps: before the database's present second, or with `times_end: newest` before the greatest value if that is
  lower.

The end is lower by `lookback`, for rows that commit late with lower values. Rows at or above the end are counted,
without another pass over the table, and left for later runs.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise

import sqlalchemy as sa

from distcommit.core.errors import SourceError
from distcommit.core.records.deferred_records import DeferredRecords
from distcommit.core.records.log_records import DatasetState
from distcommit.core.support.counts import count_of
from distcommit.core.watermark import Position, Watermark, as_offset, at_or_past
from distcommit.core.work_units import DatasetPlan, WorkUnit
from distcommit.sources.plan_error import PlanError, column_end_error
from distcommit.sources.plan_snapshot import stored_position
from distcommit.sources.sql.select_statements import Table
from distcommit.sources.sql.table_selection import QUERY_SEPARATOR
from distcommit.sources.watermark_column import (
    BEGINNINGS,
    PARTITION,
    Kind,
    end_of_retry,
    end_of_times,
    is_position,
    position_of,
)

MAX_COUNTED = 10_000
"""Maximum number of rows above a range that are counted by an index. If there are more, the count is a minimum."""
_TIES = "they have the greatest value of the watermark column, and are read once there is a greater one"
_PRESENT = "their times are not before the database's present second, and are read once they are"
_LOOKBACK = "they are within source.lookback of the end of the watermark column, and are read once they are not"
_LIMIT = "source.records_per_dataset was reached, and the next run continues there"
_RETRIED = "an earlier run could not read the range below them, which is read first"

__all__ = ["MAX_COUNTED", "QueryChangedError", "missing_values_warning", "plan_table"]


class QueryChangedError(PlanError):
    """Error of a stored position of another query, or of a table instead of a query."""

    id = "SOURCE_QUERY_CHANGED"

    def __init__(self, table: Table, mark: Watermark) -> None:
        now, before = (text.partition(QUERY_SEPARATOR)[2] for text in (table.incarnation, mark.incarnation))
        at = json.dumps(mark.positions)
        super().__init__(
            "the dataset was read by another query than the job file's, whose rows below the watermark would be"
            " skipped",
            remedy=("dataset set-watermark", table.name, at),
            dataset=table.name,
            expected=f"the query {before}" if before else "the table of that name",
            found=f"the query {now}" if now else "the table of that name",
            todo="restore the query, or set the watermark (distcommit dataset set-watermark). Its present value,"
            f" {at}, continues there with the job file's query; null begins again at source.start",
        )


def plan_table(
    connection: sa.Connection,
    table: Table,
    state: DatasetState | None,
    retried_end: Watermark | None = None,
    *,
    from_latest: bool,
    limit: int,
    rows_per_unit: int,
    note: Callable[[str], None],
) -> tuple[DatasetPlan | None, DeferredRecords | None]:
    """Plan the next range of one table. Return the plan, and the rows that are left for later runs.

    The plan is None if the table has no new rows; the second value is None if no rows are left.

    Args:
        retried_end: end of a failed range that is read before newer rows; ignored if none of its rows exists any more.
        from_latest: whether a table that was never read begins at its present end. It then gets a work unit even if
            that is empty, so that its position is stored.
        limit: approximate number of rows that one run reads, 0 for all. Rows with one value are read together.
        rows_per_unit: approximate number of rows of a work unit. Rows with one value are in one work unit.
        note: called with each warning about a planned table.

    Raises:
        QueryChangedError: if the stored position is of another query, or of a table instead of a query.
        PlanError: if the stored position is above the greatest value of a column of integers or text.
        SourceError: if the stored position is not one of the column, the column has values that can't be positions or
            is no longer unique, or a column of text has a lookback.
    """
    stored = _stored(table, state)
    newest_end, greatest = _end(connection, table, stored, note)
    low = stored if stored is not None else newest_end if from_latest else BEGINNINGS[table.kind]
    newest_high = newest_end if at_or_past(newest_end, low) else low
    high = end_of_retry(retried_end, table.incarnation, low, newest_high)
    counts = _count(connection, table, low, high, greatest)
    if not counts.rows and high != newest_high:
        high, counts = newest_high, _count(connection, table, low, newest_high, greatest)
    cause = _cause(table) if high == newest_high else _RETRIED
    if not counts.rows and stored is not None:
        return None, counts.deferred(table.name, cause)
    if limit and counts.rows > limit:
        high, cause = _cut(connection, table, low, high, limit), _LIMIT
        counts = _Counts(limit, counts.rows - limit + counts.above, is_minimum=True)
    units = _units(connection, table, low, high, counts.rows, rows_per_unit)
    start = Watermark({PARTITION: low} if stored is None else {}, table.incarnation)
    plan = DatasetPlan(table.name, state.watermark if state else None, start, units)
    return plan, counts.deferred(table.name, cause)


def missing_values_warning(connection: sa.Connection, table: Table) -> str:
    """Return a warning about rows without a watermark value; empty if there are none."""
    rows = connection.scalars(table.nulls()).one() if table.may_be_null else 0
    if not rows:
        return ""
    column, location = table.rules.watermark, f"source.overrides.{table.name}.where"
    error = SourceError(
        "rows have no value in the watermark column, and are never read",
        id="WATERMARK_VALUE_INVALID",
        table=table.name,
        column=column,
        expected="a value in every row",
        found=f"NULL in {count_of(rows, 'row')}",
        todo=f"set a value in each row, or exclude the rows by {location}: {column} IS NOT NULL",
    )
    return str(error)


@dataclass(frozen=True, slots=True)
class _Counts:
    """Row counts of a range and above it. `is_minimum`: whether more may be above."""

    rows: int
    above: int
    is_minimum: bool = False

    def deferred(self, table: str, cause: str) -> DeferredRecords | None:
        return DeferredRecords(table, self.above, cause, self.is_minimum) if self.above > 0 else None


def _count(
    connection: sa.Connection, table: Table, low: Position, high: Position, greatest: Position | None
) -> _Counts:
    """Count the rows of [low, high) and above.

    With an index, rows above are counted in a bounded query. If the range is empty, their number is a minimum: 1 if
    `greatest` proves a row.
    """
    has_above = greatest is None or at_or_past(greatest, high)
    if high != low and has_above and not table.is_indexed:
        rows, above = connection.execute(table.count_both(low, high)).one()
        return _Counts(rows, above)
    rows = int(connection.scalars(table.count(low, high)).one()) if high != low else 0
    if not has_above:
        return _Counts(rows, 0)
    if not table.is_indexed:
        return _Counts(rows, 0 if greatest is None else 1, is_minimum=True)
    above = int(connection.scalars(table.count_from(high, MAX_COUNTED + 1)).one())
    return _Counts(rows, min(above, MAX_COUNTED), is_minimum=above > MAX_COUNTED)


def _cause(table: Table) -> str:
    if table.rules.lookback:
        return _LOOKBACK
    return _PRESENT if table.kind is Kind.TIME and not table.rules.to_newest else _TIES


def _mark(table: Table, position: Position) -> Watermark:
    return Watermark({PARTITION: position}, table.incarnation)


def _units(
    connection: sa.Connection, table: Table, low: Position, high: Position, size: int, rows_per_unit: int
) -> tuple[WorkUnit, ...]:
    begins, numbers = [low], [1]
    if size > rows_per_unit:
        values = connection.execute(table.values_each(low, high, rows_per_unit)).all()
        placed = [(table.position(value), number) for value, number in values]
        for position, number in placed[1:]:
            if position not in (placed[0][0], begins[-1]):
                begins.append(position)
                numbers.append(number)
    last = max(size, numbers[-1]) if len(numbers) > 1 else size  # rows may have been added since they were counted
    ends, sizes = [*begins[1:], high], [after - number for number, after in pairwise([*numbers, last + 1])]
    return tuple(
        WorkUnit(str(number), table.name, _mark(table, begin), _mark(table, end), rows)
        for number, (begin, end, rows) in enumerate(zip(begins, ends, sizes, strict=True))
    )


def _stored(table: Table, state: DatasetState | None) -> Position | None:
    mark = state.watermark if state else None
    of_other = mark is not None and mark.incarnation != table.incarnation
    if mark is not None and of_other and mark.incarnation.partition(QUERY_SEPARATOR)[0] == table.column:
        raise QueryChangedError(table, mark)
    return stored_position(table.name, state, table.incarnation, lambda position: is_position(table.kind, position))


def _end(
    connection: sa.Connection, table: Table, stored: Position | None, note: Callable[[str], None]
) -> tuple[Position, Position | None]:
    """Return the end that may be read now, and the greatest value if it was queried."""
    lookback, beginning = table.rules.lookback, BEGINNINGS[table.kind]
    if table.kind is Kind.TIME:
        return _end_of_times(connection, table, stored, note), None
    newest = connection.scalars(table.newest()).one()
    if newest is None:  # a queue that was consumed, or a truncated table: the next rows decide
        return beginning, None
    top = greatest = table.position(newest)
    if isinstance(top, int) and table.is_unique:
        top += 1
    if stored is not None and not at_or_past(top, stored):
        raise _went_back(table, stored, top)
    if isinstance(top, int):
        return max(top - lookback, as_offset(beginning)), greatest
    if lookback:
        raise SourceError(
            "a watermark column of text must have lookback 0",
            id="SOURCE_SETTINGS_INVALID",
            table=table.name,
            column=table.rules.watermark,
            expected="source.lookback 0 for this table",
            found=str(lookback),
            todo=f"set source.overrides.{table.name}.lookback to 0 if rows commit in the order of this column;"
            " otherwise set another watermark column",
        )
    return top, greatest


def _end_of_times(
    connection: sa.Connection, table: Table, stored: Position | None, note: Callable[[str], None]
) -> Position:
    """Return the end of a column of times. Before the first run, warn if rows that are inserted later would never be
    read."""
    lookback = table.rules.lookback
    end = end_of_times(connection.scalars(sa.select(sa.func.now())).one(), lookback)
    if not table.rules.to_newest and stored is not None:
        return end
    try:
        newest = connection.scalars(table.newest()).one()
        if newest is not None and not isinstance(newest, datetime):  # such as MariaDB's 0000-00-00, which comes as text
            position_of(Kind.TIME, newest)
        before = newest and position_of(Kind.TIME, newest - timedelta(seconds=lookback))
    except (sa.exc.DataError, TypeError, ValueError, OverflowError):  # not a datetime of Python, such as infinity
        if table.rules.to_newest:
            raise
        return end  # the range is not read now, and a warning must not fail the dataset
    if not isinstance(newest, datetime):
        return BEGINNINGS[table.kind] if table.rules.to_newest else end
    if at_or_past(before, end):
        return end
    if table.rules.to_newest:
        return stored if stored is not None and at_or_past(stored, before) else before
    if at_or_past(position_of(Kind.TIME, newest), end):
        return end
    note(
        f"if a row is inserted later with a time of {table.rules.watermark} after {position_of(Kind.TIME, newest)} (the"
        f" greatest value) and before {end} (the end of the first run), no run reads it. This is harmless if each"
        f" insert sets {table.rules.watermark} to the present time. If not, set source.times_end to newest before the"
        " first run. After it, begin again in new folders with that setting"
    )
    return end


def _went_back(table: Table, stored: Position, top: Position) -> SourceError:
    if not table.is_unique and isinstance(top, int) and stored == top + 1:
        return _no_key_any_more(table, top)
    return column_end_error(table.name, stored, top)


def _no_key_any_more(table: Table, top: int) -> SourceError:
    of_query = f"source.overrides.{table.name}.keys"
    return SourceError(
        f"the watermark column is no longer a key, so further rows with its greatest value {top} would be skipped",
        id="WATERMARK_KEY_REMOVED",
        dataset=table.name,
        expected=f"a value past {top}, or {table.rules.watermark} as a key",
        found=f"nothing past {top}, and no key",
        todo=f"restore the key ({of_query}, or the table's), or wait for a value past {top} (other rows of {top} are"
        " then never read). If the table was restored or refilled, set the dataset's watermark to null, to begin again"
        " (distcommit dataset set-watermark)",
    )


def _cut(connection: sa.Connection, table: Table, low: Position, high: Position, limit: int) -> Position:
    """Return the end after about `limit` rows: the next row's value, or if all rows have it, the next greater value."""
    first = table.position(connection.scalars(table.value_after(low, high, 0)).one())
    at = table.position(connection.scalars(table.value_after(low, high, limit)).one())
    if at != first:
        return at
    after = connection.scalars(table.next_value(at, high)).one()
    return high if after is None else table.position(after)

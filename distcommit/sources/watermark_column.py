"""Watermark columns: positions, and a buffer of ordered rows."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from itertools import pairwise
from typing import Any, Generic, TypeVar

from distcommit.core.watermark import Position, Watermark, at_or_past

PARTITION = ""
"""The only partition of a dataset with a watermark column."""
_LAST_INTEGER = (1 << 63) - 1
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z")
Row = TypeVar("Row")


class Kind(StrEnum):
    """Type of a watermark column. Incarnations contain it."""

    INTEGER = "integer"
    TIME = "time"
    TEXT = "text"


BEGINNINGS: Mapping[Kind, Position] = {
    Kind.INTEGER: -_LAST_INTEGER - 1,
    Kind.TIME: "0001-01-01T00:00:00.000000Z",
    Kind.TEXT: "",
}
"""Lowest position by kind: no value is below it."""


def position_of(kind: Kind, value: Any) -> Position:
    """Return the position of a driver's value.

    The position of a time is text of fixed width, ISO 8601 in UTC with microseconds, so that texts sort as times. A
    time without a zone counts as UTC.

    Raises:
        ValueError: if the value has another type, or an integer is not a 64-bit integer below 2^63 - 1. No range could
            begin after the largest one.
    """
    if kind is Kind.INTEGER and type(value) is int:
        if not -_LAST_INTEGER - 1 <= value < _LAST_INTEGER:
            raise ValueError(f"{value}, which must be a 64-bit integer below {_LAST_INTEGER}")
        return value
    if kind is Kind.TIME and isinstance(value, datetime):
        utc = value.astimezone(UTC).replace(tzinfo=None) if value.tzinfo else value
        return f"{utc.isoformat(timespec='microseconds')}Z"
    if kind is Kind.TEXT and isinstance(value, str):
        return value
    raise ValueError(f"a {type(value).__name__}: {value!r:.60}")


def end_of_times(now: datetime, lookback_s: int) -> Position:
    """Return the end of readable times: the present second, in which more rows may follow, less `lookback_s`."""
    return position_of(Kind.TIME, now.replace(microsecond=0) - timedelta(seconds=lookback_s))


def time_at(position: Position) -> datetime:
    return datetime.fromisoformat(str(position))


def is_position(kind: Kind, position: Position) -> bool:
    if kind is Kind.INTEGER:
        return type(position) is int and -_LAST_INTEGER - 1 <= position <= _LAST_INTEGER
    if kind is Kind.TEXT:
        return isinstance(position, str)
    try:
        return bool(_TIME.fullmatch(str(position))) and time_at(position).tzinfo is not None
    except ValueError:
        return False


def end_of_retry(retried_end: Watermark | None, incarnation: str, low: Position, end: Position) -> Position:
    """Return the end of the failed range if it is above `low` and not above `end`; otherwise return `end`.

    Args:
        retried_end: end of the failed range (`SourceState.to_read_again`); None if no range failed.
        low: the stored position.
        end: end of the values that can be read.
    """
    failed = (
        retried_end.positions.get(PARTITION)
        if retried_end is not None and retried_end.incarnation in ("", incarnation)
        else None
    )
    return failed if failed is not None and at_or_past(end, failed) and not at_or_past(low, failed) else end


class OrderedRows(Generic[Row]):
    """Buffer of rows in ascending order of positions. Rows with one position leave together.

    Args:
        low: lowest allowed position.
        high: end of the allowed positions (exclusive); None for no limit.
        refused: function that returns the error for the lowest allowed and the actual position.
    """

    def __init__(
        self, low: Position, high: Position | None, refused: Callable[[Position, Position], Exception]
    ) -> None:
        self.newest = low
        self._high, self._refused = high, refused
        self._rows: list[Row] = []
        self._positions: list[Position] = []

    def add(self, rows: Sequence[Row], positions: Sequence[Position]) -> None:
        """Add rows. Raises the error of `refused` if a position is out of order or not allowed."""
        for one, next_one in pairwise([self.newest, *positions]):
            if next_one < one or (self._high is not None and next_one >= self._high):  # type: ignore[operator]
                raise self._refused(one, next_one)
        self._rows += rows
        self._positions += positions
        self.newest = positions[-1] if positions else self.newest

    def pop_below(self, end: Position) -> list[Row]:
        count = bisect_left(self._positions, end)
        selected, self._rows = self._rows[:count], self._rows[count:]
        self._positions = self._positions[count:]
        return selected

    def __len__(self) -> int:
        return len(self._rows)

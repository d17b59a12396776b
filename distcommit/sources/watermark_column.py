"""Columns that say what is new, in a table or an answer: their values as positions, and rows in the order of these."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from itertools import pairwise
from typing import Any, Generic, TypeVar

from distcommit.core.watermark import Position

PARTITION = ""
"""The source partition whose positions are values of the column."""
_LAST_INTEGER = (1 << 63) - 1
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z")
Row = TypeVar("Row")


class Kind(StrEnum):
    """What a watermark column holds; part of the incarnation of its positions."""

    INTEGER = "integer"
    TIME = "time"
    TEXT = "text"


BEGINNINGS: Mapping[Kind, Position] = {
    Kind.INTEGER: -_LAST_INTEGER - 1,
    Kind.TIME: "0001-01-01T00:00:00.000000Z",
    Kind.TEXT: "",
}
"""The position that no value lies below."""


def position_of(kind: Kind, value: Any) -> Position:
    """The position of a value as its driver gave it.

    A time is text of fixed width, ISO 8601 in UTC with microseconds, so that the order of texts is that of times; one
    without a time zone is taken for UTC.

    Raises:
        ValueError: if it is of another type, or too large to go on behind it.
    """
    if kind is Kind.INTEGER and type(value) is int:
        if not -_LAST_INTEGER - 1 <= value < _LAST_INTEGER:
            raise ValueError(f"{value}, which no 64-bit integer lies behind")
        return value
    if kind is Kind.TIME and isinstance(value, datetime):
        utc = value.astimezone(UTC).replace(tzinfo=None) if value.tzinfo else value
        return f"{utc.isoformat(timespec='microseconds')}Z"
    if kind is Kind.TEXT and isinstance(value, str):
        return value
    raise ValueError(f"a {type(value).__name__}: {value!r:.60}")


def end_of_times(now: datetime, lookback_s: int) -> Position:
    """Up to where times are read now: before the present second, and by `lookback_s` before that.

    Many clocks and columns have no more than seconds. Of such a time others may come as long as its second lasts.
    """
    return position_of(Kind.TIME, now.replace(microsecond=0) - timedelta(seconds=lookback_s))


def time_at(position: Position) -> datetime:
    """The time of a position in a column of times, in UTC."""
    return datetime.fromisoformat(str(position))


def is_position(kind: Kind, position: Position) -> bool:
    """Whether a column of that kind can have it as a position."""
    if kind is Kind.INTEGER:
        return type(position) is int and -_LAST_INTEGER - 1 <= position <= _LAST_INTEGER
    if kind is Kind.TEXT:
        return isinstance(position, str)
    try:
        return bool(_TIME.fullmatch(str(position))) and time_at(position).tzinfo is not None
    except ValueError:
        return False


class InOrder(Generic[Row]):
    """Rows as they come, in the order of their values, until they are taken: all of one value together.

    Args:
        low: what no value may lie below.
        high: what all values lie below; None if nothing is known of that.
        refused: the error for a value that is out of order, or outside the range: what else the range has, or the next
            one will have, can't be known then. It is given the least value that there could be, and the one found.
    """

    def __init__(
        self, low: Position, high: Position | None, refused: Callable[[Position, Position], Exception]
    ) -> None:
        self.newest = low
        self._high, self._refused = high, refused
        self._rows: list[Row] = []
        self._positions: list[Position] = []

    def add(self, rows: Sequence[Row], positions: Sequence[Position]) -> None:
        """Adds rows, each with the position of its value. Raises what `refused` gives."""
        for one, next_one in pairwise([self.newest, *positions]):
            if next_one < one or (self._high is not None and next_one >= self._high):  # type: ignore[operator]
                raise self._refused(one, next_one)
        self._rows += rows
        self._positions += positions
        self.newest = positions[-1] if positions else self.newest

    def take_below(self, end: Position) -> list[Row]:
        """The rows whose values lie below `end`, which are then no more here."""
        count = bisect_left(self._positions, end)
        taken, self._rows = self._rows[:count], self._rows[count:]
        self._positions = self._positions[count:]
        return taken

    def __len__(self) -> int:
        return len(self._rows)

"""Positions in a watermark column: what a dataset's watermark holds, and the order that it stands for."""

from __future__ import annotations

import re
from collections.abc import Container, Iterator, Mapping
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from distcommit.model.watermark import Position

PARTITION = ""
"""The only source partition of a table."""
_LAST_INTEGER = (1 << 63) - 1
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z")


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
    """The position of a value that the database gave.

    A time is text of fixed width, ISO 8601 in UTC with microseconds, so that the order of texts is that of times; one
    without a time zone is taken for UTC.

    Raises:
        ValueError: if it is of another type, or too large to go on behind it.
    """
    if kind is Kind.INTEGER and type(value) is int:
        if value >= _LAST_INTEGER:
            raise ValueError(f"{value}, which no 64-bit integer lies behind")
        return value
    if kind is Kind.TIME and isinstance(value, datetime):
        utc = value.astimezone(UTC).replace(tzinfo=None) if value.tzinfo else value
        return f"{utc.isoformat(timespec='microseconds')}Z"
    if kind is Kind.TEXT and isinstance(value, str):
        return value
    raise ValueError(f"a {type(value).__name__}: {value!r:.60}")


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


def position_problems(datasets: Mapping[str, Mapping[str, Position]], tables: Container[str]) -> Iterator[str]:
    """What keeps these from being positions, whatever kind of column a table has: one text each.

    Args:
        datasets: the positions by partition, by dataset.
        tables: the job's.
    """
    for urn, positions in datasets.items():
        if urn not in tables:
            yield f"{urn!r} is not a table of this job (see source.tables, table_patterns and exclude)"
            continue
        for partition, position in positions.items():
            if partition != PARTITION:
                yield f"{urn!r}: {partition!r} is not a partition of a table, which has only {PARTITION!r}"
            elif not (is_position(Kind.INTEGER, position) or isinstance(position, str)):
                yield f"{urn!r}: {position!r} is not a value of a watermark column: an integer, or text"

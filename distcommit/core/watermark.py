"""Watermarks: how far a dataset has been read, for each of its source partitions."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from msgspec import Struct

Scalar = int | float | str
Position = Scalar | tuple[Scalar, ...]
"""A point in one source partition. Positions of one partition are of one type and ordered.

A composite one, a JSON list, is compared element by element, and what it begins with lies before it: `(7,)` before
`(7, "a")`. What a position of any other type stands for is its source's: see `core.watermark_types`.
"""


_SHOWN = 80


class Watermark(Struct, frozen=True, array_like=True):
    """Positions by source partition (exclusive: the first position not read yet), of one incarnation of the source.

    Any ordered JSON scalar serves as a position, or a list of them: Kafka offsets, ISO timestamps, log sequence
    numbers, a time and a name. A dataset without partitions uses the single partition `""`. The incarnation names the
    thing the positions count in (a Kafka topic id): positions of another incarnation are not comparable.
    """

    positions: dict[str, Position]
    incarnation: str = ""

    def advanced(self, positions: Mapping[str, Position]) -> Watermark:
        """This watermark with some positions replaced; none may go back.

        Raises:
            ValueError: if a position would go back or change its type.
        """
        for partition, position in positions.items():
            if partition in self.positions and not at_or_past(position, self.positions[partition]):
                raise ValueError(f"position of {partition!r} would go back: {self.positions[partition]} to {position}")
        return Watermark({**self.positions, **positions}, self.incarnation)

    def covers(self, other: Watermark) -> bool:
        """Whether this one is at or past `other` in each of its partitions, in the same incarnation."""
        return self.incarnation == other.incarnation and all(
            partition in self.positions and at_or_past(self.positions[partition], position)
            for partition, position in other.positions.items()
        )


def at_or_past(position: Position, other: Position) -> bool:
    """Whether `position` >= `other`; positions of different types are never at or past each other. Composite ones are
    so by the first element in which they differ."""
    if isinstance(position, str) and isinstance(other, str):
        return position >= other
    if isinstance(position, int | float) and isinstance(other, int | float):
        return position >= other
    if isinstance(position, tuple) and isinstance(other, tuple):
        for one, another in zip(position, other, strict=False):
            if one != another:
                return at_or_past(one, another)
        return len(position) >= len(other)
    return False


def as_offset(position: Position) -> int:
    """The position of a source that counts in whole numbers. Raises ValueError if it is none."""
    if not isinstance(position, tuple):
        return int(position)
    raise ValueError(f"{shown(position)} is no whole number")


def shown(position: Position) -> str:
    """A position for people: a composite one as the JSON list that it is stored as, of a long one its beginning."""
    if not isinstance(position, tuple):
        return str(position)
    text = msgspec.json.encode(position).decode()
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def shown_in_short(positions: Mapping[str, Position]) -> str:
    """A watermark for people: how many offsets lie below it, over all its partitions; where some are no whole numbers,
    each position."""
    numbers = [position for position in positions.values() if isinstance(position, int)]
    if len(numbers) != len(positions):
        return ", ".join(map(shown, positions.values()))
    return f"{sum(numbers):,}" if numbers else "none"

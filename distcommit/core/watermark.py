"""Watermarks: how far a dataset has been read, by source partition."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from msgspec import Struct

Scalar = int | float | str
Position = Scalar | tuple[Scalar, ...]
"""A point in one source partition. Positions of one partition have one type and are ordered.

A composite position, stored as a JSON list, is compared element by element. A prefix precedes its extensions: `(7,)`
before `(7, "a")`. The source defines the meaning of a position; see `core.interfaces.watermark_types`.
"""


_MAX_CHARACTERS = 80


class Watermark(Struct, frozen=True, array_like=True):
    """The end, exclusive, of what was read of a dataset: the first unread position of each source partition.

    Attributes:
        positions: the first unread position by source partition, an ordered JSON scalar or a list of scalars: Kafka
            offsets, ISO timestamps, log sequence numbers, a time and a name. A dataset without partitions uses the
            single partition `""`.
        incarnation: the id of the object that the positions count in (a Kafka topic id). Positions of different
            incarnations are not comparable.
    """

    positions: dict[str, Position]
    incarnation: str = ""

    def advanced(self, positions: Mapping[str, Position]) -> Watermark:
        """Return this watermark with some positions replaced.

        Raises:
            ValueError: if a position would go back or change its type.
        """
        for partition, position in positions.items():
            if partition in self.positions and not at_or_past(position, self.positions[partition]):
                raise ValueError(f"position of {partition!r} would go back: {self.positions[partition]} to {position}")
        return Watermark({**self.positions, **positions}, self.incarnation)

    def covers(self, other: Watermark) -> bool:
        """Return whether this watermark is at or past `other` in each of its partitions, in the same incarnation."""
        return self.incarnation == other.incarnation and all(
            partition in self.positions and at_or_past(self.positions[partition], position)
            for partition, position in other.positions.items()
        )


def at_or_past(position: Position, other: Position) -> bool:
    """Return whether `position` >= `other`.

    Positions of different types are never at or past each other. Composite positions compare by the first element in
    which they differ.
    """
    if isinstance(position, str) and isinstance(other, str):
        return position >= other
    if isinstance(position, int | float) and isinstance(other, int | float):
        return position >= other
    if isinstance(position, tuple) and isinstance(other, tuple):
        for element, other_element in zip(position, other, strict=False):
            if element != other_element:
                return at_or_past(element, other_element)
        return len(position) >= len(other)
    return False


def as_offset(position: Position) -> int:
    """Return the position of a source that counts in whole numbers as an integer. A fraction is cut off.

    Raises:
        ValueError: if the position is composite, or a text that is not a whole number.
    """
    if not isinstance(position, tuple):
        return int(position)
    raise ValueError(f"{format_position(position)} is not a whole number")


def format_position(position: Position) -> str:
    """Format a position for display. A composite one is shown as JSON, cut after 80 characters."""
    if not isinstance(position, tuple):
        return str(position)
    text = msgspec.json.encode(position).decode()
    return text if len(text) <= _MAX_CHARACTERS else f"{text[:_MAX_CHARACTERS]}..."


def format_watermark(positions: Mapping[str, Position]) -> str:
    """Format a watermark for display: the sum of its offsets, or each position if some are not whole numbers."""
    numbers = [position for position in positions.values() if isinstance(position, int)]
    if len(numbers) != len(positions):
        return ", ".join(map(format_position, positions.values()))
    return f"{sum(numbers):,}" if numbers else "none"

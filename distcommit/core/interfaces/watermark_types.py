"""Watermark types: encodings of a source's values as positions.

The protocol compares positions as plain data, without custom code. So the encoding must preserve order, and a source
fixes its name and version.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from datetime import UTC, datetime
from typing import Any, Generic, TypeVar

from distcommit.core.records.fixed_settings import FixedSetting
from distcommit.core.watermark import Position, Scalar

Value = TypeVar("Value")

WATERMARK_PIN = "watermark"
"""The name under which a source fixes the type of its watermarks (`Source.fixed_settings`)."""


class WatermarkType(ABC, Generic[Value]):
    """An order-preserving encoding of a source's values as positions.

    A source declares its type in `Source.fixed_settings`, by the entry `WATERMARK_PIN: MyType().pin()`.

    Attributes:
        name: stored with all positions of this type.
        version: must change with the encoding. Positions of another version are rejected and never compared.
    """

    name: str
    version: int = 1

    @abstractmethod
    def to_position(self, value: Value) -> Position:
        """Return the position of a value. The encoding must preserve order and equality.

        Raises:
            ValueError: if the value cannot be part of a watermark.
        """

    @abstractmethod
    def from_position(self, position: Position) -> Value:
        """Return the value of a position. Raises ValueError if `to_position` never returns that position."""

    def pin(self) -> FixedSetting:
        """Return the name and version for `Source.fixed_settings`."""
        return FixedSetting(
            f"{self.name} {self.version}",
            "restore the type of the source's watermarks, because positions of one encoding are meaningless in another."
            " To read with the new type, give the job new folders (paths).",
        )


class LongWatermark(WatermarkType[int]):
    """Whole numbers of 64 bits. The audit treats them as offsets, one for each record."""

    name = "long"

    def to_position(self, value: int) -> Position:
        if type(value) is not int or not -(2**63) <= value < 2**63:
            raise ValueError(f"{value!r} is not a whole number of 64 bits")
        return value

    def from_position(self, position: Position) -> int:
        if type(position) is not int:
            raise ValueError(f"{position!r} is not a whole number")
        return position


class StringWatermark(WatermarkType[str]):
    """Text, ordered by code points."""

    name = "string"

    def to_position(self, value: str) -> Position:
        if isinstance(value, str):
            return value
        raise ValueError(f"{value!r} is not text")

    def from_position(self, position: Position) -> str:
        if isinstance(position, str):
            return position
        raise ValueError(f"{position!r} is not text")


class TimestampWatermark(WatermarkType[datetime]):
    """Times with a zone, to the microsecond, as fixed-width UTC text, so that the audit does not count them as
    offsets."""

    name = "timestamp"

    def to_position(self, value: datetime) -> Position:
        if not isinstance(value, datetime) or value.tzinfo is None:
            raise ValueError(f"{value!r} is not a time with a zone")
        try:
            return value.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
        except OverflowError as error:
            raise ValueError(f"{value!r} is not within the years 1 to 9999 in UTC") from error

    def from_position(self, position: Position) -> datetime:
        if isinstance(position, str):
            time = datetime.fromisoformat(position)
            if time.tzinfo is not None and self.to_position(time) == position:
                return time
        raise ValueError(f"{position!r} is not a time such as 2013-11-24T05:06:07.000000Z")


class CompositeWatermark(WatermarkType[tuple[Any, ...]]):
    """Tuples of values, one of each type, ordered by the first difference. A prefix precedes its extensions."""

    def __init__(self, *parts: WatermarkType[Any]) -> None:
        self.parts = parts
        self.name = f"composite ({', '.join(f'{part.name} {part.version}' for part in parts)})"

    def to_position(self, value: tuple[Any, ...]) -> Position:
        self._require(value)
        return tuple(_scalar(part.to_position(item)) for part, item in zip(self.parts, value, strict=False))

    def from_position(self, position: Position) -> tuple[Any, ...]:
        if isinstance(position, tuple):
            self._require(position)
            return tuple(part.from_position(item) for part, item in zip(self.parts, position, strict=False))
        raise ValueError(f"{position!r} is not a list")

    def _require(self, value: tuple[Any, ...]) -> None:
        if not isinstance(value, tuple) or len(value) > len(self.parts):
            raise ValueError(f"{value!r} is not a tuple of at most {len(self.parts)} values")


def _scalar(position: Position) -> Scalar:
    if not isinstance(position, tuple):
        return position
    raise ValueError(f"{position!r} is a list within a list")

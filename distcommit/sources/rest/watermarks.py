"""The watermark field of records: as a job file declares it, as positions, and as what a server is asked for."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from math import floor
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from distcommit.core.watermark import Position, as_offset
from distcommit.sources.watermark_column import BEGINNINGS, Kind, end_of_times, is_position, position_of, time_at

ROWS = "rows"
"""The source partition in which records are numbered, as they are read."""
_ISO = "%Y-%m-%dT%H:%M:%S.%fZ"
_WRITTEN = re.compile(
    r"\d{4}-?(\d\d-?\d\d|W\d\d-?\d|(?P<week>W\d\d))(?P<hour>.\d\d(?P<minute>:?\d\d(?P<second>:?\d\d)?)?)?", re.DOTALL
)
_OPEN_S = {"second": 0, "minute": 60, "hour": 3600, "week": 604_800}
_DAY_S = 86_400


class WatermarkField(BaseModel):
    """The field of each record that says what is new.

    Positions of integers are lists of one number, as a mere number would be an offset to the audit.

    Attributes:
        field: its name; with dots, of a field of an object in it.
        type: `time` (ISO 8601 as text; without a zone it is UTC), `integer` or `text`, ordered by code points.
        since: the parameter that asks for records from a value on. It is sent a second (a day, if `format` has no
            seconds), or one, less than the watermark, and records below that are dropped; so it does not matter whether
            the server takes it as inclusive. With text there is nothing less: there it has to be.
        until: of times, the parameter that asks for records up to a value; empty if there is none.
        format: of times, how they are sent, as strftime has it, in UTC. It names the day, and with seconds the minute
            and the hour of 24, so that no two times that are sent are written alike.
        lookback: how far the end of what is read stays behind, in seconds for times, and as a number for integers. Of
            times without seconds at least 60, of days 86400: others of the present one may still come.
        unique: of integers, whether no two records have the same: the newest is read then.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    field: str = Field(min_length=1)
    type: Literal["time", "integer", "text"]
    since: str = Field(min_length=1)
    until: str = ""
    format: str = _ISO
    lookback: int = Field(ge=0, le=10**9)
    unique: bool = False

    @model_validator(mode="after")
    def _fits_its_type(self) -> WatermarkField:
        if self.type != "time" and (self.until or self.format != _ISO):
            raise ValueError("until and format are of times")
        if alike := _written_alike(self.format):
            raise ValueError(
                f"format writes {' and '.join(alike)} alike: what lies between could not be asked for. It has to name"
                " the year, the month and the day, and with seconds the minute and the hour of 24 (%H, or %I with %p)"
            )
        if self.type != "integer" and self.unique:
            raise ValueError("unique is of integers")
        if self.type == "text" and self.lookback:
            raise ValueError("there is no lookback in text: 0")
        return self

    @property
    def kind(self) -> Kind:
        """What it holds."""
        return Kind(self.type)

    @property
    def incarnation(self) -> str:
        """What positions count in."""
        return f"{self.field}:{self.kind}"

    @property
    def beginning(self) -> Position:
        """The position that no value lies below."""
        return self._position(BEGINNINGS[self.kind])

    def position(self, value: object) -> Position:
        """The position of a value, as JSON has it.

        Raises:
            ValueError: if it is of another type, or beyond what can be a position.
        """
        if self.kind is not Kind.TIME:
            return self._position(position_of(self.kind, value))
        try:
            return position_of(Kind.TIME, datetime.fromisoformat(value) if isinstance(value, str) else value)
        except OverflowError:
            raise ValueError(f"{value!r}, not within the years 1 to 9999 in UTC") from None

    def missing_lookback_s(self, value: object) -> int:
        """The seconds that the lookback would have to be, for a time that is written so coarsely that others of it may
        come for longer; 0 if it is as long."""
        written = _WRITTEN.match(value) if isinstance(value, str) and self.kind is Kind.TIME else None
        if written is None:
            return 0
        open_s = next((seconds for part, seconds in _OPEN_S.items() if written[part]), _DAY_S)
        return open_s if open_s > self.lookback else 0

    def is_position(self, position: Position | None) -> bool:
        """Whether it can be one of this field."""
        if position is None or isinstance(position, tuple) is not (self.kind is Kind.INTEGER):
            return False
        return is_position(self.kind, position[0] if isinstance(position, tuple) and position else position)

    def end_of_plan(self, now: datetime) -> Position | None:
        """What a run reads up to, as far as that is known before: times up to the present second, less the lookback."""
        if self.kind is not Kind.TIME:
            return None
        return end_of_times(now, self.lookback)

    def end_of_read(self, newest: Position, *, is_last: bool) -> Position:
        """Up to which position all records are known, once those up to `newest` came and, if `is_last`, no more. Others
        may come later, with its value or with lower ones that are within the lookback."""
        if not isinstance(newest, tuple):
            return newest
        behind = 1 if is_last and self.unique else 0
        return self._position(as_offset(newest[0]) + behind - self.lookback)

    def asked(self, low: Position, high: Position | None) -> dict[str, str]:
        """The parameters that ask for [low, high), and a little more."""
        found: dict[str, str] = {}
        if low != self.beginning:
            found[self.since] = self._written(low, -1)
        if self.until and high is not None:
            found[self.until] = self._written(high, 1)
        return found

    def _position(self, position: Position) -> Position:
        return (position,) if isinstance(position, int) else position

    def _written(self, position: Position, further: int) -> str:
        if isinstance(position, tuple):
            return str(as_offset(position[0]) + further)
        if self.kind is Kind.TEXT:
            return str(position)
        step = timedelta(seconds=1) if _has_seconds(self.format) else timedelta(days=1)
        try:
            return _formatted(time_at(position) + further * step, self.format)
        except OverflowError:  # the first or the last second that there is
            return _formatted(time_at(position), self.format)


_BASE = datetime(2024, 1, 1, tzinfo=UTC)
_BY_DAY = [timedelta(days=days) for days in (1, 7, 31, 366)]
_BY_SECOND = [timedelta(minutes=1), timedelta(hours=1), timedelta(hours=12)]


def _has_seconds(form: str) -> bool:
    return _formatted(_BASE, form) != _formatted(_BASE + timedelta(seconds=1), form)


def _written_alike(form: str) -> tuple[str, ...]:
    """Two times that lie further apart than what is asked for beyond a range, and that the format writes alike."""
    steps = [*_BY_DAY, *(_BY_SECOND if _has_seconds(form) else [])]
    later = (_BASE + step for step in steps if _formatted(_BASE + step, form) == _formatted(_BASE, form))
    return tuple(f"{at:%Y-%m-%d %H:%M}" for other in later for at in (_BASE, other))[:2]


def _formatted(time: datetime, form: str) -> str:
    """As strftime has it; for seconds since 1970 that would take the time for one of the machine's own zone."""
    seconds = str(floor(time.timestamp()))
    return time.strftime(re.sub("%(.)", lambda found: seconds if found[1] == "s" else found[0], form, flags=re.DOTALL))

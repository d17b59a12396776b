"""The watermark field of records: settings, positions, and request parameters."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from math import floor
from typing import Literal

from pydantic import Field

from distcommit.core.support.settings_model import SettingError, SettingsModel, rule
from distcommit.core.watermark import Position, as_offset
from distcommit.sources.watermark_column import BEGINNINGS, Kind, end_of_times, is_position, position_of, time_at

ROWS = "rows"
"""Partition whose positions count the records read."""
_ISO = "%Y-%m-%dT%H:%M:%S.%fZ"
_WRITTEN = re.compile(
    r"\d{4}-?(\d\d-?\d\d|W\d\d-?\d|(?P<week>W\d\d))(?P<hour>.\d\d(?P<minute>:?\d\d(?P<second>:?\d\d)?)?)?", re.DOTALL
)
_OPEN_S = {"second": 0, "minute": 60, "hour": 3600, "week": 604_800}
_DAY_S = 86_400


class WatermarkField(SettingsModel):
    """The watermark field of each record.

    Positions of integers are lists of one number, because the audit takes a plain number for an offset.

    Attributes:
        field: name of the field; a dotted path for a field within objects.
        type: `time` (ISO 8601 text; UTC without a zone), `integer` or `text`, ordered by code points.
        since: parameter that requests records from a value on. The value sent is a second (a day, if `format` has no
            seconds) or one less than the watermark, and records below the watermark are dropped, so that the server may
            take it as inclusive or not. For text, the server must take it as inclusive.
        until: for times, the parameter that requests records up to a value; empty if the server has none.
        format: for times, their strftime format in requests, in UTC. It must contain the day, and with seconds the
            minute and the 24-hour hour, so that different times differ in requests.
        lookback: distance between the newest value and the end of the range, in seconds for times, as a number for
            integers. At least 60 for times without seconds, 86400 for days, because the present one may still grow.
        unique: for integers, whether values are unique. The newest record is read then.
    """

    field: str = Field(min_length=1)
    type: Literal["time", "integer", "text"]
    since: str = Field(min_length=1)
    until: str = ""
    format: str = _ISO
    lookback: int = Field(ge=0, le=10**9)
    unique: bool = False

    @rule
    def _fits_its_type(self) -> Iterator[SettingError]:
        if self.type != "time" and self.until:
            yield SettingError("must only be set with type: time", "until")
        if self.type != "time" and self.format != _ISO:
            yield SettingError("must only be set with type: time", "format")
        elif alike := _written_alike(self.format):
            yield SettingError(
                "must contain the year, the month and the day, and with seconds the minute and the 24-hour hour (%H, or"
                f" %I with %p): it writes {' and '.join(alike)} alike, so that the range between cannot be requested",
                "format",
            )
        if self.type != "integer" and self.unique:
            yield SettingError("must only be set with type: integer", "unique")
        if self.type == "text" and self.lookback:
            yield SettingError("must be 0 with type: text", "lookback")

    @property
    def kind(self) -> Kind:
        return Kind(self.type)

    @property
    def incarnation(self) -> str:
        return f"{self.field}:{self.kind}"

    @property
    def beginning(self) -> Position:
        """Lowest position: no value is below it."""
        return self._position(BEGINNINGS[self.kind])

    def position(self, value: object) -> Position:
        """Return a JSON value's position. Raises ValueError if its type or range is wrong."""
        if self.kind is not Kind.TIME:
            return self._position(position_of(self.kind, value))
        try:
            return position_of(Kind.TIME, datetime.fromisoformat(value) if isinstance(value, str) else value)
        except OverflowError:
            raise ValueError(f"{value!r}, not within the years 1 to 9999 in UTC") from None

    def missing_lookback_s(self, value: object) -> int:
        """Return the lookback in seconds that a coarse time requires; 0 if `lookback` suffices."""
        written = _WRITTEN.match(value) if isinstance(value, str) and self.kind is Kind.TIME else None
        if written is None:
            return 0
        open_s = next((seconds for part, seconds in _OPEN_S.items() if written[part]), _DAY_S)
        return open_s if open_s > self.lookback else 0

    def is_position(self, position: Position | None) -> bool:
        if position is None or isinstance(position, tuple) is not (self.kind is Kind.INTEGER):
            return False
        return is_position(self.kind, position[0] if isinstance(position, tuple) and position else position)

    def end_of_plan(self, now: datetime) -> Position | None:
        """Return the present second, less the lookback; None if the field has no times."""
        if self.kind is not Kind.TIME:
            return None
        return end_of_times(now, self.lookback)

    def end_of_read(self, newest: Position, *, is_last: bool) -> Position:
        """Return the position below which no record is missing.

        Records with the newest value may follow; for integers, also lower ones within the lookback.

        Args:
            newest: greatest position read.
            is_last: whether the server has no later records.
        """
        if not isinstance(newest, tuple):
            return newest
        behind = 1 if is_last and self.unique else 0
        return self._position(as_offset(newest[0]) + behind - self.lookback)

    def range_params(self, low: Position, high: Position | None) -> dict[str, str]:
        """Return the parameters that request [low, high). The server may return more."""
        parameters: dict[str, str] = {}
        if low != self.beginning:
            parameters[self.since] = self._written(low, -1)
        if self.until and high is not None:
            parameters[self.until] = self._written(high, 1)
        return parameters

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
        except OverflowError:  # beyond the first or the last second of datetime
            return _formatted(time_at(position), self.format)


_BASE = datetime(2024, 1, 1, tzinfo=UTC)
_BY_DAY = [timedelta(days=days) for days in (1, 7, 31, 366)]
_BY_SECOND = [timedelta(minutes=1), timedelta(hours=1), timedelta(hours=12)]


def _has_seconds(form: str) -> bool:
    return _formatted(_BASE, form) != _formatted(_BASE + timedelta(seconds=1), form)


def _written_alike(form: str) -> tuple[str, ...]:
    """Return two times with one text that are too far apart for requests; empty if there are none."""
    steps = [*_BY_DAY, *(_BY_SECOND if _has_seconds(form) else [])]
    later = (_BASE + step for step in steps if _formatted(_BASE + step, form) == _formatted(_BASE, form))
    return tuple(f"{at:%Y-%m-%d %H:%M}" for other in later for at in (_BASE, other))[:2]


def _formatted(time: datetime, form: str) -> str:
    """Format a time in UTC, also `%s`."""
    seconds = str(floor(time.timestamp()))
    return time.strftime(re.sub("%(.)", lambda match: seconds if match[1] == "s" else match[0], form, flags=re.DOTALL))

"""Timetables: the times of a cron expression, or a fixed interval."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from functools import cached_property
from typing import Protocol
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

_FIELDS = 5


@dataclass(frozen=True, slots=True)
class Moment:
    """The current time by two clocks.

    Attributes:
        wall_ms: milliseconds since 1970, by a clock that may be set.
        steady_ms: milliseconds by a clock that never goes back.
    """

    wall_ms: int
    steady_ms: int


class Timetable(Protocol):
    """The firings of a job, in milliseconds by one of the two clocks."""

    def now(self, moment: Moment) -> int:
        """Return the current time by this timetable's clock."""
        ...

    def first(self, moment: Moment, last_ms: int | None) -> int:
        """Return the first firing after the last run, which began at `last_ms` by the wall clock (None: never). The
        firing may be in the past.
        """
        ...

    def after(self, time: int) -> int:
        """Return the first firing after a time."""
        ...


@dataclass(frozen=True, slots=True)
class Interval:
    """Firings at a fixed interval by the steady clock. The first one is at once if the job has never run, otherwise one
    interval after the start of its last run.

    Attributes:
        every_ms: interval in milliseconds.
    """

    every_ms: int

    def now(self, moment: Moment) -> int:
        return moment.steady_ms

    def first(self, moment: Moment, last_ms: int | None) -> int:
        if last_ms is None:
            return moment.steady_ms
        past_ms = min(max(0, moment.wall_ms - last_ms), self.every_ms)  # the wall clock may have been set
        return moment.steady_ms + self.every_ms - past_ms

    def after(self, time: int) -> int:
        return time + self.every_ms


@dataclass(frozen=True)
class Cron:
    """The firings of a five-field cron expression, as in Debian's cron, by the wall clock.

    When clocks skip an hour, an expression with a fixed time of day (neither minute nor hour starts with `*`) fires at
    the end of the gap. When clocks repeat an hour, it fires in the first one. Other expressions follow elapsed time: no
    firing in the gap, firings in both repeated hours.

    Attributes:
        expression: minute, hour, day of the month, month, day of the week.
        time_zone: an IANA name.

    Raises:
        ValueError: if the expression or the time zone is invalid.
    """

    expression: str
    time_zone: str = "UTC"

    def __post_init__(self) -> None:
        fields = self.expression.split()
        if len(fields) != _FIELDS:
            raise ValueError(
                f"{self.expression!r} is not a cron expression: expected five fields (minute, hour, day of the month,"
                f" month, day of the week), found {len(fields)}"
            )
        try:
            self.after(0)
        except CronSimError as error:
            raise ValueError(f"{self.expression!r} is not a cron expression: {str(error).lower()}") from error

    def now(self, moment: Moment) -> int:
        return moment.wall_ms

    def first(self, moment: Moment, last_ms: int | None) -> int:
        # a last run in the future, by a wrong clock, must not delay the job
        return self.after(moment.wall_ms if last_ms is None else min(last_ms, moment.wall_ms))

    def after(self, time: int) -> int:
        now = datetime.fromtimestamp(time / 1000, self._zone)
        wall, firings = now.replace(tzinfo=None), list[int]()
        comes_again = max(_offset(now) - _offset(now.replace(fold=1)), timedelta())  # length of the repeated hour
        # without a zone, because CronSim loses half hours
        for wall_time in CronSim(self.expression, wall - comes_again):
            later = [moment for moment in self._moments(wall_time) if moment > time]
            firings += later
            if later and wall_time > wall:
                return min(firings)
        raise ValueError(f"{self.expression!r} never fires, because no date matches it")

    def _moments(self, wall: datetime) -> list[int]:
        """Return the firings for one time that the wall clock shows."""
        if not any(field.startswith("*") for field in self.expression.split()[:2]):
            while not (shown := self._shown(wall)):
                wall += timedelta(minutes=1)
            return shown[:1]
        return self._shown(wall)

    def _shown(self, wall: datetime) -> list[int]:
        """Return the moments at which the wall clock shows a time: none in a gap, two in a repeated hour."""
        both = [wall.replace(tzinfo=self._zone, fold=fold) for fold in (0, 1)]
        valid = [
            candidate
            for candidate in both
            if candidate.astimezone(UTC).astimezone(self._zone).replace(tzinfo=None) == wall
        ]
        return [round(candidate.timestamp() * 1000) for candidate in valid]

    @cached_property
    def _zone(self) -> ZoneInfo | timezone:
        try:
            return UTC if self.time_zone == "UTC" else ZoneInfo(self.time_zone)
        except (LookupError, ValueError, OSError) as error:
            raise ValueError(
                f"unknown time zone {self.time_zone!r}: expected an IANA name such as Europe/Brussels"
            ) from error


def _offset(time: datetime) -> timedelta:
    return time.utcoffset() or timedelta()

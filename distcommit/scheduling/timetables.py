"""When a job is to run: at the times of a cron expression, or every so many seconds."""

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
    """Now. `wall_ms`: milliseconds since 1970 by a clock that people set; `steady_ms`: by one that only goes on."""

    wall_ms: int
    steady_ms: int


class Timetable(Protocol):
    """When somebody's firings are, in milliseconds by one of the two clocks."""

    def now(self, moment: Moment) -> int:
        """The moment, by the clock that this timetable goes by."""
        ...

    def first(self, moment: Moment, last_ms: int | None) -> int:
        """The first firing for who ran last at `last_ms` by the wall clock, or never; it may have passed."""
        ...

    def after(self, time: int) -> int:
        """The first firing after a time."""
        ...


@dataclass(frozen=True, slots=True)
class Interval:
    """Every so many milliseconds, by the steady clock; at first at once."""

    every_ms: int

    def now(self, moment: Moment) -> int:
        return moment.steady_ms

    def first(self, moment: Moment, last_ms: int | None) -> int:
        if last_ms is None:
            return moment.steady_ms
        past_ms = min(max(0, moment.wall_ms - last_ms), self.every_ms)  # by a clock that was set it may be anything
        return moment.steady_ms + self.every_ms - past_ms

    def after(self, time: int) -> int:
        return time + self.every_ms


@dataclass(frozen=True)
class Cron:
    """At the times of a cron expression of five fields, as Debian's cron takes it; by the wall clock.

    In the hour (or half an hour, or a day) that clocks pass over, a time of day (neither minute nor hour begins with
    `*`) comes as it ends; in the one that they have twice it comes in the first. Whatever else comes by elapsed time:
    in none of the one, and in both of the other.

    Raises:
        ValueError: saying what is wrong with it.
    """

    expression: str
    time_zone: str = "UTC"

    def __post_init__(self) -> None:
        fields = self.expression.split()
        if len(fields) != _FIELDS:
            raise ValueError(
                f"{self.expression!r} is no cron expression: expected five fields (minute, hour, day of the month,"
                f" month, day of the week), found {len(fields)}"
            )
        try:
            self.after(0)
        except CronSimError as error:
            raise ValueError(f"{self.expression!r} is no cron expression: {str(error).lower()}") from error

    def now(self, moment: Moment) -> int:
        return moment.wall_ms

    def first(self, moment: Moment, last_ms: int | None) -> int:
        # a run in the future, by a clock that was wrong, keeps nobody waiting
        return self.after(moment.wall_ms if last_ms is None else min(last_ms, moment.wall_ms))

    def after(self, time: int) -> int:
        now = datetime.fromtimestamp(time / 1000, self._zone)
        wall, found = now.replace(tzinfo=None), list[int]()
        comes_again = max(_offset(now) - _offset(now.replace(fold=1)), timedelta())  # so much of what it shows
        for each in CronSim(self.expression, wall - comes_again):  # without a zone: by hours alone it would lose halves
            later = [moment for moment in self._moments(each) if moment > time]
            found += later
            if later and each > wall:
                return min(found)
        raise ValueError(f"{self.expression!r} never comes: no day is as it says")

    def _moments(self, wall: datetime) -> list[int]:
        """When it fires for one of its times, as a clock on the wall shows it."""
        if not any(field.startswith("*") for field in self.expression.split()[:2]):
            while not (shown := self._shown(wall)):
                wall += timedelta(minutes=1)
            return shown[:1]
        return self._shown(wall)

    def _shown(self, wall: datetime) -> list[int]:
        """When clocks show this: never, if they pass over it, or once, or twice."""
        both = [wall.replace(tzinfo=self._zone, fold=fold) for fold in (0, 1)]
        known = [each for each in both if each.astimezone(UTC).astimezone(self._zone).replace(tzinfo=None) == wall]
        return [round(each.timestamp() * 1000) for each in known]

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

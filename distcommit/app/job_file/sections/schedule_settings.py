"""The section `schedule` of a job file."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from zoneinfo import ZoneInfo

from pydantic import Field

from distcommit.app.scheduling.cron_and_interval import Cron, Interval, Timetable
from distcommit.app.scheduling.schedule import Missed, Plan
from distcommit.core.support.settings_model import SettingError, SettingsModel, rule

_LONGEST_S = 366 * 24 * 3600


class ScheduleSettings(SettingsModel):
    """When `distcommit schedule serve` runs the job: by a cron expression, or at an interval. Without the section no
    service runs it.

    Attributes:
        cron: minute, hour, day of the month, month, day of the week, as in Debian's cron.
        time_zone: of the cron expression.
        interval_s: seconds, instead of `cron`.
        missed: what becomes of firings while no service runs, the job is paused, or a run of it is in progress: one run
            makes up for them (`run`), or none does (`skip`).
        cancel_after_s: a run that takes longer is cancelled; 0 for never.
    """

    cron: str = ""
    time_zone: str = "UTC"
    interval_s: float | None = Field(default=None, ge=1, le=_LONGEST_S)
    missed: Missed = Missed.RUN
    cancel_after_s: float = Field(default=0, ge=0, le=_LONGEST_S)

    @rule
    def _has_one_timetable(self) -> Iterator[SettingError]:
        if not self.cron and self.interval_s is None:
            yield SettingError("must have cron, such as '*/5 * * * *', or interval_s")
        elif self.cron and self.interval_s is not None:
            yield SettingError("must not be set beside cron", "interval_s", remedy="remove one of them")
        elif not self.cron and "time_zone" in self.model_fields_set:
            yield SettingError("must not be set without cron: an interval has no time zone", "time_zone")
        elif self.cron:
            try:
                ZoneInfo(self.time_zone)
            except (LookupError, ValueError, OSError):
                yield SettingError("must be an IANA time zone such as Europe/Brussels", "time_zone")
                return
            try:
                self.timetable()
            except ValueError as error:
                yield SettingError(f"must be a cron expression with a next firing: {error}", "cron")

    def timetable(self) -> Timetable:
        """Return the times at which the schedule starts the job.

        Raises:
            ValueError: if no such time can exist.
        """
        if self.interval_s is None:
            return Cron(self.cron, self.time_zone)
        return Interval(round(self.interval_s * 1000))

    def plan(self, fresh_s: float = 0, alerts_s: float = 0) -> Plan:
        """Return the job's schedule.

        Args:
            fresh_s: the job's smallest freshness target in seconds; 0 if there is none.
            alerts_s: the longest duration of the job's alerts in seconds.
        """
        plan = Plan(self.timetable(), self.missed, round(self.cancel_after_s * 1000), notify_ms=round(alerts_s * 1000))
        return replace(plan, fresh_ms=round(fresh_s * 1000)) if fresh_s else plan

"""The deadline of a task's reading."""

from __future__ import annotations

from distcommit.core.records.maintenance_units import is_maintenance
from distcommit.core.work_units import WorkUnit
from distcommit.engine.planning.read_priority import priority_of
from distcommit.engine.run_settings import RunSettings


class ReadDeadline:
    def __init__(self, settings: RunSettings) -> None:
        self._settings, self._has_read = settings, False
        self._slice_ends_ms = int(settings.clock.now_ms() + settings.freshness.slice_s * 1000)

    def of(self, unit: WorkUnit) -> int:
        """Return when to stop reading a work unit, in milliseconds since 1970; 0 for never.

        The time slice limits datasets with a backlog, except a task's first work unit. Maintenance units and suspects
        have no deadline.
        """
        if is_maintenance(unit) or self._settings.alone:
            return 0  # Maintenance publishes all of it or nothing; a suspect must come to an end.
        ends = [self._settings.deadline_ms]
        if self._has_read and self._settings.freshness.slice_s and priority_of(unit) < 0:
            ends.append(self._slice_ends_ms)
        self._has_read = True
        return min(filter(None, ends), default=0)

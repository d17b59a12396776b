"""The schedule of all jobs as one pure value: timetables, due jobs and runs in progress.

A firing makes a job *due* until its run starts. There is no queue: each run reads everything that is new, so one run
makes up for any number of firings.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from distcommit.app.scheduling.timetables import Moment, Timetable

LATE_MS = 60_000
"""Delay in milliseconds after which an observed firing counts as missed. If the clock is set back by more than this,
the timetables restart.
"""
STUCK_MS = 120_000
"""Milliseconds after its cancel request at which a run that has not ended is stuck."""
DEFAULT_FRESH_MS = 600_000
"""Freshness target in milliseconds of a job without one. It weights the order of due jobs."""
HELD_WAIT_MS = 10_000
"""Milliseconds until the next try, if an ordered run did not begin."""


class Missed(StrEnum):
    """Policy for firings that pass while no service runs, while the job is paused, or during its run."""

    RUN = "run"
    """Start one run for all missed firings as soon as possible."""
    SKIP = "skip"
    """Ignore missed firings. The next firing starts the next run."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The schedule settings of one job.

    Attributes:
        timetable: the firings.
        missed: policy for missed firings.
        cancel_after_ms: time limit of a run; 0 for none.
        fresh_ms: smallest freshness target, which weights the job's waiting time.
        notify_ms: additional time that a finished run may take to send notifications before it is stuck.
    """

    timetable: Timetable
    missed: Missed = Missed.RUN
    cancel_after_ms: int = 0
    fresh_ms: int = DEFAULT_FRESH_MS
    notify_ms: int = 0


@dataclass(frozen=True, slots=True)
class Entry:
    """The state of one job in the schedule. Times are by the steady clock, except `fires`.

    Attributes:
        plan: schedule settings.
        fires: time of the next firing, by the timetable's clock.
        due_ms: time since which the job is due; None if it is not.
        began_ms: time at which the current run began; None without one.
        passed: number of firings since the current run began.
        not_before_ms: earliest time of the next try.
        is_triggered: whether an operator has requested a run.
        is_paused: whether scheduled runs are suspended.
        leaves: whether the job was removed during its current run.
        end_requested_ms: time at which the current run was requested to end; None if it was not.
        is_unresponsive: whether the job's storage does not respond, so that no run starts.
    """

    plan: Plan
    fires: int
    due_ms: int | None = None
    began_ms: int | None = None
    passed: int = 0
    not_before_ms: int = 0
    is_triggered: bool = False
    is_paused: bool = False
    leaves: bool = False
    end_requested_ms: int | None = None
    is_unresponsive: bool = False

    def may_begin(self, moment: Moment) -> bool:
        """Return whether the job can start as soon as a slot is free."""
        return (
            self.due_ms is not None
            and self.began_ms is None
            and not self.is_unresponsive
            and self.not_before_ms <= moment.steady_ms
            and (self.is_triggered or not self.is_paused)
        )

    def fired(self, moment: Moment) -> Entry:
        """Return the entry after its firing has passed."""
        late = self.plan.timetable.now(moment) - self.fires > LATE_MS
        misses = self.plan.missed is Missed.SKIP and (late or self.is_paused or self.began_ms is not None)
        return replace(
            self,
            fires=self.plan.timetable.after(self.plan.timetable.now(moment)),
            due_ms=self.due_ms if misses or self.due_ms is not None else moment.steady_ms,
            passed=self.passed + (0 if self.began_ms is None else 1),
        )


@dataclass(frozen=True, slots=True)
class Schedule:
    """All jobs by name. Methods that change the schedule return a new one.

    Attributes:
        at_once: maximum number of concurrent runs.
        entries: the jobs.
        seen_ms: last known time of the wall clock.
    """

    at_once: int
    entries: Mapping[str, Entry] = field(default_factory=dict)
    seen_ms: int = 0

    def at(self, moment: Moment) -> Schedule:
        """Advance the time: jobs whose firing has passed are due."""
        set_back = moment.wall_ms < self.seen_ms - LATE_MS
        entries = {name: _advanced(entry, moment, set_back=set_back) for name, entry in self.entries.items()}
        return replace(self, entries=entries, seen_ms=moment.wall_ms)

    def with_job(self, name: str, plan: Plan, moment: Moment, last_ms: int | None = None) -> Schedule:
        """Add or update a job.

        A new job's missed firings are those since `last_ms`, the start of its last run by the wall clock, if there was
        one. A changed plan applies from the next firing on.
        """
        entry, timetable = self.entries.get(name), plan.timetable
        if entry is not None:
            fires = entry.fires if entry.plan.timetable == timetable else timetable.first(moment, moment.wall_ms)
            return self._with(name, replace(entry, plan=plan, fires=fires, leaves=False))
        fires = timetable.first(moment, last_ms)
        if plan.missed is Missed.SKIP and fires <= timetable.now(moment) and last_ms is not None:
            fires = timetable.after(timetable.now(moment))
        return self._with(name, Entry(plan, fires))

    def without(self, name: str) -> Schedule:
        """Remove a job. A run in progress stays until it ends."""
        entry = self.entries.get(name)
        if entry is not None and entry.began_ms is not None:
            return self._with(name, replace(entry, leaves=True, due_ms=None, is_triggered=False))
        return replace(self, entries={other: entry for other, entry in self.entries.items() if other != name})

    def paused(self, name: str, *, is_paused: bool) -> Schedule:
        """Suspend (`is_paused`) or resume the scheduled runs of a job."""
        entry = self.entries[name]
        drops = is_paused and entry.plan.missed is Missed.SKIP and not entry.is_triggered
        return self._with(name, replace(entry, is_paused=is_paused, due_ms=None if drops else entry.due_ms))

    def triggered(self, name: str, moment: Moment) -> Schedule:
        """Request one run of a job, even if the job is paused. A current run ends first."""
        entry = self.entries[name]
        due_ms = moment.steady_ms if entry.due_ms is None else entry.due_ms
        return self._with(name, entry if entry.leaves else replace(entry, is_triggered=True, due_ms=due_ms))

    def record_begin(self, name: str, moment: Moment) -> Schedule:
        entry = self.entries[name]
        return self._with(name, Entry(entry.plan, entry.fires, began_ms=moment.steady_ms, is_paused=entry.is_paused))

    def silent(self, name: str, *, is_unresponsive: bool) -> Schedule:
        """Record whether the job's storage responds. `is_unresponsive`: it does not."""
        return self._with(name, replace(self.entries[name], is_unresponsive=is_unresponsive))

    def record_late_begin(self, name: str, moment: Moment) -> Schedule:
        """Record that a job executes its order to run only now, because its storage did not respond before."""
        return self._with(
            name, replace(self.entries[name], began_ms=moment.steady_ms, end_requested_ms=None, is_unresponsive=False)
        )

    def record_end_request(self, name: str, moment: Moment) -> Schedule:
        return self._with(name, replace(self.entries[name], end_requested_ms=moment.steady_ms))

    def ended(self, name: str, moment: Moment, *, was_held: bool = False) -> Schedule:
        """Record the end of a run. `was_held`: the run did not begin, because another run holds the job lock or the job
        was paused. Then its firing counts as missed, and the next try is `HELD_WAIT_MS` later.
        """
        entry = replace(self.entries[name], began_ms=None)
        if entry.leaves:
            return replace(self, entries={other: it for other, it in self.entries.items() if other != name})
        if was_held:
            is_retried = entry.due_ms is None and entry.plan.missed is Missed.RUN
            due_ms = moment.steady_ms if is_retried else entry.due_ms
            entry = replace(entry, due_ms=due_ms, not_before_ms=moment.steady_ms + HELD_WAIT_MS)
        return self._with(name, entry)

    def ready(self, moment: Moment) -> tuple[str, ...]:
        """Return the jobs to start now, as many as there are free slots, ordered by waiting time relative to the
        freshness target."""
        under_way = (
            entry for entry in self.entries.values() if entry.began_ms is not None and not entry.is_unresponsive
        )
        slots = self.at_once - sum(1 for _ in under_way)
        waiting = [
            (-(moment.steady_ms - entry.due_ms + 1) / entry.plan.fresh_ms, name)
            for name, entry in self.entries.items()
            if entry.due_ms is not None and entry.may_begin(moment)
        ]
        return tuple(name for _, name in sorted(waiting)[: max(0, slots)])

    def overlong(self, moment: Moment) -> tuple[str, ...]:
        """Return the jobs whose run has exceeded its time limit and has no cancel request yet."""
        ends = {name: _ends_ms(entry) for name, entry in self.entries.items() if entry.end_requested_ms is None}
        return tuple(name for name, end_ms in ends.items() if end_ms is not None and end_ms <= moment.steady_ms)

    def stuck(self, moment: Moment) -> tuple[str, ...]:
        """Return the jobs whose run has not ended in time after its cancel request."""
        ends = {name: _gives_up_ms(entry) for name, entry in self.entries.items()}
        return tuple(name for name, end_ms in ends.items() if end_ms is not None and end_ms <= moment.steady_ms)

    def wait_ms(self, moment: Moment) -> int | None:
        """Return the milliseconds until the next event: 0 if an event is due now, None if none is expected."""
        if self.ready(moment):
            return 0
        waits = [wait for entry in self.entries.values() for wait in _waits_ms(entry, moment)]
        return max(0, min(waits)) if waits else None

    def _with(self, name: str, entry: Entry) -> Schedule:
        return replace(self, entries={**self.entries, name: entry})


def _advanced(entry: Entry, moment: Moment, *, set_back: bool) -> Entry:
    now = entry.plan.timetable.now(moment)
    if set_back:  # firings repeat, because the alternative is none until the clock has caught up
        entry = replace(entry, fires=min(entry.fires, entry.plan.timetable.after(now)))
    return entry.fired(moment) if entry.fires <= now and not entry.leaves else entry


def _ends_ms(entry: Entry) -> int | None:
    if entry.began_ms is None or not entry.plan.cancel_after_ms or entry.is_unresponsive:
        return None
    return entry.began_ms + entry.plan.cancel_after_ms


def _gives_up_ms(entry: Entry) -> int | None:
    """Return the time at which the run counts as stuck."""
    if entry.began_ms is None or entry.end_requested_ms is None or entry.is_unresponsive:
        return None
    return entry.end_requested_ms + STUCK_MS + entry.plan.notify_ms


def _waits_ms(entry: Entry, moment: Moment) -> Iterator[int]:
    if not entry.leaves:
        yield entry.fires - entry.plan.timetable.now(moment)
    end_ms = _ends_ms(entry) if entry.end_requested_ms is None else _gives_up_ms(entry)
    if end_ms is not None:
        yield end_ms - moment.steady_ms
    if entry.due_ms is not None and entry.began_ms is None and entry.not_before_ms > moment.steady_ms:
        yield entry.not_before_ms - moment.steady_ms

"""Which jobs are to begin now: what each timetable says, who waits, and who is under way, as one pure value.

A firing makes a job *due*, and it stays so until its run begins. There is no queue: however many firings have passed,
one run makes up for all of them, since each run reads all that is new.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from distcommit.scheduling.timetables import Moment, Timetable

LATE_MS = 60_000
"""A firing that is noticed later than this was missed; and clocks that are set back by less are waited for."""
STUCK_MS = 120_000
"""A run that was told to end, and has not for so long, hangs."""
USUAL_FRESH_MS = 600_000
"""What a job without a freshness target counts as where slots are few."""
HELD_WAIT_MS = 10_000
"""How long a job that another run's lock has kept off waits before it tries again."""


class Missed(StrEnum):
    """What becomes of firings that pass while nobody looks, while the job is paused, or while its run is under way.

    RUN: one run makes up for them, as soon as it can. SKIP: nothing; the next firing is the next run.
    """

    RUN = "run"
    SKIP = "skip"


@dataclass(frozen=True, slots=True)
class Plan:
    """How one job is scheduled. `cancel_after_ms`: when its run is to be told to end, 0 for never. `fresh_ms`: the
    smallest of its freshness targets, which says how much its waiting counts. `telling_ms`: how long a run that is over
    may take to tell people so, and does not hang."""

    timetable: Timetable
    missed: Missed = Missed.RUN
    cancel_after_ms: int = 0
    fresh_ms: int = USUAL_FRESH_MS
    telling_ms: int = 0


@dataclass(frozen=True, slots=True)
class Entry:
    """Where one job stands. Times but `fires` are by the steady clock.

    `fires`: its next firing, by its timetable's clock; `due_ms`: since when it waits to begin; `began_ms`: since when
    its run is under way; `passed`: how many firings have passed since then; `not_before_ms`: when it may try again;
    `leaves`: it is scheduled no more, and its run is still under way; `told_ms`: since when its run is to end;
    `is_silent`: its storage does not answer: no run of it begins, and one that was to has not yet.
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
    told_ms: int | None = None
    is_silent: bool = False

    def may_begin(self, moment: Moment) -> bool:
        """Whether it waits for nothing but a slot."""
        return (
            self.due_ms is not None
            and self.began_ms is None
            and not self.is_silent
            and self.not_before_ms <= moment.steady_ms
            and (self.is_triggered or not self.is_paused)
        )

    def fired(self, moment: Moment) -> Entry:
        """The same once a firing has passed."""
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
    """All jobs by name. Of a method that changes something the answer is another schedule.

    `at_once`: how many runs there are at one time at most. `seen_ms`: what the wall clock said last.
    """

    at_once: int
    entries: Mapping[str, Entry] = field(default_factory=dict)
    seen_ms: int = 0

    def at(self, moment: Moment) -> Schedule:
        """The same once it is that late: who has fired by then is due."""
        set_back = moment.wall_ms < self.seen_ms - LATE_MS
        entries = {name: _at(entry, moment, set_back=set_back) for name, entry in self.entries.items()}
        return replace(self, entries=entries, seen_ms=moment.wall_ms)

    def with_job(self, name: str, plan: Plan, moment: Moment, last_ms: int | None = None) -> Schedule:
        """With a job whose last run began at `last_ms` by the wall clock, if it had any. What passed since then was
        missed. Of one that is there, its plan changes, if it does, from its next firing on."""
        known, timetable = self.entries.get(name), plan.timetable
        if known is not None:
            fires = known.fires if known.plan.timetable == timetable else timetable.first(moment, moment.wall_ms)
            return self._with(name, replace(known, plan=plan, fires=fires, leaves=False))
        fires = timetable.first(moment, last_ms)
        if plan.missed is Missed.SKIP and fires <= timetable.now(moment) and last_ms is not None:
            fires = timetable.after(timetable.now(moment))
        return self._with(name, Entry(plan, fires))

    def without(self, name: str) -> Schedule:
        """Without a job; a run of it that is under way stays until it ends."""
        entry = self.entries.get(name)
        if entry is not None and entry.began_ms is not None:
            return self._with(name, replace(entry, leaves=True, due_ms=None, is_triggered=False))
        return replace(self, entries={each: entry for each, entry in self.entries.items() if each != name})

    def paused(self, name: str, *, is_paused: bool) -> Schedule:
        """With a job that is to begin no more by itself, or is to again."""
        entry = self.entries[name]
        drops = is_paused and entry.plan.missed is Missed.SKIP and not entry.is_triggered
        return self._with(name, replace(entry, is_paused=is_paused, due_ms=None if drops else entry.due_ms))

    def triggered(self, name: str, moment: Moment) -> Schedule:
        """With a job that somebody wants to run, once, whatever its timetable says, also if it is paused. Behind a run
        that is under way."""
        entry = self.entries[name]
        due_ms = moment.steady_ms if entry.due_ms is None else entry.due_ms
        return self._with(name, entry if entry.leaves else replace(entry, is_triggered=True, due_ms=due_ms))

    def begun(self, name: str, moment: Moment) -> Schedule:
        """With a run of a job under way."""
        known = self.entries[name]
        return self._with(name, Entry(known.plan, known.fires, began_ms=moment.steady_ms, is_paused=known.is_paused))

    def silent(self, name: str, *, is_silent: bool) -> Schedule:
        """With a job whose storage does not answer, or does again."""
        return self._with(name, replace(self.entries[name], is_silent=is_silent))

    def taken(self, name: str, moment: Moment) -> Schedule:
        """With a run that has come to begin, later than it was to."""
        return self._with(name, replace(self.entries[name], began_ms=moment.steady_ms, told_ms=None, is_silent=False))

    def told(self, name: str, moment: Moment) -> Schedule:
        """With a run that has been told to end."""
        return self._with(name, replace(self.entries[name], told_ms=moment.steady_ms))

    def ended(self, name: str, moment: Moment, *, was_held: bool = False) -> Schedule:
        """With a run over. `was_held`: it could not begin, as another one holds the job's lock: what it was due for is
        missed."""
        entry = replace(self.entries[name], began_ms=None)
        if entry.leaves:
            return replace(self, entries={each: it for each, it in self.entries.items() if each != name})
        if was_held:
            again = entry.due_ms is None and entry.plan.missed is Missed.RUN
            due_ms = moment.steady_ms if again else entry.due_ms
            entry = replace(entry, due_ms=due_ms, not_before_ms=moment.steady_ms + HELD_WAIT_MS)
        return self._with(name, entry)

    def ready(self, moment: Moment) -> tuple[str, ...]:
        """Who is to begin now: as many as there are slots for, and first who has waited longest for its target."""
        under_way = (entry for entry in self.entries.values() if entry.began_ms is not None and not entry.is_silent)
        slots = self.at_once - sum(1 for _ in under_way)
        waiting = [
            (-(moment.steady_ms - entry.due_ms + 1) / entry.plan.fresh_ms, name)
            for name, entry in self.entries.items()
            if entry.due_ms is not None and entry.may_begin(moment)
        ]
        return tuple(name for _, name in sorted(waiting)[: max(0, slots)])

    def overlong(self, moment: Moment) -> tuple[str, ...]:
        """Whose run is to be told to end, and has not been."""
        ends = {name: _ends_ms(entry) for name, entry in self.entries.items() if entry.told_ms is None}
        return tuple(name for name, end_ms in ends.items() if end_ms is not None and end_ms <= moment.steady_ms)

    def stuck(self, moment: Moment) -> tuple[str, ...]:
        """Whose run does not end though it was told to."""
        ends = {name: _gives_up_ms(entry) for name, entry in self.entries.items()}
        return tuple(name for name, end_ms in ends.items() if end_ms is not None and end_ms <= moment.steady_ms)

    def wait_ms(self, moment: Moment) -> int | None:
        """How long nothing happens by itself: 0 if something is to be done now, None if never."""
        if self.ready(moment):
            return 0
        waits = [wait for entry in self.entries.values() for wait in _waits_ms(entry, moment)]
        return max(0, min(waits)) if waits else None

    def _with(self, name: str, entry: Entry) -> Schedule:
        return replace(self, entries={**self.entries, name: entry})


def _at(entry: Entry, moment: Moment, *, set_back: bool) -> Entry:
    now = entry.plan.timetable.now(moment)
    if set_back:  # what it has come by already it comes by again: better twice than not until the clock is there again
        entry = replace(entry, fires=min(entry.fires, entry.plan.timetable.after(now)))
    return entry.fired(moment) if entry.fires <= now and not entry.leaves else entry


def _ends_ms(entry: Entry) -> int | None:
    """When its run is to be told to end."""
    if entry.began_ms is None or not entry.plan.cancel_after_ms or entry.is_silent:
        return None
    return entry.began_ms + entry.plan.cancel_after_ms


def _gives_up_ms(entry: Entry) -> int | None:
    """When its run, which was told to end, is taken for one that never does."""
    if entry.began_ms is None or entry.told_ms is None or entry.is_silent:
        return None
    return entry.told_ms + STUCK_MS + entry.plan.telling_ms


def _waits_ms(entry: Entry, moment: Moment) -> Iterator[int]:
    if not entry.leaves:
        yield entry.fires - entry.plan.timetable.now(moment)
    end_ms = _ends_ms(entry) if entry.told_ms is None else _gives_up_ms(entry)
    if end_ms is not None:
        yield end_ms - moment.steady_ms
    if entry.due_ms is not None and entry.began_ms is None and entry.not_before_ms > moment.steady_ms:
        yield entry.not_before_ms - moment.steady_ms

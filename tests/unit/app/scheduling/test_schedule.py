"""The schedule as a value: which jobs start and when, compared with a model, and the guarantee of each case."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from distcommit.app.scheduling.cron_and_interval import Cron, Interval, Moment
from distcommit.app.scheduling.schedule import HELD_WAIT_MS, LATE_MS, STUCK_MS, Missed, Plan, Schedule
from tests.stateful.profiles import effort

NOON = 1_800_000_000_000 // 86_400_000 * 86_400_000 + 12 * 3_600_000
NAMES = ("a", "b", "c")


@dataclass(frozen=True, slots=True)
class Grid:
    """A timetable that fires at each multiple of a period of the wall clock."""

    period_ms: int

    def now(self, moment: Moment) -> int:
        return moment.wall_ms

    def first(self, moment: Moment, last_ms: int | None) -> int:
        return self.after(moment.wall_ms if last_ms is None else last_ms)

    def after(self, time: int) -> int:
        return (time // self.period_ms + 1) * self.period_ms


@dataclass
class Modelled:
    """A job with the behaviour that the page documents."""

    plan: Plan
    since: int
    owes: bool = False
    owed_since: int = 0
    wished: bool = False
    runs_since: int | None = None
    paused: bool = False
    not_before: int = 0
    leaves: bool = False

    def pass_time(self, before: int, now: int, period: int) -> None:
        first = (before // period + 1) * period
        if first > now or self.leaves:
            return
        skips = self.plan.missed is Missed.SKIP and (
            self.runs_since is not None or self.paused or now - first > LATE_MS
        )
        if not skips and not self.owes:
            self.owes, self.owed_since = True, self.owed_since if self.wished else now

    @property
    def waits(self) -> bool:
        return (self.owes or self.wished) and self.runs_since is None and (self.wished or not self.paused)


@dataclass
class Clock:
    now: int = NOON

    @property
    def moment(self) -> Moment:
        return Moment(self.now, self.now)


class ScheduleMachine(RuleBasedStateMachine):
    """A state machine of any order of schedule events. Both clocks advance together."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = Clock()
        self.jobs: dict[str, Modelled] = {}

    @initialize(at_once=st.integers(1, 3))
    def begin(self, at_once: int) -> None:
        self.schedule = Schedule(at_once)
        self.at_once = at_once

    @rule(
        name=st.sampled_from(NAMES),
        period=st.sampled_from([7_000, 60_000, 300_000]),
        missed=st.sampled_from(Missed),
        cancel_after=st.sampled_from([0, 20_000]),
    )
    def put(self, name: str, period: int, missed: Missed, cancel_after: int) -> None:
        plan = Plan(Grid(period), missed, cancel_after)
        self.schedule = self.schedule.with_job(name, plan, self.clock.moment)
        modelled = self.jobs.get(name)
        if modelled is None:
            self.jobs[name] = Modelled(plan, self.clock.now)
        else:
            modelled.plan, modelled.leaves = plan, False

    @precondition(lambda self: self.jobs)
    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.jobs)))
        self.schedule = self.schedule.without(name)
        job = self.jobs[name]
        if job.runs_since is None:
            del self.jobs[name]
        else:
            job.leaves, job.owes, job.wished = True, False, False

    @precondition(lambda self: self.jobs)
    @rule(data=st.data(), is_paused=st.booleans())
    def pause(self, data: st.DataObject, is_paused: bool) -> None:
        name = data.draw(st.sampled_from(sorted(self.jobs)))
        self.schedule = self.schedule.paused(name, is_paused=is_paused)
        job = self.jobs[name]
        job.paused = is_paused
        if is_paused and job.plan.missed is Missed.SKIP and not job.wished:
            job.owes = False

    @precondition(lambda self: self.jobs)
    @rule(data=st.data())
    def trigger(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.jobs)))
        self.schedule = self.schedule.triggered(name, self.clock.moment)
        job = self.jobs[name]
        if not job.leaves:
            if not job.owes and not job.wished:
                job.owed_since = self.clock.now
            job.wished = True

    @rule(elapsed=st.sampled_from([1, 900, 6_999, 20_000, 59_999, 60_001, 400_000]))
    def wait(self, elapsed: int) -> None:
        before, self.clock.now = self.clock.now, self.clock.now + elapsed
        self.schedule = self.schedule.at(self.clock.moment)
        for job in self.jobs.values():
            timetable = job.plan.timetable
            assert isinstance(timetable, Grid)
            job.pass_time(before, self.clock.now, timetable.period_ms)

    @rule()
    def begin_what_is_ready(self) -> None:
        now = self.clock.now
        waiting = [(job.owed_since, name) for name, job in self.jobs.items() if job.waits and job.not_before <= now]
        places = self.at_once - sum(job.runs_since is not None for job in self.jobs.values())
        ready = self.schedule.ready(self.clock.moment)
        assert ready == tuple(name for _, name in sorted(waiting)[:places])
        for name in ready:
            self.schedule = self.schedule.record_begin(name, self.clock.moment)
            job = self.jobs[name]
            job.owes = job.wished = False
            job.runs_since, job.not_before = now, 0

    @precondition(lambda self: any(job.runs_since is not None for job in self.jobs.values()))
    @rule(data=st.data(), was_held=st.booleans())
    def end(self, data: st.DataObject, was_held: bool) -> None:
        name = data.draw(st.sampled_from(sorted(n for n, job in self.jobs.items() if job.runs_since is not None)))
        self.schedule = self.schedule.ended(name, self.clock.moment, was_held=was_held)
        job = self.jobs[name]
        job.runs_since = None
        if job.leaves:
            del self.jobs[name]
        elif was_held:
            job.not_before = self.clock.now + HELD_WAIT_MS
            if job.plan.missed is Missed.RUN and not job.owes and not job.wished:
                job.owes, job.owed_since = True, self.clock.now

    @invariant()
    def running_jobs_stay_within_the_slots(self) -> None:
        under_way = {name for name, entry in self.schedule.entries.items() if entry.began_ms is not None}
        assert len(under_way) <= self.at_once
        assert under_way == {name for name, job in self.jobs.items() if job.runs_since is not None}
        assert set(self.schedule.entries) == set(self.jobs)

    @invariant()
    def overlong_jobs_exceed_their_time_limit(self) -> None:
        expected = {
            name
            for name, job in self.jobs.items()
            if job.runs_since is not None
            and job.plan.cancel_after_ms
            and self.clock.now - job.runs_since >= job.plan.cancel_after_ms
        }
        assert set(self.schedule.overlong(self.clock.moment)) == expected

    @invariant()
    def no_firing_comes_before_its_announced_time(self) -> None:
        wait_ms = self.schedule.wait_ms(self.clock.moment)
        before = self.schedule.overlong(self.clock.moment)
        later = Clock(self.clock.now + (10**6 if wait_ms is None else max(0, wait_ms - 1))).moment
        if wait_ms != 0:
            assert self.schedule.at(later).ready(later) == ()
            assert self.schedule.overlong(later) == before


def test_promised_jobs_start_after_any_order_of_events() -> None:
    run_state_machine_as_test(ScheduleMachine, settings=effort(60, steps=40))


def at(seconds: float, *, set_by: float = 0) -> Moment:
    return Moment(NOON + round((seconds + set_by) * 1000), round(seconds * 1000))


EVERY_MINUTE = Cron("* * * * *")


def due(schedule: Schedule, moment: Moment) -> bool:
    return bool(schedule.at(moment).ready(moment))


@pytest.mark.parametrize("missed", Missed)
def test_many_missed_firings_are_followed_by_one_run_or_none(missed: Missed) -> None:
    schedule = Schedule(1).with_job("a", Plan(EVERY_MINUTE, missed), at(0)).at(at(60))
    schedule = schedule.record_begin("a", at(60))
    for minute in range(2, 9):
        schedule = schedule.at(at(60 * minute))
    assert schedule.entries["a"].passed == 7
    schedule = schedule.ended("a", at(500))
    assert due(schedule, at(501)) == (missed is Missed.RUN)
    if missed is Missed.RUN:
        schedule = schedule.record_begin("a", at(501)).ended("a", at(510))
    assert not due(schedule, at(511))
    assert due(schedule, at(540))


@pytest.mark.parametrize(("missed", "is_due"), [(Missed.RUN, True), (Missed.SKIP, False)])
def test_firings_before_the_service_started_are_made_up_for_or_not(missed: Missed, is_due: bool) -> None:
    plan = Plan(Cron("0 2 * * *"), missed)
    yesterday = NOON - 26 * 3_600_000
    assert due(Schedule(1).with_job("a", plan, at(0), yesterday), at(1)) == is_due
    assert not due(Schedule(1).with_job("a", plan, at(0), NOON - 3_600_000), at(1)), "the job has run since"
    assert not due(Schedule(1).with_job("a", plan, at(0)), at(1)), "the job has never run"


@pytest.mark.parametrize(("missed", "is_due"), [(Missed.RUN, True), (Missed.SKIP, False)])
def test_firings_while_the_machine_sleeps_are_missed(missed: Missed, is_due: bool) -> None:
    schedule = Schedule(1).with_job("a", Plan(Cron("30 12 * * *"), missed), at(0)).at(at(1))
    assert due(schedule, at(2, set_by=7 * 3600)) == is_due
    assert due(schedule, at(1800)), "the machine is awake"


def test_clock_set_back_delays_no_job() -> None:
    ahead = 24 * 3600
    schedule = Schedule(1).with_job("a", Plan(EVERY_MINUTE), at(0, set_by=ahead)).at(at(1, set_by=ahead))
    schedule = schedule.with_job("b", Plan(Interval(30_000)), at(1, set_by=ahead)).at(at(1, set_by=ahead))
    assert due(schedule.at(at(2)), at(62)), "it fires today, not a day later"
    for entry in schedule.at(at(2)).entries.values():
        assert entry.fires - entry.plan.timetable.now(at(2)) <= 60_000


def test_clock_set_back_by_little_fires_nothing_twice() -> None:
    schedule = Schedule(1).with_job("a", Plan(EVERY_MINUTE), at(0)).at(at(60))
    schedule = schedule.record_begin("a", at(60)).ended("a", at(61)).at(at(62, set_by=-30))
    assert not due(schedule, at(91, set_by=-30))
    assert due(schedule, at(150, set_by=-30))


@pytest.mark.parametrize("missed", Missed)
def test_run_blocked_by_a_foreign_lock_is_retried_or_missed(missed: Missed) -> None:
    schedule = Schedule(1).with_job("a", Plan(Cron("1 12 * * *"), missed), at(0)).at(at(60))
    assert schedule.ready(at(60)) == ("a",)
    schedule = schedule.record_begin("a", at(60)).ended("a", at(61), was_held=True)
    assert not due(schedule, at(61 + HELD_WAIT_MS / 1000 - 1)), "it is not retried at once"
    assert due(schedule, at(61 + HELD_WAIT_MS / 1000)) == (missed is Missed.RUN)


def test_overlong_run_is_reported_once_and_hangs_if_it_continues() -> None:
    schedule = Schedule(1).with_job("a", Plan(EVERY_MINUTE, cancel_after_ms=5_000), at(0)).at(at(60))
    schedule = schedule.record_begin("a", at(60))
    assert schedule.overlong(at(64)) == ()
    assert schedule.overlong(at(65)) == ("a",)
    schedule = schedule.record_end_request("a", at(65))
    assert schedule.overlong(at(70)) == ()
    assert schedule.stuck(at(65 + STUCK_MS / 1000 - 1)) == ()
    assert schedule.stuck(at(65 + STUCK_MS / 1000)) == ("a",)
    again = schedule.ended("a", at(70)).record_begin("a", at(120))
    assert (again.stuck(at(1000)), again.overlong(at(1000))) == ((), ("a",)), "the next run has its own time limit"


def test_run_that_has_ended_and_is_reporting_does_not_hang() -> None:
    plan = Plan(EVERY_MINUTE, cancel_after_ms=5_000, notify_ms=600_000)
    schedule = (
        Schedule(1).with_job("a", plan, at(0)).at(at(60)).record_begin("a", at(60)).record_end_request("a", at(65))
    )
    assert schedule.stuck(at(65 + 600 + STUCK_MS / 1000 - 1)) == ()
    assert schedule.stuck(at(65 + 600 + STUCK_MS / 1000)) == ("a",)


def test_job_whose_storage_does_not_answer_starts_nothing_takes_no_slot_and_does_not_hang() -> None:
    plan = Plan(EVERY_MINUTE, cancel_after_ms=5_000)
    schedule = Schedule(1).with_job("a", plan, at(0)).with_job("b", plan, at(0)).at(at(60)).record_begin("a", at(60))
    assert schedule.ready(at(60)) == ()
    schedule = schedule.silent("a", is_unresponsive=True)
    assert schedule.ready(at(60)) == ("b",)
    schedule = schedule.record_begin("b", at(60)).ended("b", at(61))
    assert (schedule.overlong(at(1000)), schedule.record_end_request("a", at(65)).stuck(at(1000))) == ((), ())
    schedule = schedule.record_late_begin("a", at(1000))
    assert (schedule.overlong(at(1004)), schedule.overlong(at(1005))) == ((), ("a",)), "measured from its start"
    idle = Schedule(1).with_job("a", plan, at(0)).at(at(60)).silent("a", is_unresponsive=True)
    assert (idle.ready(at(60)), idle.wait_ms(at(60))) == ((), 60_000)
    assert idle.silent("a", is_unresponsive=False).ready(at(61)) == ("a",)


def test_changed_timetable_counts_from_the_change_and_an_unchanged_one_continues() -> None:
    schedule = Schedule(1).with_job("a", Plan(Interval(30_000)), at(0), NOON)
    assert schedule.entries["a"].fires == 30_000
    same = schedule.with_job("a", Plan(Interval(30_000), Missed.SKIP), at(20))
    assert (same.entries["a"].fires, same.entries["a"].plan.missed) == (30_000, Missed.SKIP)
    assert schedule.with_job("a", Plan(Interval(50_000)), at(20)).entries["a"].fires == 70_000


def test_scarce_slots_go_to_the_job_with_the_largest_share_of_its_allowed_wait() -> None:
    schedule = Schedule(1).with_job("b", Plan(Interval(100_000)), at(0)).at(at(0))
    schedule = schedule.with_job("fresh", Plan(Interval(100_000), fresh_ms=5_000), at(10)).at(at(10))
    assert schedule.ready(at(10)) == ("b",), "one job has waited ten seconds of ten minutes, the other not at all"
    assert schedule.ready(at(11)) == ("fresh",), "a fifth of its allowed wait, which is the larger share"

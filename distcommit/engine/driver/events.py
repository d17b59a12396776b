"""What happens in a run, as typed events, and the port that they go to.

What happens in tasks reaches the driver as what they report when they end: the first events of each kind, and how many
more there were. Counts are complete: each phase's come with its end.
"""

from __future__ import annotations

from typing import Protocol

import msgspec

from distcommit.core.records.flow_counts import FlowCounts
from distcommit.core.run_outcome import RunOutcome
from distcommit.engine.driver.counts import Counts
from distcommit.engine.driver.reports import Reasons, Totals
from distcommit.engine.reading.task_events import TaskEvent


class RunBegan(msgspec.Struct, frozen=True):
    """A run has its epoch. `command`: what it was asked to do; `who` asked."""

    run_id: str
    epoch: int
    job: str
    command: str
    who: str
    at_ms: int


class PhaseBegan(msgspec.Struct, frozen=True):
    """A phase begins."""

    phase: str
    at_ms: int


class Progress(msgspec.Struct, frozen=True):
    """How far one task is, or all of them are.

    `slowest` and `fastest`: records that running tasks have read in a second, from their beginning on; 0 before they
    have read any. `spent`: seconds by what they were spent at, over all tasks: `read` (the extractor), converters and
    checkers by their names, `write` (the sink's writer), behind a fork with the branch in front; `commit`.
    """

    tasks_running: int = 0
    tasks_finished: int = 0
    datasets_committed: int = 0
    records_read: int = 0
    steps_executed: int = 0
    failures: int = 0
    bytes_read: int = 0
    slowest: float = 0.0
    fastest: float = 0.0
    spent: dict[str, float] = {}

    def __add__(self, other: Progress) -> Progress:
        """Both together."""
        rates = [rate for rate in (self.slowest, other.slowest) if rate]
        return Progress(
            tasks_running=self.tasks_running + other.tasks_running,
            tasks_finished=self.tasks_finished + other.tasks_finished,
            datasets_committed=self.datasets_committed + other.datasets_committed,
            records_read=self.records_read + other.records_read,
            steps_executed=self.steps_executed + other.steps_executed,
            failures=self.failures + other.failures,
            bytes_read=self.bytes_read + other.bytes_read,
            slowest=min(rates, default=0.0),
            fastest=max(self.fastest, other.fastest),
            spent={
                activity: self.spent.get(activity, 0) + other.spent.get(activity, 0)
                for activity in dict.fromkeys((*self.spent, *other.spent))
            },
        )


class Progressed(msgspec.Struct, frozen=True):
    """How far the phase is, now and then."""

    phase: str
    progress: Progress


class EventsLeftOut(msgspec.Struct, frozen=True):
    """How many events of tasks of the phase are not told one by one, by their type's name."""

    phase: str
    left_out: dict[str, int]


class PhaseEnded(msgspec.Struct, frozen=True):
    """A phase has ended, with all that it counted. `completed`: False if an error ended it: what is counted is what was
    heard of before."""

    phase: str
    seconds: float
    completed: bool
    counts: Counts
    reasons: Reasons = Reasons()
    notes: Reasons = Reasons()
    flow: FlowCounts = FlowCounts()


class RunEnded(msgspec.Struct, frozen=True):
    """The run is over. `kind` and `reason`: of the error that ended it, or that it went on after."""

    outcome: RunOutcome
    at_ms: int
    kind: str = ""
    reason: str = ""
    totals: Totals | None = None


Event = RunBegan | PhaseBegan | Progressed | TaskEvent | EventsLeftOut | PhaseEnded | RunEnded


class Observer(Protocol):
    """Is told what happens in a run. It has no say in it: one that raises is told nothing more. It may be called from
    several threads, one at a time, and the run waits for it."""

    def observe(self, event: Event) -> None: ...

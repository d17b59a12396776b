"""Typed events of a run, and the observer port that receives them.

Events of tasks reach the driver in the report of each task when its phase ends: the first of each kind, and the number
of the others. Counts are complete and come with the end of each phase.
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
    """The run has its epoch. `command`: the command that started it; `who`: the user or service that gave it."""

    run_id: str
    epoch: int
    job: str
    command: str
    who: str
    at_ms: int


class PhaseBegan(msgspec.Struct, frozen=True):
    """A phase has begun."""

    phase: str
    at_ms: int


class Progress(msgspec.Struct, frozen=True):
    """Progress of one task, or the sum over all tasks.

    `slowest` and `fastest`: records per second of running tasks since their start; 0 before the first record. `spent`:
    seconds by activity over all tasks: `read` (the extractor), each converter and checker by name, `write` (the sink's
    writer; behind a fork prefixed by the branch), `commit`.
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
        """Return the progress of both together."""
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
    """Progress of a phase, reported about twice a second."""

    phase: str
    progress: Progress


class EventsLeftOut(msgspec.Struct, frozen=True):
    """Number of task events of a phase that are not delivered, by event type."""

    phase: str
    left_out: dict[str, int]


class PhaseEnded(msgspec.Struct, frozen=True):
    """A phase has ended, with its counts. `completed`: False if an error ended it; the counts then cover only the
    reports received before."""

    phase: str
    seconds: float
    completed: bool
    counts: Counts
    reasons: Reasons = Reasons()
    notes: Reasons = Reasons()
    flow: FlowCounts = FlowCounts()


class RunEnded(msgspec.Struct, frozen=True):
    """The run has ended. `kind` and `reason`: type and text of the error that ended it, or of a failed ingest job."""

    outcome: RunOutcome
    at_ms: int
    kind: str = ""
    reason: str = ""
    totals: Totals | None = None


Event = RunBegan | PhaseBegan | Progressed | TaskEvent | EventsLeftOut | PhaseEnded | RunEnded


class Observer(Protocol):
    """Receives the events of a run. An observer cannot affect the run: after one exception it gets no more events.
    Calls may come from several threads, one at a time, and the run waits for each."""

    def observe(self, event: Event) -> None: ...

"""What happens in a run, as typed events, and the port that they go to.

What happens in tasks reaches the driver as what they report when they end: the first events of each kind, and how many
more there were. Counts are complete: each phase's come with its end.
"""

from __future__ import annotations

from typing import Protocol

import msgspec

from distcommit.engine.counts import Counts
from distcommit.engine.reports import Reasons, Totals
from distcommit.engine.task_events import TaskEvent
from distcommit.model.flow_counts import FlowCounts
from distcommit.model.run_outcome import RunOutcome


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
    """How far one task is, or all of them are."""

    tasks_running: int = 0
    tasks_finished: int = 0
    datasets_committed: int = 0
    records_read: int = 0
    steps_executed: int = 0
    failures: int = 0


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

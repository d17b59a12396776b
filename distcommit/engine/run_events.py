"""The event stream of a run.

Tasks report events at the end of a phase, limited by type (`EventsLeftOut`); counts include all.
"""

from __future__ import annotations

import logging
import threading
from typing import Protocol, TypeAlias

import msgspec

from distcommit.core.records.run_counts import RunCounts
from distcommit.core.records.run_outcome import RunOutcome
from distcommit.core.records.run_reasons import Reasons

logger = logging.getLogger(__name__)


class RunBegan(msgspec.Struct, frozen=True):
    run_id: str
    """Id of the run."""
    epoch: int
    """Epoch of the run."""
    job: str
    """Name of the job."""
    command: str
    """Command that started the run."""
    requested_by: str
    """User or service that gave the command."""
    at_ms: int
    """Time of the event in milliseconds since 1970."""


class PhaseBegan(msgspec.Struct, frozen=True):
    phase: str
    """Name of the phase."""
    at_ms: int
    """Time of the event in milliseconds since 1970."""


class Progressed(msgspec.Struct, frozen=True):
    """Progress of one task, or of all tasks together, which is reported about twice a second."""

    phase: str = ""
    """Name of the phase."""
    counts: RunCounts = RunCounts()
    """Counts so far: records and bytes read, steps executed, datasets committed, failures."""
    tasks_running: int = 0
    """Number of tasks that have not ended yet."""
    tasks_finished: int = 0
    """Number of tasks that have ended."""
    slowest: float = 0.0
    """Records per second of the slowest running task; 0 before the first record."""
    fastest: float = 0.0
    """Records per second of the fastest running task."""
    spent: dict[str, float] = {}
    """Seconds that all tasks have spent, by activity.

    Activities are `read` (the extractor), converters and checkers by name, `write` (behind a fork with the branch in
    front) and `commit`.
    """

    def __add__(self, other: Progressed) -> Progressed:
        rates = [rate for rate in (self.slowest, other.slowest) if rate]
        return Progressed(
            phase=self.phase,
            counts=self.counts + other.counts,
            tasks_running=self.tasks_running + other.tasks_running,
            tasks_finished=self.tasks_finished + other.tasks_finished,
            slowest=min(rates, default=0.0),
            fastest=max(self.fastest, other.fastest),
            spent={
                activity: self.spent.get(activity, 0) + other.spent.get(activity, 0)
                for activity in dict.fromkeys((*self.spent, *other.spent))
            },
        )


class WorkUnitDone(msgspec.Struct, frozen=True, tag="WorkUnitDone"):
    """End of an attempt at a work unit."""

    dataset: str
    """The dataset."""
    work_unit: str
    """Id of the work unit."""
    started_ms: int
    """Start of the attempt in milliseconds since 1970."""
    finished_ms: int
    """End of the attempt in milliseconds since 1970."""
    counts: RunCounts
    """Counts of the attempt."""
    error: str = ""
    """Error of the attempt; empty if it succeeded."""


class SequenceSealed(msgspec.Struct, frozen=True, tag="SequenceSealed"):
    """Seal of a commit sequence, whose steps are then durable."""

    dataset: str
    """The dataset."""
    epoch: int
    """Epoch of the sequence."""
    records: int
    """Number of records of the sequence."""
    files: int
    """Number of files of the sequence."""
    held: bool
    """Whether the steps wait for the decision to publish all datasets."""
    at_ms: int
    """Time of the event in milliseconds since 1970."""


class SequenceDone(msgspec.Struct, frozen=True, tag="SequenceDone"):
    """Publication of a dataset, which two processes may report."""

    dataset: str
    """The dataset."""
    epoch: int
    """Epoch of the sequence."""
    records: int
    """Number of records of the sequence."""
    files: int
    """Number of files of the sequence."""
    at_ms: int
    """Time of the event in milliseconds since 1970."""


class SequenceExecuted(msgspec.Struct, frozen=True):
    """Commits that a task has requested. Only the task's observers receive this event."""

    dataset: str
    """The dataset."""
    epoch: int
    """Epoch of the sequence."""
    counts: RunCounts
    """Counts of the requests."""


class DatasetQuarantined(msgspec.Struct, frozen=True, tag="DatasetQuarantined"):
    """Quarantine of a dataset, whose sequence waits for an operator."""

    dataset: str
    """The dataset."""
    epoch: int
    """Epoch of the sequence."""
    reason: str
    """Why the sequence cannot be finished."""
    at_ms: int
    """Time of the event in milliseconds since 1970."""


class EventsLeftOut(msgspec.Struct, frozen=True):
    """Numbers of task events that were not delivered."""

    phase: str
    """Name of the phase."""
    omitted_counts: dict[str, int]
    """Number of events by type."""


class PhaseEnded(msgspec.Struct, frozen=True):
    phase: str
    """Name of the phase."""
    seconds: float
    """Duration of the phase in seconds."""
    completed: bool
    """If False, an error ended the phase, and counts cover only earlier reports."""
    counts: RunCounts
    """Counts of the phase."""
    reasons: Reasons = Reasons()
    """Why datasets or buckets were not completed."""
    notes: Reasons = Reasons()
    """Facts that are not failures."""


class RunEnded(msgspec.Struct, frozen=True):
    outcome: RunOutcome
    """Outcome of the run."""
    at_ms: int
    """Time of the event in milliseconds since 1970."""
    kind: str = ""
    """Type of the error that ended the run."""
    reason: str = ""
    """Error text of the run, or of a failed ingest job."""
    totals: RunCounts | None = None
    """Counts of all phases; None if an error ended the run."""


TaskEvent: TypeAlias = WorkUnitDone | SequenceSealed | SequenceDone | DatasetQuarantined
"""Events that tasks report."""
Event: TypeAlias = (
    RunBegan | PhaseBegan | Progressed | TaskEvent | SequenceExecuted | EventsLeftOut | PhaseEnded | RunEnded
)


class Observer(Protocol):
    """Receiver of events, called by one thread at a time; the run waits for it.

    After its first exception, the observer receives no more events. A task's observer receives task events only.
    """

    def observe(self, event: Event) -> None: ...


class NullObserver:
    def observe(self, event: Event) -> None:
        pass


class CompositeObserver:
    """Observer that forwards events to several observers in turn, except those that have raised."""

    def __init__(self, *observers: Observer) -> None:
        self._observers = [GuardedObserver(observer) for observer in observers]

    def observe(self, event: Event) -> None:
        for observer in self._observers:
            observer.observe(event)


class GuardedObserver:
    """Observer that forwards events to another, by one thread at a time, until its first exception."""

    def __init__(self, observer: Observer) -> None:
        self._observer, self._lock = observer, threading.Lock()

    def observe(self, event: Event) -> None:
        with self._lock:
            try:
                self._observer.observe(event)
            except Exception:
                logger.exception("an observer of the run failed; it receives no more events")
                self._observer = NullObserver()

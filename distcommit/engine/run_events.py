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
    """Unique id."""
    epoch: int
    """Fencing number."""
    job: str
    """Name of the job."""
    command: str
    """That started the run."""
    requested_by: str
    """User or service."""
    at_ms: int
    """Milliseconds since 1970."""


class PhaseBegan(msgspec.Struct, frozen=True):
    phase: str
    """Name of the phase."""
    at_ms: int
    """Milliseconds since 1970."""


class Progressed(msgspec.Struct, frozen=True):
    """Progress of one task, or of all tasks together, which is reported about twice a second."""

    phase: str = ""
    """Name of the phase."""
    counts: RunCounts = RunCounts()
    """So far: records and bytes read, steps executed, datasets committed, failures."""
    tasks_running: int = 0
    """Not ended yet."""
    tasks_finished: int = 0
    """Ended so far."""
    slowest: float = 0.0
    """Records per second of a running task; 0 before the first."""
    fastest: float = 0.0
    """Records per second of a running task."""
    spent: dict[str, float] = {}
    """Seconds by activity of all tasks.

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
    """An attempt has ended."""

    dataset: str
    """The dataset."""
    work_unit: str
    """Id of the work unit."""
    started_ms: int
    """Milliseconds since 1970."""
    finished_ms: int
    """Milliseconds since 1970."""
    counts: RunCounts
    """Counts of the attempt."""
    error: str = ""
    """Empty for success."""


class SequenceSealed(msgspec.Struct, frozen=True, tag="SequenceSealed"):
    """A dataset's commit steps are durable."""

    dataset: str
    """The dataset."""
    epoch: int
    """Epoch of the sequence."""
    records: int
    """Records of the sequence."""
    files: int
    """Files of the sequence."""
    held: bool
    """Whether the steps wait for the decision to publish all datasets."""
    at_ms: int
    """Milliseconds since 1970."""


class SequenceDone(msgspec.Struct, frozen=True, tag="SequenceDone"):
    """A dataset is published; two processes may report it."""

    dataset: str
    """The dataset."""
    epoch: int
    """Epoch of the sequence."""
    records: int
    """Records of the sequence."""
    files: int
    """Files of the sequence."""
    at_ms: int
    """Milliseconds since 1970."""


class SequenceExecuted(msgspec.Struct, frozen=True):
    """A task has requested commits; only its observers see this."""

    dataset: str
    """The dataset."""
    epoch: int
    """Epoch of the sequence."""
    counts: RunCounts
    """Counts of the requests."""


class DatasetQuarantined(msgspec.Struct, frozen=True, tag="DatasetQuarantined"):
    """A dataset's sequence waits for an operator."""

    dataset: str
    """The dataset."""
    epoch: int
    """Epoch of the sequence."""
    reason: str
    """Why the sequence cannot be finished."""
    at_ms: int
    """Milliseconds since 1970."""


class EventsLeftOut(msgspec.Struct, frozen=True):
    """Counted task events that were not delivered."""

    phase: str
    """Name of the phase."""
    omitted_counts: dict[str, int]
    """Number of events by type."""


class PhaseEnded(msgspec.Struct, frozen=True):
    phase: str
    """Name of the phase."""
    seconds: float
    """Duration of the phase."""
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
    """Milliseconds since 1970."""
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

    After its first exception it receives no more. A task's observer receives task events only.
    """

    def observe(self, event: Event) -> None: ...


class NullObserver:
    def observe(self, event: Event) -> None:
        pass


class CompositeObserver:
    """Several observers in turn, without those that have raised."""

    def __init__(self, *observers: Observer) -> None:
        self._observers = [GuardedObserver(observer) for observer in observers]

    def observe(self, event: Event) -> None:
        for observer in self._observers:
            observer.observe(event)


class GuardedObserver:
    """An observer for one thread at a time, until its first exception."""

    def __init__(self, observer: Observer) -> None:
        self._observer, self._lock = observer, threading.Lock()

    def observe(self, event: Event) -> None:
        with self._lock:
            try:
                self._observer.observe(event)
            except Exception:
                logger.exception("an observer of the run failed; it receives no more events")
                self._observer = NullObserver()

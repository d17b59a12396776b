"""The event stream of a run: typed events, and the interface of observers.

A task reports its events to the driver when its phase ends. The report contains a limited number of events of each
type, and the number of events left out (`EventsLeftOut`). The counts in the report include events left out. Times are
milliseconds since 1970.
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
    """The run has begun and has its epoch."""

    run_id: str
    """The run's id."""
    epoch: int
    """The run's epoch."""
    job: str
    """Name of the job."""
    command: str
    """The command that started the run."""
    requested_by: str
    """The user or service that gave the command."""
    at_ms: int
    """Time of the start."""


class PhaseBegan(msgspec.Struct, frozen=True):
    """A phase has begun."""

    phase: str
    """Name of the phase."""
    at_ms: int
    """Time of the start."""


class Progressed(msgspec.Struct, frozen=True):
    """Progress of one task, or of all tasks of the run so far together. The sum is reported about twice a second."""

    phase: str = ""
    """Name of the phase."""
    counts: RunCounts = RunCounts()
    """Counts so far: records and bytes read, steps executed, datasets committed, failures."""
    tasks_running: int = 0
    """Tasks that have begun and not ended."""
    tasks_finished: int = 0
    """Tasks that have ended."""
    slowest: float = 0.0
    """Lowest read rate of a running task since its start, in records per second; 0 before the first record."""
    fastest: float = 0.0
    """Highest read rate of a running task since its start, in records per second."""
    spent: dict[str, float] = {}
    """Seconds by activity, summed over all tasks.

    Activities are `read` (the extractor), each converter and checker by name, `write` (the sink's writer; behind a fork
    with the branch in front) and `commit`.
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
    """An attempt at a work unit has ended."""

    dataset: str
    """The dataset."""
    work_unit: str
    """Id of the work unit."""
    started_ms: int
    """Start of the attempt."""
    finished_ms: int
    """End of the attempt."""
    counts: RunCounts
    """Counts of the attempt."""
    error: str = ""
    """Why the attempt failed; empty if it succeeded."""


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
    """Whether the steps are not executed before the run decides to publish all datasets."""
    at_ms: int
    """Time of the seal."""


class SequenceDone(msgspec.Struct, frozen=True, tag="SequenceDone"):
    """A dataset is published, and its watermark has moved.

    If two processes executed the sequence, both report this event.
    """

    dataset: str
    """The dataset."""
    epoch: int
    """Epoch of the sequence."""
    records: int
    """Records of the sequence."""
    files: int
    """Files of the sequence."""
    at_ms: int
    """Time of the publication."""


class SequenceExecuted(msgspec.Struct, frozen=True):
    """A task has requested the commits of a sequence from committers. Only observers of the task receive it."""

    dataset: str
    """The dataset."""
    epoch: int
    """Epoch of the sequence."""
    counts: RunCounts
    """Counts of the requests."""


class DatasetQuarantined(msgspec.Struct, frozen=True, tag="DatasetQuarantined"):
    """A dataset's sequence cannot be finished. The dataset is skipped until an operator releases it."""

    dataset: str
    """The dataset."""
    epoch: int
    """Epoch of the sequence."""
    reason: str
    """Why the sequence cannot be finished."""
    at_ms: int
    """Time of the quarantine."""


class EventsLeftOut(msgspec.Struct, frozen=True):
    """Number of task events of a phase that were counted but not delivered."""

    phase: str
    """Name of the phase."""
    omitted_counts: dict[str, int]
    """Number of events by type."""


class PhaseEnded(msgspec.Struct, frozen=True):
    """A phase has ended."""

    phase: str
    """Name of the phase."""
    seconds: float
    """Duration of the phase."""
    completed: bool
    """False if an error ended the phase. The counts then cover only the reports that arrived before the error."""
    counts: RunCounts
    """Counts of the phase."""
    reasons: Reasons = Reasons()
    """Why datasets or buckets were not completed."""
    notes: Reasons = Reasons()
    """Facts worth reporting that are not failures."""


class RunEnded(msgspec.Struct, frozen=True):
    """The run has ended."""

    outcome: RunOutcome
    """Outcome of the run."""
    at_ms: int
    """Time of the end."""
    kind: str = ""
    """Type of the error that ended the run."""
    reason: str = ""
    """Text of the error that ended the run, or of a failed ingest job."""
    totals: RunCounts | None = None
    """Counts of all phases; None if an error ended the run."""


TaskEvent: TypeAlias = WorkUnitDone | SequenceSealed | SequenceDone | DatasetQuarantined
"""Events that tasks report."""
Event: TypeAlias = (
    RunBegan | PhaseBegan | Progressed | TaskEvent | SequenceExecuted | EventsLeftOut | PhaseEnded | RunEnded
)


class Observer(Protocol):
    """Receives events. The run waits for each call; calls may come from several threads, one at a time.

    An observer cannot affect the run: after its first exception it receives no more events. The observer of a task
    receives task events only.
    """

    def observe(self, event: Event) -> None: ...


class NullObserver:
    def observe(self, event: Event) -> None:
        pass


class CompositeObserver:
    """Calls several observers in turn. An observer that raises receives no further events; the others do."""

    def __init__(self, *observers: Observer) -> None:
        self._observers = [GuardedObserver(observer) for observer in observers]

    def observe(self, event: Event) -> None:
        for observer in self._observers:
            observer.observe(event)


class GuardedObserver:
    """Calls an observer for one thread at a time. After its first exception the observer receives no more events."""

    def __init__(self, observer: Observer) -> None:
        self._observer, self._lock = observer, threading.Lock()

    def observe(self, event: Event) -> None:
        with self._lock:
            try:
                self._observer.observe(event)
            except Exception:
                logger.exception("an observer of the run failed; it receives no more events")
                self._observer = NullObserver()

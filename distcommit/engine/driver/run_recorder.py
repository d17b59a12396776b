"""The record of a run in the store."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TypeAlias

from msgspec.structs import replace

from distcommit.core.errors import (
    DistcommitError,
    FencedError,
    ProcessLostError,
    RunCancelledError,
    kind_of,
    plain_text,
    reason_text,
)
from distcommit.core.interfaces.clock import Clock
from distcommit.core.records.run_counts import RunCounts
from distcommit.core.records.run_outcome import RunOutcome
from distcommit.core.records.run_reasons import MAX_RUN_REASONS, Reason, Reasons
from distcommit.engine.driver.launch_interface import JobFailedError
from distcommit.engine.run_events import (
    DatasetQuarantined,
    Event,
    GuardedObserver,
    NullObserver,
    Observer,
    PhaseEnded,
    RunBegan,
    RunEnded,
    SequenceSealed,
)
from distcommit.engine.run_settings import RunSettings
from distcommit.stores.history.run_records import (
    BEGINNING_VERSION,
    RECORD_VERSION,
    RecordedPhase,
    RunBeginning,
    RunFacts,
    RunRecord,
    put_beginning,
    put_record,
)
from distcommit.stores.state.job_store import JobStore

logger = logging.getLogger(__name__)

_ReasonsByDataset: TypeAlias = dict[str, Reason]
_TEXT = 1000
_NO_FACTS = RunFacts()


@contextmanager
def recorded_run(
    settings: RunSettings, command: str, user: str, observer: Observer | None = None, facts: RunFacts = _NO_FACTS
) -> Iterator[Observer]:
    """Report and record the start and the end of a run. A run that ends normally must report its own end (`RunEnded`).

    Args:
        user: the user or service that gave the command.
        observer: receives all events, if given.
        facts: further facts for the record of the start.

    Yields:
        the observer that the run must report to.
    """
    store, clock = settings.store, settings.clock
    began = RunBegan(settings.run_id, settings.epoch, store.job, command, user, clock.now_ms())
    recorder = RunRecorder(began, GuardedObserver(observer or NullObserver()))
    recorder.observe(began)
    recorder.put_begin(store, facts)
    try:
        yield recorder
    except (Exception, KeyboardInterrupt) as error:
        recorder.observe(_ended_by(error, clock))
        recorder.put_end(store)
        raise
    recorder.put_end(store)


def _ended_by(error: BaseException, clock: Clock) -> RunEnded:
    match error:
        case FencedError():
            outcome = RunOutcome.FENCED
        case KeyboardInterrupt() | RunCancelledError():
            outcome = RunOutcome.INTERRUPTED
        case _:
            outcome = RunOutcome.FAILED
    text = error.found if isinstance(error, JobFailedError | ProcessLostError) else getattr(error, "text", error)
    return RunEnded(outcome, clock.now_ms(), kind_of(error), reason_text(text))


class RunRecorder:
    """Observer that forwards events, and collects the run's record in bounded memory.

    Args:
        observer: receives all events.
    """

    def __init__(self, began: RunBegan, observer: Observer) -> None:
        self._began, self._observer = began, observer
        self._ended: RunEnded | None = None
        self._phases: list[PhaseEnded] = []
        self._quarantined: _ReasonsByDataset = {}
        self._sealed: _ReasonsByDataset = {}

    def observe(self, event: Event) -> None:
        match event:
            case DatasetQuarantined(dataset, _, reason):
                _remember(self._quarantined, dataset, "quarantined", reason)
            case SequenceSealed(dataset, held=True):
                _remember(self._sealed, dataset, "held", "the run publishes all datasets or none")
            case PhaseEnded():
                self._phases.append(event)
            case RunEnded():
                self._ended = event
        self._observer.observe(event)

    def put_begin(self, store: JobStore, facts: RunFacts) -> None:
        began = self._began
        beginning = RunBeginning(
            version=BEGINNING_VERSION,
            job=began.job,
            run_id=began.run_id,
            epoch=began.epoch,
            command=plain_text(began.command, _TEXT),
            requested_by=plain_text(began.requested_by, _TEXT),
            began_ms=began.at_ms,
            facts=facts,
        )
        self._try_to_put(lambda: put_beginning(store, beginning), "the run's begin")

    def put_end(self, store: JobStore) -> None:
        ended = self._ended
        if ended is not None:
            self._try_to_put(lambda: put_record(store, self._record_of(ended)), "the run")

    def _try_to_put(self, put: Callable[[], None], subject: str) -> None:
        try:
            put()
        except (DistcommitError, OSError) as error:
            logger.warning("the record of %s was not written: %s", subject, error, extra={"epoch": self._began.epoch})
        except Exception:
            logger.exception("the record of %s was not written", subject, extra={"epoch": self._began.epoch})

    def _record_of(self, ended: RunEnded) -> RunRecord:
        began, totals = self._began, ended.totals
        if totals is None:
            totals = RunCounts.total(phase.counts for phase in self._phases)
        held_back = self._sealed if ended.outcome is RunOutcome.HELD_BACK else {}
        return RunRecord(
            version=RECORD_VERSION,
            job=began.job,
            run_id=began.run_id,
            epoch=began.epoch,
            command=plain_text(began.command, _TEXT),
            requested_by=plain_text(began.requested_by, _TEXT),
            began_ms=began.at_ms,
            ended_ms=ended.at_ms,
            outcome=ended.outcome,
            error_kind=ended.kind,
            error=reason_text(ended.reason),
            phases=tuple(map(_phase, self._phases)),
            totals=totals,
            quarantined=_counted(self._quarantined, totals.datasets_quarantined),
            held=_counted(held_back, totals.datasets_held),
            reasons=_recorded(phase.reasons for phase in self._phases),
            notes=_recorded(phase.notes for phase in self._phases),
        )


def _remember(reasons: _ReasonsByDataset, dataset: str, kind: str, text: str) -> None:
    if len(reasons) < MAX_RUN_REASONS:
        reasons[dataset] = Reason(plain_text(dataset, _TEXT), kind, reason_text(text, _TEXT))


def _counted(reasons: _ReasonsByDataset, number: int) -> Reasons:
    return Reasons(tuple(reasons.values()), max(0, number - len(reasons)))


def _phase(event: PhaseEnded) -> RecordedPhase:
    return RecordedPhase(event.phase, event.seconds, event.completed, event.counts)


def _recorded(parts: Iterable[Reasons]) -> Reasons:
    reasons = Reasons.first_of(parts)
    kept = tuple(replace(reason, text=reason_text(reason.text, _TEXT)) for reason in reasons)
    return Reasons(kept, reasons.omitted_count)

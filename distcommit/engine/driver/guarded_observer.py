"""Telling an observer of a run that it has begun and how it ended, and leaving a record of it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from distcommit.core.errors import FencedError, ProcessLostError, RunCancelledError, reason_text
from distcommit.core.ports import Clock
from distcommit.core.run_outcome import RunOutcome
from distcommit.engine.driver.events import Event, Observer, RunBegan, RunEnded
from distcommit.engine.driver.launch import JobFailedError
from distcommit.engine.driver.run_recorder import Recorder
from distcommit.engine.settings import RunSettings
from distcommit.stores.history.run_records import RunFacts

logger = logging.getLogger(__name__)

_NO_FACTS = RunFacts()


class Nobody:
    """Observes nothing."""

    def observe(self, event: Event) -> None:
        pass


class Several:
    """Observers that are told one after the other. One that raises is told nothing more, and the others are."""

    def __init__(self, *observers: Observer) -> None:
        self._observers = [_Guarded(each) for each in observers]

    def observe(self, event: Event) -> None:
        for each in self._observers:
            each.observe(event)


class _Guarded:
    """An observer that can't harm what it observes."""

    def __init__(self, observer: Observer) -> None:
        self._observer, self._lock = observer, threading.Lock()

    def observe(self, event: Event) -> None:
        with self._lock:
            try:
                self._observer.observe(event)
            except Exception:
                logger.exception("an observer of the run failed; it is told nothing more")
                self._observer = Nobody()


@contextmanager
def observed(
    settings: RunSettings, command: str, who: str, observer: Observer | None = None, facts: RunFacts = _NO_FACTS
) -> Iterator[Observer]:
    """Tells the observer that the run has begun, and how it ended if an error ends it; else the run tells it. What the
    store keeps of the run, first that it has begun and last how it ended, is left there.

    Args:
        settings: the run.
        command: what it was asked to do.
        who: who asked.
        observer: who is told.
        facts: what else is kept of its beginning.

    Yields:
        whom the run is to tell what happens.
    """
    store, clock = settings.store, settings.clock
    began = RunBegan(settings.run_id, settings.epoch, store.job, command, who, clock.now_ms())
    told = Recorder(began, _Guarded(observer or Nobody()))
    told.observe(began)
    told.begin(store, facts)
    try:
        yield told
    except (Exception, KeyboardInterrupt) as error:
        told.observe(_ended_by(error, clock))
        told.keep(store)
        raise
    told.keep(store)


def _ended_by(error: BaseException, clock: Clock) -> RunEnded:
    match error:
        case FencedError():
            outcome = RunOutcome.FENCED
        case KeyboardInterrupt() | RunCancelledError():
            outcome = RunOutcome.INTERRUPTED
        case _:
            outcome = RunOutcome.FAILED
    text = error.found if isinstance(error, JobFailedError | ProcessLostError) else error
    return RunEnded(outcome, clock.now_ms(), type(error).__name__, reason_text(text))

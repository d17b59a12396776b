"""Observers whose errors cannot affect a run, and the context that reports a run to its observer and records it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from distcommit.core.errors import FencedError, ProcessLostError, RunCancelledError, kind_of, reason_text
from distcommit.core.interfaces.clock import Clock
from distcommit.core.records.run_outcome import RunOutcome
from distcommit.engine.driver.launch_interface import JobFailedError
from distcommit.engine.driver.run_recorder import RunRecorder
from distcommit.engine.run_events import Event, NullObserver, Observer, RunBegan, RunEnded
from distcommit.engine.run_settings import RunSettings
from distcommit.stores.history.run_records import RunFacts

logger = logging.getLogger(__name__)

_NO_FACTS = RunFacts()


class CompositeObserver:
    """Calls several observers in turn. An observer that raises receives no further events; the other observers do."""

    def __init__(self, *observers: Observer) -> None:
        self._observers = [_Guarded(observer) for observer in observers]

    def observe(self, event: Event) -> None:
        for observer in self._observers:
            observer.observe(event)


class _Guarded:
    """An observer whose exceptions do not reach the run."""

    def __init__(self, observer: Observer) -> None:
        self._observer, self._lock = observer, threading.Lock()

    def observe(self, event: Event) -> None:
        with self._lock:
            try:
                self._observer.observe(event)
            except Exception:
                logger.exception("an observer of the run failed; it receives no more events")
                self._observer = NullObserver()


@contextmanager
def recorded_run(
    settings: RunSettings, command: str, user: str, observer: Observer | None = None, facts: RunFacts = _NO_FACTS
) -> Iterator[Observer]:
    """Report and record the start of a run, and the end of a run that raises. A run that ends normally reports its own
    end.

    Args:
        settings: settings of the run.
        command: the command that started the run.
        user: the user or service that gave the command.
        observer: the observer; None for none.
        facts: further facts for the record of the start.

    Yields:
        the observer that the run must report to.
    """
    store, clock = settings.store, settings.clock
    began = RunBegan(settings.run_id, settings.epoch, store.job, command, user, clock.now_ms())
    recorder = RunRecorder(began, _Guarded(observer or NullObserver()))
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

"""Several observers of a run as one, isolated from the run and from each other."""

from __future__ import annotations

import logging
import threading

from distcommit.engine.run_events import Event, NullObserver, Observer

logger = logging.getLogger(__name__)


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

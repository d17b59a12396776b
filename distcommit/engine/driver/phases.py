"""The phases of a run, as reported to observers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from distcommit.core.errors import FencedError, StaleStoreError
from distcommit.core.interfaces.clock import Clock
from distcommit.engine.driver.task_reports import Report, sum_reports
from distcommit.engine.run_events import EventsLeftOut, Observer, PhaseBegan, PhaseEnded


class Phase:
    """A running phase with its tasks' reports."""

    def __init__(self, name: str, observer: Observer) -> None:
        self.name, self._observer = name, observer
        self.report = Report()

    def collect(self, reports: Sequence[Report]) -> Report:
        """Report the tasks' events to the observer, and return the sum of the tasks' reports.

        The sum of the last call is the result of the phase.

        Raises:
            FencedError: if a newer run has fenced this one.
            StaleStoreError: if the output is older than the store.
        """
        left_out: Counter[str] = Counter()
        for report in reports:
            for event in report.events:
                self._observer.observe(event)
            left_out.update(report.events_left_out)
        if left_out:
            self._observer.observe(EventsLeftOut(self.name, dict(left_out)))
        total = sum_reports(reports)
        self.report = total
        if total.fenced:
            raise FencedError.from_text(total.fenced)
        if total.stale:
            raise StaleStoreError.from_text(total.stale)
        return total


class Phases:
    """Reporter of the start and the end of each phase.

    Attributes:
        seconds: duration of each completed phase, by name.
    """

    def __init__(self, clock: Clock, observer: Observer) -> None:
        self._clock, self._observer = clock, observer
        self.seconds: dict[str, float] = {}

    @contextmanager
    def __call__(self, name: str) -> Iterator[Phase]:
        phase, began_s = Phase(name, self._observer), self._clock.monotonic_s()
        self._observer.observe(PhaseBegan(name, self._clock.now_ms()))
        completed = False
        try:
            yield phase
            completed = True
        finally:
            seconds = round(self._clock.monotonic_s() - began_s, 3)
            if completed:
                self.seconds[name] = seconds
            report = phase.report
            ended = PhaseEnded(name, seconds, completed, report.counts, report.reasons, report.notes)
            self._observer.observe(ended)

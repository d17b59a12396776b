"""The phases of a run, as the driver tells them to its observer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from distcommit.core.errors import FencedError, StaleStoreError
from distcommit.core.ports import Clock
from distcommit.engine.driver.counts import Counts
from distcommit.engine.driver.events import EventsLeftOut, Observer, PhaseBegan, PhaseEnded
from distcommit.engine.driver.reports import PhaseCounts, Report, add_up


class Phase:
    """One phase under way: what its tasks report goes through it."""

    def __init__(self, name: str, observer: Observer) -> None:
        self.name, self._observer = name, observer
        self.report: Report[Counts] = Report(Counts())

    def heard(self, reports: Sequence[Report[PhaseCounts]], none: PhaseCounts) -> Report[PhaseCounts]:
        """Tells what happened in tasks, and returns the sum of their reports, which is what the phase comes to, unless
        more is heard of it later: then that is.

        Raises:
            FencedError: if a task found that a newer run has fenced this one.
            StaleStoreError: if one found that the output is older than the store.
        """
        left_out: Counter[str] = Counter()
        for report in reports:
            for event in report.happened.kept:
                self._observer.observe(event)
            left_out.update(report.happened.left_out)
        if left_out:
            self._observer.observe(EventsLeftOut(self.name, dict(left_out)))
        total = add_up(reports, none)
        self.report = total
        if total.fenced:
            raise FencedError(total.fenced)
        if total.stale:
            raise StaleStoreError(total.stale)
        return total


class Phases:
    """Names phases as they begin and end, and how long they took.

    Attributes:
        seconds: by phase, of those that were completed.
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
            told = phase.report
            counts, reasons, notes = told.counts, told.reasons, told.notes
            self._observer.observe(PhaseEnded(name, seconds, completed, counts, reasons, notes, told.flow))

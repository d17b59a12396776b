"""Times of a task's commits, and its file-system requests, for the run's table of times. For diagnosis only."""

from __future__ import annotations

import os
import socket
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Lock

from distcommit.core.support.request_counts import REQUESTS
from distcommit.engine.reading.task_events import SequenceDone, SequenceSealed, TaskEvent, TaskObserver
from distcommit.engine.settings import RunSettings
from distcommit.stores.history.run_times import RunTime, TimeKind, put_run_times


class TaskTimes:
    """Records the commits of one attempt at a task, and writes them to the store when the attempt ends.

    Args:
        settings: the run.
        phase: phase of the run.
        task: number of the task in the phase.
        writer: the 32 hexadecimal digits in the names of the task's states; "" for new ones.
    """

    def __init__(self, settings: RunSettings, phase: str, task: int, writer: str = "") -> None:
        self._settings, self._phase, self._task = settings, phase, task
        self._writer = writer or uuid.uuid4().hex
        self._task_columns = (phase, task, socket.gethostname(), os.getpid(), os.getppid())
        self._clock, self.one_at_a_time = settings.clock, Lock()
        self._began_ms = self._clock.now_ms()
        self._sealed: dict[tuple[str, int], int] = {}
        self._rows: list[RunTime] = []
        self._requests_before = REQUESTS.made
        self._requests: Counter[str] = Counter()

    def recording(self, observer: TaskObserver) -> TaskObserver:
        """Return an observer that records events here and passes them on. It may be called from several threads."""
        return _RecordingObserver(self, observer)

    def note(self, event: TaskEvent) -> None:
        """Record an event."""
        match event:
            case SequenceSealed(dataset, epoch, at_ms=at_ms):
                self._sealed[dataset, epoch] = at_ms
            case SequenceDone(dataset, epoch, records, at_ms=at_ms):
                sealed_ms = self._sealed.pop((dataset, epoch), 0)
                self._rows.append(RunTime(*self._task_columns, TimeKind.PUBLISHED, dataset, sealed_ms, at_ms, records))

    @contextmanager
    def working_on(self, dataset: str) -> Iterator[None]:
        """Count requests made in this context for a dataset that the task reads and writes. Requests of other datasets'
        writers that end meanwhile are included."""
        requests_before = REQUESTS.made
        try:
            yield
        finally:
            self._requests[dataset] += REQUESTS.made - requests_before

    @contextmanager
    def committing(self) -> Iterator[None]:
        """Count requests and time in this context as commits of the datasets that it publishes."""
        began_ms, before, requests_before = self._clock.now_ms(), len(self._rows), REQUESTS.made
        try:
            yield
        finally:
            published = [row.dataset for row in self._rows[before:]]
            if published:
                self._count_requests(REQUESTS.made - requests_before, published)
                times = began_ms, self._clock.now_ms()
                self._rows.append(RunTime(*self._task_columns, TimeKind.COMMITS, "", *times, len(published)))

    def _count_requests(self, requests: int, datasets: list[str]) -> None:
        """Distribute requests evenly over datasets that were published together, as most cannot be attributed."""
        share, rest = divmod(requests, len(datasets))
        self._requests.update(dict.fromkeys(datasets, share))
        self._requests.update(datasets[:rest])

    def write(self, work_units: int = 0) -> None:
        """Write the rows, if the task had work units or has committed anything. A failure is only logged."""
        sealed_only = [
            RunTime(*self._task_columns, TimeKind.SEALED, dataset, at_ms, at_ms)
            for (dataset, _), at_ms in self._sealed.items()
        ]
        rows = [*self._rows, *sealed_only]
        if not rows and not work_units:
            return
        self._requests[""] = REQUESTS.made - self._requests_before - self._requests.total()
        rows += (
            RunTime(*self._task_columns, TimeKind.REQUESTS, dataset, count=count)
            for dataset, count in self._requests.items()
            if count > 0
        )
        store, ended_ms = self._settings.store, self._clock.now_ms()
        task = RunTime(*self._task_columns, TimeKind.TASK, "", self._began_ms, ended_ms, work_units)
        put_run_times(
            store.fs,
            store.roots.store,
            self._settings.run_id,
            self._phase,
            self._task,
            self._writer,
            [task, *rows],
        )


@dataclass(frozen=True, slots=True)
class _RecordingObserver:
    times: TaskTimes
    observer: TaskObserver

    def observe(self, event: TaskEvent) -> None:
        with self.times.one_at_a_time:
            self.times.note(event)
            self.observer.observe(event)

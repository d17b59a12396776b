"""A task attempt's rows in the run's table, for diagnosis only."""

from __future__ import annotations

import os
import socket
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Lock

from distcommit.core.records.run_counts import RunCounts
from distcommit.core.support.request_counts import REQUESTS
from distcommit.engine.run_events import Event, Observer, SequenceDone, SequenceExecuted, SequenceSealed
from distcommit.engine.run_settings import RunSettings
from distcommit.stores.history.run_table import RowKind, TableRow, TaskIdentity, TaskRows, put_task_rows


class TaskRecorder:
    """Recorder of a task attempt, which writes its rows at the end.

    Args:
        task: number of the task in the phase.
        writer: the writer of its task states, as 32 hexadecimal digits; empty for a new one.
    """

    def __init__(self, settings: RunSettings, phase: str, task: int, writer: str = "") -> None:
        self._settings, self._clock, self.one_at_a_time = settings, settings.clock, Lock()
        self._task = TaskIdentity(
            phase, task, writer or uuid.uuid4().hex, socket.gethostname(), os.getpid(), os.getppid()
        )
        self._began_ms = self._clock.now_ms()
        self._sealed: dict[str, SequenceSealed] = {}
        self._published: dict[str, SequenceDone] = {}
        self._commits: dict[str, RunCounts] = {}
        self._passes: list[TableRow] = []
        self._outcomes: list[TableRow] = []
        self._requests_before = REQUESTS.made
        self._requests: Counter[str] = Counter()

    def recording(self, observer: Observer) -> Observer:
        """Return an observer that records and forwards events, also of several threads."""
        return _RecordingObserver(self, observer)

    def note(self, event: Event) -> None:
        match event:
            case SequenceSealed():
                self._sealed[event.dataset] = event
            case SequenceDone():
                self._published[event.dataset] = event
            case SequenceExecuted():
                self._commits[event.dataset] = self._commits.get(event.dataset, RunCounts()) + event.counts

    def add_outcomes(self, outcomes: Iterable[TableRow]) -> None:
        self._outcomes += outcomes

    @contextmanager
    def working_on(self, dataset: str) -> Iterator[None]:
        """Count the block's storage requests for `dataset`, also those of other writers that end within the block."""
        requests_before = REQUESTS.made
        try:
            yield
        finally:
            self._requests[dataset] += REQUESTS.made - requests_before

    @contextmanager
    def committing(self) -> Iterator[None]:
        """Count the block's storage requests and time as commits of the datasets published in it."""
        began_ms, before, requests_before = self._clock.now_ms(), len(self._published), REQUESTS.made
        try:
            yield
        finally:
            published = [*self._published][before:]
            if published:
                self._count_requests(REQUESTS.made - requests_before, published)
                counts = RunCounts(datasets_committed=len(published))
                times = began_ms, self._clock.now_ms()
                self._passes.append(TableRow(RowKind.COMMITS, began_ms=times[0], ended_ms=times[1], counts=counts))

    def _count_requests(self, requests: int, datasets: list[str]) -> None:
        share, remainder = divmod(requests, len(datasets))
        self._requests.update(dict.fromkeys(datasets, share))
        self._requests.update(datasets[:remainder])

    def write(self, work_units: int = 0) -> None:
        """Write the rows; a failure is only logged.

        The task itself has a row only if it had work units or commits.
        """
        rows = list(self._outcomes)
        if work_units or self._sealed or self._published or self._commits:
            rows = [*self._task_rows(work_units), *rows]
        if rows:
            store = self._settings.store
            put_task_rows(store.fs, store.roots.store, self._settings.run_id, TaskRows(self._task, rows))

    def _task_rows(self, work_units: int) -> list[TableRow]:
        others = REQUESTS.made - self._requests_before - self._requests.total()
        counts = RunCounts(work_units=work_units, storage_requests=max(0, others))
        task = TableRow(RowKind.TASK, began_ms=self._began_ms, ended_ms=self._clock.now_ms(), counts=counts)
        requested = [dataset for dataset, number in self._requests.items() if number > 0]
        datasets = dict.fromkeys((*self._published, *self._sealed, *self._commits, *requested))
        return [task, *map(self._dataset_row, datasets), *self._passes]

    def _dataset_row(self, dataset: str) -> TableRow:
        sealed, done = self._sealed.get(dataset), self._published.get(dataset)
        return TableRow(
            RowKind.DATASET,
            dataset,
            began_ms=sealed.at_ms if sealed else 0,
            ended_ms=done.at_ms if done else 0,
            counts=RunCounts(
                datasets_committed=1 if done else 0,
                records_published=done.records if done else 0,
                files_published=done.files if done else 0,
                storage_requests=self._requests[dataset],
            )
            + self._commits.get(dataset, RunCounts()),
        )


@dataclass(frozen=True, slots=True)
class _RecordingObserver:
    recorder: TaskRecorder
    observer: Observer

    def observe(self, event: Event) -> None:
        with self.recorder.one_at_a_time:
            self.recorder.note(event)
            self.observer.observe(event)

"""When a task committed what, and what it asked of file systems, noted for the run's table of times; for people to look
at."""

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
    """Notes what one attempt at a task commits, and leaves it in the store when that ends.

    Args:
        settings: the run.
        phase: of the run, and
        task: of that phase.
        writer: 32 hexadecimal digits that its task states are named by, new ones if there are none.
    """

    def __init__(self, settings: RunSettings, phase: str, task: int, writer: str = "") -> None:
        self._settings, self._phase, self._task = settings, phase, task
        self._writer = writer or uuid.uuid4().hex
        self._of_task = (phase, task, socket.gethostname(), os.getpid(), os.getppid())
        self._clock, self.one_at_a_time = settings.clock, Lock()
        self._began_ms = self._clock.now_ms()
        self._sealed: dict[tuple[str, int], int] = {}
        self._rows: list[RunTime] = []
        self._asked_before = REQUESTS.made
        self._asked: Counter[str] = Counter()

    def telling(self, told: TaskObserver) -> TaskObserver:
        """An observer that passes on what it is told, and has it noted here. Threads may tell all of these."""
        return _Telling(self, told)

    def note(self, event: TaskEvent) -> None:
        """Takes in what has happened."""
        match event:
            case SequenceSealed(dataset, epoch, at_ms=at_ms):
                self._sealed[dataset, epoch] = at_ms
            case SequenceDone(dataset, epoch, records, at_ms=at_ms):
                sealed_ms = self._sealed.pop((dataset, epoch), 0)
                self._rows.append(RunTime(*self._of_task, TimeKind.PUBLISHED, dataset, sealed_ms, at_ms, records))

    @contextmanager
    def working_on(self, dataset: str) -> Iterator[None]:
        """In here the task reads and writes this dataset; what writers of others ask for, which end meanwhile, counts
        for it, too."""
        asked = REQUESTS.made
        try:
            yield
        finally:
            self._asked[dataset] += REQUESTS.made - asked

    @contextmanager
    def committing(self) -> Iterator[None]:
        """In here the task commits what is ready in its buckets."""
        began_ms, before, asked = self._clock.now_ms(), len(self._rows), REQUESTS.made
        try:
            yield
        finally:
            published = [row.dataset for row in self._rows[before:]]
            if published:
                self._share(REQUESTS.made - asked, published)
                times = began_ms, self._clock.now_ms()
                self._rows.append(RunTime(*self._of_task, TimeKind.COMMITS, "", *times, len(published)))

    def _share(self, requests: int, datasets: list[str]) -> None:
        """Among those that were published together, evenly: of most requests it can't be told whose they are."""
        each, left = divmod(requests, len(datasets))
        self._asked.update(dict.fromkeys(datasets, each))
        self._asked.update(datasets[:left])

    def keep(self, work_units: int = 0) -> None:
        """Leaves what there is: of a task that neither had work units nor has committed anything, nothing. Where that
        fails, it is only told."""
        held = [
            RunTime(*self._of_task, TimeKind.SEALED, dataset, at_ms, at_ms)
            for (dataset, _), at_ms in self._sealed.items()
        ]
        rows = [*self._rows, *held]
        if not rows and not work_units:
            return
        self._asked[""] = REQUESTS.made - self._asked_before - self._asked.total()
        rows += (
            RunTime(*self._of_task, TimeKind.REQUESTS, dataset, count=count)
            for dataset, count in self._asked.items()
            if count > 0
        )
        store, ended_ms = self._settings.store, self._clock.now_ms()
        task = RunTime(*self._of_task, TimeKind.TASK, "", self._began_ms, ended_ms, work_units)
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
class _Telling:
    times: TaskTimes
    told: TaskObserver

    def observe(self, event: TaskEvent) -> None:
        with self.times.one_at_a_time:
            self.times.note(event)
            self.told.observe(event)

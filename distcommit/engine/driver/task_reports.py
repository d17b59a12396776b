"""The bounded report of a task to the driver."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable

import msgspec

from distcommit.core.records.bucket_and_dataset_snapshots import BucketSnapshot
from distcommit.core.records.job_log_records import Head
from distcommit.core.records.run_counts import RunCounts
from distcommit.core.records.run_reasons import Reasons
from distcommit.engine.run_events import Event, Observer, TaskEvent

MAX_EVENTS = 20
"""Maximum number of events of each type in one report. Keeps the driver's memory O(tasks)."""


class Report(msgspec.Struct, frozen=True):
    """A task's report on a phase, or a sum of reports."""

    counts: RunCounts = RunCounts()
    """Counts of the phase."""
    reasons: Reasons = Reasons()
    """Why datasets or buckets were not completed."""
    notes: Reasons = Reasons()
    """Facts that are not failures."""
    fenced: str = ""
    """Error text if a newer run has fenced this one; else empty."""
    stale: str = ""
    """Error text if the output is older than the store; else empty."""
    partition: int = -1
    """Number of the partition or task; -1 in a sum."""
    worker_pid: int = 0
    """Process id of the Python worker; 0 in a sum."""
    daemon_pid: int = 0
    """Process id of the worker's parent; 0 in a sum."""
    events: tuple[TaskEvent, ...] = ()
    """First events of each type; empty in a sum."""
    events_left_out: dict[str, int] = {}
    """Number of further events by type."""
    heads: tuple[Head, ...] = ()
    """Durable log heads of buckets."""
    snapshots: tuple[BucketSnapshot, ...] = ()
    """Snapshot entries of the reported buckets."""


class Tally:
    """Observer of a task that collects the task's report. Not thread-safe.

    Args:
        observer: receives all events. Without an observer, the first events of each type become part of the report.
    """

    def __init__(self, observer: Observer | None = None) -> None:
        self.counts, self.fenced, self.stale = RunCounts(), "", ""
        self.heads: tuple[Head, ...] = ()
        self.seen: tuple[BucketSnapshot, ...] = ()
        self.reasons = self.notes = Reasons()
        self._observer = observer
        self._events: list[TaskEvent] = []
        self._observed: Counter[str] = Counter()

    def add(self, counts: RunCounts) -> None:
        self.counts += counts

    def add_reason(self, subject: str, kind: str, text: str, remedy: tuple[str, ...] = ()) -> None:
        """Add a reason, or count it if the report is full."""
        self.reasons += Reasons.of(subject, kind, text, remedy)

    def note(self, subject: str, kind: str, text: str) -> None:
        """Add a new note, or count it if the report is full."""
        note = Reasons.of(subject, kind, text)
        if note.entries[0] not in self.notes.entries:
            self.notes += note

    def observe(self, event: Event) -> None:
        """Forward an event; without observer, keep it up to `MAX_EVENTS` of its type."""
        if self._observer is not None:
            self._observer.observe(event)
        elif isinstance(event, TaskEvent):
            kind = type(event).__name__
            self._observed[kind] += 1
            if self._observed[kind] <= MAX_EVENTS:
                self._events.append(event)

    def merge(self, report: Report) -> None:
        """Add another report on the same phase."""
        self.counts += report.counts
        self.reasons += report.reasons
        self.notes += report.notes
        self.stale = self.stale or report.stale
        self.heads += report.heads
        self.seen += report.snapshots
        for event in report.events:
            self.observe(event)
        self._observed.update(report.events_left_out)

    def report(self, partition: int = -1) -> Report:
        return Report(
            counts=self.counts,
            reasons=self.reasons,
            notes=self.notes,
            fenced=self.fenced,
            stale=self.stale,
            partition=partition,
            worker_pid=os.getpid(),
            daemon_pid=os.getppid(),
            events=tuple(self._events),
            events_left_out={
                kind: number - MAX_EVENTS for kind, number in self._observed.items() if number > MAX_EVENTS
            },
            heads=self.heads,
            snapshots=self.seen,
        )


def sum_reports(reports: Iterable[Report]) -> Report:
    parts = list(reports)
    return Report(
        counts=RunCounts.total(part.counts for part in parts),
        reasons=Reasons.first_of(part.reasons for part in parts),
        notes=Reasons.first_of(part.notes for part in parts),
        fenced=next((part.fenced for part in parts if part.fenced), ""),
        stale=next((part.stale for part in parts if part.stale), ""),
        heads=tuple(head for part in parts for head in part.heads),
        snapshots=tuple(entry for part in parts for entry in part.snapshots),
    )

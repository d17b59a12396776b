"""Reports of the tasks of a phase to the driver: counts, and a bounded number of reasons."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Generic, TypeVar

import msgspec
from msgspec.structs import asdict, replace

from distcommit.core.errors import plain_text, reason_text
from distcommit.core.records.flow_counts import FlowCounts
from distcommit.core.records.job_records import Head
from distcommit.core.records.snapshot_names import BucketSnapshot
from distcommit.engine.driver.counts import Counts
from distcommit.engine.reading.task_events import MAX_EVENTS, TaskEvent, TaskEvents, TaskObserver

MAX_REASONS = 20
"""Maximum number of reasons in one report; the others are counted. Keeps the driver's memory O(partitions)."""
_MAX_IN_DRIVER = 100

PhaseCounts = TypeVar("PhaseCounts", bound=Counts)
PhaseCounts_co = TypeVar("PhaseCounts_co", bound=Counts, covariant=True)


class Reason(msgspec.Struct, frozen=True):
    """Why a dataset or a bucket was not completed. `remedy`: the command that resolves it, as of a `DatasetProblem`."""

    subject: str
    kind: str
    text: str
    remedy: tuple[str, ...] = ()


class Reasons(msgspec.Struct, frozen=True):
    """The first reasons, and the number of the others."""

    kept: tuple[Reason, ...] = ()
    more: int = 0

    @classmethod
    def of(cls, subject: str, kind: str, text: str, remedy: tuple[str, ...] = ()) -> Reasons:
        """Return a single reason. A `kind` that its text begins with is not repeated."""
        return cls((Reason(plain_text(subject, 300), kind, reason_text(text.removeprefix(f"{kind}: ")), remedy),))

    @classmethod
    def first_of(cls, parts: Iterable[Reasons], kept: int) -> Reasons:
        """Concatenate, and keep so many; count the others."""
        found: list[Reason] = []
        more = 0
        for part in parts:
            room = kept - len(found)
            found += part.kept[:room]
            more += part.more + len(part.kept[room:])
        return cls(tuple(found), more)

    def __add__(self, other: Reasons) -> Reasons:
        return Reasons.first_of((self, other), MAX_REASONS)

    def __iter__(self) -> Iterator[Reason]:
        return iter(self.kept)

    def __bool__(self) -> bool:
        return bool(self.kept) or self.more > 0


class Report(msgspec.Struct, Generic[PhaseCounts_co], frozen=True):
    """The report of one partition or task on a phase, or the sum over several.

    Attributes:
        counts: the phase's counts.
        reasons: why datasets or buckets were not completed.
        notes: facts worth reporting that are no failures.
        fenced: the error text if a newer run has fenced this one.
        partition: the partition, or the task; -1 in a sum.
        worker_pid: process id of the Python worker.
        daemon_pid: process id of the worker's parent.
        happened: the first events of each kind.
        stale: the error text if the output is older than the store.
        heads: durable log heads of the reported buckets.
        flow: counts of the constructs.
        seen: snapshot entries of the reported buckets.
    """

    counts: PhaseCounts_co
    reasons: Reasons = Reasons()
    notes: Reasons = Reasons()
    fenced: str = ""
    partition: int = -1
    worker_pid: int = 0
    daemon_pid: int = 0
    events: TaskEvents = TaskEvents()
    stale: str = ""
    heads: tuple[Head, ...] = ()
    flow: FlowCounts = FlowCounts()
    seen: tuple[BucketSnapshot, ...] = ()


class Tally(Generic[PhaseCounts]):
    """Accumulates a report. Not thread-safe.

    Args:
        counts: zero counts.
        observer: receives all events; without one, the first events of each kind become part of the report.
    """

    def __init__(self, counts: PhaseCounts, observer: TaskObserver | None = None) -> None:
        self.counts, self.fenced, self.stale = counts, "", ""
        self.heads: tuple[Head, ...] = ()
        self.seen: tuple[BucketSnapshot, ...] = ()
        self.flow = FlowCounts()
        self.reasons = self.notes = Reasons()
        self._observer = observer
        self._kept: list[TaskEvent] = []
        self._seen: Counter[str] = Counter()

    def add(self, counts: PhaseCounts) -> None:
        """Add counts."""
        self.counts += counts

    def add_reason(self, subject: str, kind: str, text: str, remedy: tuple[str, ...] = ()) -> None:
        """Add a reason, or count it if the report is full."""
        self.reasons += Reasons.of(subject, kind, text, remedy)

    def note(self, subject: str, kind: str, text: str) -> None:
        """Add a note, or count it if the report is full."""
        self.notes += Reasons.of(subject, kind, text)

    def observe(self, event: TaskEvent) -> None:
        """Pass an event to the observer; without one, keep it, or count it if enough of its kind are kept."""
        if self._observer is not None:
            self._observer.observe(event)
            return
        kind = type(event).__name__
        self._seen[kind] += 1
        if self._seen[kind] <= MAX_EVENTS:
            self._kept.append(event)

    def merge(self, report: Report[PhaseCounts]) -> None:
        """Merge another report on a part of the same work."""
        self.counts += report.counts
        self.reasons += report.reasons
        self.notes += report.notes
        self.stale = self.stale or report.stale
        self.heads += report.heads
        self.seen += report.seen
        self.flow += report.flow
        for event in report.events.kept:
            self.observe(event)
        self._seen.update(report.events.left_out)

    def report(self, partition: int = -1) -> Report[PhaseCounts]:
        """Return the report of this process."""
        left_out = {kind: seen - MAX_EVENTS for kind, seen in self._seen.items() if seen > MAX_EVENTS}
        return Report(
            self.counts,
            self.reasons,
            self.notes,
            self.fenced,
            partition,
            os.getpid(),
            os.getppid(),
            TaskEvents(tuple(self._kept), left_out),
            self.stale,
            self.heads,
            self.flow,
            self.seen,
        )


def sum_reports(reports: Iterable[Report[PhaseCounts]], zero: PhaseCounts) -> Report[PhaseCounts]:
    """Return the sum over all partitions; `zero` is the sum over none."""
    all_reports = list(reports)
    return Report(
        sum((report.counts for report in all_reports), zero),
        Reasons.first_of((report.reasons for report in all_reports), _MAX_IN_DRIVER),
        Reasons.first_of((report.notes for report in all_reports), _MAX_IN_DRIVER),
        next((report.fenced for report in all_reports if report.fenced), ""),
        stale=next((report.stale for report in all_reports if report.stale), ""),
        heads=tuple(head for report in all_reports for head in report.heads),
        flow=sum((report.flow for report in all_reports), FlowCounts()),
        seen=tuple(entry for report in all_reports for entry in report.seen),
    )


class Totals(msgspec.Struct, frozen=True):
    """Counts of all phases of a run by name, and the first of all reasons and notes.

    The names are those of the phases' counts (`engine.driver.counts`). The first four fields belong to a single
    partition and are unused here; they are keys of the printed result.
    """

    partition: int = -1
    worker_pid: int = 0
    daemon_pid: int = 0
    fenced: str = ""
    buckets: int = 0
    sequences_replayed: int = 0
    sequences_left: int = 0
    sequences_dropped: int = 0
    datasets_quarantined: int = 0
    datasets_skipped: int = 0
    datasets_planned: int = 0
    datasets_committed: int = 0
    datasets_published: int = 0
    datasets_partial: int = 0
    datasets_sealed: int = 0
    datasets_held: int = 0
    datasets_failed: int = 0
    datasets_unchanged: int = 0
    work_units: int = 0
    work_units_failed: int = 0
    work_units_suspected: int = 0
    records_read: int = 0
    records_written: int = 0
    records_diverted: int = 0
    records_published: int = 0
    positions_lost: int = 0
    bytes_read: int = 0
    files_published: int = 0
    files_swept: int = 0
    steps_executed: int = 0
    commit_attempts: int = 0
    commit_successes: int = 0
    commit_retries: int = 0
    commit_failures: int = 0
    target_ms: int = 0
    size_planned: int = 0
    oldest_held_epoch: int = 0
    reasons: tuple[Reason, ...] = ()
    reasons_more: int = 0
    notes: tuple[Reason, ...] = ()
    notes_more: int = 0
    flow: FlowCounts = FlowCounts()


def counts_by_name(counts: Iterable[Counts]) -> dict[str, int]:
    """Return the sums of counts of any phases, by name."""
    sums: Counter[str] = Counter()
    for phase_counts in counts:
        sums.update(asdict(phase_counts))
    return dict(sums)


def totals_of(reports: Iterable[Report[Counts]], oldest_held_epoch: int = 0) -> Totals:
    """Return the sums over the phases of a run."""
    phases = list(reports)
    reasons = Reasons.first_of((phase.reasons for phase in phases), _MAX_IN_DRIVER)
    notes = Reasons.first_of((phase.notes for phase in phases), _MAX_IN_DRIVER)
    totals = Totals(
        oldest_held_epoch=oldest_held_epoch,
        reasons=reasons.kept,
        reasons_more=reasons.more,
        notes=notes.kept,
        notes_more=notes.more,
        flow=sum((phase.flow for phase in phases), FlowCounts()),
    )
    return replace(totals, **counts_by_name(phase.counts for phase in phases))

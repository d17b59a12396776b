"""What the partitions of a Spark job report to the driver: counts, and a bounded number of reasons."""

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
from distcommit.core.records.snapshot_names import SeenBucket
from distcommit.engine.driver.counts import Counts
from distcommit.engine.reading.task_events import KEPT_EVENTS, Happened, TaskEvent, TaskObserver

KEPT_REASONS = 20
"""How many reasons one partition reports; the rest are counted. Keeps the driver's memory O(partitions)."""
_KEPT_BY_DRIVER = 100

PhaseCounts = TypeVar("PhaseCounts", bound=Counts)
OfPhase_co = TypeVar("OfPhase_co", bound=Counts, covariant=True)


class Reason(msgspec.Struct, frozen=True):
    """Why a dataset (or a bucket) did not go through. `remedy`: as of a `DatasetProblem`."""

    subject: str
    kind: str
    text: str
    remedy: tuple[str, ...] = ()


class Reasons(msgspec.Struct, frozen=True):
    """The first reasons that were given, and how many more there were."""

    kept: tuple[Reason, ...] = ()
    more: int = 0

    @classmethod
    def of(cls, subject: str, kind: str, text: str, remedy: tuple[str, ...] = ()) -> Reasons:
        """A single one."""
        return cls((Reason(plain_text(subject, 300), kind, reason_text(text), remedy),))

    @classmethod
    def first_of(cls, parts: Iterable[Reasons], kept: int) -> Reasons:
        """All of these one after the other, of which so many are kept."""
        found: list[Reason] = []
        more = 0
        for part in parts:
            room = kept - len(found)
            found += part.kept[:room]
            more += part.more + len(part.kept[room:])
        return cls(tuple(found), more)

    def __add__(self, other: Reasons) -> Reasons:
        return Reasons.first_of((self, other), KEPT_REASONS)

    def __iter__(self) -> Iterator[Reason]:
        return iter(self.kept)

    def __bool__(self) -> bool:
        return bool(self.kept) or self.more > 0


class Report(msgspec.Struct, Generic[OfPhase_co], frozen=True):
    """What one partition, or one task, did in a phase; or the sum over several.

    `reasons`: why something did not go through; `notes`: what is worth knowing, and in order. `fenced`: the newer run
    that it met, if any; `stale`: why the output is older than the store, if it is. `heads`: where the buckets' logs are
    that this was about, durably, and `seen` what readers are to see of them. `happened`: as far as it is told one by
    one. `flow`: what the constructs did. The process ids are those of the Python worker, and of what forked it.
    """

    counts: OfPhase_co
    reasons: Reasons = Reasons()
    notes: Reasons = Reasons()
    fenced: str = ""
    partition: int = -1
    worker_pid: int = 0
    daemon_pid: int = 0
    happened: Happened = Happened()
    stale: str = ""
    heads: tuple[Head, ...] = ()
    flow: FlowCounts = FlowCounts()
    seen: tuple[SeenBucket, ...] = ()


class Tally(Generic[PhaseCounts]):
    """What somebody has to report so far: to be added to, never taken from. One thread's.

    Args:
        counts: of nothing.
        observer: who is told what happens; without one, it is kept to be reported.
    """

    def __init__(self, counts: PhaseCounts, observer: TaskObserver | None = None) -> None:
        self.counts, self.fenced, self.stale = counts, "", ""
        self.heads: tuple[Head, ...] = ()
        self.seen: tuple[SeenBucket, ...] = ()
        self.flow = FlowCounts()
        self.reasons = self.notes = Reasons()
        self._observer = observer
        self._kept: list[TaskEvent] = []
        self._seen: Counter[str] = Counter()

    def add(self, counts: PhaseCounts) -> None:
        """So much more has been done."""
        self.counts += counts

    def explain(self, subject: str, kind: str, text: str, remedy: tuple[str, ...] = ()) -> None:
        """Keeps a reason, or counts it once enough are kept."""
        self.reasons += Reasons.of(subject, kind, text, remedy)

    def note(self, subject: str, kind: str, text: str) -> None:
        """Keeps a note, or counts it once enough are kept."""
        self.notes += Reasons.of(subject, kind, text)

    def observe(self, event: TaskEvent) -> None:
        """Passes an event on to the observer, or keeps it, or counts it once enough of its kind are kept."""
        if self._observer is not None:
            self._observer.observe(event)
            return
        kind = type(event).__name__
        self._seen[kind] += 1
        if self._seen[kind] <= KEPT_EVENTS:
            self._kept.append(event)

    def include(self, report: Report[PhaseCounts]) -> None:
        """Adds what somebody else reports, of a part of the same work."""
        self.counts += report.counts
        self.reasons += report.reasons
        self.notes += report.notes
        self.stale = self.stale or report.stale
        self.heads += report.heads
        self.seen += report.seen
        self.flow += report.flow
        for event in report.happened.kept:
            self.observe(event)
        self._seen.update(report.happened.left_out)

    def report(self, partition: int = -1) -> Report[PhaseCounts]:
        """All of it, by this process."""
        left_out = {kind: seen - KEPT_EVENTS for kind, seen in self._seen.items() if seen > KEPT_EVENTS}
        return Report(
            self.counts,
            self.reasons,
            self.notes,
            self.fenced,
            partition,
            os.getpid(),
            os.getppid(),
            Happened(tuple(self._kept), left_out),
            self.stale,
            self.heads,
            self.flow,
            self.seen,
        )


def add_up(reports: Iterable[Report[PhaseCounts]], none: PhaseCounts) -> Report[PhaseCounts]:
    """The sum over all partitions; `none` is what none of them come to."""
    known = list(reports)
    return Report(
        sum((report.counts for report in known), none),
        Reasons.first_of((report.reasons for report in known), _KEPT_BY_DRIVER),
        Reasons.first_of((report.notes for report in known), _KEPT_BY_DRIVER),
        next((report.fenced for report in known if report.fenced), ""),
        stale=next((report.stale for report in known if report.stale), ""),
        heads=tuple(head for report in known for head in report.heads),
        flow=sum((report.flow for report in known), FlowCounts()),
        seen=tuple(each for report in known for each in report.seen),
    )


class Totals(msgspec.Struct, frozen=True):
    """The counts of all phases of a run by name, and the first of all reasons and notes.

    The first four fields are of a single partition, and say nothing here: whoever reads results by their keys knows
    them.
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


def by_name(counts: Iterable[Counts]) -> dict[str, int]:
    """The sums of counts of any phases, by name."""
    sums: Counter[str] = Counter()
    for each in counts:
        sums.update(asdict(each))
    return dict(sums)


def totals_of(phases: Iterable[Report[Counts]], oldest_held_epoch: int = 0) -> Totals:
    """What the phases of a run come to."""
    known = list(phases)
    reasons = Reasons.first_of((phase.reasons for phase in known), _KEPT_BY_DRIVER)
    notes = Reasons.first_of((phase.notes for phase in known), _KEPT_BY_DRIVER)
    totals = Totals(
        oldest_held_epoch=oldest_held_epoch,
        reasons=reasons.kept,
        reasons_more=reasons.more,
        notes=notes.kept,
        notes_more=notes.more,
        flow=sum((phase.flow for phase in known), FlowCounts()),
    )
    return replace(totals, **by_name(phase.counts for phase in known))

"""What the partitions of a Spark job report to the driver: counts, and a bounded number of reasons."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from operator import attrgetter
from typing import Any

import msgspec

from distcommit.model.errors import plain_text

KEPT_REASONS = 20
"""How many reasons one partition reports; the rest are counted. Keeps the driver's memory O(partitions)."""


class Reason(msgspec.Struct, frozen=True):
    """Why a dataset (or a bucket) did not go through."""

    subject: str
    kind: str
    text: str


class Report(msgspec.Struct):
    """Counts of one partition, or sums over partitions; `reasons` holds the first few, and so
    does `notes` of what is worth knowing and in order.

    `datasets_sealed`: job-level, those that are ready to be published or have nothing to publish;
    `datasets_held`: those that were planned and held back, since not all that the source named could be published.
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
    size_planned: int = 0
    oldest_held_epoch: int = 0
    reasons: list[Reason] = []
    reasons_more: int = 0
    notes: list[Reason] = []
    notes_more: int = 0

    def explain(self, subject: str, kind: str, text: str) -> None:
        """Keeps a reason, or counts it once enough are kept."""
        if len(self.reasons) < KEPT_REASONS:
            self.reasons = [*self.reasons, Reason(plain_text(subject, 300), kind, plain_text(text))]
        else:
            self.reasons_more += 1

    def note(self, subject: str, kind: str, text: str) -> None:
        """Keeps a note, or counts it once enough are kept."""
        if len(self.notes) < KEPT_REASONS:
            self.notes = [*self.notes, Reason(plain_text(subject, 300), kind, plain_text(text))]
        else:
            self.notes_more += 1

    def include(self, other: Report) -> None:
        """Adds another report's counts and reasons to this one."""
        for name in _SUMMED:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for reason in other.reasons:
            self.explain(reason.subject, reason.kind, reason.text)
        for note in other.notes:
            self.note(note.subject, note.kind, note.text)
        held = [epoch for epoch in (self.oldest_held_epoch, other.oldest_held_epoch) if epoch]
        self.oldest_held_epoch = min(held, default=0)

    def stamp(self, partition: int) -> None:
        """Notes which partition and which processes this report comes from."""
        self.partition, self.worker_pid, self.daemon_pid = partition, os.getpid(), os.getppid()


_SUMMED = tuple(
    field.name
    for field in msgspec.structs.fields(Report)
    if field.type is int and field.name not in ("partition", "worker_pid", "daemon_pid", "oldest_held_epoch")
)
_counts: Callable[[Report], tuple[int, ...]] = attrgetter(*_SUMMED)


def add_up(reports: Iterable[Report], kept: int = 100) -> Report:
    """The sums over all partitions, with at most `kept` reasons and notes."""
    total, counts = Report(), []
    for report in reports:
        counts.append(_counts(report))
        room = kept - len(total.reasons)
        total.reasons += report.reasons[:room]
        total.reasons_more += max(0, len(report.reasons) - room)
        room = kept - len(total.notes)
        total.notes += report.notes[:room]
        total.notes_more += max(0, len(report.notes) - room)
        total.fenced = total.fenced or report.fenced
        held = [epoch for epoch in (total.oldest_held_epoch, report.oldest_held_epoch) if epoch]
        total.oldest_held_epoch = min(held, default=0)
    if counts:
        for name, values in zip(_SUMMED, zip(*counts, strict=True), strict=True):
            setattr(total, name, getattr(total, name) + sum(values))
    return total


def as_dict(value: msgspec.Struct) -> dict[str, Any]:
    """A report as plain values, for JSON."""
    return dict(msgspec.to_builtins(value))

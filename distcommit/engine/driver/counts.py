"""What each phase of a run counts: frozen values of its own, which add up. A phase that is over is never corrected."""

from __future__ import annotations

from collections.abc import Iterable
from operator import add
from typing import Self

import msgspec
from msgspec.structs import astuple


class Counts(msgspec.Struct, frozen=True):
    """Numbers that add up, each to its own: `one + other`, or `sum(many, start)`."""

    def __add__(self, other: Self) -> Self:
        if type(other) is not type(self):
            return NotImplemented
        return type(self)(*map(add, astuple(self), astuple(other)))

    @classmethod
    def total(cls, parts: Iterable[Self]) -> Self:
        """The sum of many, at a fraction of the cost."""
        rows = [*map(astuple, parts)]
        return cls(*map(sum, zip(*rows, strict=True))) if rows else cls()


class Executed(Counts, frozen=True):
    """What executing commit steps came to; the fields of `commit_`, of what the committers of sinks were asked.

    `commit_attempts`: requests that a committer was given, again each time; `commit_successes`: that were committed, by
    this call or before it; `commit_retries`: that come again, as the committer said or as it failed, and tries that
    committers have made again by themselves; `commit_failures`: that never can be committed; `target_ms`: how long they
    had the committers, from opening to closing, in milliseconds, added up over tasks.
    """

    steps_executed: int = 0
    commit_attempts: int = 0
    commit_successes: int = 0
    commit_retries: int = 0
    commit_failures: int = 0
    target_ms: int = 0

    def executed(self) -> dict[str, int]:
        """These fields alone, by name."""
        return {name: getattr(self, name) for name in Executed.__struct_fields__}


class CommitCounts(Executed, frozen=True):
    """What committers did. `executions_failed`: how often a sequence could not be finished, by whoever tried it."""

    datasets_committed: int = 0
    datasets_quarantined: int = 0
    sequences_dropped: int = 0
    executions_failed: int = 0
    files_swept: int = 0


class RecoverCounts(Executed, frozen=True):
    """The recover job: what became of what older runs had sealed, and what was swept of theirs."""

    buckets: int = 0
    sequences_replayed: int = 0
    sequences_left: int = 0
    sequences_dropped: int = 0
    datasets_quarantined: int = 0
    files_swept: int = 0


class PlanCounts(Counts, frozen=True):
    """The plan job."""

    datasets_planned: int = 0
    datasets_skipped: int = 0
    work_units: int = 0
    size_planned: int = 0


class IngestCounts(Executed, frozen=True):
    """The ingest job: what was read, and what its tasks could commit between work units. What they could not is the
    drain's to tell."""

    work_units_failed: int = 0
    records_read: int = 0
    records_written: int = 0
    records_diverted: int = 0
    bytes_read: int = 0
    datasets_committed: int = 0
    files_swept: int = 0


class DrainCounts(Executed, frozen=True):
    """The drain: what became of each dataset of the plan, whoever committed it, and what was left to be committed.

    `datasets_sealed`: job-level, those that are ready to be published or have nothing to publish;
    `datasets_held`: those that were planned and held back, since not all that the source named could be published.
    """

    datasets_published: int = 0
    datasets_partial: int = 0
    datasets_sealed: int = 0
    datasets_held: int = 0
    datasets_failed: int = 0
    datasets_unchanged: int = 0
    datasets_quarantined: int = 0
    sequences_left: int = 0
    records_published: int = 0
    files_published: int = 0
    positions_lost: int = 0
    datasets_committed: int = 0
    files_swept: int = 0

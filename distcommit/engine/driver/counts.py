"""Counts of each phase of a run: frozen values that add up. A completed phase is never corrected."""

from __future__ import annotations

from collections.abc import Iterable
from operator import add
from typing import Self

import msgspec
from msgspec.structs import astuple


class Counts(msgspec.Struct, frozen=True):
    """Numbers that add up field by field, with `+` or `sum(many, start)`."""

    def __add__(self, other: Self) -> Self:
        if type(other) is not type(self):
            return NotImplemented
        return type(self)(*map(add, astuple(self), astuple(other)))

    @classmethod
    def total(cls, parts: Iterable[Self]) -> Self:
        """Return the sum of many; much cheaper than adding one by one."""
        rows = [*map(astuple, parts)]
        return cls(*map(sum, zip(*rows, strict=True))) if rows else cls()


class ExecutionCounts(Counts, frozen=True):
    """Counts of executed commit steps and of requests to committers.

    Attributes:
        steps_executed: commit steps that were executed.
        commit_attempts: requests given to committers; a repeated request counts again.
        commit_successes: requests found committed, by this call or an earlier one.
        commit_retries: requests that must be repeated, and retries inside committers.
        commit_failures: requests that can never be committed.
        target_ms: milliseconds from opening to closing committers, summed over tasks.
    """

    steps_executed: int = 0
    commit_attempts: int = 0
    commit_successes: int = 0
    commit_retries: int = 0
    commit_failures: int = 0
    target_ms: int = 0

    def executed(self) -> dict[str, int]:
        """Return these fields alone, by name."""
        return {name: getattr(self, name) for name in ExecutionCounts.__struct_fields__}


class CommitCounts(ExecutionCounts, frozen=True):
    """Counts of committers. `executions_failed`: failed attempts to finish a sequence, over all processes."""

    datasets_committed: int = 0
    datasets_quarantined: int = 0
    sequences_dropped: int = 0
    executions_failed: int = 0
    files_swept: int = 0


class RecoverCounts(ExecutionCounts, frozen=True):
    """Counts of the recover phase: sequences of older runs, and the files of theirs that were swept."""

    buckets: int = 0
    sequences_replayed: int = 0
    sequences_left: int = 0
    sequences_dropped: int = 0
    datasets_quarantined: int = 0
    files_swept: int = 0


class PlanCounts(Counts, frozen=True):
    """Counts of the plan phase. `size_planned`: records or bytes to read, in the source's unit."""

    datasets_planned: int = 0
    datasets_skipped: int = 0
    work_units: int = 0
    size_planned: int = 0


class IngestCounts(ExecutionCounts, frozen=True):
    """Counts of the ingest phase: reading, and commits between work units. Failed commits are counted by the drain.

    Attributes:
        work_units_suspected: left out by a task, to be read alone, because a worker died while it read them.
    """

    work_units_failed: int = 0
    work_units_suspected: int = 0
    records_read: int = 0
    records_written: int = 0
    records_diverted: int = 0
    bytes_read: int = 0
    datasets_committed: int = 0
    files_swept: int = 0


class DrainCounts(ExecutionCounts, frozen=True):
    """Counts of the drain: the outcome of each planned dataset, whichever task committed it, and the drain's own
    commits.

    Attributes:
        datasets_published: committed by this run.
        datasets_partial: published without some of their work units.
        datasets_sealed: job-level: ready to be published, or nothing to publish.
        datasets_held: job-level: planned and not published, because the job could not be published as a whole.
        datasets_failed: nothing was committed, because of a failure.
        datasets_unchanged: nothing new to commit.
        datasets_quarantined: quarantined by this run.
        sequences_left: sealed or staged, and not published yet.
        records_published: records of published datasets.
        files_published: files of published datasets.
        positions_lost: source positions that the plan skipped because the source has lost them.
        datasets_committed: committed in this phase.
        files_swept: staged files that were deleted.
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

"""Predicts the effect of the next replay on each sealed sequence."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

import msgspec

from distcommit.app.inspection.job_status import NextRun, StatusResult
from distcommit.app.inspection.open_commit_steps import SequenceSteps, StepsResult


class Replay(StrEnum):
    """The effect of a replay on a sealed sequence."""

    CLOSES = "closes"
    DROPS = "drops"
    """The sequence was held and its run never decided to publish it. Its records are read again."""
    QUARANTINES = "quarantines"
    LEAVES = "leaves"
    """An operator must release the dataset, or the log of its bucket must be repaired first."""
    UNKNOWN = "unknown"
    """The steps or the job log are unreadable, or the run that sealed the sequence may still decide."""


class ReplayRow(msgspec.Struct, frozen=True):
    """The effect of a replay on one sequence.

    Attributes:
        dataset: dataset URN.
        epoch: epoch of the run that sealed the sequence.
        outcome: the effect.
        steps_to_execute: commit steps that the replay would execute; 0 unless it closes the sequence.
        steps_done: commit steps that are done.
        records: records in the sequence.
        reason: why the replay does not close the sequence, or when it verifies the steps; empty if the outcome explains
            itself.
    """

    dataset: str
    epoch: int
    outcome: Replay
    steps_to_execute: int
    steps_done: int
    records: int
    reason: str = ""


class ReplayPlan(msgspec.Struct, frozen=True):
    """The predicted effects of a replay.

    Attributes:
        job: name of the job.
        rows: one row for each sealed sequence that is not closed.
        counts: number of sequences by `outcome`; outcomes without a sequence are missing.
        unreadable: why a log could not be recovered, by the name of the log.
        succeeds: whether `distcommit recover` would end with exit code 0.
    """

    job: str
    rows: list[ReplayRow]
    counts: dict[str, int]
    unreadable: dict[str, str]
    succeeds: bool = True


def plan_replay(status: StatusResult, steps: StepsResult, unrecoverable: Mapping[str, str] = {}) -> ReplayPlan:
    """Return the effect that a replay would have on each sealed sequence.

    Args:
        status: the job's status with all datasets.
        unrecoverable: why the replay would skip a bucket, by the name of the bucket (`bucket 3`).
    """
    unreadable = {**status.unreadable, **steps.unreadable, **unrecoverable}
    next_runs = {row.dataset: row.next_run for row in status.datasets}
    rows = [
        _row(sequence, next_runs.get(sequence.dataset, NextRun.UNKNOWN), f"bucket {sequence.bucket}" in unreadable)
        for sequence in steps.sequences
    ]
    counts: dict[str, int] = {}
    for row in rows:
        counts[row.outcome] = counts.get(row.outcome, 0) + 1
    goes_through = not unreadable and not counts.keys() & {Replay.QUARANTINES, Replay.UNKNOWN}
    return ReplayPlan(status.job, rows, counts, unreadable, goes_through)


def _row(sequence: SequenceSteps, next_run: NextRun, is_left: bool) -> ReplayRow:
    does, reason = (Replay.LEAVES, "its bucket's log can't be recovered") if is_left else _outcome(sequence, next_run)
    acts = does is Replay.CLOSES
    return ReplayRow(
        sequence.dataset,
        sequence.epoch,
        does,
        sequence.counts.get("PENDING", 0) if acts else 0,
        sequence.counts.get("DONE", 0),
        sequence.records,
        reason,
    )


def _outcome(sequence: SequenceSteps, next_run: NextRun) -> tuple[Replay, str]:
    if sequence.status != "pending":
        return Replay.LEAVES, sequence.reason
    if next_run is NextRun.DROPS:
        return Replay.DROPS, "its run never decided to publish it"
    if next_run in (NextRun.UNDECIDED, NextRun.UNKNOWN):
        return Replay.UNKNOWN, "whether it was decided is unknown"
    by_state = {step.state: step for step in reversed(sequence.steps)}
    if "LOST" in by_state:
        return Replay.QUARANTINES, by_state["LOST"].reason
    if "UNKNOWN" in by_state:
        return Replay.UNKNOWN, by_state["UNKNOWN"].reason
    if pending_step := by_state.get("PENDING"):
        return Replay.CLOSES, pending_step.reason
    return Replay.CLOSES, ""

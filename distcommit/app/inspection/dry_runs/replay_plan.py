"""What the next run's replay would do with each sequence, by the same checks. Nothing is changed."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

import msgspec

from distcommit.app.inspection.job_status import NextRun, StatusResult
from distcommit.app.inspection.open_commit_steps import SequenceSteps, StepsResult


class Replay(StrEnum):
    """What a replay does with a sequence."""

    CLOSES = "closes"
    """Its missing steps are executed, and it is closed."""
    DROPS = "drops"
    """It was held and never decided. Its records are read again."""
    QUARANTINES = "quarantines"
    """A step of it is lost."""
    LEAVES = "leaves"
    """An operator must release it, or its bucket's log must be repaired first."""
    UNKNOWN = "unknown"
    """Its steps or the job log can't be read, or its own run may still decide."""


class ReplayRow(msgspec.Struct, frozen=True):
    """What a replay does with one sequence."""

    dataset: str
    epoch: int
    outcome: Replay
    steps_to_execute: int
    """How many steps it executes."""
    steps_done: int
    """How many steps are done already."""
    records: int
    reason: str = ""


class ReplayPlan(msgspec.Struct, frozen=True):
    """What a replay would do now."""

    job: str
    rows: list[ReplayRow]
    counts: dict[str, int]
    """Sequences by what becomes of them."""
    unreadable: dict[str, str]
    """Reasons by the names of logs that it could not recover."""
    succeeds: bool = True
    """Whether it would end with exit code 0."""


def plan_replay(status: StatusResult, steps: StepsResult, unrecoverable: Mapping[str, str] = {}) -> ReplayPlan:
    """Return the plan, from the stored states and the states of the steps.

    Args:
        status: of the job, with all datasets.
        steps: of the sequences that are replayed.
        unrecoverable: reasons by the names of buckets that are left alone.
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

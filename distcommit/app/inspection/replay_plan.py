"""What the next run's replay would do, sequence by sequence, by the same looks that it takes; nothing is changed."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

import msgspec

from distcommit.app.inspection.status import NextRun, StatusResult
from distcommit.app.inspection.steps import SequenceSteps, StepsResult


class Replay(StrEnum):
    """What becomes of a sequence. CLOSES: it is closed, after what is missing was executed. DROPS: it was held, and
    never decided; its records are read again. QUARANTINES: a step of it is lost. LEAVES: a person has to release it
    first, or to mend its bucket's log. UNKNOWN: its steps or the job log can't be read, or its own run may still
    decide."""

    CLOSES = "closes"
    DROPS = "drops"
    QUARANTINES = "quarantines"
    LEAVES = "leaves"
    UNKNOWN = "unknown"


class ReplayRow(msgspec.Struct, frozen=True):
    """A sequence: what becomes of it, and why; how many of its steps are executed, and how many are found done."""

    dataset: str
    epoch: int
    does: Replay
    executes: int
    found_done: int
    records: int
    why: str = ""


class ReplayPlan(msgspec.Struct, frozen=True):
    """What a replay would do now. It changes as runs and people go on. `counts`: sequences by what becomes of them;
    `unreadable`: logs that it could not recover, with why. `goes_through`: whether it would end with exit code 0."""

    job: str
    rows: list[ReplayRow]
    counts: dict[str, int]
    unreadable: dict[str, str]
    goes_through: bool = True


def plan_replay(status: StatusResult, steps: StepsResult, unrecoverable: Mapping[str, str] = {}) -> ReplayPlan:
    """The plan, from what is stored of each dataset and what its steps say.

    Args:
        status: of the job, with all datasets.
        steps: of the sequences that are replayed.
        unrecoverable: buckets that are left alone, with why.
    """
    unreadable = {**status.unreadable, **steps.unreadable, **unrecoverable}
    next_runs = {row.dataset: row.next_run for row in status.datasets}
    rows = [
        _row(sequence, next_runs.get(sequence.dataset, NextRun.UNKNOWN), f"bucket {sequence.bucket}" in unreadable)
        for sequence in steps.sequences
    ]
    counts: dict[str, int] = {}
    for row in rows:
        counts[row.does] = counts.get(row.does, 0) + 1
    goes_through = not unreadable and not counts.keys() & {Replay.QUARANTINES, Replay.UNKNOWN}
    return ReplayPlan(status.job, rows, counts, unreadable, goes_through)


def _row(sequence: SequenceSteps, next_run: NextRun, is_left: bool) -> ReplayRow:
    does, why = (Replay.LEAVES, "its bucket's log can't be recovered") if is_left else _fate(sequence, next_run)
    acts = does is Replay.CLOSES
    return ReplayRow(
        sequence.dataset,
        sequence.epoch,
        does,
        sequence.counts.get("PENDING", 0) if acts else 0,
        sequence.counts.get("DONE", 0),
        sequence.records,
        why,
    )


def _fate(sequence: SequenceSteps, next_run: NextRun) -> tuple[Replay, str]:
    if sequence.status != "pending":
        return Replay.LEAVES, sequence.reason
    if next_run is NextRun.DROPS:
        return Replay.DROPS, "its run never decided to publish it"
    if next_run in (NextRun.UNDECIDED, NextRun.UNKNOWN):
        return Replay.UNKNOWN, "whether it is decided can't be said yet"
    by_state = {step.state: step for step in reversed(sequence.steps)}
    if "LOST" in by_state:
        return Replay.QUARANTINES, by_state["LOST"].why
    if "UNKNOWN" in by_state:
        return Replay.UNKNOWN, by_state["UNKNOWN"].why
    if asked := by_state.get("PENDING"):
        return Replay.CLOSES, asked.why
    return Replay.CLOSES, ""

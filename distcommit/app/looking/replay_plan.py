"""What the next run's replay would do, sequence by sequence, by the same looks that it takes; nothing is changed."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from distcommit.app.looking.status import NextRun, StatusResult
from distcommit.app.looking.steps import SequenceSteps, StepsResult


class Replay(StrEnum):
    """What becomes of a sequence. CLOSES: it is closed, after what is missing was executed. DROPS: it was held, and
    never decided; its records are read again. QUARANTINES: a step of it is lost. LEAVES: a person has to release it
    first. UNKNOWN: its steps or the job log can't be read, or its own run may still decide."""

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
    """What a replay would do now. It changes as runs and people go on. `counts`: sequences by what becomes of them."""

    job: str
    rows: list[ReplayRow]
    counts: dict[str, int]
    unreadable: dict[str, str]


def plan_replay(status: StatusResult, steps: StepsResult) -> ReplayPlan:
    """The plan, from what is stored of each dataset and what its steps say."""
    next_runs = {row.dataset: row.next_run for row in status.datasets}
    rows = [_row(sequence, next_runs.get(sequence.dataset, NextRun.UNKNOWN)) for sequence in steps.sequences]
    counts: dict[str, int] = {}
    for row in rows:
        counts[row.does] = counts.get(row.does, 0) + 1
    return ReplayPlan(status.job, rows, counts, {**status.unreadable, **steps.unreadable})


def _row(sequence: SequenceSteps, next_run: NextRun) -> ReplayRow:
    does, why = _fate(sequence, next_run)
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

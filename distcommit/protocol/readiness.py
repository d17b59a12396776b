"""Which attempts win, and when a dataset is ready to be sealed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from distcommit.core.errors import plain_text
from distcommit.core.watermark import Position, Watermark
from distcommit.core.work import DatasetPlan, TaskOutcome, TaskState, WorkUnit

_REACHED_TOLD = 100
"""Characters of where a prefix ends: the error comes behind it, and what is stored of both is cut."""


class CommitPolicy(StrEnum):
    """What a dataset needs to be committed: every work unit; or those that succeeded without a gap; or these, and of
    those that failed what an attempt has read before it did."""

    FULL = "full"
    SUCCESSFUL = "successful"
    PARTIAL = "partial"


@dataclass(frozen=True, slots=True)
class Wait:
    """Not decided yet: work units may still finish."""


@dataclass(frozen=True, slots=True)
class Nothing:
    """Decided: this run commits nothing for the dataset. `failed` tells an error from having had nothing to do."""

    reason: str
    failed: bool


@dataclass(frozen=True, slots=True)
class Ready:
    """Decided: these task states win; the watermark moves to `high`. `left_out`: why others do not, if any."""

    winners: tuple[TaskState, ...]
    high: Watermark
    left_out: str = ""


Readiness = Wait | Nothing | Ready


def succeeded(plan: DatasetPlan, states: Sequence[TaskState]) -> bool:
    """Whether each work unit of the plan has a successful attempt."""
    done = {state.work_unit_id for state in states if state.outcome is TaskOutcome.SUCCEEDED}
    return all(unit.work_unit_id in done for unit in plan.work_units)


def readiness(
    plan: DatasetPlan,
    states: Sequence[TaskState],
    *,
    policy: CommitPolicy,
    ingest_ended: bool,
    staged: Callable[[TaskState], bool],
) -> Readiness:
    """Decides about one dataset.

    Success beats failure; a work unit without a success is decided only once ingest has ended. Of several successful
    attempts at a work unit the first by attempt id wins whose staged files are all there. With policy `partial` the
    prefix of a failed attempt is taken where there is no such success: of several the one with the most records, whole,
    since positions of one attempt and files of another would leave a gap. What follows it waits. A success, or a
    prefix, with a range that its work unit can't have is a failure.

    Args:
        plan: the dataset's work units and the watermark they were planned on.
        states: its task states of this run, any number for each work unit, in any order.
        policy: what the dataset needs.
        ingest_ended: whether the driver has recorded that no more task states are awaited.
        staged: whether a task state's outputs are all in task-output; asked only for candidates.
    """
    chosen, failures = _winners(plan, states, staged, with_prefixes=policy is CommitPolicy.PARTIAL)
    if failures and not ingest_ended:
        return Wait()
    if failures and (policy is CommitPolicy.FULL or not chosen):
        return Nothing(failures[0] + (f" (and {len(failures) - 1} more)" if len(failures) > 1 else ""), failed=True)

    reached = {**plan.start.positions, **(plan.planned_low.positions if plan.planned_low else {})}
    for skip in plan.skipped:
        reached[skip.partition] = skip.high
    winners, reached = gap_free(chosen, reached)
    high = Watermark(reached, plan.start.incarnation)
    if failures and not winners:
        return Nothing(failures[0], failed=True)
    if high == plan.planned_low and not any(state.has_prepared for state in winners):
        return Nothing(failures[0] if failures else "nothing new was read", failed=bool(failures))
    return Ready(tuple(winners), high, failures[0] if failures else "")


def _winners(
    plan: DatasetPlan, states: Sequence[TaskState], staged: Callable[[TaskState], bool], *, with_prefixes: bool
) -> tuple[list[TaskState], list[str]]:
    """The attempts that win, of those work units that have one, and why others have none, or have a prefix only."""
    units = {unit.work_unit_id: unit for unit in plan.work_units}
    successes: dict[str, list[TaskState]] = {}
    prefixes: dict[str, list[TaskState]] = {}
    errors: dict[str, str] = {}
    for state in states:
        unit = units.get(state.work_unit_id)
        if unit is None:
            continue
        wrong = None if state.outcome is TaskOutcome.FAILED else _wrong_range(unit, state)
        if state.outcome is TaskOutcome.SUCCEEDED and wrong is None:
            successes.setdefault(state.work_unit_id, []).append(state)
            continue
        errors[state.work_unit_id] = wrong or state.error
        if state.outcome is TaskOutcome.PARTIAL and wrong is None and with_prefixes:
            prefixes.setdefault(state.work_unit_id, []).append(state)
    chosen: list[TaskState] = []
    failures: list[str] = []
    for unit in plan.work_units:
        attempts = sorted(successes.get(unit.work_unit_id, ()), key=lambda state: state.attempt)
        winner = next((state for state in attempts if staged(state)), None)
        if winner is not None:
            chosen.append(winner)
            continue
        failures.append(_failure(unit, attempts, errors))
        longest = sorted(prefixes.get(unit.work_unit_id, ()), key=lambda state: (-state.records_read, state.attempt))
        prefix = next((state for state in longest if staged(state)), None)
        if prefix is not None:
            chosen.append(prefix)
            reached = plain_text(prefix.actual_high, _REACHED_TOLD)
            failures[-1] = f"work unit {unit.work_unit_id} is read up to {reached} only: {failures[-1]}"
    return chosen, failures


def _failure(unit: WorkUnit, attempts: Sequence[TaskState], errors: Mapping[str, str]) -> str:
    """Why none of these successful attempts at a work unit wins."""
    if not attempts:
        return errors.get(unit.work_unit_id) or f"work unit {unit.work_unit_id} never finished"
    paths = ", ".join(file.staged_path for file in attempts[0].files)
    return (
        f"work unit {unit.work_unit_id}: of the staged files of every attempt some are missing or others are there in"
        f" their place ({paths})"
    )


def _wrong_range(unit: WorkUnit, state: TaskState) -> str | None:
    """Why the task state can't be one of this work unit; None if it can. A prefix that has not moved is none: whatever
    it holds would be read again."""
    has_moved = state.outcome is not TaskOutcome.PARTIAL or state.actual_high != state.low
    if state.low == unit.low and unit.can_end_at(state.actual_high) and has_moved:
        return None
    return (
        f"work unit {unit.work_unit_id}: attempt {state.attempt} reports the range {state.low} to {state.actual_high},"
        f" expected one from {unit.low} to at most {unit.expected_high}"
    )


def gap_free(states: Sequence[TaskState], low: Mapping[str, Position]) -> tuple[list[TaskState], dict[str, Position]]:
    """The task states that continue `low` without a gap, and how far they reach. None may end before it begins.

    A work unit that reads several source partitions is in or out as a whole: if it lies beyond a gap in one of them it
    is left out, which may leave a gap in the others.
    """
    left = list(states)
    reached = dict(low)
    winners: list[TaskState] = []
    progress = True
    while progress:
        progress = False
        for state in list(left):
            if all(reached.get(partition) == position for partition, position in state.low.positions.items()):
                reached.update(state.actual_high.positions)
                winners.append(state)
                left.remove(state)
                progress = True
    return winners, reached

"""Readiness: the winning attempts of a dataset, and when it can be sealed.

Of several attempts at a work unit exactly one may be published, and a partition's ranges must have no gap.

*Wait*: work units may still finish. *NotReady*: the run commits nothing for the dataset. *Ready*: the winning states
are final, and can be sealed as one commit sequence.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from distcommit.core.errors import plain_text
from distcommit.core.watermark import Position, Watermark
from distcommit.core.work_units import DatasetPlan, TaskOutcome, TaskState, WorkUnit

_MAX_POSITION_CHARACTERS = 100
"""Longest position in front of an error text, because stored texts are shortened, and the error must remain visible."""


class CommitPolicy(StrEnum):
    """The condition for committing a dataset although work units failed."""

    FULL = "full"
    """Only if every work unit succeeded."""
    SUCCESSFUL = "successful"
    """Successful work units up to the first gap."""
    PARTIAL = "partial"
    """Like SUCCESSFUL, with records of failed attempts before the error."""


class RetryPolicy(StrEnum):
    """The datasets whose unread range is read again first. Others are planned up to the source's newest end."""

    ALWAYS = "always"
    """For every dataset."""
    ON_FULL = "on_full"
    """For a dataset that is committed completely or not at all."""
    ON_PARTIAL = "on_partial"
    """For a dataset of which a part may be committed."""
    NEVER = "never"
    """For no dataset."""

    def applies_to(self, policy: CommitPolicy) -> bool:
        match self:
            case RetryPolicy.ALWAYS:
                return True
            case RetryPolicy.ON_FULL:
                return policy is CommitPolicy.FULL
            case RetryPolicy.ON_PARTIAL:
                return policy is not CommitPolicy.FULL
            case RetryPolicy.NEVER:
                return False


@dataclass(frozen=True, slots=True)
class Wait:
    """No decision yet, because work units may still finish."""


@dataclass(frozen=True, slots=True)
class NotReady:
    """The decision that this run commits nothing for the dataset.

    Attributes:
        reason: why nothing is committed.
        failed: whether an error is the cause; False if there was nothing new to read.
    """

    reason: str
    failed: bool


@dataclass(frozen=True, slots=True)
class Ready:
    """The decision that the dataset can be sealed.

    Attributes:
        winners: task states to publish.
        high: watermark after the commit.
        partial_reason: why other work units are left out; empty if none are.
    """

    winners: tuple[TaskState, ...]
    high: Watermark
    partial_reason: str = ""


Readiness = Wait | NotReady | Ready


def succeeded(plan: DatasetPlan, states: Sequence[TaskState]) -> bool:
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
    """Decide whether a dataset can be sealed.

    1. Each work unit gets a winner: the first by attempt id of its successful attempts whose staged files are
       complete. If an attempt has succeeded, failed attempts do not matter.
    2. With policy `partial`, a work unit without a winner gets the failed attempt that has read the most records, if
       its staged files are complete. Positions and files of different attempts are never combined, because that would
       leave a gap.
    3. Until ingest has ended, a work unit without a successful attempt may still get one, so the decision is to wait.
    4. Winners are used from the planned watermark on, partition by partition, up to the first gap. The next run reads
       everything beyond a gap.
    5. If the watermark would not move and no winner has prepared output, the dataset is not ready.

    An attempt that reports a range outside its work unit counts as failed.

    Args:
        plan: the dataset's work units, and the watermark that they were planned on.
        states: the dataset's task states of this run, any number for each work unit, in any order.
        policy: the condition for a commit.
        ingest_ended: whether the driver has recorded that there will be no more task states.
        staged: returns whether a task state's staged files are complete. Called only for candidates.
    """
    chosen, failures = _winners(plan, states, staged, with_prefixes=policy is CommitPolicy.PARTIAL)
    if failures and not ingest_ended:
        return Wait()
    if failures and (policy is CommitPolicy.FULL or not chosen):
        return NotReady(failures[0] + (f" (and {len(failures) - 1} more)" if len(failures) > 1 else ""), failed=True)

    reached = {**plan.start.positions, **(plan.planned_low.positions if plan.planned_low else {})}
    for skip in plan.skipped:
        reached[skip.partition] = skip.high
    winners, reached = gap_free(chosen, reached)
    high = Watermark(reached, plan.start.incarnation)
    if failures and not winners:
        return NotReady(failures[0], failed=True)
    if high == plan.planned_low and not any(state.has_prepared for state in winners):
        return NotReady(failures[0] if failures else "nothing new was read", failed=bool(failures))
    return Ready(tuple(winners), high, failures[0] if failures else "")


def _winners(
    plan: DatasetPlan, states: Sequence[TaskState], staged: Callable[[TaskState], bool], *, with_prefixes: bool
) -> tuple[list[TaskState], list[str]]:
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
            reached = plain_text(prefix.actual_high, _MAX_POSITION_CHARACTERS)
            failures[-1] = f"work unit {unit.work_unit_id} is read up to {reached} only: {failures[-1]}"
    return chosen, failures


def _failure(unit: WorkUnit, attempts: Sequence[TaskState], errors: Mapping[str, str]) -> str:
    if not attempts:
        return errors.get(unit.work_unit_id) or f"work unit {unit.work_unit_id} never finished"
    paths = ", ".join(file.staged_path for file in attempts[0].files)
    return (
        f"work unit {unit.work_unit_id}: staged files of every attempt are missing or were replaced by others ({paths})"
    )


def _wrong_range(unit: WorkUnit, state: TaskState) -> str | None:
    """Return why a state cannot belong to a work unit, or None.

    A partial attempt without progress is rejected, too, because its records would be read again.
    """
    has_moved = state.outcome is not TaskOutcome.PARTIAL or state.actual_high != state.low
    if state.low == unit.low and unit.can_end_at(state.actual_high) and has_moved:
        return None
    return (
        f"work unit {unit.work_unit_id}: attempt {state.attempt} reports the range {state.low} to {state.actual_high},"
        f" expected one from {unit.low} to at most {unit.expected_high}"
    )


def gap_free(states: Sequence[TaskState], low: Mapping[str, Position]) -> tuple[list[TaskState], dict[str, Position]]:
    """Return the task states that continue `low` without a gap, and the positions they reach.

    No state may end before it begins. A work unit of several partitions counts as a whole: a gap before one of its
    partitions leaves it out, which may leave a gap in the others.
    """
    remaining = list(states)
    reached = dict(low)
    winners: list[TaskState] = []
    progress = True
    while progress:
        progress = False
        for state in list(remaining):
            if all(reached.get(partition) == position for partition, position in state.low.positions.items()):
                reached.update(state.actual_high.positions)
                winners.append(state)
                remaining.remove(state)
                progress = True
    return winners, reached

"""Results of a dataset's work units in this run. The record that ends the dataset's run contains them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

import msgspec

from distcommit.core.records.maintenance_units import is_maintenance
from distcommit.core.records.previous_run import MOST_BYTES, MOST_WORK_UNITS, PreviousRun, WorkUnitResult
from distcommit.core.work_units import DatasetPlan, TaskOutcome, TaskState, WorkUnit


def build_previous_run(
    epoch: int, plan: DatasetPlan, states: Sequence[TaskState], winners: Sequence[TaskState] = ()
) -> PreviousRun | None:
    """Return the results of a dataset's work units; None for maintenance units.

    Args:
        states: task states of all attempts.
        winners: task states of committed attempts.
    """
    if any(map(is_maintenance, plan.work_units)):
        return None
    attempts: dict[str, list[TaskState]] = {}
    for state in states:
        attempts.setdefault(state.work_unit_id, []).append(state)
    committed = {state.work_unit_id: state for state in winners}
    results = [
        _result(unit, attempts.get(unit.work_unit_id, []), committed.get(unit.work_unit_id)) for unit in plan.work_units
    ]
    listed = _listed(sorted(results, key=lambda result: result.is_committed)[:MOST_WORK_UNITS])
    return PreviousRun(epoch, listed, len(results) - len(listed))


def _listed(results: Sequence[WorkUnitResult]) -> tuple[WorkUnitResult, ...]:
    sizes = accumulate(len(msgspec.msgpack.encode(result)) for result in results)
    return tuple(result for result, size in zip(results, sizes, strict=True) if size <= MOST_BYTES)


def _result(unit: WorkUnit, attempts: Sequence[TaskState], winner: TaskState | None) -> WorkUnitResult:
    """Return the result of the winner. Without a winner, prefer the last successful attempt to the last attempt."""
    ranked = sorted(attempts, key=lambda state: (state.outcome is TaskOutcome.SUCCEEDED, state.finished_ms))
    state = winner or (ranked[-1] if ranked else None)
    return WorkUnitResult(
        work_unit_id=unit.work_unit_id,
        outcome=state.outcome if state is not None else TaskOutcome.FAILED,
        is_committed=winner is not None,
        attempts=len(attempts),
        low=unit.low,
        expected_high=unit.expected_high,
        actual_high=state.actual_high if state is not None else unit.low,
        properties=state.properties if state is not None else {},
    )

"""The results of the previous run's work units, which the next plan sees, and the rows of a run's work units."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec

from distcommit.app.inspection.work_unit_rows import WorkUnitRow, read_work_units
from distcommit.core.records.previous_run import MOST_BYTES, MOST_WORK_UNITS, PreviousRun, WorkUnitResult
from distcommit.core.watermark import Watermark
from distcommit.core.work_units import DatasetPlan, TaskOutcome, TaskState, WorkUnit
from distcommit.engine.committing.work_unit_results import build_previous_run
from distcommit.stores.state.job_lock import JobLock
from tests.simulation.world import ROOTS
from tests.unit.engine.committing.situations import WORLD
from tests.unit.engine.driver.machines import Machine, OddSource, QuickClock, go, source


@dataclass(frozen=True)
class SeeingSource(OddSource):
    """A source that keeps the previous work units of all plans."""

    seen: dict[str, tuple[WorkUnitResult, ...]] = field(default_factory=dict)

    def plan(self, owned: Any, states: Any) -> Iterator[Any]:
        self.seen.update(states.previous_work_units)
        yield from OddSource.plan(self, owned, states)


def failing_at_1(unit: WorkUnit) -> None:
    if "1" in unit.low.positions:
        raise OSError(errno.EIO, "unreadable")


def previous(machine: Machine, **partitions: Any) -> dict[str, tuple[WorkUnitResult, ...]]:
    """Run again, and return what the plan saw."""
    seeing = SeeingSource(source(**partitions).datasets)
    assert go(WORLD, machine, seeing).succeeded
    return seeing.seen


def test_work_units_of_a_failed_run_are_seen_with_outcome_watermarks_and_attempts() -> None:
    machine, datasets = Machine(), source(a=[2, 3, 4], b=1).datasets
    assert not go(WORLD, machine, OddSource(datasets, extracting=failing_at_1)).succeeded
    seen = previous(machine, a=[2, 3, 4], b=1)
    assert [(unit.outcome, unit.is_committed) for unit in seen["b"]] == [(TaskOutcome.SUCCEEDED, True)]
    by_partition = {next(iter(unit.low.positions)): unit for unit in seen["a"]}
    failed, read = by_partition["1"], by_partition["2"]
    assert (failed.outcome, failed.is_committed, failed.attempts) == (TaskOutcome.FAILED, False, 1)
    assert (failed.low, failed.expected_high, failed.actual_high) == (
        Watermark({"1": 0}),
        Watermark({"1": 3}),
        Watermark({"1": 0}),
    )
    assert (read.outcome, read.is_committed, read.actual_high) == (
        TaskOutcome.SUCCEEDED,
        False,
        Watermark({"2": 4}),
    ), "the run committed nothing of the dataset"
    after = previous(machine, a=[2, 3, 4], b=2)
    assert {unit.is_committed for unit in after["a"]} == {True}, "only the last run is seen"


def plan_of(count: int) -> DatasetPlan:
    units = tuple(
        WorkUnit(f"00000_{number:06d}", "a", Watermark({str(number): 0}), Watermark({str(number): 1}), 1)
        for number in range(count)
    )
    return DatasetPlan("a", None, Watermark({}), units)


def state_of(unit: WorkUnit, outcome: TaskOutcome, finished_ms: int = 0, **properties: Any) -> TaskState:
    high = unit.expected_high if outcome is TaskOutcome.SUCCEEDED else unit.low
    state = TaskState("run", 7, "a", unit.work_unit_id, f"{finished_ms}", outcome, unit.low, unit.expected_high, high)
    return msgspec.structs.replace(state, finished_ms=finished_ms, properties=properties)


def test_listed_work_units_are_bounded_and_those_that_were_not_committed_come_first() -> None:
    plan = plan_of(MOST_WORK_UNITS + 10)
    *read, last = plan.work_units
    winners = [state_of(unit, TaskOutcome.SUCCEEDED) for unit in read]
    run = build_previous_run(7, plan, [*winners, state_of(last, TaskOutcome.FAILED)], winners)
    assert run is not None
    assert (len(run.work_units), run.omitted_count) == (MOST_WORK_UNITS, 10)
    assert [unit.work_unit_id for unit in run.work_units[:2]] == [last.work_unit_id, read[0].work_unit_id]


def test_size_of_listed_work_units_is_bounded() -> None:
    plan = plan_of(20)
    states = [state_of(unit, TaskOutcome.SUCCEEDED, text={"text": "x" * 4000}) for unit in plan.work_units]
    run = build_previous_run(7, plan, states, states)
    assert run is not None
    assert (len(run.work_units), run.omitted_count) == (4, 16)
    assert len(msgspec.msgpack.encode(run.work_units)) <= MOST_BYTES + 10


def test_result_is_of_the_winner_or_else_of_the_last_attempt() -> None:
    plan = plan_of(1)
    (unit,) = plan.work_units
    first, second = (state_of(unit, TaskOutcome.FAILED, at, source={"at": at}) for at in (1, 2))
    read = state_of(unit, TaskOutcome.SUCCEEDED, 0, source={"at": 0})

    def result(*states: TaskState, winners: tuple[TaskState, ...] = ()) -> tuple[Any, ...]:
        run = build_previous_run(7, plan, states, winners)
        assert isinstance(run, PreviousRun)
        (only,) = run.work_units
        return only.outcome, only.attempts, only.properties

    assert result() == (TaskOutcome.FAILED, 0, {})
    assert result(second, first) == (TaskOutcome.FAILED, 2, {"source": {"at": 2}})
    assert result(first, read, second, winners=(read,)) == (TaskOutcome.SUCCEEDED, 3, {"source": {"at": 0}})


def test_pending_running_and_interrupted_work_units_are_rows_of_a_run() -> None:
    machine, clock, rows = Machine(), QuickClock(), list[list[WorkUnitRow]]()
    settings = WORLD.begin(machine, source(a=[2, 3, 4]))
    store = WORLD.store(machine)

    def extracting(unit: WorkUnit) -> None:
        if "1" in unit.low.positions:
            (run_id,) = {name.partition("run=")[2].partition("/")[0] for name in machine.paths("/job/store/plans")}
            for held in (True, False):
                with JobLock(store.fs, ROOTS.store, run_id, 30, clock) as lock:
                    if not held:
                        lock._stop.set()
                        clock.seconds += 31
                    rows.append(read_work_units(store, settings.epoch + 1, clock).work_units)

    assert go(WORLD, machine, OddSource(source(a=[2, 3, 4]).datasets, extracting=extracting)).succeeded
    live, dead = ({next(iter(row.low)): row.status.value for row in seen} for seen in rows)
    assert live["1"] == "running"
    assert live["2"] == "pending"
    assert dead["1"] == "interrupted"
    after = read_work_units(store, settings.epoch + 1, clock)
    assert after.counts == {"succeeded": 3}
    assert [(row.expected_high, row.actual_high, row.records_read) for row in after.work_units] == [
        ({str(partition): end}, {str(partition): end}, end) for partition, end in enumerate((2, 3, 4))
    ]

"""Rebuilds of a store while an operator or another rebuild acts at any point."""

from __future__ import annotations

import errno
from collections.abc import Callable
from contextlib import suppress
from functools import partial

import pytest

from distcommit.app.admin.rebuild_store import plan_rebuild, rebuild_store, stored_states
from distcommit.core.errors import ConflictError, DistcommitError, StaleStoreError
from distcommit.core.interfaces.commit_step import StepContext
from distcommit.core.records.log_records import DatasetStatus
from distcommit.core.support.io_batching import run_alone
from distcommit.core.watermark import Watermark
from distcommit.protocol import next_log_record
from distcommit.steps.step_registry import load_steps
from distcommit.stores.folders.run_markers import Marker, put_run_marker, read_markers
from distcommit.stores.logs.commit_log import CommitLog
from distcommit.stores.logs.fencing import begin_run
from distcommit.stores.operator import operator_actions
from distcommit.stores.state.job_store import open_store
from distcommit.testing.fakes.faulty_calls import Crashed, Operation
from tests.simulation.programs.parts import files_below, replace_files
from tests.simulation.world import ROOTS, SimulatedFileSystem, World
from tests.unit.engine.committing.situations import quarantine
from tests.unit.engine.driver.machines import (
    OUTPUT,
    Machine,
    Meeting,
    dies_at,
    fails,
    published,
    source,
    states,
    with_folders,
)

WORLD = World()
STORE = ROOTS.store
FIRST, SECOND, THIRD = source(a=[1, 1], b=1), source(a=[2, 2], b=3), source(a=[3, 2], b=4)


def rebuild(machine: Machine, run_id: str = "rebuild") -> None:
    store = WORLD.store(machine)
    plan = plan_rebuild(store, stored_states(store), accept_gaps=False)
    assert rebuild_store(store, plan, run_id, "me", accept_gaps=False).written


def stale() -> Machine:
    machine = Machine()
    WORLD.run(machine, FIRST)
    backup = files_below(machine, STORE)
    WORLD.run(machine, SECOND)
    replace_files(machine, STORE, backup)
    return machine


@pytest.mark.thorough
def test_operator_watermark_set_during_a_rebuild_is_kept_or_the_rebuild_is_refused() -> None:
    conflicts: list[str] = []
    for number in range(0, 400, 3):
        machine = stale()
        store = WORLD.store(machine)

        def set_watermark(machine: Machine = machine) -> bool:
            operator_actions.set_watermark(WORLD.store(machine), "b", Watermark({"0": 2}), "person")
            return True

        meeting = Meeting(machine, number, set_watermark)
        machine.faults.append(meeting)
        try:
            rebuild(machine)
        except ConflictError as error:
            conflicts.append(str(error))
            machine.restart()
            rebuild(machine, "again")
        if meeting.result is None:
            break
        state = store.bucket_log(0).refresh().state_of("b")
        skipped = [(skip.low, skip.high) for skip in state.skipped]
        assert state.watermark == Watermark({"0": 2}) or skipped == [(1, 2)], number
    assert len(conflicts) > 0
    assert all("found idle, watermark 2" in conflict for conflict in conflicts)
    assert number > 3 * len(conflicts)


def test_interrupted_abandon_deletes_no_file_that_a_rebuild_counted_as_published() -> None:
    machine = Machine()
    WORLD.run(machine, FIRST)
    with_folders(machine, "a").faults.append(fails(errno.EIO, "rename", f"{OUTPUT}/a/"))
    WORLD.run(machine, SECOND)
    machine.restart()
    sequence = quarantine(machine)
    store = WORLD.store(machine)
    steps = list(load_steps(sequence.steps, StepContext(store.fs, ROOTS.staging, ROOTS.output)))
    steps[0].execute()
    machine.faults.append(fails(errno.EIO, "unlink", f"{OUTPUT}/a/"))
    with suppress(DistcommitError):
        operator_actions.abandon(store, "a", "person")
    machine.restart()
    assert states(WORLD, machine)["a"].status is DatasetStatus.REVOKING
    half = [path for path in published(machine) if f"/{sequence.epoch:010d}-" in path and "/a/" in path]
    assert len(half) == 1
    backup = files_below(machine, STORE)
    WORLD.run(machine, THIRD)
    replace_files(machine, STORE, backup)
    rebuild(machine)
    assert half[0] not in published(machine)
    for step in steps:  # the operator's abandon continues
        step.undo()
    WORLD.run(machine, THIRD)
    assert WORLD.violation(machine, THIRD, {}) == ""


@pytest.mark.parametrize("place", range(0, 24, 2))
def test_lost_store_is_recreated_by_two_rebuilds_although_one_dies_at_any_operation(place: int) -> None:
    for number in range(100):
        machine = Machine()

        def make(machine: Machine = machine) -> str:
            fs = SimulatedFileSystem(machine)
            return open_store(fs, ROOTS, "job", 1, create=True, lost_store_id="0" * 32).store_id

        def stops(machine: Machine = machine, make: Callable[[], str] = make) -> bool:
            machine.faults.append(dies_at(place))
            with suppress(Crashed):
                make()
            machine.restart()
            return True

        meeting = Meeting(machine, number, stops)
        machine.faults.append(meeting)
        assert make() == "0" * 32, number
        if meeting.result is None:
            break
    assert number > 20


def test_rebuild_continues_with_a_store_that_another_rebuild_already_uses() -> None:
    machine = Machine()
    fs = SimulatedFileSystem(machine)
    log = f"{STORE}/log/bucket=00000"
    swept: list[str] = []

    def sweep(operation: Operation) -> None:
        if operation.kind == "rename" and operation.path == f"{log}/000000000001.seg" and not swept:
            machine.faults.clear()
            swept.extend(f"{log}/{entry.name}" for entry in machine.scandir(log))
            CommitLog(fs, log).create()
            for path in swept:
                machine.unlink(path)

    machine.faults.append(sweep)
    assert open_store(fs, ROOTS, "job", 1, create=True, lost_store_id="0" * 32).store_id == "0" * 32
    assert len(swept) == 1


@pytest.mark.thorough
def test_run_that_reads_marks_while_a_rebuild_begins_is_refused() -> None:
    """The run may read the marks before the rebuild puts its own, and the job log after the rebuild's fence."""
    concurrent_rebuilds = 0
    for number in range(20):
        machine = stale()
        store = WORLD.store(machine)
        epoch = max(read_markers(store.fs, ROOTS.output).values()) + 1
        remaining = [number]

        def rebuild_begins(operation: Operation, machine: Machine = machine, remaining: list[int] = remaining) -> None:
            remaining[0] -= 1
            if remaining[0] == -1:
                faults, machine.faults = machine.faults, []
                store = WORLD.store(machine)
                put_run_marker(store.fs, ROOTS.output, epoch, Marker.REBUILD)  # noqa: B023 - called in this iteration
                run_alone(store.job_log(epoch).settle(partial(next_log_record.fence, epoch=epoch, run_id="rebuild")))  # noqa: B023
                machine.faults = faults

        machine.faults.append(rebuild_begins)
        with pytest.raises(StaleStoreError):
            begin_run(WORLD.store(machine), "run")
        concurrent_rebuilds += remaining[0] < 0
    assert concurrent_rebuilds > 5

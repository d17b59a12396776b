"""Rebuilding a store beside people at work, and beside another rebuild, wherever they meet."""

from __future__ import annotations

import errno
from collections.abc import Callable
from contextlib import suppress
from functools import partial

import pytest

from distcommit.app.admin.rebuild import known_states, plan_rebuild, rebuild_store
from distcommit.core.errors import ConflictError, DistcommitError, StaleStoreError
from distcommit.core.interfaces.steps import StepContext
from distcommit.core.records.log_records import DatasetStatus
from distcommit.core.watermark import Watermark
from distcommit.protocol import next_record
from distcommit.steps.registry import load_steps
from distcommit.stores.folders.ownership import Mark, put_mark, read_marks
from distcommit.stores.logs.fencing import begin_run
from distcommit.stores.logs.log import CommitLog
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
    found = plan_rebuild(store, known_states(store), accept_gaps=False)
    assert rebuild_store(store, found, run_id, "me", accept_gaps=False).written


def stale() -> Machine:
    machine = Machine()
    WORLD.run(machine, FIRST)
    backup = files_below(machine, STORE)
    WORLD.run(machine, SECOND)
    replace_files(machine, STORE, backup)
    return machine


def test_a_watermark_that_a_person_sets_while_the_store_is_rebuilt_stays_or_the_rebuild_is_refused() -> None:
    told: list[str] = []
    for number in range(0, 400, 3):
        machine = stale()
        store = WORLD.store(machine)

        def person(machine: Machine = machine) -> bool:
            operator_actions.set_watermark(WORLD.store(machine), "b", Watermark({"0": 2}), "person")
            return True

        meeting = Meeting(machine, number, person)
        machine.faults.append(meeting)
        try:
            rebuild(machine)
        except ConflictError as error:
            told.append(str(error))
            machine.restart()
            rebuild(machine, "again")
        if meeting.result is None:
            break
        state = store.bucket_log(0).refresh().state_of("b")
        skipped = [(each.low, each.high) for each in state.skipped]
        assert state.watermark == Watermark({"0": 2}) or skipped == [(1, 2)], number
    assert len(told) > 0
    assert all("found idle, watermark 2" in each for each in told)
    assert number > 3 * len(told)


def test_whoever_abandons_a_sequence_takes_nothing_away_that_a_rebuild_has_counted() -> None:
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
    for step in steps:  # the person goes on
        step.undo()
    WORLD.run(machine, THIRD)
    assert WORLD.violation(machine, THIRD, {}) == ""


@pytest.mark.parametrize("place", range(0, 24, 2))
def test_two_rebuilds_make_a_lost_store_anew_though_one_of_them_stops_anywhere(place: int) -> None:
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


def test_a_rebuild_whose_store_another_one_uses_already_goes_on_with_it() -> None:
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


def test_a_run_that_looks_while_a_rebuild_begins_does_not_begin_on_what_is_half_rebuilt() -> None:
    """Wherever it looks: it may read marks before the rebuild has put its own, and the job log after its fence."""
    met = 0
    for number in range(20):
        machine = stale()
        store = WORLD.store(machine)
        epoch = max(read_marks(store.fs, ROOTS.output).values()) + 1
        left = [number]

        def rebuild_begins(operation: Operation, machine: Machine = machine, left: list[int] = left) -> None:
            left[0] -= 1
            if left[0] == -1:
                faults, machine.faults = machine.faults, []
                store = WORLD.store(machine)
                put_mark(store.fs, ROOTS.output, epoch, Mark.REBUILD)  # noqa: B023 - called in this round
                store.job_log(epoch).settle(partial(next_record.fence, epoch=epoch, run_id="rebuild"))  # noqa: B023
                machine.faults = faults

        machine.faults.append(rebuild_begins)
        with pytest.raises(StaleStoreError):
            begin_run(WORLD.store(machine), "run")
        met += left[0] < 0
    assert met > 5

"""A store made anew from an output in which records were fed again: nothing of them is lost and nothing there twice,
whatever of the retired files is deleted."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from distcommit.protocol.paths import is_tombstone
from distcommit.stores import by_hand
from distcommit.testing.models.model_source import ModelDataset, ModelSource
from distcommit.testing.models.turning_away import TurningAway
from distcommit.testing.simulation.simulated_posix import Crashed, Operation
from distcommit.testing.simulation.world import World
from tests.unit.app.rebuilding import lose_the_store, put_back, rebuild, remove_clean_mark
from tests.unit.engine.machines import OUTPUT, Machine, audit, dies, go, states

A = ModelSource({"a": ModelDataset({"0": 6}, units=2)})
MORE = ModelSource({"a": ModelDataset({"0": 9}, units=2)})
BAD = World(flow=TurningAway(frozenset({"a/0/1", "a/0/2", "a/0/5"})))
HALF = World(flow=TurningAway(frozenset({"a/0/2"})))
GOOD = World(flow=TurningAway())
DROPS = World(flow=TurningAway(dropped=frozenset({"a/0/1", "a/0/2", "a/0/5"})))


def turned_away() -> Machine:
    machine = Machine()
    assert go(BAD, machine, A).succeeded
    return machine


def deleted(machine: Machine) -> None:
    """By a run that has nothing else to do."""
    assert go(HALF, machine, A).succeeded


def deleted_but_for_the_tombstone(machine: Machine) -> None:
    machine.faults.append(dies("unlink", ".tombstone"))
    with pytest.raises(Crashed):
        go(HALF, machine, A)
    machine.restart()


def some_deleted(machine: Machine) -> None:
    machine.faults.append(dies("unlink", "_rejected", 2))
    with pytest.raises(Crashed):
        go(HALF, machine, A)
    machine.restart()


def not_deleted(machine: Machine) -> None:
    return


def check(machine: Machine, rejected: int, filtered: int = 0) -> None:
    """The rebuilt job goes on, and each record is in one place."""
    assert go(HALF, machine, MORE).succeeded
    found = audit(HALF, machine)
    assert found.exact, found
    assert (found.records + found.filtered, found.filtered) == (9, filtered)
    assert found.rejected == rejected
    assert HALF.watermarks(machine)["a"].positions == {"0": 9}


@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize("later", [deleted, deleted_but_for_the_tombstone, some_deleted, not_deleted])
def test_a_lost_store(later: Callable[[Machine], None], is_clean: bool) -> None:
    machine = turned_away()
    assert HALF.reprocess(machine, A, "a").succeeded
    later(machine)
    if not is_clean:
        remove_clean_mark(machine)
    lose_the_store(machine, 1)
    result = rebuild(HALF, machine)
    assert (result.written, result.gaps, result.problems) == (True, [], [])
    nothing_tells = later is not_deleted and not is_clean
    assert bool(result.set_aside) == nothing_tells
    check(machine, 3 if nothing_tells else 1)


@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize("later", [deleted, deleted_but_for_the_tombstone, not_deleted])
def test_a_store_from_before_it(later: Callable[[Machine], None], is_clean: bool) -> None:
    machine = turned_away()
    backup = machine.paths("/job/store")
    assert HALF.reprocess(machine, A, "a").succeeded
    later(machine)
    if not is_clean:
        remove_clean_mark(machine)
    put_back(machine, backup)
    result = rebuild(HALF, machine)
    assert result.problems == []
    check(machine, 3 if later is not_deleted and not is_clean else 1)


def test_records_of_which_nothing_is_left_but_that_they_were_filtered() -> None:
    machine = turned_away()
    assert DROPS.reprocess(machine, A, "a").succeeded
    deleted(machine)
    lose_the_store(machine, 1)
    assert rebuild(HALF, machine).problems == []
    check(machine, 0, 3)


@pytest.mark.parametrize("published", [1, 2])
def test_one_that_was_published_by_half_is_set_aside_with_its_tombstone(published: int) -> None:
    """And the error files are live again."""
    machine = turned_away()
    seen = 0

    def fault(operation: Operation) -> None:
        nonlocal seen
        if operation.kind == "rename" and operation.path.startswith(OUTPUT) and "-00000_" in operation.path:
            seen += 1
            if seen > published:
                raise Crashed

    machine.faults.append(fault)
    with pytest.raises(Crashed):
        HALF.reprocess(machine, A, "a")
    machine.restart()
    lose_the_store(machine, 1)
    result = rebuild(HALF, machine)
    assert result.problems == []
    assert result.set_aside_count == published
    assert not any(is_tombstone(path) for path in machine.paths(OUTPUT))
    check(machine, 3)


def test_one_that_is_being_abandoned_is_set_aside_with_its_tombstone() -> None:
    machine = turned_away()

    def fault(operation: Operation) -> None:
        if operation.kind == "rename" and "/log/bucket" in operation.path and published(machine):
            raise Crashed

    machine.faults.append(fault)
    with pytest.raises(Crashed):
        HALF.reprocess(machine, A, "a")
    machine.restart()
    store = HALF.store(machine)
    by_hand.quarantine(store, "a", "me")
    machine.faults.append(dies("unlink", OUTPUT))
    with pytest.raises(Crashed):
        by_hand.abandon(store, "a", "me")
    machine.restart()
    assert states(HALF, machine)["a"].status.value == "revoking"
    result = rebuild(HALF, machine)
    assert result.problems == []
    assert not published(machine)
    check(machine, 3)


def published(machine: Machine) -> bool:
    return any(is_tombstone(path) for path in machine.paths(OUTPUT))

"""Rebuilding a store of sources that were made again, and that have positions without a record."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from distcommit.app.migration.compare import CompareResult, compare_outputs
from distcommit.core.records.log_records import DatasetState, Done
from distcommit.core.watermark import Watermark
from distcommit.stores.operator import operator_actions
from distcommit.testing.fakes.faulty_calls import Operation
from distcommit.testing.fakes.model_source import ModelDataset, ModelSource
from tests.simulation.world import FILE_A_RECORD, ROOTS, World
from tests.unit.app.admin.rebuilding import lose_the_store, put_back, rebuild, remove_clean_mark
from tests.unit.engine.driver.machines import Machine, audit, go, published, states, written

WORLD = World(buckets=2)


def made(partitions: int | Mapping[str, int], incarnation: str = "", **more: object) -> ModelSource:
    ends = {"0": partitions} if isinstance(partitions, int) else partitions
    return ModelSource({"a": ModelDataset(ends, incarnation=incarnation, **more)})  # type: ignore[arg-type]


def set_by_hand(machine: Machine, watermark: Watermark | None = None) -> None:
    operator_actions.set_watermark(WORLD.store(machine), "a", watermark, "person")


def state_of(machine: Machine) -> DatasetState:
    return states(WORLD, machine)["a"]


def made_again(first: ModelSource, then: ModelSource, at: Watermark | None = None, world: World = WORLD) -> Machine:
    """The first is read, then the other one, once a person has allowed it."""
    machine = Machine()
    assert go(world, machine, first).succeeded
    set_by_hand(machine, at)
    assert go(world, machine, then).succeeded
    return machine


class TestIncarnations:
    @pytest.mark.parametrize("second", [4, 9], ids=["shorter", "longer"])
    def test_the_watermark_counts_in_the_newest(self, second: int) -> None:
        machine = made_again(made(7, "one"), made(second, "two"))
        before = state_of(machine)
        lose_the_store(machine)
        result = rebuild(WORLD, machine)
        assert (result.written, result.problems, result.set_aside_count) == (True, [], 0)
        assert state_of(machine).watermark == before.watermark == Watermark({"0": second}, "two")
        assert state_of(machine).origin == {"0": 0}
        assert (result.rows[0].incarnation, result.rows[0].earlier) == ("two", ["one"])
        found = audit(WORLD, machine)
        assert (found.exact, found.earlier_incarnations) == (True, 1)
        assert go(WORLD, machine, made(12, "two")).totals.records_published == 12 - second
        assert audit(WORLD, machine).exact

    def test_partitions_of_an_earlier_one_are_forgotten(self) -> None:
        machine = made_again(made({"0": 2, "1": 5}, "one"), made({"0": 3}, "two"))
        lose_the_store(machine)
        rebuild(WORLD, machine)
        assert state_of(machine).watermark == Watermark({"0": 3}, "two")
        assert go(WORLD, machine, made({"0": 3, "1": 2}, "two")).totals.records_published == 2
        assert audit(WORLD, machine).exact

    def test_what_was_made_again_meanwhile_is_stopped_by_its_id(self) -> None:
        machine = Machine()
        go(WORLD, machine, made(3, "one"))
        lose_the_store(machine)
        rebuild(WORLD, machine)
        refused = go(WORLD, machine, made(8, "two"))
        assert (refused.succeeded, refused.totals.records_published) == (False, 0)
        assert refused.totals.reasons[0].text == "expected one, found two"
        set_by_hand(machine)
        assert go(WORLD, machine, made(8, "two")).totals.records_published == 8
        assert audit(WORLD, machine).exact

    def test_a_stale_store_knows_the_earlier_one(self) -> None:
        machine = Machine()
        go(WORLD, machine, made(7, "one", holes={"0": frozenset({0})}, units=7))
        assert len(state_of(machine).skipped) == 1
        backup = machine.paths(ROOTS.store)
        set_by_hand(machine)
        go(WORLD, machine, made(4, "two"))
        put_back(machine, backup)
        assert rebuild(WORLD, machine).written
        assert state_of(machine).watermark == Watermark({"0": 4}, "two")
        assert len(state_of(machine).skipped) == 1, "what the store knew is kept"
        assert audit(WORLD, machine).exact

    def test_a_stale_store_that_knows_what_a_person_set(self) -> None:
        machine = Machine()
        go(WORLD, machine, made(7, "one"))
        set_by_hand(machine, Watermark({"0": 2}))
        backup = machine.paths(ROOTS.store)
        go(WORLD, machine, made(4, "two"))
        put_back(machine, backup)
        assert rebuild(WORLD, machine).written
        assert (state_of(machine).watermark, state_of(machine).origin) == (Watermark({"0": 4}, "two"), {"0": 2})
        assert audit(WORLD, machine).exact

    def test_an_earlier_one_may_have_gaps(self) -> None:
        """The audit does not ask for its records, and nobody can read them any more."""
        machine = made_again(made(9, "one", units=3), made(4, "two"))
        machine.remove(sorted(published(machine))[1])
        lose_the_store(machine)
        result = rebuild(WORLD, machine)
        assert (result.written, result.problems, result.gaps) == (True, [], [])
        assert audit(WORLD, machine).exact

    def test_a_gap_in_the_newest_is_one_of_its_incarnation(self) -> None:
        machine = made_again(made(3, "one"), made(9, "two", units=3))
        machine.remove(sorted(published(machine))[-2])
        lose_the_store(machine)
        assert rebuild(WORLD, machine).problems == ["a partition 0: no file has offsets 3 to 6"]
        assert rebuild(WORLD, machine, accept_gaps=True).written
        assert [skip.incarnation for skip in state_of(machine).skipped] == ["two"]

    @pytest.mark.parametrize("number", [0, 1, 2])
    def test_of_a_newest_one_that_is_not_whole_the_rest_is_read_again(self, number: int) -> None:
        machine = made_again(made(7, "one"), made(9, "two", units=3))
        remove_clean_mark(machine)
        machine.remove(sorted(published(machine))[-3:][number])
        lose_the_store(machine)
        result = rebuild(WORLD, machine)
        taken = 6 if number == 2 else 0
        assert (result.written, result.set_aside_count) == (True, 0 if taken else 2)
        assert state_of(machine).watermark == Watermark({"0": taken}, "two")
        assert go(WORLD, machine, made(9, "two")).totals.records_published == 9 - taken
        found = audit(WORLD, machine)
        assert (found.exact, found.records) == (True, 16)
        assert not go(WORLD, machine, made(9, "three")).succeeded, "the next one is told by its id"

    def test_files_of_one_epoch_that_name_two_are_a_problem(self) -> None:
        machine = Machine()
        go(WORLD, machine, made(2, "one"))
        other = Machine()
        go(WORLD, other, made({"1": 2}, "two"))
        for path in published(other):
            machine.put(path, other.paths(ROOTS.output)[path])
        lose_the_store(machine)
        result = rebuild(WORLD, machine)
        assert not result.written
        assert "counts in two incarnations" in result.problems[0]


class TestFilesThatNameNone:
    """Old files, and those of sources without: they count in what the dataset counted in before them."""

    def test_they_go_on_where_the_named_ones_end(self) -> None:
        machine = Machine()
        go(WORLD, machine, made(3, "one"))
        set_by_hand(machine, Watermark({"0": 3}))
        go(WORLD, machine, made(5))
        lose_the_store(machine)
        rebuild(WORLD, machine)
        assert state_of(machine).watermark == Watermark({"0": 5}, "one")

    def test_named_ones_that_go_on_where_they_end_give_them_their_name(self) -> None:
        machine = Machine()
        go(WORLD, machine, made(3))
        go(WORLD, machine, made(5, "one"))
        lose_the_store(machine)
        rebuild(WORLD, machine)
        assert state_of(machine).watermark == Watermark({"0": 5}, "one")
        assert audit(WORLD, machine).exact

    def test_named_ones_that_begin_before_their_end_are_of_a_source_made_again(self) -> None:
        machine = made_again(made(7), made(4, "one"))
        lose_the_store(machine)
        rebuild(WORLD, machine)
        assert state_of(machine).watermark == Watermark({"0": 4}, "one")
        assert go(WORLD, machine, made(9, "one")).totals.records_published == 5, "4 to 7 are not lost"

    def test_without_any_name_the_furthest_counts(self) -> None:
        machine = made_again(made(7), made(4))
        lose_the_store(machine)
        rebuild(WORLD, machine)
        assert state_of(machine).watermark == Watermark({"0": 7})


class TestHoles:
    HOLES = {"0": frozenset({2, 3, 6, 7, 9})}

    def test_holes_in_whole_epochs_are_no_gaps(self) -> None:
        machine = Machine()
        go(WORLD, machine, made(5, holes=self.HOLES))
        go(WORLD, machine, made(10, holes=self.HOLES))
        lose_the_store(machine)
        result = rebuild(WORLD, machine)
        assert (result.written, result.problems, result.gaps) == (True, [], [])
        assert state_of(machine).watermark == Watermark({"0": 10}), "also holes behind the last record"
        found = audit(WORLD, machine)
        assert (found.exact, found.records, found.holes, found.skipped) == (True, 5, 5, 0)

    def test_an_open_epoch_goes_on_over_its_holes(self) -> None:
        machine = Machine()
        go(WORLD, machine, made(5, holes=self.HOLES))
        go(WORLD, machine, made(10, holes=self.HOLES))
        remove_clean_mark(machine)
        lose_the_store(machine)
        result = rebuild(WORLD, machine)
        assert (result.written, result.set_aside_count) == (True, 0)
        assert state_of(machine).watermark == Watermark({"0": 10})
        assert audit(WORLD, machine).exact

    def test_holes_that_only_the_lost_log_named_are_gaps(self) -> None:
        """As the limits say: nothing tells them from records that are missing."""
        machine = Machine()
        go(WORLD, machine, made(2, holes=self.HOLES))
        go(WORLD, machine, made(4, holes=self.HOLES))  # nothing but holes: no file
        go(WORLD, machine, made(6, holes=self.HOLES))
        lose_the_store(machine)
        assert rebuild(WORLD, machine).problems == ["a partition 0: no file has offsets 2 to 4"]
        assert rebuild(WORLD, machine, accept_gaps=True).written
        found = audit(WORLD, machine)
        assert (found.exact, found.skipped) == (True, 2)

    @pytest.mark.parametrize("clean", [True, False])
    @pytest.mark.parametrize("second", [4, 6], ids=["nothing but holes", "holes before a record"])
    def test_holes_of_a_sequence_that_a_stale_store_knows_are_kept(self, second: int, clean: bool) -> None:
        """The store was copied between the sealing and the closing of a sequence, whose holes no file names."""
        world = World(buckets=2, files=FILE_A_RECORD)
        machine = Machine()
        go(world, machine, made(2, "one", holes=self.HOLES))
        backup = go_and_copy(world, machine, made(second, "one", holes=self.HOLES))
        go(world, machine, made(9, "one", holes=self.HOLES))
        if not clean:
            remove_clean_mark(machine)
        put_back(machine, backup)
        assert state_of(machine).sequence is not None
        result = rebuild(world, machine)
        assert (result.written, result.problems) == (True, [])
        assert state_of(machine).watermark == Watermark({"0": 9}, "one")
        found = audit(world, machine)
        assert (found.exact, found.holes, found.skipped) == (True, 4, 0)

    def test_at_least_once_too(self) -> None:
        world = World(buckets=2, at_least_once=True)
        machine = Machine()
        go(world, machine, made(7, "one", holes=self.HOLES))
        set_by_hand(machine)
        go(world, machine, made(5, "two", holes=self.HOLES))
        lose_the_store(machine)
        rebuild(world, machine)
        assert state_of(machine).watermark == Watermark({"0": 5}, "two")


def go_and_copy(world: World, machine: Machine, data: ModelSource) -> dict[str, bytes]:
    """A run, and the store as it was just before the run's first DONE."""
    backup: dict[str, bytes] = {}

    def copy(operation: Operation) -> None:
        if not backup and isinstance(written(machine, operation), Done):
            backup.update(machine.paths(ROOTS.store))

    machine.faults.append(copy)
    assert go(world, machine, data).succeeded
    machine.faults.clear()
    return {path: data for path, data in backup.items() if "/.tmp-" not in path}


def compared(mine: Machine, other: Machine) -> CompareResult:
    flow = WORLD.flow(made(0), WORLD.files)
    return compare_outputs(WORLD.store(mine), flow, WORLD.store(other), flow)


class TestComparison:
    def test_what_was_published_before_the_source_was_made_again_stands_for_nothing_since(self) -> None:
        mine, other = made_again(made(7, "one"), made(4, "two")), Machine()
        assert go(WORLD, other, made(4, "two")).succeeded
        assert compared(mine, other).same
        mine.remove(max(published(mine)))  # of the newest epoch
        (row,) = compared(mine, other).rows
        assert (row.both, row.only_theirs) == (0, 4)

    def test_two_that_have_read_others_are_not_the_same(self) -> None:
        mine, other = Machine(), Machine()
        assert go(WORLD, mine, made(4, "one")).succeeded
        assert go(WORLD, other, made(4, "two")).succeeded
        found = compared(mine, other)
        assert (found.same, found.differing) == (False, 1)

"""Rebuilds of stores with recreated sources and with positions without a record."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from distcommit.app.migration.compare_outputs import CompareResult, compare_outputs
from distcommit.core.records.log_records import DatasetState, Done
from distcommit.core.watermark import Watermark
from distcommit.stores.operator import operator_actions
from distcommit.testing.fakes.faulty_calls import Operation
from distcommit.testing.fakes.model_source import ModelDataset, ModelSource
from tests.simulation.world import FILE_A_RECORD, ROOTS, World
from tests.unit.app.admin.rebuild_store.rebuilding import lose_the_store, put_back, rebuild, remove_clean_mark
from tests.unit.engine.driver.machines import Machine, audit, go, published, states, written

WORLD = World(buckets=2)


def dataset_a(partitions: int | Mapping[str, int], incarnation: str = "", **more: object) -> ModelSource:
    ends = {"0": partitions} if isinstance(partitions, int) else partitions
    return ModelSource({"a": ModelDataset(ends, incarnation=incarnation, **more)})  # type: ignore[arg-type]


def set_watermark(machine: Machine, watermark: Watermark | None = None) -> None:
    operator_actions.set_watermark(WORLD.store(machine), "a", watermark, "person")


def state_of(machine: Machine) -> DatasetState:
    return states(WORLD, machine)["a"]


def recreated(first: ModelSource, then: ModelSource, at: Watermark | None = None, world: World = WORLD) -> Machine:
    """Read the first source, and then the second one, after the operator allowed it."""
    machine = Machine()
    assert go(world, machine, first).succeeded
    set_watermark(machine, at)
    assert go(world, machine, then).succeeded
    return machine


class TestIncarnations:
    @pytest.mark.parametrize("second", [4, 9], ids=["shorter", "longer"])
    def test_rebuilt_watermark_is_of_the_newest_incarnation(self, second: int) -> None:
        machine = recreated(dataset_a(7, "one"), dataset_a(second, "two"))
        before = state_of(machine)
        lose_the_store(machine)
        result = rebuild(WORLD, machine)
        assert (result.written, result.problems, result.set_aside_count) == (True, [], 0)
        assert state_of(machine).watermark == before.watermark == Watermark({"0": second}, "two")
        assert state_of(machine).origin == {"0": 0}
        assert (result.rows[0].incarnation, result.rows[0].earlier) == ("two", ["one"])
        audited = audit(WORLD, machine)
        assert (audited.exact, audited.earlier_incarnations) == (True, 1)
        assert go(WORLD, machine, dataset_a(12, "two")).totals.records_published == 12 - second
        assert audit(WORLD, machine).exact

    def test_rebuilt_watermark_has_no_partitions_of_an_earlier_incarnation(self) -> None:
        machine = recreated(dataset_a({"0": 2, "1": 5}, "one"), dataset_a({"0": 3}, "two"))
        lose_the_store(machine)
        rebuild(WORLD, machine)
        assert state_of(machine).watermark == Watermark({"0": 3}, "two")
        assert go(WORLD, machine, dataset_a({"0": 3, "1": 2}, "two")).totals.records_published == 2
        assert audit(WORLD, machine).exact

    def test_source_recreated_after_a_rebuild_is_refused_by_its_incarnation(self) -> None:
        machine = Machine()
        go(WORLD, machine, dataset_a(3, "one"))
        lose_the_store(machine)
        rebuild(WORLD, machine)
        refused = go(WORLD, machine, dataset_a(8, "two"))
        assert (refused.succeeded, refused.totals.records_published) == (False, 0)
        assert refused.reasons.entries[0].text == "expected one, found two"
        set_watermark(machine)
        assert go(WORLD, machine, dataset_a(8, "two")).totals.records_published == 8
        assert audit(WORLD, machine).exact

    def test_rebuild_of_a_stale_store_keeps_skipped_positions_of_the_earlier_incarnation(self) -> None:
        machine = Machine()
        go(WORLD, machine, dataset_a(7, "one", holes={"0": frozenset({0})}, units=7))
        assert len(state_of(machine).skipped) == 1
        backup = machine.paths(ROOTS.store)
        set_watermark(machine)
        go(WORLD, machine, dataset_a(4, "two"))
        put_back(machine, backup)
        assert rebuild(WORLD, machine).written
        assert state_of(machine).watermark == Watermark({"0": 4}, "two")
        assert len(state_of(machine).skipped) == 1, "skipped positions of the store must be kept"
        assert audit(WORLD, machine).exact

    def test_rebuild_of_a_stale_store_keeps_the_origin_set_by_an_operator(self) -> None:
        machine = Machine()
        go(WORLD, machine, dataset_a(7, "one"))
        set_watermark(machine, Watermark({"0": 2}))
        backup = machine.paths(ROOTS.store)
        go(WORLD, machine, dataset_a(4, "two"))
        put_back(machine, backup)
        assert rebuild(WORLD, machine).written
        assert (state_of(machine).watermark, state_of(machine).origin) == (Watermark({"0": 4}, "two"), {"0": 2})
        assert audit(WORLD, machine).exact

    def test_gaps_in_an_earlier_incarnation_are_not_a_problem(self) -> None:
        """The audit does not require its records, and the source no longer has them."""
        machine = recreated(dataset_a(9, "one", units=3), dataset_a(4, "two"))
        machine.remove(sorted(published(machine))[1])
        lose_the_store(machine)
        result = rebuild(WORLD, machine)
        assert (result.written, result.problems, result.gaps) == (True, [], [])
        assert audit(WORLD, machine).exact

    def test_gap_in_the_newest_incarnation_is_a_problem(self) -> None:
        machine = recreated(dataset_a(3, "one"), dataset_a(9, "two", units=3))
        machine.remove(sorted(published(machine))[-2])
        lose_the_store(machine)
        assert rebuild(WORLD, machine).problems == ["a partition 0: no file has offsets 3 to 6"]
        assert rebuild(WORLD, machine, accept_gaps=True).written
        assert [skip.incarnation for skip in state_of(machine).skipped] == ["two"]

    @pytest.mark.parametrize("number", [0, 1, 2])
    def test_incomplete_newest_incarnation_is_read_again_from_its_gap(self, number: int) -> None:
        machine = recreated(dataset_a(7, "one"), dataset_a(9, "two", units=3))
        remove_clean_mark(machine)
        machine.remove(sorted(published(machine))[-3:][number])
        lose_the_store(machine)
        result = rebuild(WORLD, machine)
        kept_records = 6 if number == 2 else 0
        assert (result.written, result.set_aside_count) == (True, 0 if kept_records else 2)
        assert state_of(machine).watermark == Watermark({"0": kept_records}, "two")
        assert go(WORLD, machine, dataset_a(9, "two")).totals.records_published == 9 - kept_records
        audited = audit(WORLD, machine)
        assert (audited.exact, audited.records) == (True, 16)
        assert not go(WORLD, machine, dataset_a(9, "three")).succeeded, "another incarnation must be refused"

    def test_files_of_one_epoch_with_two_incarnations_are_a_problem(self) -> None:
        machine = Machine()
        go(WORLD, machine, dataset_a(2, "one"))
        other_machine = Machine()
        go(WORLD, other_machine, dataset_a({"1": 2}, "two"))
        for path in published(other_machine):
            machine.put(path, other_machine.paths(ROOTS.output)[path])
        lose_the_store(machine)
        result = rebuild(WORLD, machine)
        assert not result.written
        assert "counts in two incarnations" in result.problems[0]


class TestFilesThatNameNone:
    """Files without an incarnation: they count in the incarnation that the dataset had before them."""

    def test_files_without_incarnation_continue_the_earlier_incarnation(self) -> None:
        machine = Machine()
        go(WORLD, machine, dataset_a(3, "one"))
        set_watermark(machine, Watermark({"0": 3}))
        go(WORLD, machine, dataset_a(5))
        lose_the_store(machine)
        rebuild(WORLD, machine)
        assert state_of(machine).watermark == Watermark({"0": 5}, "one")

    def test_files_without_incarnation_take_that_of_the_files_that_continue_them(self) -> None:
        machine = Machine()
        go(WORLD, machine, dataset_a(3))
        go(WORLD, machine, dataset_a(5, "one"))
        lose_the_store(machine)
        rebuild(WORLD, machine)
        assert state_of(machine).watermark == Watermark({"0": 5}, "one")
        assert audit(WORLD, machine).exact

    def test_files_that_begin_before_the_end_of_files_without_incarnation_are_of_a_recreated_source(self) -> None:
        machine = recreated(dataset_a(7), dataset_a(4, "one"))
        lose_the_store(machine)
        rebuild(WORLD, machine)
        assert state_of(machine).watermark == Watermark({"0": 4}, "one")
        assert go(WORLD, machine, dataset_a(9, "one")).totals.records_published == 5, "offsets 4 to 6 must be read"

    def test_furthest_position_counts_if_no_file_has_an_incarnation(self) -> None:
        machine = recreated(dataset_a(7), dataset_a(4))
        lose_the_store(machine)
        rebuild(WORLD, machine)
        assert state_of(machine).watermark == Watermark({"0": 7})


class TestHoles:
    HOLES = {"0": frozenset({2, 3, 6, 7, 9})}

    def test_holes_in_complete_epochs_are_not_gaps(self) -> None:
        machine = Machine()
        go(WORLD, machine, dataset_a(5, holes=self.HOLES))
        go(WORLD, machine, dataset_a(10, holes=self.HOLES))
        lose_the_store(machine)
        result = rebuild(WORLD, machine)
        assert (result.written, result.problems, result.gaps) == (True, [], [])
        assert state_of(machine).watermark == Watermark({"0": 10}), "holes after the last record must count"
        audited = audit(WORLD, machine)
        assert (audited.exact, audited.records, audited.holes, audited.skipped) == (True, 5, 5, 0)

    def test_open_epoch_continues_over_its_holes(self) -> None:
        machine = Machine()
        go(WORLD, machine, dataset_a(5, holes=self.HOLES))
        go(WORLD, machine, dataset_a(10, holes=self.HOLES))
        remove_clean_mark(machine)
        lose_the_store(machine)
        result = rebuild(WORLD, machine)
        assert (result.written, result.set_aside_count) == (True, 0)
        assert state_of(machine).watermark == Watermark({"0": 10})
        assert audit(WORLD, machine).exact

    def test_holes_recorded_only_in_the_lost_log_are_gaps(self) -> None:
        """This is a documented limit: such holes cannot be distinguished from missing records."""
        machine = Machine()
        go(WORLD, machine, dataset_a(2, holes=self.HOLES))
        go(WORLD, machine, dataset_a(4, holes=self.HOLES))  # only holes, and therefore no file
        go(WORLD, machine, dataset_a(6, holes=self.HOLES))
        lose_the_store(machine)
        assert rebuild(WORLD, machine).problems == ["a partition 0: no file has offsets 2 to 4"]
        assert rebuild(WORLD, machine, accept_gaps=True).written
        result = audit(WORLD, machine)
        assert (result.exact, result.skipped) == (True, 2)

    @pytest.mark.parametrize("clean", [True, False])
    @pytest.mark.parametrize("second", [4, 6], ids=["nothing but holes", "holes before a record"])
    def test_holes_of_a_sequence_in_a_stale_store_are_kept(self, second: int, clean: bool) -> None:
        """The store was copied between the sealing and the closing of a sequence whose holes no file names."""
        world = World(buckets=2, files=FILE_A_RECORD)
        machine = Machine()
        go(world, machine, dataset_a(2, "one", holes=self.HOLES))
        backup = go_and_copy(world, machine, dataset_a(second, "one", holes=self.HOLES))
        go(world, machine, dataset_a(9, "one", holes=self.HOLES))
        if not clean:
            remove_clean_mark(machine)
        put_back(machine, backup)
        assert state_of(machine).sequence is not None
        result = rebuild(world, machine)
        assert (result.written, result.problems) == (True, [])
        assert state_of(machine).watermark == Watermark({"0": 9}, "one")
        audited = audit(world, machine)
        assert (audited.exact, audited.holes, audited.skipped) == (True, 4, 0)

    def test_at_least_once_rebuild_keeps_the_newest_incarnation_with_holes(self) -> None:
        world = World(buckets=2, at_least_once=True)
        machine = Machine()
        go(world, machine, dataset_a(7, "one", holes=self.HOLES))
        set_watermark(machine)
        go(world, machine, dataset_a(5, "two", holes=self.HOLES))
        lose_the_store(machine)
        rebuild(world, machine)
        assert state_of(machine).watermark == Watermark({"0": 5}, "two")


def go_and_copy(world: World, machine: Machine, data: ModelSource) -> dict[str, bytes]:
    """Run the job, and return the store as of just before the run's first DONE record."""
    backup: dict[str, bytes] = {}

    def copy(operation: Operation) -> None:
        if not backup and isinstance(written(machine, operation), Done):
            backup.update(machine.paths(ROOTS.store))

    machine.faults.append(copy)
    assert go(world, machine, data).succeeded
    machine.faults.clear()
    return {path: data for path, data in backup.items() if "/.tmp-" not in path}


def compared(own_machine: Machine, other_machine: Machine) -> CompareResult:
    flow = WORLD.flow(dataset_a(0), WORLD.files)
    return compare_outputs(WORLD.store(own_machine), flow, WORLD.store(other_machine), flow)


class TestComparison:
    def test_records_of_an_earlier_incarnation_do_not_match_in_a_comparison(self) -> None:
        own_machine, other_machine = recreated(dataset_a(7, "one"), dataset_a(4, "two")), Machine()
        assert go(WORLD, other_machine, dataset_a(4, "two")).succeeded
        assert compared(own_machine, other_machine).is_equal
        own_machine.remove(max(published(own_machine)))  # of the newest epoch
        (row,) = compared(own_machine, other_machine).rows
        assert (row.positions_in_both, row.positions_only_there) == (0, 4)

    def test_jobs_that_read_different_incarnations_are_not_the_same(self) -> None:
        own_machine, other_machine = Machine(), Machine()
        assert go(WORLD, own_machine, dataset_a(4, "one")).succeeded
        assert go(WORLD, other_machine, dataset_a(4, "two")).succeeded
        result = compared(own_machine, other_machine)
        assert (result.is_equal, result.differing) == (False, 1)

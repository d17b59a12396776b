"""Rebuilds from an output with reprocessed records: no record is lost or duplicated, whichever superseded files are
deleted."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from distcommit.app.auditing.files.read_published_files import PublishedFile
from distcommit.app.auditing.files.replaced_files import ReplacedFiles
from distcommit.protocol.paths.output import is_tombstone
from distcommit.sinks.files.footer import Footer
from distcommit.sinks.files.offset_sets import OffsetSets
from distcommit.stores.operator import operator_actions
from distcommit.testing.fakes.faulty_calls import Crashed, Operation
from distcommit.testing.fakes.model_source import ModelDataset, ModelSource
from tests.models.rejecting_flows import TurningAway
from tests.simulation.world import World
from tests.unit.app.admin.rebuild_store.rebuilding import lose_the_store, put_back, rebuild, remove_clean_mark
from tests.unit.engine.driver.machines import OUTPUT, Machine, audit, dies, go, states

A = ModelSource({"a": ModelDataset({"0": 6}, units=2)})
MORE = ModelSource({"a": ModelDataset({"0": 9}, units=2)})
BAD = World(flow=TurningAway(frozenset({"a/0/1", "a/0/2", "a/0/5"})))
HALF = World(flow=TurningAway(frozenset({"a/0/2"})))
GOOD = World(flow=TurningAway())
DROPS = World(flow=TurningAway(dropped=frozenset({"a/0/1", "a/0/2", "a/0/5"})))


def rejected_machine() -> Machine:
    machine = Machine()
    assert go(BAD, machine, A).succeeded
    return machine


def deleted(machine: Machine) -> None:
    """Delete superseded files with a run that has no other work."""
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
    """Continue the rebuilt job, and require that each record is present exactly once."""
    assert go(HALF, machine, MORE).succeeded
    result = audit(HALF, machine)
    assert result.exact, result
    assert (result.records + result.rejected_records + result.filtered, result.filtered) == (9, filtered)
    assert result.rejected == rejected
    assert HALF.watermarks(machine)["a"].positions == {"0": 9}


@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize("later", [deleted, deleted_but_for_the_tombstone, some_deleted, not_deleted])
def test_lost_store_is_rebuilt_exactly_after_a_reprocess(later: Callable[[Machine], None], is_clean: bool) -> None:
    machine = rejected_machine()
    assert HALF.reprocess(machine, A, "a").succeeded
    later(machine)
    if not is_clean:
        remove_clean_mark(machine)
    lose_the_store(machine, 1)
    result = rebuild(HALF, machine)
    assert (result.written, result.gaps, result.problems) == (True, [], [])
    is_undecidable = later is not_deleted and not is_clean
    assert bool(result.set_aside) == is_undecidable
    check(machine, 3 if is_undecidable else 1)


@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize("later", [deleted, deleted_but_for_the_tombstone, not_deleted])
def test_store_from_before_a_reprocess_is_rebuilt_exactly(later: Callable[[Machine], None], is_clean: bool) -> None:
    machine = rejected_machine()
    backup = machine.paths("/job/store")
    assert HALF.reprocess(machine, A, "a").succeeded
    later(machine)
    if not is_clean:
        remove_clean_mark(machine)
    put_back(machine, backup)
    result = rebuild(HALF, machine)
    assert result.problems == []
    check(machine, 3 if later is not_deleted and not is_clean else 1)


def test_reprocessed_records_that_were_all_filtered_stay_counted_after_a_rebuild() -> None:
    machine = rejected_machine()
    assert DROPS.reprocess(machine, A, "a").succeeded
    deleted(machine)
    lose_the_store(machine, 1)
    assert rebuild(HALF, machine).problems == []
    check(machine, 0, 3)


@pytest.mark.parametrize("published", [1, 2])
def test_half_published_reprocess_is_set_aside_with_its_tombstone(published: int) -> None:
    """The superseded error files count again."""
    machine = rejected_machine()
    renames = 0

    def fault(operation: Operation) -> None:
        nonlocal renames
        if operation.kind == "rename" and operation.path.startswith(OUTPUT) and "-00000_" in operation.path:
            renames += 1
            if renames > published:
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


def test_reprocess_that_is_being_abandoned_is_set_aside_with_its_tombstone() -> None:
    machine = rejected_machine()

    def fault(operation: Operation) -> None:
        if operation.kind == "rename" and "/log/bucket" in operation.path and published(machine):
            raise Crashed

    machine.faults.append(fault)
    with pytest.raises(Crashed):
        HALF.reprocess(machine, A, "a")
    machine.restart()
    store = HALF.store(machine)
    operator_actions.quarantine(store, "a", "me")
    machine.faults.append(dies("unlink", OUTPUT))
    with pytest.raises(Crashed):
        operator_actions.abandon(store, "a", "me")
    machine.restart()
    assert states(HALF, machine)["a"].status.value == "revoking"
    result = rebuild(HALF, machine)
    assert result.problems == []
    assert not published(machine)
    check(machine, 3)


def published(machine: Machine) -> bool:
    return any(is_tombstone(path) for path in machine.paths(OUTPUT))


@pytest.mark.parametrize("incarnation", ["", "id"])
@pytest.mark.parametrize("rejected_numbers", [range(3), range(1), range(1, 3)])
def test_reprocessed_records_count_as_read_if_no_other_file_covers_them(
    rejected_numbers: range, incarnation: str
) -> None:
    """The rejected records are all, the first or the last records of a partition.

    The dataset still begins at its first offset and reads none of them again.
    """
    machine, a = Machine(), ModelSource({"a": ModelDataset({"0": 3}, incarnation=incarnation)})
    World(buckets=2, flow=TurningAway(frozenset(f"a/0/{n}" for n in rejected_numbers))).run(machine, a)
    world = World(buckets=2, flow=TurningAway())
    assert world.reprocess(machine, a, "a").succeeded
    assert world.run(machine, a).succeeded  # deletes the reprocessed files
    before = states(world, machine)["a"]
    assert audit(world, machine).exact
    lose_the_store(machine)
    result = rebuild(world, machine)
    assert (result.written, result.set_aside, result.gaps) == (True, [], [])
    after = states(world, machine)["a"]
    assert (after.watermark, after.origin) == (before.watermark, {"0": 0})
    assert world.run(machine, a).succeeded
    audited = audit(world, machine)
    assert (audited.exact, audited.records) == (True, 3), audited


@pytest.mark.parametrize("rejected_numbers", [range(3), range(1)])
def test_hole_after_rejected_records_is_a_gap_only_if_no_file_names_it(rejected_numbers: range) -> None:
    """In both cases the records after the hole are not read again."""
    machine, a = Machine(), ModelSource({"a": ModelDataset({"0": 3}, holes={"0": frozenset({1})})})
    World(buckets=2, flow=TurningAway(frozenset(f"a/0/{n}" for n in rejected_numbers))).run(machine, a)
    world = World(buckets=2, flow=TurningAway())
    assert world.reprocess(machine, a, "a").succeeded
    assert world.run(machine, a).succeeded  # deletes the reprocessed files
    lose_the_store(machine)
    is_gap = len(rejected_numbers) == 3
    result = rebuild(world, machine)
    assert result.written is not is_gap
    assert result.problems == ["a partition 0: no file has offsets 1 to 2"] * is_gap
    assert rebuild(world, machine, accept_gaps=True).written
    assert world.run(machine, a).succeeded
    audited = audit(world, machine)
    assert (audited.exact, audited.records, audited.skipped) == (True, 2, is_gap), audited


def test_incarnation_with_only_reprocessed_records_is_restored_by_a_rebuild() -> None:
    """The incarnation is newer than the one that other files name."""
    machine, world = Machine(), World(buckets=2, flow=TurningAway())
    world.run(machine, ModelSource({"a": ModelDataset({"0": 5}, incarnation="one")}))
    operator_actions.set_watermark(world.store(machine), "a", None, "me")
    two = ModelSource({"a": ModelDataset({"0": 2}, incarnation="two")})
    World(buckets=2, flow=TurningAway(frozenset({"a/0/0", "a/0/1"}))).run(machine, two)
    assert world.reprocess(machine, two, "a").succeeded
    assert world.run(machine, two).succeeded
    before = states(world, machine)["a"].watermark
    lose_the_store(machine)
    assert rebuild(world, machine).written
    assert states(world, machine)["a"].watermark == before


def test_records_read_after_reprocessed_records_continue_at_their_end() -> None:
    """The rebuild counts the later files as complete although no mark proves that their run left nothing open."""
    machine, world = Machine(), World(buckets=2, flow=TurningAway())
    World(buckets=2, flow=TurningAway(frozenset(f"a/0/{n}" for n in range(6)))).run(machine, A)
    assert world.reprocess(machine, A, "a").succeeded
    assert world.run(machine, MORE).succeeded
    remove_clean_mark(machine)
    lose_the_store(machine)
    result = rebuild(world, machine)
    assert (result.written, result.set_aside) == (True, [])
    assert world.watermarks(machine)["a"].positions == {"0": 9}


@pytest.mark.parametrize("at_least_once", [False, True])
def test_rebuilt_dataset_begins_at_its_first_offset_or_at_0_with_at_least_once(*, at_least_once: bool) -> None:
    """With at-least-once, a run may have read earlier records that it did not publish."""
    machine, a = Machine(), ModelSource({"a": ModelDataset({"0": 6}, expired={"0": 3})})
    rejected_values = frozenset(f"a/0/{n}" for n in range(6))
    World(buckets=2, flow=TurningAway(rejected_values), at_least_once=at_least_once).run(machine, a)
    world = World(buckets=2, flow=TurningAway(), at_least_once=at_least_once)
    assert world.reprocess(machine, a, "a").succeeded
    assert world.run(machine, a).succeeded  # deletes the reprocessed files
    lose_the_store(machine)
    assert rebuild(world, machine).problems == []
    after = states(world, machine)["a"]
    assert after.watermark is not None
    expected = ({"0": 0}, {"0": 0}) if at_least_once else ({"0": 6}, {"0": 3})
    assert (after.watermark.positions, after.origin) == expected


def test_holes_named_by_superseded_files_are_not_gaps_if_their_replacements_name_them() -> None:
    offsets, hole = OffsetSets(), OffsetSets()
    offsets.add_range("0", 0, 1)
    hole.add_range("0", 1, 2)
    about = {"dataset_urn": "a", "epoch": 3, "run_id": "r", "work_unit_id": "w", "attempt": "1", "records": 1}
    file = PublishedFile("a/1.parquet", Footer(**about, replaces=(1,)), offsets, hole)  # type: ignore[arg-type]
    assert ReplacedFiles(complete={3: [file]}).reprocessed_offsets() == {"": offsets.union(hole)}

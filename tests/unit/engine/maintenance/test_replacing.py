"""Replacing publishers: what is live after a run, how the audit counts it, and when replaced files are deleted."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from distcommit.app.auditing.audit import AuditResult
from distcommit.app.migration.compare_outputs import compare_outputs
from distcommit.core.errors import ConflictError, DistcommitError, FencedError
from distcommit.engine.committing.recover import delete_superseded_files, recover_partition
from distcommit.engine.driver.run import recover
from distcommit.protocol.paths.output import is_tombstone
from distcommit.sinks.files.footer import read_footer, read_records
from distcommit.sinks.files.sink import FileSink
from distcommit.sinks.files.split_by_field import FieldPartition
from distcommit.stores.folders.tombstones import Tombstone, newest_replacements, read_tombstone, superseded_by
from distcommit.stores.logs.fencing import end_run
from distcommit.stores.operator import operator_actions
from distcommit.stores.state.checksummed_json import encode_document
from distcommit.testing.fakes.faulty_calls import Crashed, Operation
from distcommit.testing.fakes.model_source import ModelDataset, ModelSource
from tests.models.rejecting_flows import TurningAway
from tests.simulation.world import ROOTS, SimulatedFileSystem, World
from tests.unit.app.admin.rebuild_store.rebuilding import lose_the_store, put_back, rebuild, remove_clean_mark
from tests.unit.engine.driver.machines import (
    NOTHING,
    OUTPUT,
    Machine,
    audit,
    begin_ingest,
    dies,
    go,
    ingest_all,
    launch,
    source,
)
from tests.unit.engine.driver.machines import states as states_of

FOLDER = World(files=FileSink(compression="none", publish="replace"))
PARTITIONS = World(
    files=FileSink(compression="none", publish="replace_partitions", partition_by=FieldPartition(field="partition"))
)
APPEND = World()
FIRST, SECOND, THIRD = source(a=[2, 2]), source(a=[4, 3]), source(a=[5, 3])


def units(*ends: int, count: int = 2) -> ModelSource:
    return ModelSource({"a": ModelDataset({str(p): end for p, end in enumerate(ends)}, units=count)})


def stones(machine: Machine) -> list[Tombstone]:
    fs = SimulatedFileSystem(machine)
    return [read_tombstone(fs, path) for path in machine.paths(OUTPUT) if is_tombstone(path)]


def live(world: World, machine: Machine) -> list[str]:
    """Return what a committed reader sees: the values of files and error files that are done and not superseded."""
    fs, done = SimulatedFileSystem(machine), {urn: s.done_epoch for urn, s in states_of(world, machine).items()}
    superseded = {
        path for urn in done for path in superseded_by([s for s in stones(machine) if s.dataset_urn == urn], done[urn])
    }
    live_values: list[str] = []
    for path in machine.paths(OUTPUT):
        if not path.endswith(".parquet") or path.removeprefix(f"{OUTPUT}/") in superseded:
            continue
        footer = read_footer(fs, path)
        if footer and footer.epoch <= done[footer.dataset_urn]:
            live_values += read_records(fs, path).column("value").to_pylist()
    return sorted(live_values)


def ran(world: World, *sources: ModelSource) -> Machine:
    machine = Machine()
    for run_source in sources:
        assert go(world, machine, run_source).succeeded
        exact(world, machine)
    return machine


def exact(world: World, machine: Machine) -> AuditResult:
    audit_result = audit(world, machine)
    assert audit_result.exact, audit_result
    return audit_result


def read(*ranges: tuple[int, int, int]) -> list[str]:
    return sorted(f"a/{partition}/{n}" for partition, low, high in ranges for n in range(low, high))


def test_replace_all_supersedes_every_earlier_file() -> None:
    machine = ran(FOLDER, FIRST, SECOND)
    assert live(FOLDER, machine) == read((0, 2, 4), (1, 2, 3))
    audit_result = exact(FOLDER, machine)
    assert (audit_result.records, audit_result.replaced, audit_result.superseded_files) == (3, 4, 3), (
        "two files and the previous replacement"
    )
    assert FOLDER.watermarks(machine)["a"].positions == {"0": 4, "1": 3}


def test_replace_partitions_supersedes_the_partitions_that_were_read() -> None:
    machine = ran(PARTITIONS, FIRST, SECOND, THIRD)
    assert live(PARTITIONS, machine) == read((0, 4, 5), (1, 2, 3))
    rows = {row.partition: row.replaced for row in exact(PARTITIONS, machine).partitions}
    assert rows == {"0": 4, "1": 2}


def test_run_without_new_records_replaces_nothing() -> None:
    machine = ran(FOLDER, FIRST, FIRST, NOTHING)
    assert live(FOLDER, machine) == read((0, 0, 2), (1, 0, 2))
    assert len(stones(machine)) == 1


def test_several_work_units_are_one_sequence_and_one_replacement() -> None:
    machine = ran(FOLDER, units(4), units(8, count=4))
    assert live(FOLDER, machine) == read((0, 4, 8))
    assert len([s for s in stones(machine) if s.files]) == 1


def test_incomplete_run_replaces_nothing() -> None:
    machine = ran(FOLDER, units(4))
    broken = ModelSource({"a": ModelDataset({"0": 8}, units=2, bad={"0": 7})})
    assert not go(FOLDER, machine, broken).succeeded
    assert live(FOLDER, machine) == read((0, 0, 4))
    exact(FOLDER, machine)


def in_folders(machine: Machine) -> list[str]:
    """Return what a reader sees that lists the folders and ignores commits."""
    fs = SimulatedFileSystem(machine)
    paths = [path for path in machine.paths(OUTPUT) if path.endswith(".parquet")]
    return sorted(value for path in paths for value in read_records(fs, path).column("value").to_pylist())


def collect(world: World, machine: Machine) -> None:
    """Run recovery only, as `distcommit recover` does."""
    settings = world.begin(machine, NOTHING)
    assert recover(launch, settings).succeeded
    end_run(settings.store, settings.epoch, clean=True)


def test_garbage_collection_deletes_the_files_that_the_previous_run_replaced() -> None:
    machine = ran(FOLDER, FIRST, SECOND)
    first, second = read((0, 0, 2), (1, 0, 2)), read((0, 2, 4), (1, 2, 3))
    assert in_folders(machine) == sorted(first + second), (
        "replaced files stay until the next run or a garbage collection"
    )
    for _ in range(2):
        collect(FOLDER, machine)
        assert in_folders(machine) == second
        exact(FOLDER, machine)
    assert go(FOLDER, machine, THIRD).succeeded
    assert in_folders(machine) == sorted(second + read((0, 4, 5))), "at most two versions exist"
    exact(FOLDER, machine)


def test_recovery_that_a_newer_run_fences_before_it_deletes_replaced_files_raises() -> None:
    machine = ran(FOLDER, FIRST, SECOND)
    settings = FOLDER.begin(machine, NOTHING)

    def overtaken(function: Any, settings: Any, tasks: int, kind: Any) -> list[Any]:
        if function is delete_superseded_files:
            recover_partition(FOLDER.begin(machine, NOTHING), 0)
        return launch(function, settings, tasks, kind)

    with pytest.raises(FencedError):
        recover(overtaken, settings)


def test_replaced_files_are_deleted_by_the_following_run_and_the_newest_replacement_stays() -> None:
    machine = ran(FOLDER, FIRST, SECOND, NOTHING)
    assert exact(FOLDER, machine).superseded_files == 0
    (stone,) = stones(machine)
    assert [file.records for file in stone.files] == [2, 2, 0]
    machine = ran(FOLDER, FIRST, SECOND, THIRD, source(a=[7, 3]), NOTHING, NOTHING)
    assert live(FOLDER, machine) == read((0, 5, 7))
    audit_result = exact(FOLDER, machine)
    assert (audit_result.replaced, audit_result.superseded_files, len(stones(machine))) == (8, 0, 1)


@pytest.mark.parametrize("nth", [1, 2, 3])
def test_interrupted_deletion_of_superseded_files_is_resumed(nth: int) -> None:
    machine = ran(FOLDER, FIRST, SECOND)
    machine.faults.append(dies("unlink", "output/", nth))
    with pytest.raises(Crashed):
        go(FOLDER, machine, THIRD)
    machine.restart()
    exact(FOLDER, machine)
    assert go(FOLDER, machine, THIRD).succeeded
    assert go(FOLDER, machine, THIRD).succeeded
    assert live(FOLDER, machine) == read((0, 4, 5))
    assert exact(FOLDER, machine).superseded_files == 0


def test_replacement_record_stays_while_a_file_exists_that_it_names() -> None:
    machine = ran(FOLDER, FIRST, SECOND)
    (path,) = [file.path for stone in stones(machine) for file in stone.files if file.records][:1]
    machine.put(f"{OUTPUT}/{path}", b"another's")
    for world_source in (THIRD, source(a=[6, 3]), NOTHING, NOTHING):
        assert go(FOLDER, machine, world_source).succeeded
    assert f"{OUTPUT}/{path}" in machine.paths(OUTPUT)
    assert [path in {file.path for file in stone.files} for stone in stones(machine)].count(True) == 1
    assert len(newest_replacements(stones(machine), 100)) == 1
    assert live(FOLDER, machine) == read((0, 5, 6))


TURNS_AWAY = replace(FOLDER, flow=TurningAway(frozenset({"a/0/1", "a/0/3"})))
FIXED = replace(FOLDER, flow=TurningAway())


def test_rejected_records_of_replaced_files_are_superseded_and_never_reprocessed() -> None:
    machine = ran(TURNS_AWAY, FIRST, SECOND)
    assert live(FOLDER, machine) == read((0, 2, 4), (1, 2, 3))
    assert exact(FOLDER, machine).rejected == 1
    assert FIXED.reprocess(machine, SECOND, "a").succeeded
    audit_result = exact(FOLDER, machine)
    assert (audit_result.rejected, audit_result.replaced, audit_result.records) == (0, 4, 3)
    assert live(FOLDER, machine) == read((0, 2, 4), (1, 2, 3)), "reprocessed records are added"
    assert go(FIXED, machine, THIRD).succeeded
    assert live(FOLDER, machine) == read((0, 4, 5))
    assert go(FIXED, machine, THIRD).succeeded
    assert exact(FOLDER, machine).superseded_files == 0


def test_intentionally_dropped_records_stay_accounted_for_when_replaced() -> None:
    world = replace(FOLDER, flow=TurningAway(dropped=frozenset({"a/0/1", "a/0/2", "a/0/3", "a/1/2"})))
    machine = ran(world, FIRST, SECOND, THIRD)
    assert live(FOLDER, machine) == read((0, 4, 5))
    assert exact(FOLDER, machine).replaced + exact(FOLDER, machine).filtered == 7


def test_abandoned_replacement_leaves_the_earlier_files_live() -> None:
    machine = ran(FOLDER, FIRST)
    settings, tasks = begin_ingest(FOLDER, machine, SECOND)

    def fault(operation: Operation) -> None:
        if operation.kind == "rename" and operation.path.endswith(".tombstone"):
            raise Crashed

    machine.faults.append(fault)
    with pytest.raises(Crashed):
        ingest_all(settings, tasks)
    machine.restart()
    operator_actions.quarantine(FOLDER.store(machine), "a", "me")
    assert live(FOLDER, machine) == read((0, 0, 2), (1, 0, 2))
    operator_actions.abandon(FOLDER.store(machine), "a", "me")
    assert live(FOLDER, machine) == read((0, 0, 2), (1, 0, 2))
    exact(FOLDER, machine)
    assert go(FOLDER, machine, SECOND).succeeded
    assert live(FOLDER, machine) == read((0, 2, 4), (1, 2, 3))
    exact(FOLDER, machine)


def test_accept_of_a_replacement_during_an_unfinished_abandon_is_refused() -> None:
    """The abandon has deleted the tombstone, so that old and new files would be live together."""
    machine = ran(FOLDER, FIRST)
    settings, tasks = begin_ingest(FOLDER, machine, SECOND)
    is_published = False

    def dies_before_done(operation: Operation) -> None:
        nonlocal is_published
        if is_published and operation.kind != "rename":
            raise Crashed
        is_published |= operation.kind == "rename" and operation.path.endswith(".tombstone")

    def dies_at_a_file(operation: Operation) -> None:
        if operation.kind == "unlink" and operation.path.endswith(".parquet"):
            raise Crashed

    machine.faults.append(dies_before_done)
    with suppress(Crashed):
        ingest_all(settings, tasks)
    machine.restart()
    operator_actions.quarantine(FOLDER.store(machine), "a", "me")
    machine.faults.append(dies_at_a_file)
    with pytest.raises(Crashed):
        operator_actions.abandon(FOLDER.store(machine), "a", "me")
    machine.restart()
    with pytest.raises(ConflictError, match="the sequence replaces files, and is being abandoned"):
        operator_actions.accept(FOLDER.store(machine), "a", "me")
    operator_actions.abandon(FOLDER.store(machine), "a", "me")
    assert live(FOLDER, machine) == read((0, 0, 2), (1, 0, 2))
    assert go(FOLDER, machine, SECOND).succeeded
    assert live(FOLDER, machine) == read((0, 2, 4), (1, 2, 3))
    exact(FOLDER, machine)


def test_dataset_whose_replaced_files_cannot_be_determined_is_not_sealed_and_others_are_published() -> None:
    machine = ran(FOLDER, source(a=2, b=2))
    (path,) = [path for path in machine.paths(f"{OUTPUT}/a") if path.endswith(".parquet")]
    data = machine.paths(OUTPUT)[path]
    machine.put(path, data[:-9])
    result = go(FOLDER, machine, source(a=4, b=4))
    assert not result.succeeded
    assert [(reason.subject, reason.kind) for reason in result.reasons.entries] == [("a", "unpublished")]
    assert {urn: dict(w.positions) for urn, w in FOLDER.watermarks(machine).items()} == {"a": {"0": 2}, "b": {"0": 4}}
    machine.put(path, data)
    assert go(FOLDER, machine, source(a=4, b=4)).succeeded
    assert exact(FOLDER, machine).replaced == 4


def test_job_is_held_back_when_replaced_files_cannot_be_determined() -> None:
    world = replace(FOLDER, job_level=True)
    machine = ran(world, source(a=2, b=2))
    (path,) = [path for path in machine.paths(f"{OUTPUT}/a") if path.endswith(".parquet")]
    data = machine.paths(OUTPUT)[path]
    machine.put(path, data[:-9])
    assert not go(world, machine, source(a=4, b=4)).decided
    machine.put(path, data)
    assert go(world, machine, source(a=4, b=4)).succeeded
    assert exact(world, machine).replaced == 4


@pytest.mark.parametrize("first", [FOLDER, APPEND])
def test_publishing_mode_may_be_changed(first: World) -> None:
    machine = ran(first, FIRST)
    for world, data, observed in (
        (FOLDER, SECOND, read((0, 2, 4), (1, 2, 3))),
        (APPEND, THIRD, read((0, 2, 5), (1, 2, 3))),
        (FOLDER, source(a=[6, 4]), read((0, 5, 6), (1, 3, 4))),
    ):
        assert go(world, machine, data).succeeded
        assert live(world, machine) == observed
        exact(world, machine)


def test_replaced_records_are_on_both_sides_of_a_comparison() -> None:
    replaced, other = ran(FOLDER, FIRST, SECOND), ran(APPEND, FIRST, SECOND)
    comparison = compare_outputs(
        FOLDER.store(replaced),
        FOLDER.flow(source(), FOLDER.files),
        APPEND.store(other),
        APPEND.flow(source(), APPEND.files),
    )
    assert comparison.is_equal, comparison
    assert sum(row.positions_in_both for row in comparison.rows) == 7


def not_deleted(machine: Machine, world: World) -> None:
    return


def deleted(machine: Machine, world: World) -> None:
    assert go(world, machine, NOTHING).succeeded


@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize("later", [not_deleted, deleted])
@pytest.mark.parametrize("world", [FOLDER, PARTITIONS])
@pytest.mark.parametrize("backup_of", [0, 1, 2])
def test_rebuilt_store_knows_the_replaced_files(
    world: World, later: Callable[[Machine, World], None], is_clean: bool, backup_of: int
) -> None:
    machine, backup = Machine(), dict[str, bytes]()
    for number, data in enumerate((FIRST, SECOND, THIRD), 1):
        assert go(world, machine, data).succeeded
        backup = machine.paths(ROOTS.store) if number == backup_of else backup
    observed = live(world, machine)
    later(machine, world)
    if not is_clean:
        remove_clean_mark(machine)
    if backup_of:
        put_back(machine, backup)
    else:
        lose_the_store(machine, 1)
    result = rebuild(world, machine)
    assert (result.written, result.gaps, result.problems, result.set_aside) == (True, [], [], [])
    assert live(world, machine) == observed
    assert world.watermarks(machine)["a"].positions == {"0": 5, "1": 3}
    exact(world, machine)
    assert go(world, machine, source(a=[6, 4])).succeeded
    assert exact(world, machine).duplicates == 0
    assert world.watermarks(machine)["a"].positions == {"0": 6, "1": 4}


@pytest.mark.parametrize("first", [FIRST, None])
@pytest.mark.parametrize("published", [1, 2])
def test_half_published_replacement_is_set_aside_and_the_older_files_are_live_again(
    first: ModelSource | None, published: int
) -> None:
    world = replace(FOLDER, files=FOLDER.files.model_copy(update={"target_file_bytes": 1}))
    machine = ran(world, *([first] if first else []))
    remaining = [published]

    def fault(operation: Operation) -> None:
        if operation.kind == "rename" and operation.path.startswith(f"{OUTPUT}/") and "-00000_" in operation.path:
            remaining[0] -= 1
            if remaining[0] < 0:
                raise Crashed

    SimulatedFileSystem(machine).make_folders(f"{OUTPUT}/a")
    machine.faults.append(fault)
    with pytest.raises(Crashed):
        go(world, machine, SECOND)
    machine.restart()
    lose_the_store(machine, 1)
    result = rebuild(world, machine)
    assert (result.problems, result.set_aside_count) == ([], published)
    assert live(world, machine) == (read((0, 0, 2), (1, 0, 2)) if first else [])
    exact(world, machine)
    assert go(world, machine, SECOND).succeeded
    assert live(world, machine) == (read((0, 2, 4), (1, 2, 3)) if first else read((0, 0, 4), (1, 0, 3)))
    exact(world, machine)


def test_replacement_may_only_name_files_of_its_own_dataset() -> None:
    machine = ran(FOLDER, FIRST, SECOND)
    stone = max(stones(machine), key=lambda tombstone: tombstone.epoch)
    for path in ("b/x.parquet", "../a/x.parquet", "_rejected/b/x"):
        wrong = replace_path(stone, path)
        assert wrong.rejection_reason()
    with pytest.raises(DistcommitError, match="unknown format version"):
        later_version(machine)


def replace_path(stone: Tombstone, path: str) -> Tombstone:
    return msgspec.structs.replace(stone, files=(msgspec.structs.replace(stone.files[0], path=path),))


def later_version(machine: Machine) -> None:
    fs = SimulatedFileSystem(machine)
    path = next(path for path in machine.paths(OUTPUT) if is_tombstone(path))
    machine.put(path, encode_document(msgspec.structs.replace(read_tombstone(fs, path), version=4)))
    read_tombstone(fs, path)

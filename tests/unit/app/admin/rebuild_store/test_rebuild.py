"""Rebuilds of a store from published files, on a machine that may die at any operation."""

from __future__ import annotations

import copy
import errno
import itertools
import random
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from distcommit.app.admin.rebuild_store import accept_store, plan_rebuild, stored_states
from distcommit.app.auditing.audit import audit_store
from distcommit.core.errors import ConflictError, FencedError, StaleStoreError
from distcommit.engine.committing.drain import drain_partition
from distcommit.engine.reading.ingest import ingest_partition
from distcommit.engine.run_settings import RunSettings
from distcommit.sources.files.source import FilesSource
from distcommit.stores.folders.run_markers import Marker, put_run_marker, read_markers
from distcommit.stores.operator import operator_actions
from distcommit.stores.state.task_states import record_ingest_ended
from distcommit.testing.fakes.faulty_calls import Crashed, Operation
from distcommit.testing.fakes.model_source import ModelDataset, ModelSource
from tests.simulation.programs.parts import planned
from tests.simulation.world import ROOTS, SimulatedFileSystem, World
from tests.unit.app.admin.rebuild_store.rebuilding import lose_the_store, put_back, remove_clean_mark
from tests.unit.app.admin.rebuild_store.rebuilding import rebuild as rebuilt
from tests.unit.engine.driver.machines import (
    BUCKET_LOG,
    OUTPUT,
    STAGING,
    Machine,
    Meeting,
    audit,
    dies,
    fails,
    published,
    source,
    states,
    with_folders,
)
from tests.unit.sources.files.files_folder import Folder

WORLD = World(buckets=2)
STORE = "/job/store"
rebuild = partial(rebuilt, WORLD)
FIRST = source(a=[3, 2], b=2)
SECOND = source(a=[6, 4], b=4, c=3)
SECOND_EPOCH = 5
THIRD = source(a=[7, 5], b=5, c=4)
FOURTH = ModelSource({**THIRD.datasets, "a": ModelDataset({"0": 9, "1": 5}, units=2)})


def in_units(data: ModelSource, units: int) -> ModelSource:
    return ModelSource({urn: ModelDataset(dataset.partitions, units=units) for urn, dataset in data.datasets.items()})


def stale(*, clean: bool) -> Machine:
    """Put the first run's store under the second run's output.

    Unless `clean`, no mark proves that the second run's sequences were closed.
    """
    machine = Machine()
    WORLD.run(machine, in_units(FIRST, 1))
    backup = machine.paths(STORE)
    WORLD.run(machine, in_units(SECOND, 2))
    if not clean:
        remove_clean_mark(machine)
    put_back(machine, backup)
    return machine


@pytest.mark.parametrize("clean", [True, False])
def test_stale_store_is_refused_until_a_rebuild_makes_the_audit_exact(clean: bool) -> None:
    machine = stale(clean=clean)
    before = published(machine)
    with pytest.raises(StaleStoreError):
        WORLD.run(machine, THIRD)
    assert published(machine) == before
    result = rebuild(machine)
    assert (result.written, result.set_aside_count) == (True, 0)
    assert {urn: state.watermark.positions for urn, state in states(WORLD, machine).items() if state.watermark} == {
        "a": {"0": 6, "1": 4},
        "b": {"0": 4},
        "c": {"0": 3},
    }
    assert audit(WORLD, machine).exact
    WORLD.run(machine, THIRD)
    assert WORLD.violation(machine, THIRD, {}) == ""


def test_run_on_a_stale_store_without_a_rebuild_publishes_records_twice() -> None:
    machine = stale(clean=True)
    for path in machine.paths(f"{OUTPUT}/.distcommit"):
        if not path.endswith("owner.json"):
            machine.remove(path)  # otherwise no run can begin
    began = SimulatedFileSystem(machine), OUTPUT, WORLD.store(machine).job_log().refresh().fence_epoch, Marker.BEGAN
    put_run_marker(*began)
    WORLD.run(machine, THIRD)
    assert not audit(WORLD, machine).exact


@pytest.mark.thorough
def test_missing_files_of_a_possibly_open_sequence_are_read_again() -> None:
    units = sorted({path.rpartition("-")[0].rpartition("-")[0] for path in published(stale(clean=False))})
    of_the_second = [unit for unit in units if f"/{SECOND_EPOCH:010d}-" in unit]
    assert len(of_the_second) > 5
    for unit in of_the_second:
        machine = stale(clean=False)
        machine.remove(next(path for path in published(machine) if path.startswith(unit)))
        assert rebuild(machine).written
        WORLD.run(machine, THIRD)
        assert WORLD.violation(machine, THIRD, {}) == "", unit


@pytest.mark.thorough
def test_rebuild_killed_at_any_operation_is_completed_by_the_next_rebuild() -> None:
    """No run begins before a rebuild completes. One file of an open sequence is missing."""
    died = 0
    begin = stale(clean=False)
    begin.remove(next(path for path in sorted(published(begin)) if f"/a/{SECOND_EPOCH:010d}-" in path))
    begin.syncfs("/")
    for number in range(0, 1000, 3):
        machine = copy.deepcopy(begin)
        machine.faults.append(Meeting(machine, number, crash))
        try:
            rebuild(machine)
        except Crashed:
            died += 1
        else:
            break
        rng = random.Random(number)
        for after in (machine.after_kill(), *machine.after_power_loss(rng, 1, 1)):
            store = WORLD.store(after)
            finished = read_markers(store.fs, OUTPUT)[Marker.CLEAN] > SECOND_EPOCH
            if not finished:
                with pytest.raises(StaleStoreError):
                    WORLD.run(after, THIRD)
                assert rebuild(after).written, number
            WORLD.run(after, THIRD)
            assert WORLD.violation(after, THIRD, {}) == "", number
    assert died > 10


def crash() -> None:
    raise Crashed


def test_partition_that_first_appears_in_an_open_sequence_is_set_aside_unless_it_begins_at_its_first_offset() -> None:
    machine = Machine()
    WORLD.run(machine, ModelSource({"a": ModelDataset({"0": 8}, units=4)}))
    remove_clean_mark(machine)
    machine.remove(sorted(published(machine))[0])
    lose_the_store(machine)
    result = rebuild(machine)
    assert (result.written, result.set_aside_count) == (True, 3)
    WORLD.run(machine, source(a=8))
    assert WORLD.violation(machine, source(a=8), {}) == ""


@pytest.mark.parametrize("nth", [2, 3, 4])
@pytest.mark.parametrize("then", [source(a=[6, 6]), source(b=1)], ids=["read again", "another dataset"])
def test_at_least_once_rebuild_counts_only_files_that_continue_without_a_gap_as_published(
    nth: int, then: ModelSource
) -> None:
    """A run dies while it publishes. The next run is clean and may have omitted the dataset."""
    world = World(buckets=2, at_least_once=True)
    machine, data = with_folders(Machine(), "a"), ModelSource({"a": ModelDataset({"0": 6, "1": 6}, units=2)})
    world.store(machine)
    machine.faults.append(dies("rename", f"{OUTPUT}/a/", nth))
    with pytest.raises(Crashed):
        world.run(machine, data)
    machine.restart()
    if nth == 3:
        machine.remove(min(published(machine)))  # only the second work unit's file remains
    assert world.run(machine, then).succeeded
    lose_the_store(machine)
    result = rebuild(machine)
    assert (result.written, result.gaps, result.set_aside_count) == (True, [], 0)
    after = source(a=[7, 6], b=2)
    assert world.run(machine, after).succeeded
    assert world.violation(machine, after, {}) == ""


def test_accepted_stale_store_keeps_its_states_and_can_run_again() -> None:
    machine = stale(clean=True)
    before = states(WORLD, machine)
    assert accept_store(WORLD.store(machine), "rebuild-1", "operator").written
    assert states(WORLD, machine) == before
    epoch = WORLD.begin(machine, THIRD).epoch
    assert epoch > SECOND_EPOCH + 1


def test_planning_a_rebuild_changes_no_file() -> None:
    machine = stale(clean=False)
    store = WORLD.store(machine)
    before = machine.paths("/job")
    plan = plan_rebuild(store, stored_states(store), accept_gaps=False)
    assert (plan.written, plan.datasets) == (False, 3)
    assert machine.paths("/job") == before


def test_superseded_run_markers_are_deleted() -> None:
    machine = Machine()
    for count in range(1, 8):
        WORLD.run(machine, source(a=count))
    names = sorted(path.rpartition("/")[2] for path in machine.paths(f"{OUTPUT}/.distcommit"))
    assert len(names) == 3
    assert [name.partition("-")[2] for name in names] == ["began", "clean", ""]


@pytest.mark.thorough
def test_delayed_rebuild_deletes_no_files_of_a_later_rebuild_or_run() -> None:
    """The rebuild pauses before one of its listings.

    Meanwhile another rebuild completes, and a run seals its sequences and publishes all files but the first.
    """
    rejected_late_rebuilds = 0
    for listing in itertools.count(8):
        machine, runs, listings = stale(clean=False), list[RunSettings](), itertools.count()

        def others_come(
            operation: Operation,
            machine: Machine = machine,
            runs: list[RunSettings] = runs,
            listings: Iterator[int] = listings,
            listing: int = listing,
        ) -> None:
            is_watched = operation.path == STAGING or BUCKET_LOG in operation.path
            if operation.kind == "scandir" and is_watched and next(listings) == listing:
                rebuild(machine)
                runs.append(planned(machine, WORLD, FOURTH))
                machine.faults = [fails(errno.EACCES, "rename", f"{OUTPUT}/a/", times=1)]
                ingest_partition(runs[0], 0)
                machine.faults = []

        machine.faults.append(others_come)
        try:
            rebuild(machine)
        except (ConflictError, StaleStoreError, FileNotFoundError):
            rejected_late_rebuilds += 1
        machine.faults.clear()
        if not runs:
            break
        with suppress(FencedError):
            record_ingest_ended(runs[0].store.fs, ROOTS.store, runs[0].run_id)
            drain_partition(runs[0], 0)
        try:
            WORLD.run(machine, FOURTH)
        except StaleStoreError:  # the delayed rebuild marked the output before it was fenced
            assert rebuild(machine).written
            WORLD.run(machine, FOURTH)
        assert WORLD.violation(machine, FOURTH, {}) == "", listing
    assert rejected_late_rebuilds > 3, "most listings must follow the fences"


@pytest.mark.parametrize("at_least_once", [False, True])
def test_rebuild_discards_the_list_of_read_files_where_newer_files_are_published(
    tmp_path: Path, at_least_once: bool
) -> None:
    """The store's backup lists only the files read before it.

    With the row positions of later files, that list would cause those files to be read twice.
    """
    folder, machine, world = Folder(tmp_path), Machine(), World(at_least_once=at_least_once)
    folder.put("a/1.jsonl", "1\n2\n", 1)
    folder.put("b/1.jsonl", "1\n", 1)
    world.run(machine, folder.source())  # type: ignore[arg-type]  # a source that is not a ModelSource
    backup = machine.paths(STORE)
    folder.put("a/2.jsonl", "3\n", 2)
    world.run(machine, folder.source())  # type: ignore[arg-type]
    put_back(machine, backup)
    assert rebuilt(world, machine).written
    positions = {urn: state.watermark.positions for urn, state in states(world, machine).items() if state.watermark}
    assert positions["a"] == {"0": 3}
    assert set(positions["b"]) == {"0", "files"}
    result = world.run(machine, folder.source())  # type: ignore[arg-type]
    assert [(reason.subject, reason.kind) for reason in result.reasons.entries] == [("a", "not planned")]
    assert audit_store(world.store(machine), FilesSource.provenance, deep=True).records == 4


def test_setting_the_list_of_read_files_after_a_rebuild_makes_the_audit_exact(tmp_path: Path) -> None:
    """The row count is unchanged, because the partition begins at its original offset."""
    folder, machine = Folder(tmp_path), Machine()
    folder.put("a/1.jsonl", "1\n2\n", 1)
    WORLD.run(machine, folder.source())  # type: ignore[arg-type]  # a source that is not a ModelSource
    watermark = states(WORLD, machine)["a"].watermark
    lose_the_store(machine)
    assert rebuild(machine).written
    operator_actions.set_watermark(WORLD.store(machine), "a", watermark, "me")
    result = audit_store(WORLD.store(machine), FilesSource.provenance, deep=True)
    assert (result.exact, result.records, result.past_watermark) == (True, 2, 0)
    folder.put("a/2.jsonl", "3\n", 2)
    WORLD.run(machine, folder.source())  # type: ignore[arg-type]
    result = audit_store(WORLD.store(machine), FilesSource.provenance, deep=True)
    assert (result.exact, result.records) == (True, 3)

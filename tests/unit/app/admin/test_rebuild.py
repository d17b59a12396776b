"""Rebuilding a store from the published files, on a machine that may die at any operation of it."""

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

from distcommit.app.admin.rebuild import keep_store, known_states, plan_rebuild
from distcommit.app.auditing.audit import audit_store
from distcommit.core.errors import ConflictError, FencedError, StaleStoreError
from distcommit.engine.committing.drain import drain_partition
from distcommit.engine.reading.ingest import ingest_partition
from distcommit.engine.settings import RunSettings
from distcommit.sources.files.source import FilesSource
from distcommit.stores.folders.ownership import Mark, put_mark, read_marks
from distcommit.stores.operator import operator_actions
from distcommit.stores.state.task_states import record_ingest_ended
from distcommit.testing.fakes.faulty_calls import Crashed, Operation
from distcommit.testing.fakes.model_source import ModelDataset, ModelSource
from tests.simulation.programs.parts import planned
from tests.simulation.world import ROOTS, SimulatedFileSystem, World
from tests.unit.app.admin.rebuilding import lose_the_store, put_back, remove_clean_mark
from tests.unit.app.admin.rebuilding import rebuild as rebuilt
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


def in_units(found: ModelSource, units: int) -> ModelSource:
    return ModelSource({urn: ModelDataset(dataset.partitions, units=units) for urn, dataset in found.datasets.items()})


def stale(*, clean: bool) -> Machine:
    """The first run's store under the second run's output; of the second run's sequences nothing is sure unless it was
    `clean`."""
    machine = Machine()
    WORLD.run(machine, in_units(FIRST, 1))
    backup = machine.paths(STORE)
    WORLD.run(machine, in_units(SECOND, 2))
    if not clean:
        remove_clean_mark(machine)
    put_back(machine, backup)
    return machine


@pytest.mark.parametrize("clean", [True, False])
def test_a_stale_store_is_refused_and_after_the_rebuild_all_is_exact(clean: bool) -> None:
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


def test_without_the_rebuild_records_would_be_published_twice() -> None:
    machine = stale(clean=True)
    for path in machine.paths(f"{OUTPUT}/.distcommit"):
        if not path.endswith("owner.json"):
            machine.remove(path)  # else no run begins
    began = SimulatedFileSystem(machine), OUTPUT, WORLD.store(machine).job_log().refresh().fence_epoch, Mark.BEGAN
    put_mark(*began)
    WORLD.run(machine, THIRD)
    assert not audit(WORLD, machine).exact


def test_whatever_is_missing_of_a_sequence_that_may_be_open_is_read_again() -> None:
    units = sorted({path.rpartition("-")[0].rpartition("-")[0] for path in published(stale(clean=False))})
    of_the_second = [unit for unit in units if f"/{SECOND_EPOCH:010d}-" in unit]
    assert len(of_the_second) > 5
    for unit in of_the_second:
        machine = stale(clean=False)
        machine.remove(next(path for path in published(machine) if path.startswith(unit)))
        assert rebuild(machine).written
        WORLD.run(machine, THIRD)
        assert WORLD.violation(machine, THIRD, {}) == "", unit


def test_a_rebuild_that_died_anywhere_is_finished_by_the_next() -> None:
    """Until then no run begins. One of the files of an open sequence is missing."""
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
            finished = read_marks(store.fs, OUTPUT)[Mark.CLEAN] > SECOND_EPOCH
            if not finished:
                with pytest.raises(StaleStoreError):
                    WORLD.run(after, THIRD)
                assert rebuild(after).written, number
            WORLD.run(after, THIRD)
            assert WORLD.violation(after, THIRD, {}) == "", number
    assert died > 10


def crash() -> None:
    raise Crashed


def test_a_partition_that_first_appears_in_an_open_sequence_must_begin_at_its_first_offset() -> None:
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
def test_of_files_of_at_least_once_only_what_continues_without_a_gap_is_taken_for_published(
    nth: int, then: ModelSource
) -> None:
    """A run dies as it publishes; the next one is clean, and may have left its dataset out."""
    world = World(buckets=2, at_least_once=True)
    machine, data = with_folders(Machine(), "a"), ModelSource({"a": ModelDataset({"0": 6, "1": 6}, units=2)})
    world.store(machine)
    machine.faults.append(dies("rename", f"{OUTPUT}/a/", nth))
    with pytest.raises(Crashed):
        world.run(machine, data)
    machine.restart()
    if nth == 3:
        machine.remove(min(published(machine)))  # the first work unit's is not there, the second one's is
    assert world.run(machine, then).succeeded
    lose_the_store(machine)
    result = rebuild(machine)
    assert (result.written, result.gaps, result.set_aside_count) == (True, [], 0)
    after = source(a=[7, 6], b=2)
    assert world.run(machine, after).succeeded
    assert world.violation(machine, after, {}) == ""


def test_a_store_that_is_kept_as_it_is_may_run_again() -> None:
    machine = stale(clean=True)
    before = states(WORLD, machine)
    assert keep_store(WORLD.store(machine), "rebuild-1", "person").written
    assert states(WORLD, machine) == before
    epoch = WORLD.begin(machine, THIRD).epoch
    assert epoch > SECOND_EPOCH + 1


def test_looking_changes_nothing() -> None:
    machine = stale(clean=False)
    store = WORLD.store(machine)
    before = machine.paths("/job")
    found = plan_rebuild(store, known_states(store), accept_gaps=False)
    assert (found.written, found.datasets) == (False, 3)
    assert machine.paths("/job") == before


def test_marks_do_not_pile_up() -> None:
    machine = Machine()
    for count in range(1, 8):
        WORLD.run(machine, source(a=count))
    names = sorted(path.rpartition("/")[2] for path in machine.paths(f"{OUTPUT}/.distcommit"))
    assert len(names) == 3
    assert [name.partition("-")[2] for name in names] == ["began", "clean", ""]


def test_a_rebuild_that_wakes_late_takes_nothing_from_those_that_came_since() -> None:
    """It was frozen before one of its looks for so long that another rebuild has ended, and a run has sealed what it is
    about to publish, and published all but the first file of it."""
    lost_by_the_late = 0
    for look in itertools.count(8):
        machine, runs, looks = stale(clean=False), list[RunSettings](), itertools.count()

        def others_come(
            operation: Operation,
            machine: Machine = machine,
            runs: list[RunSettings] = runs,
            looks: Iterator[int] = looks,
            look: int = look,
        ) -> None:
            here = operation.path == STAGING or BUCKET_LOG in operation.path
            if operation.kind == "scandir" and here and next(looks) == look:
                rebuild(machine)
                runs.append(planned(machine, WORLD, FOURTH))
                machine.faults = [fails(errno.EACCES, "rename", f"{OUTPUT}/a/", times=1)]
                ingest_partition(runs[0], 0)
                machine.faults = []

        machine.faults.append(others_come)
        try:
            rebuild(machine)
        except (ConflictError, StaleStoreError, FileNotFoundError):
            lost_by_the_late += 1
        machine.faults.clear()
        if not runs:
            break
        with suppress(FencedError):
            record_ingest_ended(runs[0].store.fs, ROOTS.store, runs[0].run_id)
            drain_partition(runs[0], 0)
        try:
            WORLD.run(machine, FOURTH)
        except StaleStoreError:  # the late one has marked the output, and then found out
            assert rebuild(machine).written
            WORLD.run(machine, FOURTH)
        assert WORLD.violation(machine, FOURTH, {}) == "", look
    assert lost_by_the_late > 3, "most looks are after the fences"


@pytest.mark.parametrize("at_least_once", [False, True])
def test_which_files_were_read_is_forgotten_where_newer_ones_are_published(tmp_path: Path, at_least_once: bool) -> None:
    """A backup of the store knows the files up to then: with the rows of later ones they would be read once more."""
    folder, machine, world = Folder(tmp_path), Machine(), World(at_least_once=at_least_once)
    folder.put("a/1.jsonl", "1\n2\n", 1)
    folder.put("b/1.jsonl", "1\n", 1)
    world.run(machine, folder.source())  # type: ignore[arg-type]  # a source as any other
    backup = machine.paths(STORE)
    folder.put("a/2.jsonl", "3\n", 2)
    world.run(machine, folder.source())  # type: ignore[arg-type]
    put_back(machine, backup)
    assert rebuilt(world, machine).written
    found = {urn: state.watermark.positions for urn, state in states(world, machine).items() if state.watermark}
    assert found["a"] == {"0": 3}
    assert set(found["b"]) == {"0", "files"}
    result = world.run(machine, folder.source())  # type: ignore[arg-type]
    assert [(reason.subject, reason.kind) for reason in result.totals.reasons] == [("a", "not planned")]
    assert audit_store(world.store(machine), FilesSource.provenance, deep=True).records == 4


def test_once_a_person_has_said_which_files_were_read_all_is_exact(tmp_path: Path) -> None:
    """How many rows were read is as before: their partition begins where it began."""
    folder, machine = Folder(tmp_path), Machine()
    folder.put("a/1.jsonl", "1\n2\n", 1)
    WORLD.run(machine, folder.source())  # type: ignore[arg-type]  # a source as any other
    known = states(WORLD, machine)["a"].watermark
    lose_the_store(machine)
    assert rebuild(machine).written
    operator_actions.set_watermark(WORLD.store(machine), "a", known, "me")
    found = audit_store(WORLD.store(machine), FilesSource.provenance, deep=True)
    assert (found.exact, found.records, found.past_watermark) == (True, 2, 0)
    folder.put("a/2.jsonl", "3\n", 2)
    WORLD.run(machine, folder.source())  # type: ignore[arg-type]
    found = audit_store(WORLD.store(machine), FilesSource.provenance, deep=True)
    assert (found.exact, found.records) == (True, 3)

"""A rebuild repairs a bucket log with a damaged or missing segment, without losing or duplicating a record."""

from __future__ import annotations

from contextlib import suppress
from functools import partial

import pytest

from distcommit.app.inspection.job_status import read_status
from distcommit.app.reading.snapshot_reader import read_store
from distcommit.core.errors import CorruptError, SnapshotExpiredError, UnknownVersionError
from distcommit.core.work_units import MAIN_BRANCH
from distcommit.engine.driver.run import run
from distcommit.stores.logs.corrupt_log_tail import is_corrupt, set_corrupt_tail_aside
from distcommit.testing.fakes.model_source import ModelDataset, ModelSource
from tests.simulation.damage import of_version
from tests.simulation.world import World
from tests.unit.app.admin.rebuild_store.rebuilding import rebuild as rebuilt
from tests.unit.engine.driver.machines import OUTPUT, Machine, audit, dies, launch, source

WORLD = World(buckets=1)
LOG = "/job/store/log/bucket=00000"
rebuild = partial(rebuilt, WORLD)


def populated(*, dying: bool = False) -> Machine:
    """Complete two runs, and if `dying`, kill a third one with its sequence half published."""
    machine = Machine()
    WORLD.run(machine, source(a=[3, 2], b=2))
    WORLD.run(machine, source(a=[6, 4], b=4, c=3))
    if dying:
        machine.faults.append(dies("rename", "/output/b/", nth=1))
        with suppress(BaseException):
            run(launch, WORLD.begin(machine, source(a=[7, 5], b=6, c=4)))
        machine.restart()
    return machine


def segments(machine: Machine) -> list[str]:
    return sorted(path for path in machine.paths(LOG) if path.endswith(".seg"))


def tear(machine: Machine, path: str, *, gone: bool) -> None:
    data = machine.paths(LOG)[path]
    machine.remove(path)
    if not gone:
        machine.put(path, data[: len(data) // 2])
    machine.syncfs("/")


@pytest.mark.thorough
@pytest.mark.parametrize("dying", [False, True])
@pytest.mark.parametrize("gone", [False, True])
def test_rebuild_repairs_a_log_whichever_segment_is_damaged(gone: bool, dying: bool) -> None:
    torn = 0
    for place in range(len(segments(populated(dying=dying)))):
        machine = populated(dying=dying)
        damaged = segments(machine)[place]
        tear(machine, damaged, gone=gone)
        log = WORLD.store(machine).bucket_log(0)
        if not is_corrupt(log):
            continue  # a newer checkpoint covers the segment, or the log only lost its tail
        torn += 1
        status = read_status(WORLD.store(machine))
        assert (list(status.unreadable), status.damaged) == (["bucket 0"], ["bucket 0"])
        assert rebuild(machine).written
        assert gone or damaged.rpartition("/")[2] in {
            path.rpartition("/")[2] for path in machine.paths("/job/store/set_aside")
        }
        assert audit(WORLD, machine).exact
        last = source(a=[9, 6], b=7, c=5)
        WORLD.run(machine, last)
        assert WORLD.violation(machine, last, {}) == ""
    assert torn > 1


def test_rebuild_killed_while_it_sets_segments_aside_completes_when_repeated() -> None:
    machine = populated()
    path = segments(machine)[-3]
    tear(machine, path, gone=False)
    machine.faults.append(dies("rename", "/set_aside/", nth=2))
    with pytest.raises(BaseException):  # noqa: B017, PT011 - the simulated machine dies
        rebuild(machine)
    machine.restart()
    with pytest.raises(CorruptError):
        WORLD.store(machine).bucket_log(0).refresh()
    assert rebuild(machine).written
    assert audit(WORLD, machine).exact


@pytest.mark.parametrize("torn", [False, True])
def test_segment_of_a_newer_version_is_never_set_aside(torn: bool) -> None:
    machine = populated()
    path = segments(machine)[-2 if torn else -1]
    newer = of_version(machine.paths(LOG)[path], 99)
    machine.remove(path)
    machine.put(path, newer)
    if torn:
        tear(machine, segments(machine)[-1], gone=False)
    store, before = WORLD.store(machine), machine.paths(LOG)
    with pytest.raises(UnknownVersionError):
        set_corrupt_tail_aside(store, store.bucket_log(0), 9)
    assert machine.paths(LOG) == before
    assert bool(read_status(store).damaged) == torn


def test_snapshot_opened_before_a_rebuild_raises_cut_gone_error_instead_of_a_partial_read() -> None:
    """Dataset `a` begins at offset 3 and its run was not clean, so the rebuild sets its file aside."""
    machine = Machine()
    a, b = ModelDataset({"0": 9}, expired={"0": 3}), ModelDataset({"0": 2}, fails=frozenset("0"))
    WORLD.run(machine, ModelSource({"a": a, "b": b}))
    snapshot = read_store(WORLD.store(machine), OUTPUT, MAIN_BRANCH, ["a"], None)
    (path,) = snapshot.paths("a")["a"]
    tear(machine, segments(machine)[0], gone=True)
    assert rebuild(machine).set_aside == [path]
    with pytest.raises(SnapshotExpiredError, match="its snapshot manifest is deleted"):
        snapshot.paths("a")

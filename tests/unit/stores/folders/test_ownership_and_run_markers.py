"""Claims and marks in a job's folders, on a machine that loses power."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from distcommit.core.interfaces.file_system import FolderEntry
from distcommit.engine.driver.run import run
from distcommit.protocol.paths.shared_names import OWNERSHIP_FOLDER
from distcommit.stores.folders.run_markers import Marker, read_markers
from distcommit.stores.logs.fencing import begin_run, end_run
from distcommit.stores.logs.log_anchors import record_cut_ended
from distcommit.testing.fakes.faulty_calls import Crashed, Operation
from distcommit.testing.fakes.model_source import ModelDataset, ModelSource
from tests.simulation.explore import crashes_of
from tests.simulation.simulated_posix import SimulatedPosix
from tests.simulation.world import ROOTS, SimulatedFileSystem, World, launch_here

WORLD = World()
SOURCE = ModelSource({"a": ModelDataset({"0": 1})})


def killed_before_a_new_store_is_synced() -> SimulatedPosix:
    """Return a machine with a new store that a power loss would remove."""
    machine = SimulatedPosix()
    machine.mkdir("/job")
    machine.syncfs("/")

    def dies(operation: Operation) -> None:
        exists = any(path == f"{ROOTS.store}/store.json" for path, _ in machine.walk("/"))
        if exists and operation == Operation("fsync_folder", ROOTS.store):
            raise Crashed

    machine.gate = dies
    try:
        WORLD.store(machine)
    except Crashed:
        return machine.after_kill()
    raise AssertionError("the machine was not killed")


@pytest.mark.thorough
def test_claim_never_survives_a_power_loss_without_its_store() -> None:
    survivors = list(
        crashes_of(
            killed_before_a_new_store_is_synced(),
            lambda calls: begin_run(WORLD.store(calls), "r1"),
            random.Random(1),
        )
    )
    assert len(survivors) > 20
    for crash, machine, site in survivors:
        WORLD.run(machine, SOURCE)
        assert WORLD.violation(machine, SOURCE, {}) == "", (crash, site)


def test_only_the_newest_run_with_a_snapshot_marks_its_end() -> None:
    machine = SimulatedPosix()
    machine.mkdir("/job")
    first, store = WORLD.begin(machine, SOURCE), WORLD.store(machine)
    end_run(store, first.epoch, clean=False)
    second = WORLD.begin(machine, SOURCE)
    record_cut_ended(store, second.epoch, ())
    end_run(store, first.epoch, clean=False)
    assert read_markers(store.fs, ROOTS.output)[Marker.ENDED] == 0
    end_run(store, second.epoch, clean=False)
    assert read_markers(store.fs, ROOTS.output)[Marker.ENDED] == second.epoch


def test_run_that_ends_while_another_begins_does_not_make_the_store_stale() -> None:
    machine = SimulatedPosix()
    machine.mkdir("/job")
    first = WORLD.begin(machine, SOURCE)
    ended: list[bool] = []

    class EndsMeanwhile(SimulatedFileSystem):
        def list_folder(self, path: str) -> list[FolderEntry]:
            if path == f"{ROOTS.output}/{OWNERSHIP_FOLDER}" and not ended:
                ended.append(run(launch_here, first).succeeded)
                end_run(first.store, first.epoch, clean=True)
            return super().list_folder(path)

    assert begin_run(replace(WORLD.store(machine), fs=EndsMeanwhile(machine)), "r2") > first.epoch
    assert ended == [True]

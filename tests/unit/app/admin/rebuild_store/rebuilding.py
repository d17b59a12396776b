"""Helpers for rebuild tests: lose a store and recreate it."""

from __future__ import annotations

from distcommit.app.admin.rebuild_result import RebuildResult
from distcommit.app.admin.rebuild_store import plan_rebuild, rebuild_store, stored_states
from distcommit.stores.folders.folder_ownership import read_owner
from distcommit.stores.folders.run_markers import Marker
from distcommit.stores.state.job_store import open_store
from tests.simulation.simulated_posix import SimulatedPosix
from tests.simulation.world import ROOTS, SimulatedFileSystem, World
from tests.unit.engine.driver.machines import OUTPUT, Machine


def rebuild(world: World, calls: SimulatedPosix, *, accept_gaps: bool = False) -> RebuildResult:
    store = world.store(calls)
    plan = plan_rebuild(store, stored_states(store), accept_gaps=accept_gaps)
    return rebuild_store(store, plan, "rebuild-1", "me", accept_gaps=accept_gaps)


def lose_the_store(machine: Machine, buckets: int = 2) -> None:
    """Recreate the store empty."""
    owner = read_owner(SimulatedFileSystem(machine), OUTPUT)
    assert owner is not None
    put_back(machine, {})
    open_store(SimulatedFileSystem(machine), ROOTS, "job", buckets, create=True, lost_store_id=owner.store_id)


def put_back(machine: Machine, backup: dict[str, bytes]) -> None:
    """Replace the store by a backup."""
    for path in machine.paths(ROOTS.store):
        machine.remove(path)
    for path, data in backup.items():
        machine.put(path, data)
    machine.syncfs("/")


def remove_clean_mark(machine: Machine) -> None:
    """Remove the record that the last run left nothing open."""
    (mark,) = [path for path in machine.paths(f"{OUTPUT}/.distcommit") if path.endswith(f"-{Marker.CLEAN.value}")]
    machine.remove(mark)

"""Losing a store and making it anew, as tests of rebuilds do it."""

from __future__ import annotations

from distcommit.app.admin.rebuild import known_states, plan_rebuild, rebuild_store
from distcommit.app.admin.rebuild_plan import RebuildResult
from distcommit.stores.folders.ownership import Mark, read_claim
from distcommit.stores.state.job_store import open_store
from tests.simulation.simulated_posix import SimulatedPosix
from tests.simulation.world import ROOTS, SimulatedFileSystem, World
from tests.unit.engine.driver.machines import OUTPUT, Machine


def rebuild(world: World, calls: SimulatedPosix, *, accept_gaps: bool = False) -> RebuildResult:
    store = world.store(calls)
    found = plan_rebuild(store, known_states(store), accept_gaps=accept_gaps)
    return rebuild_store(store, found, "rebuild-1", "me", accept_gaps=accept_gaps)


def lose_the_store(machine: Machine, buckets: int = 2) -> None:
    """It is made anew, and knows nothing."""
    owner = read_claim(SimulatedFileSystem(machine), OUTPUT)
    assert owner is not None
    put_back(machine, {})
    open_store(SimulatedFileSystem(machine), ROOTS, "job", buckets, create=True, lost_store_id=owner.store_id)


def put_back(machine: Machine, backup: dict[str, bytes]) -> None:
    """A backup takes the store's place."""
    for path in machine.paths(ROOTS.store):
        machine.remove(path)
    for path, data in backup.items():
        machine.put(path, data)
    machine.syncfs("/")


def remove_clean_mark(machine: Machine) -> None:
    """Nobody can say any more that the last run has left nothing open."""
    (mark,) = [path for path in machine.paths(f"{OUTPUT}/.distcommit") if path.endswith(f"-{Mark.CLEAN.value}")]
    machine.remove(mark)

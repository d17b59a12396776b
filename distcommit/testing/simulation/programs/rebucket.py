"""Programs for the crash explorer: a job gets another number of buckets."""

from __future__ import annotations

from contextlib import suppress
from functools import partial

from distcommit.app.rebuild import known_states
from distcommit.engine.ingest import ingest_partition
from distcommit.engine.run import new_run_id
from distcommit.model.errors import ConflictError
from distcommit.stores import by_hand
from distcommit.stores.generation import require_counting
from distcommit.stores.job_store import JobStore
from distcommit.stores.rebucket import Rebucketed, rebucket
from distcommit.testing.models.model_source import ModelDataset, ModelSource
from distcommit.testing.simulation.programs.parts import Program, half_done, new_machine, planned, require_refused
from distcommit.testing.simulation.simulated_posix import Crashed, Operation, SimulatedPosix
from distcommit.testing.simulation.world import ROOTS, World

_FIRST = ModelSource({urn: ModelDataset({"0": 1}) for urn in "acgi"})
_SECOND = ModelSource({urn: ModelDataset({"0": 2}) for urn in "acgi"})


def resized(machine: SimulatedPosix, buckets: int) -> Rebucketed:
    """What `distcommit rebucket` does, without the lock, which is politeness alone."""
    return rebucket(World(resized=True).store(machine), buckets, new_run_id(), lambda step: None)


def _lived(before: int) -> SimulatedPosix:
    """A run has ended; the next one died when all of its files were staged and nothing was sealed."""
    machine, world = new_machine(), World(buckets=before)
    world.run(machine, _FIRST)
    settings = planned(machine, world, _SECOND)

    def die(operation: Operation) -> None:
        if operation.kind == "rename" and "/log/" in operation.path:
            raise Crashed

    machine.gate = die
    with suppress(Crashed):
        ingest_partition(settings, 0)
    machine.gate = None
    machine.syncfs("/")
    return machine


def _rebucket(buckets: int, machine: SimulatedPosix) -> None:
    resized(machine, buckets)


def _half_made(store: JobStore) -> bool:
    try:
        require_counting(store, store.job_log().refresh())
    except ConflictError:
        return True
    return False


def _give_again(before: int, buckets: int, machine: SimulatedPosix) -> str:
    """Until it is finished nothing else goes on; then all is as it was, in other logs."""
    world = World(buckets=buckets)
    store = World(resized=True).store(machine)
    if _half_made(store):
        old = World(resized=True)
        require_refused([partial(old.run, machine, _SECOND), partial(resized, machine, buckets + 1)], ConflictError)
        if store.bucket_log(0).refresh().moved_to:
            urn = next(iter(store.bucket_log(0).refresh().datasets))
            require_refused([partial(by_hand.set_watermark, store, urn, None, "person")], ConflictError)
    resized(machine, buckets)
    wanted, found = known_states(World(buckets=before).store(_lived(before))), known_states(world.store(machine))
    if wanted != found:
        return f"the store knew {wanted}, and knows {found}"
    if resized(machine, buckets).epoch:
        return "it is done again"
    world.run(machine, _SECOND)
    return world.violation(machine, _SECOND, {})


def _pending() -> SimulatedPosix:
    machine = new_machine()
    half_done(machine, World())
    machine.syncfs("/")
    return machine


def _refused(machine: SimulatedPosix) -> None:
    require_refused([partial(resized, machine, 2)], ConflictError)


def _standing(store: JobStore) -> dict[str, tuple[object, ...]]:
    return {urn: (state.status, state.watermark, state.closed_epoch) for urn, state in known_states(store).items()}


def _nothing_was_changed(machine: SimulatedPosix) -> str:
    before, store = _standing(World().store(_pending())), World().store(machine)
    if _standing(store) != before or store.job_log().refresh().under_way or store.bucket_log(0).refresh().moved_to:
        return "a refused command has changed something"
    left = [path for path, _ in machine.walk(f"{ROOTS.store}/log") if "generations" in path]
    return f"left behind: {left}" if left else ""


def _program(name: str, before: int, buckets: int) -> Program:
    return Program(name, partial(_lived, before), partial(_rebucket, buckets), partial(_give_again, before, buckets))


REBUCKET = (
    _program("rebucket-fewer", 3, 2),
    _program("rebucket-more", 1, 3),
    Program("rebucket-refused", _pending, _refused, _nothing_was_changed),
)

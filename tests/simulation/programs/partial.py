"""Programs for the crash explorer: attempts that fail half-way, whose read records are committed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial

from distcommit.engine.committing.drain import drain_partition
from distcommit.engine.committing.recover import recover_partition
from distcommit.engine.reading.ingest import ingest_partition
from distcommit.engine.run_settings import RunSettings
from distcommit.protocol.seal_decision import CommitPolicy
from distcommit.stores.state.task_states import record_ingest_ended
from distcommit.testing.fakes.model_source import ModelDataset, ModelSource
from tests.models.model_flow import model_flow
from tests.simulation.programs.parts import Program, new_machine, planned, run_and_look
from tests.simulation.simulated_posix import SimulatedPosix
from tests.simulation.world import FILE_A_RECORD, ROOTS, World

_WORLD = World(policy=CommitPolicy.PARTIAL, files=FILE_A_RECORD)
_FORKS = World(policy=CommitPolicy.PARTIAL, flow=model_flow)
_SOURCE = ModelSource({"a": ModelDataset({"0": 4, "1": 2}, units=2), "b": ModelDataset({"0": 1})})


def _planned(world: World) -> tuple[SimulatedPosix, RunSettings]:
    return _planned_once(forks=world is _FORKS)


@cache
def _planned_once(*, forks: bool) -> tuple[SimulatedPosix, RunSettings]:
    machine = new_machine()
    settings = planned(machine, _FORKS if forks else _WORLD, _SOURCE)
    machine.syncfs("/")
    return machine, replace(settings, min_interval_s=0)


def _ingest(world: World, machine: SimulatedPosix, *, bad: int = -1) -> RunSettings:
    """Ingest by an attempt at the run's only task, which cannot read that offset of partition 0."""
    settings = replace(_planned(world)[1], store=world.store(machine))
    dataset = replace(_SOURCE.datasets["a"], bad={"0": bad})
    source = ModelSource({**_SOURCE.datasets, "a": dataset})
    settings = replace(settings, flow=settings.flow.with_source(source))
    ingest_partition(settings, 0)
    return settings


def _drain(settings: RunSettings) -> int:
    """Drain after ingest, and return the number of published datasets."""
    record_ingest_ended(settings.store.fs, ROOTS.store, settings.run_id)
    return drain_partition(settings, 0).counts.datasets_published


def _about_to_ingest(world: World) -> SimulatedPosix:
    return _planned(world)[0].after_kill()


def _failed_twice(world: World) -> SimulatedPosix:
    """Fail two attempts at a work unit that have read different parts of it."""
    machine = _about_to_ingest(world)
    _ingest(world, machine, bad=1)
    _ingest(world, machine, bad=3)
    machine.syncfs("/")
    return machine


def _stumble(world: World, machine: SimulatedPosix) -> None:
    _ingest(world, machine, bad=3)


def _commit(world: World, machine: SimulatedPosix) -> None:
    _drain(replace(_planned(world)[1], store=world.store(machine)))


def _take_over(world: World, machine: SimulatedPosix) -> str:
    """Run the task's second attempt, which reads everything, and a late twin of the recovery.

    Data of the first attempt must not be in the way.
    """
    settings = _ingest(world, machine)
    recover_partition(settings, 0)
    published = _drain(settings)
    if published != len(_SOURCE.datasets):
        return f"the run publishes {published} datasets"
    return world.violation(machine, _SOURCE, {})


def _come_late(world: World, machine: SimulatedPosix) -> str:
    """An attempt that reads everything comes after the others' records were sealed, or just before."""
    _drain(_ingest(world, machine))
    return run_and_look(machine, world, _SOURCE)


def _program(
    name: str,
    world: World,
    find: Callable[[World], SimulatedPosix],
    act: Callable[[World, SimulatedPosix], None],
    recover: Callable[[World, SimulatedPosix], str],
) -> Program:
    return Program(name, partial(find, world), partial(act, world), partial(recover, world))


PARTIAL = (
    _program("partial-then-success", _WORLD, _about_to_ingest, _stumble, _take_over),
    _program("partial-late-success", _WORLD, _failed_twice, _commit, _come_late),
    _program("partial-late-success-forks", _FORKS, _failed_twice, _commit, _come_late),
)

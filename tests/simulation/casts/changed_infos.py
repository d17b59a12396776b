"""Casts for the interleaver: committers that change the infos of the commits on which others work, too."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from distcommit.core.watermark import Watermark
from distcommit.engine.run_settings import RunSettings
from distcommit.pipeline.task_flow import TaskFlow
from distcommit.stores.state.job_store import JobStore
from tests.simulation.casts.parts import SOURCE, Act, Cast, Scene, drains, ingests, new_run
from tests.simulation.programs.changed_infos import PartsSink, parts_violation, run_in_parts
from tests.simulation.simulated_posix import SimulatedPosix
from tests.simulation.world import World

_WORLD = World(max_attempts=9)


def _seen_by(settings: RunSettings, store: JobStore) -> RunSettings:
    """Return the run with a sink that an actor's own view of the machine writes to."""
    return replace(settings, flow=TaskFlow.straight(settings.flow.source, PartsSink(store.fs)))


def _ingests(settings: RunSettings) -> Act:
    return lambda store, scene: ingests(_seen_by(settings, store))(store, scene)


def _drains(settings: RunSettings) -> Act:
    return lambda store, scene: drains(_seen_by(settings, store))(store, scene)


def _finishes(settings: RunSettings) -> Act:
    def act(store: JobStore, scene: Scene) -> None:
        _ingests(settings)(store, scene)
        _drains(settings)(store, scene)

    return act


def _runs(store: JobStore, scene: Scene) -> None:
    _WORLD.run(store.fs._calls, SOURCE, sink=PartsSink(store.fs))  # type: ignore[attr-defined]


def _twins(machine: SimulatedPosix) -> Mapping[str, Act]:
    """Two attempts at a task and the drain commit the same sequences."""
    settings = new_run(machine, _WORLD, SOURCE)
    return {"owner": _ingests(settings), "twin": _ingests(settings), "drain": _drains(settings)}


def _zombie(machine: SimulatedPosix) -> Mapping[str, Act]:
    """A run commits parts while the next run fences it and replays its sequences."""
    return {"zombie": _finishes(new_run(machine, _WORLD, SOURCE)), "run": _runs}


def _last_run(cast: Cast, machine: SimulatedPosix) -> bool:
    succeeded, violation = run_in_parts(cast.world, machine, cast.source)
    if violation:
        raise AssertionError(violation)
    return succeeded


def _violation(cast: Cast, machine: SimulatedPosix, before: Mapping[str, Watermark]) -> str:
    return parts_violation(machine, cast.source, cast.world)


CHANGED_INFOS = tuple(
    Cast(f"changed-infos-{name}", stage, _violation, _WORLD, last_run=_last_run)
    for name, stage in (("twins", _twins), ("zombie", _zombie))
)

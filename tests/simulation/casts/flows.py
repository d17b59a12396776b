"""Casts for the interleaver: flows that fork and reject records, and errors that are reprocessed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from distcommit.core.watermark import Watermark
from distcommit.core.work_units import error_branch_of
from distcommit.engine.reading.ingest import ingest_partition
from distcommit.engine.run_settings import RunSettings
from distcommit.pipeline.maintenance.reprocess_source import ReprocessSource
from distcommit.pipeline.task_flow import Stage, TaskFlow
from distcommit.stores.state.job_store import JobStore
from distcommit.testing.fakes.model_source import ModelDataset, ModelSource
from tests.models.model_flow import LEFT, RIGHT, Broken, model_flow, places_of
from tests.models.rejecting_flows import TurningAway
from tests.simulation.casts.branches import by_offset, misplaced, violation_of_branches
from tests.simulation.casts.parts import (
    Act,
    Cast,
    Scene,
    drains,
    finishes,
    in_turn,
    ingests,
    new_run,
    on,
    planned,
    reprocesses,
    runs,
    violation_of_exact,
)
from tests.simulation.simulated_posix import SimulatedPosix
from tests.simulation.world import ROOTS, World

_FORKS = World(flow=model_flow)
_EARLIER = ModelSource({"a": ModelDataset({"0": 2}), "b": ModelDataset({"0": 1})})
_OFFSETS = ModelSource({"a": ModelDataset({"0": 7, "1": 2}, units=2), "b": ModelDataset({"0": 2})})


def _forks(machine: SimulatedPosix) -> Mapping[str, Act]:
    settings = new_run(machine, _FORKS, _OFFSETS)
    return {"owner": ingests(settings), "twin": ingests(settings), "drain": drains(settings)}


def _forks_zombie(machine: SimulatedPosix) -> Mapping[str, Act]:
    _FORKS.run(machine, _EARLIER)
    return {"zombie": finishes(new_run(machine, _FORKS, _OFFSETS)), "run": runs(_FORKS, _OFFSETS)}


def _optional(flow: TaskFlow, *, fails: bool) -> TaskFlow:
    """Return the flow with an optional branch `right` that may fail."""
    remaining, right = flow.branches
    stages = (Stage("broken", Broken()),) if fails else right.stages
    return replace(flow, branches=(remaining, replace(right, stages=stages, optional=True)))


def _forks_optional(machine: SimulatedPosix) -> Mapping[str, Act]:
    """In one attempt an optional branch fails, so that its records are errors; in the other one it does not."""
    settings = new_run(machine, _FORKS, _OFFSETS)
    whole, without = (replace(settings, flow=_optional(settings.flow, fails=fails)) for fails in (False, True))
    return {"owner": ingests(without), "twin": ingests(whole), "drain": drains(settings)}


def _without_right(_: str, offset: int) -> tuple[str, ...]:
    """Return the places when `right` fails: its records are errors of that branch."""
    places = places_of(offset)
    lost = (error_branch_of(RIGHT),) if {RIGHT, error_branch_of(RIGHT)} & set(places) else ()
    return *(place for place in places if place not in (RIGHT, error_branch_of(RIGHT))), *lost


def _violation_of_either(cast: Cast, machine: SimulatedPosix, before: Mapping[str, Watermark]) -> str:
    """Return a record that is where neither of the attempts puts it."""
    wrong = violation_of_exact(cast, machine, before)
    return wrong or misplaced(cast.world.store(machine), cast.source, by_offset, _without_right)


_READ = ModelSource({"a": ModelDataset({"0": 3, "1": 2}, units=2), "b": ModelDataset({"0": 2})})
_MORE = ModelSource({"a": ModelDataset({"0": 4, "1": 2}, units=2), "b": ModelDataset({"0": 3})})
_OF_RIGHT = {LEFT: frozenset[str](), RIGHT: frozenset({"b/0/1"})}
_TURNING_AWAY = World(
    flow=TurningAway(frozenset({"a/0/1", "a/1/0"}), branches={**_OF_RIGHT, LEFT: frozenset({"a/0/2", "b/0/0"})})
)
_MENDED = World(flow=TurningAway(frozenset({"a/1/0"}), branches=_OF_RIGHT))
"""One record that all branches reject, and one that `right` rejects, are rejected again."""


def _repaired_places(value: str, _: int) -> tuple[str, ...]:
    match value:
        case "a/1/0":
            return (error_branch_of(""),)
        case "b/0/1":
            return LEFT, error_branch_of(RIGHT)
    return LEFT, RIGHT


def _violation_of_repaired(cast: Cast, machine: SimulatedPosix, before: Mapping[str, Watermark]) -> str:
    wrong = violation_of_exact(cast, machine, before)
    return wrong or misplaced(cast.world.store(machine), cast.source, _repaired_places)


_reprocess = reprocesses(_MENDED, _MORE)


def _reprocessing(machine: SimulatedPosix) -> RunSettings:
    """Begin a run that is about to reprocess rejected records."""
    _TURNING_AWAY.run(machine, _READ)
    return planned(_MENDED.begin_again(machine, _READ, ""))


def _reprocesses(settings: RunSettings) -> Act:
    """Ingest its tasks; each reads the error files as its actor sees them."""

    def act(store: JobStore, scene: Scene) -> None:
        errors = ReprocessSource(store.fs, ROOTS.output, settings.flow)
        own_settings = replace(on(settings, store), flow=settings.flow.with_source(errors))
        for task in range(settings.partitions):
            ingest_partition(own_settings, task)

    return act


def _finishes_reprocess(settings: RunSettings) -> Act:
    return in_turn(_reprocesses(settings), drains(settings))


def _reprocess_beside_zombie(machine: SimulatedPosix) -> Mapping[str, Act]:
    """A run is about to read more while all errors are reprocessed."""
    _TURNING_AWAY.run(machine, _READ)
    return {"zombie": finishes(new_run(machine, _MENDED, _MORE)), "reprocess": _reprocess}


def _zombie_of_reprocess(machine: SimulatedPosix) -> Mapping[str, Act]:
    """A reprocess is about to begin while a run comes and reprocesses the errors too."""

    def runs_and_reprocesses(store: JobStore, scene: Scene) -> None:
        runs(_MENDED, _MORE)(store, scene)
        _reprocess(store, scene)

    return {"zombie": _finishes_reprocess(_reprocessing(machine)), "run": runs_and_reprocesses}


def _reprocess_twins(machine: SimulatedPosix) -> Mapping[str, Act]:
    settings = _reprocessing(machine)
    return {"owner": _reprocesses(settings), "twin": _reprocesses(settings), "drain": drains(settings)}


def _two_reprocess(machine: SimulatedPosix) -> Mapping[str, Act]:
    _TURNING_AWAY.run(machine, _READ)
    return {"one": _reprocess, "two": _reprocess}


def _run_and_feed(cast: Cast, machine: SimulatedPosix) -> bool:
    """Run, then reprocess all errors."""
    succeeded = cast.world.run(machine, cast.source).succeeded
    return cast.world.reprocess(machine, cast.source, "").succeeded and succeeded


def _forked(name: str, stage: Callable[[SimulatedPosix], Mapping[str, Act]]) -> Cast:
    return Cast(name, stage, violation_of_branches, world=_FORKS, source=_OFFSETS)


def _fed(name: str, stage: Callable[[SimulatedPosix], Mapping[str, Act]]) -> Cast:
    return Cast(name, stage, _violation_of_repaired, world=_MENDED, source=_MORE, last_run=_run_and_feed)


FLOWS = (
    _forked("forks", _forks),
    _forked("forks-zombie", _forks_zombie),
    Cast("forks-optional", _forks_optional, _violation_of_either, world=_FORKS, source=_OFFSETS),
    _fed("reprocess-beside-zombie", _reprocess_beside_zombie),
    _fed("zombie-of-reprocess", _zombie_of_reprocess),
    _fed("reprocess-twins", _reprocess_twins),
    _fed("two-reprocess", _two_reprocess),
)

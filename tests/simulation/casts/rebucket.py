"""Casts for the interleaver: a job gets another number of buckets beside runs, zombies, operators and another command.

Each refused actor gets an error. A confirmed operator setting is present, the repeated command finishes, and a run
makes everything exact.
"""

from __future__ import annotations

from collections.abc import Mapping

from distcommit.app.admin.rebuild_store import stored_states
from distcommit.core.records.log_records import DatasetStatus
from distcommit.core.watermark import Watermark
from distcommit.engine.driver.run import new_run_id
from distcommit.stores.logs.rebucket_logs import Move, rebucket
from distcommit.stores.operator import operator_actions
from distcommit.stores.state.job_store import JobStore
from distcommit.stores.state.recorded_fixed_settings import read_settings
from distcommit.testing.fakes.model_source import ModelDataset, ModelSource
from tests.simulation.casts.parts import Act, Cast, Scene, finishes, new_run, runs, violation_of
from tests.simulation.programs.parts import put_file, run_pinned, violation_after_set_back
from tests.simulation.programs.rebucket import (
    NAMED,
    NAMED_BY,
    named,
    read_as_topics,
    renames,
    violation_by_name,
)
from tests.simulation.simulated_posix import SimulatedPosix
from tests.simulation.world import World

_WORLD = World(buckets=2, resized=True)
_FIRST = ModelSource({"a": ModelDataset({"0": 1}), "g": ModelDataset({"0": 2})})
_SECOND = ModelSource({"a": ModelDataset({"0": 2}), "g": ModelDataset({"0": 2}), "c": ModelDataset({"0": 1})})
_TOLD = "/job/told"
_BACK = Watermark({"0": 1})


def _rebuckets(buckets: int) -> Act:
    """Rebucket as `distcommit store rebucket` does, without the lock, which is not needed for safety."""

    def act(store: JobStore, scene: Scene) -> None:
        rebucket(store, Move(buckets), new_run_id(), lambda step: None)

    return act


def _last_run(cast: Cast, machine: SimulatedPosix) -> bool:
    """Finish a move that has begun, then run."""
    store = cast.world.store(machine)
    under_way = store.job_log().refresh().under_way
    if under_way is not None:
        rebucket(store, Move(under_way.buckets), new_run_id(), lambda step: None)
    done = cast.world.run(machine, cast.source).succeeded
    store = cast.world.store(machine)
    if all(state.status is DatasetStatus.IDLE for state in stored_states(store).values()):
        rebucket(store, Move(store.buckets + 1), new_run_id(), lambda step: None)
    return done


def _sets_back(store: JobStore, scene: Scene) -> None:
    """Set dataset `g` back by a record, and record that the command confirmed it."""
    operator_actions.set_watermark(store, "g", _BACK, "person")
    put_file(store.fs._calls, _TOLD, b"")  # type: ignore[attr-defined]


def _violation_after_set(cast: Cast, machine: SimulatedPosix, before: Mapping[str, Watermark]) -> str:
    is_confirmed = any(path == _TOLD for _, path, _ in machine.files())
    wrong = [
        violation_after_set_back(machine, cast.world, cast.source, again)
        for again in ((1,) if is_confirmed else (0, 1))
    ]
    return "" if "" in wrong else wrong[0]


def _commands_and_a_zombie(machine: SimulatedPosix) -> Mapping[str, Act]:
    """The command is given twice, while an old run continues."""
    _WORLD.run(machine, _FIRST)
    return {"one": _rebuckets(3), "two": _rebuckets(3), "zombie": finishes(new_run(machine, _WORLD, _SECOND))}


def _sizes(machine: SimulatedPosix) -> Mapping[str, Act]:
    _WORLD.run(machine, _FIRST)
    return {"one": _rebuckets(1), "two": _rebuckets(3), "person": _sets_back}


def _beside_a_run(machine: SimulatedPosix) -> Mapping[str, Act]:
    _WORLD.run(machine, _FIRST)
    return {"one": _rebuckets(1), "run": runs(_WORLD, _SECOND)}


def _by_hand(machine: SimulatedPosix) -> Mapping[str, Act]:
    _WORLD.run(machine, _FIRST)
    return {"one": _rebuckets(3), "person": _sets_back, "run": runs(_WORLD, _SECOND, beside_people=True)}


def _renames(kind: str) -> Act:
    """Rename as `distcommit store rebucket` does for a job whose file names datasets so."""

    def act(store: JobStore, scene: Scene) -> None:
        recorded, under_way = read_settings(store).settings[NAMED_BY], store.job_log().refresh().under_way
        if under_way is not None or recorded != kind:
            rebucket(store, renames(kind), new_run_id(), lambda step: None)

    return act


def _there_and_back(machine: SimulatedPosix) -> Mapping[str, Act]:
    """A new name is given twice, then the previous one."""
    read_as_topics(machine)
    return {"one": _renames("partition"), "two": _renames("partition"), "back": _renames("topic")}


def _run_by_name(cast: Cast, machine: SimulatedPosix) -> bool:
    store = cast.world.store(machine)
    under_way = store.job_log().refresh().under_way
    if under_way is not None:
        rebucket(store, renames(under_way.settings[NAMED_BY]), new_run_id(), lambda step: None)
    kind = read_settings(store).settings[NAMED_BY]
    run_pinned(cast.world, machine, NAMED[kind], named(kind))
    return True


def _violation_by_name(cast: Cast, machine: SimulatedPosix, before: Mapping[str, Watermark]) -> str:
    return violation_by_name(cast.world, read_settings(cast.world.store(machine)).settings[NAMED_BY], machine)


REBUCKET = (
    *(
        Cast(name, stage, violation, world=_WORLD, source=_SECOND, last_run=_last_run)
        for name, stage, violation in (
            ("rebucket-two", _commands_and_a_zombie, violation_of),
            ("rebucket-sizes", _sizes, _violation_after_set),
            ("rebucket-run", _beside_a_run, violation_of),
            ("rebucket-person", _by_hand, _violation_after_set),
        )
    ),
    Cast("rebucket-renames", _there_and_back, _violation_by_name, world=_WORLD, last_run=_run_by_name),
)

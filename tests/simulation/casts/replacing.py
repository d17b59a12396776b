"""Casts for the interleaver: runs whose files replace a dataset's files, or those of its partitions."""

from __future__ import annotations

import errno
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import cast

from distcommit.core.watermark import Watermark
from distcommit.engine.committing.drain import drain_partition
from distcommit.engine.driver.launch_interface import Launch, Result
from distcommit.engine.planning.plan_partition import plan_partition
from distcommit.engine.reading.ingest import ingest_partition
from distcommit.engine.run_settings import RunSettings
from distcommit.fs.local_disk.posix_calls import PosixCalls
from distcommit.sinks.files.sink import FileSink
from distcommit.sinks.files.split_by_field import FieldPartition
from distcommit.stores.state.job_store import JobStore
from distcommit.stores.state.task_states import record_ingest_ended
from distcommit.testing.fakes.faulty_calls import Crashed, Fault, FaultyCalls, Operation
from distcommit.testing.fakes.model_source import ModelDataset, ModelSource
from tests.models.rejecting_flows import TurningAway
from tests.simulation.casts.parts import (
    Act,
    Cast,
    Scene,
    drains,
    finishes,
    ingests,
    new_run,
    on,
    plan_all,
    reprocesses,
    runs,
    violation_of_exact,
)
from tests.simulation.programs.replacing import violation_of_live
from tests.simulation.simulated_posix import SimulatedPosix
from tests.simulation.world import ROOTS, SimulatedFileSystem, World

_EVER = 1_000_000


def _source(first: int, second: int) -> ModelSource:
    return ModelSource({"a": ModelDataset({"0": first, "1": second}, units=2), "b": ModelDataset({"0": first})})


_FIRST, _SECOND, _THIRD, _FOURTH = _source(1, 1), _source(2, 1), _source(4, 2), _source(5, 2)
_MORE_OF_A = ModelSource({"a": _THIRD.datasets["a"], "b": _SECOND.datasets["b"]})
_IN_TURN = tuple(
    ModelSource({"a": ModelDataset({"0": first, "1": second})}) for first, second in ((1, 1), (1, 2), (2, 2), (3, 3))
)
"""The source at each run: one partition grows, then the other one, then both."""
_FOLDER = World(files=FileSink(compression="none", publish="replace"))
_PARTITIONS = World(
    files=FileSink(compression="none", publish="replace_partitions", partition_by=FieldPartition(field="partition"))
)


def _about_to_replace(world: World, machine: SimulatedPosix, *before: ModelSource) -> None:
    for source in before:
        world.run(machine, source)


def _twins(world: World, machine: SimulatedPosix) -> Mapping[str, Act]:
    _about_to_replace(world, machine, _SECOND)
    settings = new_run(machine, world, _THIRD)
    return {"owner": ingests(settings), "twin": ingests(settings), "drain": drains(settings)}


def _zombie(world: World, machine: SimulatedPosix) -> Mapping[str, Act]:
    """A run is about to replace the files of an earlier one, whose own replaced files are deleted now.

    Then there is more to read, and a newer run replaces all of that.
    """
    _about_to_replace(world, machine, _FIRST, _SECOND)
    return {"zombie": finishes(new_run(machine, world, _THIRD)), "run": runs(world, _FOURTH)}


def _beside_reprocess(world: World, machine: SimulatedPosix) -> Mapping[str, Act]:
    """Errors of two datasets are reprocessed while a run is about to replace the files of one of them, errors
    included."""
    replace(world, flow=TurningAway(frozenset({"a/0/1", "b/0/0"}))).run(machine, _SECOND)
    return {"zombie": finishes(new_run(machine, world, _MORE_OF_A)), "reprocess": reprocesses(world, _MORE_OF_A)}


def _about_to_plan(world: World, machine: SimulatedPosix, source: ModelSource) -> RunSettings:
    """Return a run that has recovered, and is about to delete replaced files and to plan."""
    recovered: list[RunSettings] = []

    def stopping(launch: Launch) -> Launch:
        def launched(
            function: Callable[[RunSettings, int], Result], settings: RunSettings, tasks: int, kind: type[Result]
        ) -> list[Result]:
            if function is plan_partition:
                recovered.append(settings)
                raise Crashed
            return launch(function, settings, tasks, kind)

        return launched

    with suppress(Crashed):
        world.run(machine, source, launched=stopping)
    return recovered[0]


def _dies_as_it_publishes(operation: Operation) -> None:
    if operation.kind == "rename" and operation.path.startswith(f"{ROOTS.output}/"):
        raise Crashed


def _late_twin(world: World, machine: SimulatedPosix) -> Mapping[str, Act]:
    """The planning task could delete no replaced file, and the reading task was killed as it began to publish.

    A twin of the first deletes empty folders, and the drain publishes into these folders again.
    """
    _about_to_replace(world, machine, *_IN_TURN[:-1])
    begun = _about_to_plan(world, machine, _IN_TURN[-1])
    undeletable = Fault(errno.EIO, 0, _EVER, concerns=lambda name, _: name == "unlink")
    fs = SimulatedFileSystem(cast(PosixCalls, FaultyCalls(machine, undeletable)))
    settings = on(plan_all(on(begun, replace(begun.store, fs=fs))), begun.store)
    machine.gate = _dies_as_it_publishes
    with suppress(Crashed):
        ingest_partition(settings, 0)
    machine.gate = None

    def plans(store: JobStore, scene: Scene) -> None:
        plan_partition(on(settings, store), 0)

    def publishes(store: JobStore, scene: Scene) -> None:
        record_ingest_ended(store.fs, store.roots.store, settings.run_id)
        report = drain_partition(on(settings, store), 0)
        if report.reasons and not scene.disturbed:
            raise AssertionError(f"it could not publish: {report.reasons}")

    return {"drain": publishes, "plan-twin": plans}


def _violation(
    histories: Sequence[tuple[ModelSource, ...]], cast_: Cast, machine: SimulatedPosix, before: Mapping[str, Watermark]
) -> str:
    wrong = violation_of_exact(cast_, machine, before)
    return wrong or violation_of_live(machine, cast_.world, *histories)


def _replacing(
    name: str,
    stage: Callable[[World, SimulatedPosix], Mapping[str, Act]],
    world: World,
    *histories: tuple[ModelSource, ...],
) -> Cast:
    violation, source = partial(_violation, histories), histories[0][-1]
    return Cast(name, partial(stage, world), violation, world=world, source=source)


_TWINS = ((_SECOND, _THIRD),)
_BY_FIELDS = (FieldPartition(field="partition"), FieldPartition(field="offset"))
_DEEP = World(max_attempts=1, files=FileSink(compression="none", publish="replace", partition_by=_BY_FIELDS))
_ZOMBIE = ((_FIRST, _SECOND, _FOURTH), (_FIRST, _SECOND, _THIRD, _FOURTH))
REPLACING = (
    _replacing("replace-twins", _twins, _FOLDER, *_TWINS),
    _replacing("replace-partitions-twins", _twins, _PARTITIONS, *_TWINS),
    _replacing("replace-late-twin", _late_twin, _DEEP, _IN_TURN),
    _replacing("replace-beside-reprocess", _beside_reprocess, _FOLDER, (_SECOND, _MORE_OF_A)),
    _replacing("replace-zombie", _zombie, _FOLDER, *_ZOMBIE),
    _replacing("replace-partitions-zombie", _zombie, _PARTITIONS, *_ZOMBIE),
)

"""Casts for the interleaver: runs whose files take the place of a dataset's files, or of those of its partitions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from distcommit.model.watermark import Watermark
from distcommit.sinks.files.field_folders import FieldPartition
from distcommit.sinks.files.sink import FileSink
from distcommit.testing.models.model_source import ModelDataset, ModelSource
from distcommit.testing.simulation.casts.parts import (
    Act,
    Cast,
    drains,
    finishes,
    ingests,
    new_run,
    runs,
    violation_of_exact,
)
from distcommit.testing.simulation.programs.replacing import violation_of_live
from distcommit.testing.simulation.simulated_posix import SimulatedPosix
from distcommit.testing.simulation.world import World


def _source(first: int, second: int) -> ModelSource:
    return ModelSource({"a": ModelDataset({"0": first, "1": second}, units=2), "b": ModelDataset({"0": first})})


_STEPS = _source(1, 1), _source(2, 1), _source(4, 2), _source(5, 2)
"""What there is to read at each run; of the third one nothing has come to partition 1 at first."""
_FIRST, _SECOND, _THIRD, _FOURTH = _STEPS
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
    """A run is about to replace what an earlier one has put in the place of files that go now; then there is more, and
    a newer run replaces all of that."""
    _about_to_replace(world, machine, _FIRST, _SECOND)
    return {"zombie": finishes(new_run(machine, world, _THIRD)), "run": runs(world, _FOURTH)}


def _violation(
    histories: Sequence[tuple[ModelSource, ...]], cast: Cast, machine: SimulatedPosix, before: Mapping[str, Watermark]
) -> str:
    wrong = violation_of_exact(cast, machine, before)
    return wrong or violation_of_live(machine, cast.world, *histories)


def _replacing(
    name: str,
    stage: Callable[[World, SimulatedPosix], Mapping[str, Act]],
    world: World,
    *histories: tuple[ModelSource, ...],
) -> Cast:
    violation = partial(_violation, histories)
    return Cast(name, partial(stage, world), violation, world=world, source=histories[0][-1])


_TWINS = ((_SECOND, _THIRD),)
_ZOMBIE = ((_FIRST, _SECOND, _FOURTH), (_FIRST, _SECOND, _THIRD, _FOURTH))
REPLACING = (
    _replacing("replace-twins", _twins, _FOLDER, *_TWINS),
    _replacing("replace-partitions-twins", _twins, _PARTITIONS, *_TWINS),
    _replacing("replace-zombie", _zombie, _FOLDER, *_ZOMBIE),
    _replacing("replace-partitions-zombie", _zombie, _PARTITIONS, *_ZOMBIE),
)

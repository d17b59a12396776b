"""Programs for the crash explorer: the content of snapshots, wherever a run dies that adds some, finishes a whole
job, or deletes replaced files."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace

from distcommit.core.errors import DistcommitError
from distcommit.core.records.bucket_and_dataset_snapshots import SnapshotName
from distcommit.sinks.files.sink import FileSink
from distcommit.testing.fakes.faulty_calls import Crashed
from distcommit.testing.fakes.model_source import ModelDataset, ModelSource
from tests.simulation.programs.parts import Program, new_machine, publishing_at_most
from tests.simulation.simulated_posix import SimulatedPosix
from tests.simulation.snapshot_watch import Seen, cut_violation, seen_at_cuts
from tests.simulation.world import World


def _source(end: int) -> ModelSource:
    return ModelSource({name: ModelDataset({"0": end}) for name in "abc"})


_JOB = World(buckets=2, partitions=2, job_level=True)
_REPLACES = World(buckets=2, files=FileSink(compression="none", publish="replace"))
_ENDS = (1, 3, 6)


def _ran(world: World, *ends: int) -> SimulatedPosix:
    machine = new_machine()
    for end in ends:
        world.run(machine, _source(end))
    return machine


def _named(world: World, passed: int) -> int:
    """Return the number of records that a snapshot shows of a dataset at that position: all, or those since the
    previous run."""
    before = 0 if world.files.publish == "append" else max([0, *(end for end in _ENDS if end < passed)])
    return passed - before


def _wrong_at(name: SnapshotName, seen: Seen, world: World) -> str:
    counts = {records for _, records, _ in seen.values()}
    if any(records != _named(world, passed) for _, records, passed in seen.values()):
        return f"the cut {name} names missing or partial files: {seen}"
    if world.job_level and seen and (len(counts) > 1 or len(seen) < 3):
        return f"at the cut {name} half a job is seen: {seen}"
    return ""


def _look(
    machine: SimulatedPosix, world: World, before: Mapping[SnapshotName, Seen]
) -> tuple[dict[SnapshotName, Seen], str]:
    """Read each snapshot, and return a violation: one has changed or is partial."""
    store = world.store(machine)
    snapshots = dict(seen_at_cuts(store))
    other = [name for name, observed in snapshots.items() if before.get(name, observed) != observed]
    wrong = next(filter(None, (_wrong_at(name, observed, world) for name, observed in snapshots.items())), "")
    return snapshots, f"the cuts {other} are not what they were" if other else wrong or cut_violation(store)


def _program(name: str, world: World, find_ends: tuple[int, ...], end: int, *, half: bool = False) -> Program:
    """Return a program that reads all snapshots after the crash, and after each of two runs that follow."""

    def find() -> SimulatedPosix:
        machine = _ran(world, *find_ends)
        if half:
            with publishing_at_most(machine, 1), suppress(Crashed):
                world.run(machine, _source(end))
        return machine

    def act(machine: SimulatedPosix) -> None:
        world.run(machine, _source(end))

    def recover(machine: SimulatedPosix) -> str:
        mappings, wrong = _look(machine, world, {})
        for _ in range(2):
            if wrong:
                return wrong
            with suppress(DistcommitError):
                world.run(machine, _source(end))
            mappings, wrong = _look(machine, world, mappings)
        newest = next(iter(mappings.values()), {})
        expected = end if world.files.publish == "append" else end - find_ends[-1]
        if {records for _, records, _ in newest.values()} != {expected}:
            return f"the newest cut shows {newest}, expected {expected} records of each"
        return wrong

    return Program(name, find, act, recover)


SNAPSHOTS = (
    _program("cuts-of-a-job", _JOB, _ENDS[:1], _ENDS[1]),
    _program("cuts-of-a-half-done-job", _JOB, _ENDS[:1], _ENDS[1], half=True),
    _program("cuts-of-what-is-replaced", _REPLACES, _ENDS[:2], _ENDS[2]),
    _program("cuts-of-datasets", replace(_JOB, job_level=False), _ENDS[:1], _ENDS[1], half=True),
)

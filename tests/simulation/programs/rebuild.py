"""Programs for the crash explorer: rebuilt stores whose sources were recreated and have holes.

A run of such a store died with its files published in part, in two branches, several of them of one input record.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from distcommit.app.admin.rebuild_store import plan_rebuild, rebuild_store, stored_states
from distcommit.core.errors import StaleStoreError
from distcommit.stores.folders.folder_ownership import read_owner
from distcommit.stores.folders.run_markers import Marker, read_markers
from distcommit.stores.logs.corrupt_log_tail import is_corrupt
from distcommit.stores.operator.operator_actions import set_watermark
from distcommit.stores.state.job_store import open_store
from distcommit.testing.fakes.faulty_calls import Operation
from distcommit.testing.fakes.model_source import ModelDataset, ModelSource
from tests.models.model_flow import flow_of_formats
from tests.simulation.programs.parts import Program, new_machine, put_file, require_refused
from tests.simulation.simulated_posix import SimulatedPosix
from tests.simulation.world import ROOTS, SimulatedFileSystem, World

_WORLD, _AT_LEAST_ONCE = World(), World(at_least_once=True)
_FORKS, _FORKS_AT_LEAST_ONCE = World(flow=flow_of_formats), World(flow=flow_of_formats, at_least_once=True)
_Recover = Callable[[World, SimulatedPosix], str]
_UNITS = 2
_MARKS = f"{ROOTS.output}/.distcommit"


def _source(incarnation: str, a: int, b: int) -> ModelSource:
    """Return a source in which offsets 0 and 3 of `a` and offset 1 of `b` hold no record, so that no file names some
    holes."""
    return ModelSource(
        {
            "a": ModelDataset({"0": a}, units=_UNITS, holes={"0": frozenset({0, 3})}, incarnation=incarnation),
            "b": ModelDataset({"0": b}, holes={"0": frozenset({1})}),
        }
    )


_FIRST = _source("one", 5, 1)
_LATER = _source("one", 6, 2)
_SECOND = _source("two", 4, 2)
_THIRD = _source("two", 7, 3)
_MADE_AGAIN = _source("three", 9, 3)
_FEW, _MANY = ModelSource({"a": ModelDataset({"0": 2})}), ModelSource({"a": ModelDataset({"0": 7}, units=_UNITS)})
_RECORDS_OF_ONE, _RECORDS_LEFT_OF_TWO = 3, 1
"""Of `a`: the first file of the second run has one record, and the second one is missing."""


def _lived(world: World, *, copy_store: bool, missing: Callable[[list[str]], str]) -> SimulatedPosix:
    """Read dataset `a`, recreate it, and read it again.

    The store is lost, or a copy from when the second run published its first file. The second run may have left open
    sequences, and a file of `a` is missing.
    """
    machine, backup = new_machine(), dict[str, bytes]()

    def copy(operation: Operation) -> None:
        publishes = operation.path.startswith(f"{ROOTS.output}/") and operation.path.endswith(".parquet")
        if publishes and operation.kind == "rename" and not backup:
            backup.update(_files(machine, ROOTS.store))

    world.run(machine, _FIRST)
    set_watermark(world.store(machine), "a", None, "person")
    machine.gate = copy if copy_store else None
    world.run(machine, _SECOND)
    machine.gate = None
    if copy_store:
        for path in _files(machine, ROOTS.store):
            machine.unlink(path)
        for path, data in backup.items():
            put_file(machine, path, data)
    else:
        _lose_store(world, machine)
    machine.unlink(missing(sorted(_files(machine, f"{ROOTS.output}/a"))[-_UNITS:]))
    (clean,) = (path for path in _files(machine, _MARKS) if path.endswith(f"-{Marker.CLEAN.value}"))
    machine.unlink(clean)
    put_file(machine, clean.replace(Marker.CLEAN.value, Marker.ENDED.value), b"")
    machine.syncfs("/")
    return machine


def _lose_store(world: World, machine: SimulatedPosix) -> None:
    """Replace the store by a new, empty one."""
    fs = SimulatedFileSystem(machine)
    owner = read_owner(fs, ROOTS.output)
    for path in _files(machine, ROOTS.store):
        machine.unlink(path)
    if owner is not None:
        open_store(fs, ROOTS, "job", world.buckets, create=True, lost_store_id=owner.store_id)


def _files(machine: SimulatedPosix, root: str) -> dict[str, bytes]:
    return {path: data for _, path, data in machine.files() if path.startswith(f"{root}/") and data is not None}


def _rebuild(world: World, machine: SimulatedPosix) -> None:
    store = world.store(machine)
    plan = plan_rebuild(store, stored_states(store), accept_gaps=False)
    done = rebuild_store(store, plan, "rebuild", "person", accept_gaps=False)
    if not done.written:
        raise AssertionError(f"nothing was written: {done.problems}")


def _finish(world: World, machine: SimulatedPosix) -> None:
    """Repeat a rebuild that died; until it has finished no run begins."""
    marks = read_markers(SimulatedFileSystem(machine), ROOTS.output)
    if not 0 < marks[Marker.REBUILD] <= marks[Marker.CLEAN]:
        require_refused([partial(world.run, machine, _THIRD)], StaleStoreError)
        _rebuild(world, machine)


def _go_on(world: World, machine: SimulatedPosix) -> str:
    """Require that the next run continues in the newest incarnation, whatever was published of it."""
    _finish(world, machine)
    world.run(machine, _THIRD)
    return world.violation(machine, _THIRD, {}, earlier_records=_RECORDS_OF_ONE)


def _is_stopped(world: World, machine: SimulatedPosix, left: int = _RECORDS_LEFT_OF_TWO) -> str:
    """Require that `a`, recreated since, is not read until an operator confirms it."""
    _finish(world, machine)
    if world.watermarks(machine)["a"].incarnation != "three":
        before = world.watermarks(machine)["a"]
        stopped = world.run(machine, _MADE_AGAIN)
        if stopped.succeeded or world.watermarks(machine)["a"] != before:
            return f"a recreated source was read: {before} to {world.watermarks(machine)['a']}"
        set_watermark(world.store(machine), "a", None, "person")
    world.run(machine, _MADE_AGAIN)
    return world.violation(machine, _MADE_AGAIN, {}, earlier_records=_RECORDS_OF_ONE + left)


def _torn() -> SimulatedPosix:
    """End two runs, and damage a segment in the middle of a bucket's log."""
    machine = new_machine()
    _WORLD.run(machine, _FIRST)
    _WORLD.run(machine, _LATER)
    machine.syncfs("/")
    for path in sorted(_files(machine, _WORLD.store(machine).bucket_log(0).folder)):
        damaged = machine.after_kill()
        data = damaged.read_file(path)
        damaged.unlink(path)
        put_file(damaged, path, data[: len(data) // 2])
        damaged.syncfs("/")
        if is_corrupt(_WORLD.store(damaged).bucket_log(0)):
            return damaged
    raise AssertionError("no segment is needed")


def _begun(world: World) -> SimulatedPosix:
    machine = new_machine()
    world.run(machine, _FEW)
    machine.syncfs("/")
    return machine


def _half_is_read_again(world: World, machine: SimulatedPosix) -> str:
    """The store is lost before another run could finish the open sequences."""
    if not read_markers(SimulatedFileSystem(machine), ROOTS.output)[Marker.REBUILD]:
        _lose_store(world, machine)
    _finish(world, machine)
    world.run(machine, _MANY)
    return world.violation(machine, _MANY, {})


def _check_repaired(machine: SimulatedPosix) -> str:
    """Repeat a repair that died; then the bucket continues."""
    marks = read_markers(SimulatedFileSystem(machine), ROOTS.output)
    if is_corrupt(_WORLD.store(machine).bucket_log(0)) or marks[Marker.REBUILD] > marks[Marker.CLEAN]:
        _rebuild(_WORLD, machine)
    newest = _source("one", 8, 3)
    _WORLD.run(machine, newest)
    return _WORLD.violation(machine, newest, {})


def _program(
    name: str,
    world: World,
    recover: _Recover,
    *,
    copy_store: bool = False,
    missing: Callable[[list[str]], str] = max,
) -> Program:
    find = partial(_lived, world, copy_store=copy_store, missing=missing)
    return Program(name, find, partial(_rebuild, world), partial(recover, world))


def _published_by_half(name: str, world: World) -> Program:
    def act(machine: SimulatedPosix) -> None:
        world.run(machine, _MANY)

    return Program(name, partial(_begun, world), act, partial(_half_is_read_again, world))


REBUILD = (
    _published_by_half("rebuilt-half-published", _FORKS),
    _published_by_half("rebuilt-half-published-at-least-once", _FORKS_AT_LEAST_ONCE),
    Program("rebuilt-torn", _torn, partial(_rebuild, _WORLD), _check_repaired),
    _program("rebuilt-made-again", _WORLD, _go_on),
    _program("rebuilt-made-again-from-a-copy", _WORLD, _go_on, copy_store=True),
    _program("rebuilt-made-again-since", _WORLD, _is_stopped),
    _program("rebuilt-made-again-at-least-once", _AT_LEAST_ONCE, _go_on),
    _program("rebuilt-none-of-the-newest", _WORLD, _go_on, missing=min),
    _program("rebuilt-none-of-the-newest-since", _WORLD, partial(_is_stopped, left=0), missing=min),
)

"""Programs for the crash explorer: imported watermarks, a store that is older than its output, and its rebuild."""

from __future__ import annotations

import errno
import os
from dataclasses import replace
from functools import cache, partial

from distcommit.app.admin.rebuild_store import accept_store, plan_rebuild, rebuild_store, stored_states
from distcommit.core.errors import ConfigurationError, CorruptError, DistcommitError, StaleStoreError
from distcommit.core.watermark import Watermark
from distcommit.stores.folders.nested_roots_check import first_published
from distcommit.stores.folders.run_markers import Marker, read_markers
from distcommit.stores.logs.fencing import require_newest
from distcommit.stores.operator.operator_actions import set_watermarks
from distcommit.stores.state.job_store import open_store
from distcommit.testing.fakes.faulty_calls import Operation
from distcommit.testing.fakes.model_source import ModelDataset, ModelSource
from tests.simulation.programs.parts import (
    Program,
    files_below,
    half_done,
    new_machine,
    put_file,
    replace_files,
    require_refused,
    unsettled,
)
from tests.simulation.simulated_posix import SimulatedPosix
from tests.simulation.world import ROOTS, SimulatedFileSystem, World

_WORLD = World()
_FIRST = ModelSource({"a": ModelDataset({"0": 2}), "b": ModelDataset({"0": 1})})
_SECOND = ModelSource({"a": ModelDataset({"0": 4}, units=2), "b": ModelDataset({"0": 2}), "c": ModelDataset({"0": 1})})
_THIRD = ModelSource({"a": ModelDataset({"0": 5}), "b": ModelDataset({"0": 3}), "c": ModelDataset({"0": 2})})
_MARKS = f"{ROOTS.output}/.distcommit"
_ANOTHER = replace(ROOTS, store="/job/another")
_POSITIONS = {"b": Watermark({"0": 1}), "c": Watermark({"0": 1})}


def _only_a() -> SimulatedPosix:
    machine = new_machine()
    _WORLD.run(machine, ModelSource({"a": _SECOND.datasets["a"]}))
    machine.syncfs("/")
    return machine


def _import(machine: SimulatedPosix) -> None:
    set_watermarks(_WORLD.store(machine), _POSITIONS, dict.fromkeys(_POSITIONS), "person")


def _import_and_run(machine: SimulatedPosix) -> str:
    _import(machine)
    _WORLD.run(machine, _THIRD)
    states = stored_states(_WORLD.store(machine))
    origins = {urn: dict(states[urn].origin) for urn in _POSITIONS}
    if origins != {urn: dict(watermark.positions) for urn, watermark in _POSITIONS.items()}:
        return f"imported datasets begin at {origins}"
    return _WORLD.violation(machine, _THIRD, {}, set_by_hand=True)


def _pending() -> SimulatedPosix:
    machine = new_machine()
    half_done(machine, _WORLD)
    machine.syncfs("/")
    return machine


def _no_imports(machine: SimulatedPosix) -> None:
    """Require that a bucket with a pending sequence or a moved watermark is left unchanged."""
    store, urn = _WORLD.store(machine), unsettled(machine).dataset_urn
    requested = {**_POSITIONS, urn: Watermark({"0": 1})}
    require_refused(
        [
            partial(set_watermarks, store, requested, dict.fromkeys(requested), "person"),
            partial(set_watermarks, store, _POSITIONS, dict.fromkeys(_POSITIONS, Watermark({"0": 9})), "person"),
        ]
    )


def _nothing_was_set(machine: SimulatedPosix) -> str:
    watermarks = {urn: state.watermark for urn, state in stored_states(_WORLD.store(machine)).items()}
    was_set = [urn for urn, watermark in _POSITIONS.items() if watermarks.get(urn) == watermark]
    return f"watermarks of {was_set} were set" if was_set else ""


def _stale() -> SimulatedPosix:
    """Combine the first run's store with the output of the second, which may have left open sequences; one file is
    missing."""
    machine = new_machine()
    _WORLD.run(machine, _FIRST)
    backup = files_below(machine, ROOTS.store)
    _WORLD.run(machine, _SECOND)
    replace_files(machine, ROOTS.store, backup)
    for path in files_below(machine, _MARKS):
        if path.endswith(f"-{Marker.CLEAN.value}"):
            machine.unlink(path)
    machine.unlink(max(path for path in files_below(machine, f"{ROOTS.output}/a") if path.endswith(".parquet")))
    machine.syncfs("/")
    return machine


def _copied_in_mid_run() -> SimulatedPosix:
    """Combine a store that was copied as the second run published its first file with that run's output."""
    machine = new_machine()
    _WORLD.run(machine, _FIRST)
    backup: dict[str, bytes] = {}

    def copy(operation: Operation) -> None:
        publishes = operation.path.startswith(f"{ROOTS.output}/") and operation.path.endswith(".parquet")
        if publishes and operation.kind == "rename" and not backup:
            backup.update(files_below(machine, ROOTS.store))

    machine.gate = copy
    _WORLD.run(machine, _SECOND)
    machine.gate = None
    replace_files(machine, ROOTS.store, backup)
    machine.syncfs("/")
    return machine


@cache
def _after_first() -> SimulatedPosix:
    machine = new_machine()
    _WORLD.run(machine, _FIRST)
    machine.syncfs("/")
    return machine


def _second_run(machine: SimulatedPosix) -> None:
    _WORLD.run(machine, _SECOND)


def _restore_and_run(machine: SimulatedPosix) -> str:
    """Require that a store from before the crashed run is refused, unless that run published nothing."""
    replace_files(machine, ROOTS.store, files_below(_after_first(), ROOTS.store))
    try:
        _WORLD.run(machine, _THIRD)
    except StaleStoreError:
        _rebuild(machine)
        _WORLD.run(machine, _THIRD)
    return _WORLD.violation(machine, _THIRD, {})


def _left_open() -> SimulatedPosix:
    """Combine the first run's store with the output of the second, which could not publish one file and ended."""
    machine = _after_first().after_kill()
    refused: list[str] = []

    def refuse(operation: Operation) -> None:
        if operation.kind == "rename" and operation.path.startswith(f"{ROOTS.output}/a/"):
            if operation.path.endswith(".parquet") and not refused:
                refused.append(operation.path)
            if operation.path in refused:
                raise OSError(errno.EACCES, os.strerror(errno.EACCES), operation.path)

    machine.gate = refuse
    _WORLD.run(machine, _SECOND)
    machine.gate = None
    replace_files(machine, ROOTS.store, files_below(_after_first(), ROOTS.store))
    machine.syncfs("/")
    return machine


def _rebuild(machine: SimulatedPosix) -> None:
    store = _WORLD.store(machine)
    plan = plan_rebuild(store, stored_states(store), accept_gaps=False)
    if not rebuild_store(store, plan, "rebuild", "person", accept_gaps=False).written:
        raise AssertionError("nothing was written")


def _rebuild_and_run(machine: SimulatedPosix) -> str:
    marks = read_markers(SimulatedFileSystem(machine), ROOTS.output)
    if not 0 < marks[Marker.REBUILD] <= marks[Marker.CLEAN]:
        require_refused([partial(_WORLD.run, machine, _THIRD)], StaleStoreError)
        _rebuild(machine)
    _WORLD.run(machine, _THIRD)
    return _WORLD.violation(machine, _THIRD, {})


def _refuse(machine: SimulatedPosix) -> None:
    """Require that no run begins on an old store, without a store, or on folders of another or an unknown job."""
    fs, store = SimulatedFileSystem(machine), _WORLD.store(machine)
    require_refused(
        [
            partial(require_newest, store),
            partial(open_store, fs, _ANOTHER, "job", 1, create=True),
            partial(require_newest, replace(store, store_id="0" * 32)),
        ],
        StaleStoreError,
    )
    require_refused(
        [
            partial(open_store, fs, _ANOTHER, "another job", 1, create=True),
            partial(require_newest, replace(store, job="another job", store_id="0" * 32)),
        ],
        ConfigurationError,
    )
    if first_published(fs, ROOTS.output) is None:
        raise AssertionError("nothing is published")


def _no_owner(machine: SimulatedPosix) -> None:
    fs = SimulatedFileSystem(machine)
    machine.unlink(f"{_MARKS}/owner.json")
    require_refused([partial(open_store, fs, _ANOTHER, "another job", 1, create=True)], StaleStoreError)
    put_file(machine, f"{_MARKS}/owner.json", b"?")
    require_refused([partial(require_newest, _WORLD.store(machine))], CorruptError)


def _still_refused(machine: SimulatedPosix) -> str:
    try:
        require_newest(_WORLD.store(machine))
    except DistcommitError:
        return ""
    return "an old store is taken for the newest"


def _keep(machine: SimulatedPosix) -> None:
    if not accept_store(_WORLD.store(machine), "rebuild", "person").written:
        raise AssertionError("nothing was written")


def _keep_and_begin(machine: SimulatedPosix) -> str:
    before = stored_states(_WORLD.store(machine))
    if read_markers(SimulatedFileSystem(machine), ROOTS.output)[Marker.ENDED] == 0:
        _keep(machine)
    _WORLD.begin(machine, _THIRD)
    after = stored_states(_WORLD.store(machine))
    return "" if before == after else f"the store knew {before}, and knows {after}"


MOVES = (
    Program("imported", _only_a, _import, _import_and_run),
    Program("imports-refused", _pending, _no_imports, _nothing_was_set),
    Program("rebuilt", _stale, _rebuild, _rebuild_and_run),
    Program("rebuilt-from-a-copy", _copied_in_mid_run, _rebuild, _rebuild_and_run),
    Program("rebuilt-of-what-was-open", _left_open, _rebuild, _rebuild_and_run),
    Program("backup-restored", lambda: _after_first().after_kill(), _second_run, _restore_and_run),
    Program("kept", _stale, _keep, _keep_and_begin),
    Program("stale", _stale, _refuse, _still_refused),
    Program("no-owner", _stale, _no_owner, _still_refused),
)

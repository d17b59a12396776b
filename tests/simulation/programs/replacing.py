"""Programs for the crash explorer: publishers that replace a dataset's files or those of partitions.

They are killed anywhere, abandoned halfway, lose their store, and run beside reprocessed records.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from functools import partial

from distcommit.app.admin.rebuild_store import plan_rebuild, rebuild_store, stored_states
from distcommit.app.auditing.audit import audit_store
from distcommit.app.auditing.files.read_published_files import read_published
from distcommit.app.auditing.offsets.branch_coverage import covered_by
from distcommit.core.errors import DistcommitError
from distcommit.core.records.log_records import DatasetStatus
from distcommit.sinks.files.sink import FileSink
from distcommit.sinks.files.split_by_field import FieldPartition
from distcommit.stores.folders.folder_ownership import read_owner
from distcommit.stores.folders.run_markers import Marker, read_markers
from distcommit.stores.operator import operator_actions
from distcommit.stores.state.job_store import open_store
from distcommit.testing.fakes.faulty_calls import Crashed, Operation
from distcommit.testing.fakes.model_source import ModelDataset, ModelSource
from tests.models.rejecting_flows import TurningAway
from tests.simulation.programs.parts import (
    Program,
    files_below,
    new_machine,
    require_refused,
    staged,
    unsettled,
)
from tests.simulation.simulated_posix import SimulatedPosix
from tests.simulation.world import ROOTS, SimulatedFileSystem, World


def _source(first: int, second: int) -> ModelSource:
    return ModelSource({"a": ModelDataset({"0": first, "1": second}, units=2), "b": ModelDataset({"0": first})})


_FIRST, _SECOND, _THIRD = _source(3, 1), _source(5, 2), _source(6, 2)
_FOLDER = World(max_attempts=1, files=FileSink(compression="none", publish="replace"))
_BY_PARTITION = FileSink(
    compression="none", publish="replace_partitions", partition_by=FieldPartition(field="partition")
)
_PARTITIONS = replace(_FOLDER, files=_BY_PARTITION)
_BEFORE = replace(_FOLDER, flow=TurningAway(frozenset({"a/0/1", "a/0/3", "a/0/4", "b/0/4"})))
_NOW = replace(_FOLDER, flow=TurningAway())
_Live = dict[str, dict[str, list[tuple[int, int]]]]
"""By dataset and partition: ranges of live offsets, without their ends."""


def _seen(world: World, *steps: ModelSource) -> _Live:
    """Return the live records after each of these sources was read to its end in turn."""
    observed: _Live = {}
    reached: dict[str, dict[str, int]] = {}
    for step in steps:
        for urn, dataset in step.datasets.items():
            lows = reached.setdefault(urn, {})
            fresh = {p: [(lows.get(p, 0), end)] for p, end in dataset.partitions.items() if lows.get(p, 0) < end}
            stays = observed.get(urn, {}) if world.files.publish == "replace_partitions" or not fresh else {}
            observed[urn] = {**stays, **fresh}
            lows.update(dataset.partitions)
    return observed


def _live(machine: SimulatedPosix, world: World) -> _Live:
    """Return the records that a snapshot reader sees."""
    store = world.store(machine)
    done = stored_states(store)
    live: _Live = {}
    for folder in read_published(store.fs, store.roots.output):
        epoch = done[folder.dataset_urn].done_epoch
        files = ((file.footer, file.offsets) for file in folder.live_files(epoch) if file.footer.epoch <= epoch)
        offsets = covered_by(files)
        live[folder.dataset_urn] = {name: list(offsets.ranges(name)) for name in offsets.partitions()}
    return live


def _wrong(machine: SimulatedPosix, world: World, *histories: tuple[ModelSource, ...]) -> str:
    """Return a violation after a whole run."""
    world.run(machine, histories[0][-1])
    return violation_of_live(machine, world, *histories)


def violation_of_live(machine: SimulatedPosix, world: World, *histories: tuple[ModelSource, ...]) -> str:
    """Return a violation: the live records of each dataset must be those that one of these histories leaves."""
    source = histories[0][-1]
    audit = audit_store(world.store(machine), source.provenance, deep=True)
    ends = {urn: dict(dataset.partitions) for urn, dataset in source.datasets.items()}
    reached = {urn: dict(watermark.positions) for urn, watermark in world.watermarks(machine).items()}
    if not audit.exact or reached != ends:
        return f"watermarks are {reached}, expected {ends}: {audit}"
    actual, expected = _live(machine, world), [_seen(world, *history) for history in histories]
    for urn, partitions in actual.items():
        if all(partitions != item[urn] for item in expected):
            return f"of {urn} {partitions} are live, expected one of {[item[urn] for item in expected]}"
    still_staged = staged(machine)
    return f"left behind in task output: {still_staged}" if still_staged else ""


def _deleted(machine: SimulatedPosix, world: World, *histories: tuple[ModelSource, ...]) -> str:
    """Return a violation, also if replaced files are still there two runs later."""
    wrong = _wrong(machine, world, *histories) or _wrong(machine, world, *histories)
    superseded = audit_store(world.store(machine), _THIRD.provenance, deep=True).superseded_files
    return wrong or (f"{superseded} superseded files are left" if superseded else "")


def _initial_machine(world: World, *steps: ModelSource) -> SimulatedPosix:
    machine = new_machine()
    for step in steps:
        if not world.run(machine, step).succeeded:
            raise AssertionError("nothing can be replaced")
    machine.syncfs("/")
    return machine


def _half_published(world: World, *steps: ModelSource) -> SimulatedPosix:
    """Let a replacing run die with one file published, after these sources were read."""
    machine, remaining = _initial_machine(world, *steps), [1]

    def gate(operation: Operation) -> None:
        if operation.kind == "rename" and operation.path.startswith(f"{ROOTS.output}/") and "-00000_" in operation.path:
            remaining[0] -= 1
            if remaining[0] < 0:
                raise Crashed

    machine.gate = gate
    with suppress(Crashed):
        world.run(machine, _SECOND)
    machine.gate = None
    machine.syncfs("/")
    return machine


def _quarantined() -> SimulatedPosix:
    machine = _half_published(_FOLDER, _FIRST)
    operator_actions.quarantine(_FOLDER.store(machine), unsettled(machine).dataset_urn, "person")
    machine.syncfs("/")
    return machine


def _abandon(machine: SimulatedPosix) -> None:
    operator_actions.abandon(_FOLDER.store(machine), unsettled(machine).dataset_urn, "person")


def _accept_and_abandon(machine: SimulatedPosix) -> None:
    """Require that accept is refused, as it would expose old and new records together."""
    require_refused(
        (partial(operator_actions.accept, _FOLDER.store(machine), unsettled(machine).dataset_urn, "person"),)
    )
    _abandon(machine)


def _abandon_and_run(machine: SimulatedPosix) -> str:
    while unsettled(machine).status in (DatasetStatus.QUARANTINED, DatasetStatus.REVOKING):
        _abandon(machine)
    return _deleted(machine, _FOLDER, (_FIRST, _THIRD), (_FIRST, _SECOND, _THIRD))


def _store_lost(world: World, *steps: ModelSource) -> SimulatedPosix:
    machine = _half_published(world, *steps)
    fs = SimulatedFileSystem(machine)
    owner = read_owner(fs, ROOTS.output)
    for path in files_below(machine, ROOTS.store):
        machine.unlink(path)
    open_store(fs, ROOTS, "job", world.buckets, create=True, lost_store_id=owner.store_id if owner else "")
    machine.syncfs("/")
    return machine


def _rebuild(world: World, machine: SimulatedPosix) -> None:
    store = world.store(machine)
    plan = plan_rebuild(store, stored_states(store), accept_gaps=False)
    done = rebuild_store(store, plan, "rebuild", "person", accept_gaps=False)
    if not done.written:
        raise AssertionError(f"nothing was written: {done.problems}")


def _rebuild_and_run(world: World, before: tuple[ModelSource, ...], machine: SimulatedPosix) -> str:
    marks = read_markers(SimulatedFileSystem(machine), ROOTS.output)
    if not 0 < marks[Marker.REBUILD] <= marks[Marker.CLEAN]:
        _rebuild(world, machine)
    return _recover(world, before, machine)


def _reprocessed(machine: SimulatedPosix) -> None:
    _NOW.reprocess(machine, _SECOND, "a")


def _feed_and_run(machine: SimulatedPosix) -> str:
    with suppress(DistcommitError):
        _reprocessed(machine)
    return _deleted(machine, _NOW, (_FIRST, _SECOND)) or _deleted(machine, _NOW, (_FIRST, _SECOND, _THIRD))


def _replacing(name: str, world: World, *before: ModelSource) -> Program:
    def find() -> SimulatedPosix:
        return _initial_machine(world, *before)

    def act(machine: SimulatedPosix) -> None:
        world.run(machine, _SECOND)

    return Program(name, find, act, partial(_recover, world, before))


def _recover(world: World, before: tuple[ModelSource, ...], machine: SimulatedPosix) -> str:
    return _deleted(machine, world, (*before, _THIRD), (*before, _SECOND, _THIRD))


def _rebuilt(name: str, world: World, *before: ModelSource) -> Program:
    return Program(
        name, partial(_store_lost, world, *before), partial(_rebuild, world), partial(_rebuild_and_run, world, before)
    )


REPLACING = (
    _replacing("replace-first", _FOLDER),
    _replacing("replace", _FOLDER, _FIRST),
    _replacing("replace-partitions", _PARTITIONS, _FIRST),
    _replacing("replace-turned-away", _BEFORE, _FIRST),
    _replacing("replace-deleting", _FOLDER, _source(1, 1), _FIRST),
    Program("replace-reprocess", partial(_initial_machine, _BEFORE, _FIRST, _SECOND), _reprocessed, _feed_and_run),
    Program("replace-abandoned", _quarantined, _abandon, _abandon_and_run),
    Program("replace-not-accepted", _quarantined, _accept_and_abandon, _abandon_and_run),
    _rebuilt("replace-rebuilt", _FOLDER, _FIRST),
    _rebuilt("replace-rebuilt-first", _FOLDER),
    _rebuilt("replace-rebuilt-partitions", _PARTITIONS, _FIRST),
)

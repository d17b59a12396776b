"""Programs for the crash explorer: old files are expired, killed anywhere, abandoned halfway, with a lost store, and
beside late records."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial

import pyarrow as pa

from distcommit.app.admin.rebuild_store import plan_rebuild, rebuild_store, stored_states
from distcommit.app.auditing.audit import audit_store
from distcommit.app.auditing.files.read_published_files import read_published
from distcommit.app.auditing.offsets.branch_coverage import covered_by
from distcommit.app.reading.snapshot_choice import choose_snapshot
from distcommit.core.errors import SnapshotExpiredError
from distcommit.core.interfaces.constructs import Converted, Converter
from distcommit.core.interfaces.sink import Sink
from distcommit.core.interfaces.source import Source
from distcommit.core.records.log_records import DatasetStatus
from distcommit.core.work_units import WorkUnit
from distcommit.pipeline.task_flow import Stage, TaskFlow
from distcommit.protocol.paths.output import REJECTED_FOLDER
from distcommit.protocol.paths.store import EXPIRY_REQUESTS
from distcommit.sinks.files.sink import FileSink
from distcommit.sinks.files.split_by_time import TimePartition
from distcommit.stores.folders.folder_ownership import read_owner
from distcommit.stores.folders.run_markers import Marker, read_markers
from distcommit.stores.operator import operator_actions
from distcommit.stores.snapshots.expiry_requests import put_expiry_request, readable_expiry_request
from distcommit.stores.state.job_store import open_store
from distcommit.testing.fakes.faulty_calls import Crashed, Operation
from distcommit.testing.fakes.model_source import ModelDataset, ModelSource
from tests.simulation.programs.parts import (
    Program,
    files_below,
    new_machine,
    put_file,
    staged,
    unsettled,
)
from tests.simulation.simulated_posix import SimulatedPosix
from tests.simulation.world import ROOTS, SimulatedFileSystem, World

_DAY_MS = 86_400_000
_YEAR_MS = 366 * _DAY_MS
_TIMES_MS = {"0": _DAY_MS, "1": 40 * _YEAR_MS}
_BEFORE_MS = 10 * _YEAR_MS
"""Records of partition 0 are too old, those of partition 1 are not."""


@dataclass(frozen=True, slots=True)
class _Timed(Converter):
    """A converter that gives each record a time, by its partition."""

    def convert_schema(self, schema: pa.Schema, unit: WorkUnit | None) -> pa.Schema:
        return schema.append(pa.field("time", pa.timestamp("ms", tz="UTC")))

    def convert(self, output_schema: pa.Schema | None, batch: pa.RecordBatch, unit: WorkUnit) -> Iterator[Converted]:
        times = pa.array([_TIMES_MS[p] for p in batch.column("partition").to_pylist()], pa.timestamp("ms", tz="UTC"))
        schema = self.convert_schema(batch.schema, unit)
        yield Converted(pa.RecordBatch.from_arrays([*batch.columns, times], schema=schema))


def _flow(source: Source, sink: Sink) -> TaskFlow:
    return replace(TaskFlow.straight(source, sink), stages=(Stage("timed", _Timed()),))


def timed_source(first: int, second: int) -> ModelSource:
    return ModelSource({"a": ModelDataset({"0": first, "1": second}, units=2), "b": ModelDataset({"0": first})})


_FIRST, _SECOND, _THIRD = timed_source(2, 1), timed_source(3, 2), timed_source(4, 2)
_FILES = FileSink(compression="none", partition_by=TimePartition(column="time"))
TIMED = World(max_attempts=1, flow=_flow, files=_FILES)
_Ranges = dict[str, dict[str, list[tuple[int, int]]]]


def _initial_machine(*steps: ModelSource) -> SimulatedPosix:
    machine = new_machine()
    for step in steps:
        if not TIMED.run(machine, step).succeeded:
            raise AssertionError("nothing is published")
    machine.syncfs("/")
    return machine


def retain_old(machine: SimulatedPosix) -> None:
    """Expire old files as `app.admin.expire` does: record the cutoff, retire them by a run, drop older snapshots and
    delete."""
    store = TIMED.store(machine)
    put_expiry_request(store, _BEFORE_MS, _BEFORE_MS, "somebody")
    request = readable_expiry_request(store)
    if request is None or request.cutoff_ms != _BEFORE_MS:
        raise AssertionError(f"the expiry was not requested: {request}")
    for kept_snapshots in (None, 2):
        if not TIMED.retain(machine, _FIRST, _BEFORE_MS, kept_snapshots).succeeded:
            raise AssertionError("old files cannot be superseded")


def _live(machine: SimulatedPosix) -> _Ranges:
    """Return the records of partition 0 that a snapshot reader sees."""
    store = TIMED.store(machine)
    done = stored_states(store)
    ranges: _Ranges = {}
    for folder in read_published(store.fs, store.roots.output):
        epoch = done[folder.dataset_urn].done_epoch
        offsets = covered_by((f.footer, f.offsets) for f in folder.live_files(epoch) if f.footer.epoch <= epoch)
        ranges[folder.dataset_urn] = {"0": list(offsets.ranges("0"))}
    return ranges


def _superseded_files(machine: SimulatedPosix) -> list[str]:
    """Return the files of superseded records that are still there."""
    store = TIMED.store(machine)
    done = {urn: state.done_epoch for urn, state in stored_states(store).items()}
    folders = read_published(store.fs, store.roots.output)
    retired = ((folder, {file.path for file in folder.live_files(done[folder.dataset_urn])}) for folder in folders)
    return [file.path for folder, live in retired for file in folder.files if file.path not in live]


def _wrong(machine: SimulatedPosix, source: ModelSource, *, low: int, deleted: bool) -> str:
    """Return a violation: all must be exact up to the source's end, and live records of partition 0 begin there."""
    audit = audit_store(TIMED.store(machine), source.provenance, deep=True)
    ends = {urn: dict(dataset.partitions) for urn, dataset in source.datasets.items()}
    reached = {urn: dict(watermark.positions) for urn, watermark in TIMED.watermarks(machine).items()}
    if not audit.exact or reached != ends:
        return f"watermarks are {reached}, expected {ends}: {audit}"
    if audit.expired != sum(min(low, partitions["0"]) for partitions in ends.values()):
        return f"{audit.expired} records were taken by retention, of each dataset {low} were to be"
    for urn, partitions in _live(machine).items():
        expected = [(low, ends[urn]["0"])] if low < ends[urn]["0"] else []
        if partitions["0"] != expected:
            return f"of {urn} {partitions} are live, expected {expected}"
    if deleted and (gone := _superseded_files(machine)):
        return f"{gone} are left, which retention has deleted"
    remaining = staged(machine)
    return f"left behind in task output: {remaining}" if remaining else ""


def _retain_again(machine: SimulatedPosix) -> str:
    """Require that the repeated command finishes; then late records arrive, which are not treated as expired."""
    retain_old(machine)
    wrong = _wrong(machine, _FIRST, low=2, deleted=True)
    if wrong:
        return wrong
    TIMED.run(machine, _SECOND)
    return _wrong(machine, _SECOND, low=2, deleted=True) or _once_more(machine)


def _once_more(machine: SimulatedPosix) -> str:
    """Require that late records go with the next expiry."""
    retain_old(machine)
    return _wrong(machine, _SECOND, low=3, deleted=True) or _untold(machine)


def _untold(machine: SimulatedPosix) -> str:
    """Require that a reader at a deleted snapshot learns who expired it, or only that it is gone if that record is
    damaged."""
    message = _gone_cut(machine)
    if "expired: somebody requested" not in message:
        return f"the operator of the expiry is not reported: {message}"
    for path in files_below(machine, f"{ROOTS.store}/{EXPIRY_REQUESTS}"):
        machine.unlink(path)
        put_file(machine, path, b"damaged")
    message = _gone_cut(machine)
    return "" if message and "retention" not in message else f"damaged bytes are interpreted: {message}"


def _gone_cut(machine: SimulatedPosix) -> str:
    """Return the record of the first run's expired snapshot; empty if it exists."""
    try:
        choose_snapshot(TIMED.store(machine), 1)
    except SnapshotExpiredError as error:
        return str(error)
    return ""


def _run_instead(machine: SimulatedPosix) -> str:
    """Run instead of the command: runs finish the sealed sequences, and everything else is unchanged."""
    TIMED.run(machine, _SECOND)
    store = TIMED.store(machine)
    audit = audit_store(store, _SECOND.provenance, deep=True)
    if not audit.exact:
        return f"{audit}"
    return _once_more(machine)


def _half_published() -> SimulatedPosix:
    """Let the command die as it publishes its second tombstone."""
    machine, remaining, beside = _initial_machine(_FIRST), [1], f"{ROOTS.output}/{REJECTED_FOLDER}/"

    def gate(operation: Operation) -> None:
        if operation.kind == "rename" and operation.path.startswith(beside):
            remaining[0] -= 1
            if remaining[0] < 0:
                raise Crashed

    machine.gate = gate
    with suppress(Crashed):
        retain_old(machine)
    machine.gate = None
    machine.syncfs("/")
    return machine


def _quarantined() -> SimulatedPosix:
    machine = _half_published()
    operator_actions.quarantine(TIMED.store(machine), unsettled(machine).dataset_urn, "person")
    machine.syncfs("/")
    return machine


def _abandon(machine: SimulatedPosix) -> None:
    operator_actions.abandon(TIMED.store(machine), unsettled(machine).dataset_urn, "person")


def _abandon_and_retain(machine: SimulatedPosix) -> str:
    while unsettled(machine).status in (DatasetStatus.QUARANTINED, DatasetStatus.REVOKING):
        _abandon(machine)
    return _retain_again(machine)


def _store_lost() -> SimulatedPosix:
    machine = _half_published()
    fs = SimulatedFileSystem(machine)
    owner = read_owner(fs, ROOTS.output)
    for path in files_below(machine, ROOTS.store):
        machine.unlink(path)
    open_store(fs, ROOTS, "job", TIMED.buckets, create=True, lost_store_id=owner.store_id if owner else "")
    machine.syncfs("/")
    return machine


def _rebuild(machine: SimulatedPosix) -> None:
    store = TIMED.store(machine)
    done = rebuild_store(
        store, plan_rebuild(store, stored_states(store), accept_gaps=False), "rebuild", "person", accept_gaps=False
    )
    if not done.written:
        raise AssertionError(f"nothing was written: {done.problems}")


def _rebuild_and_retain(machine: SimulatedPosix) -> str:
    marks = read_markers(SimulatedFileSystem(machine), ROOTS.output)
    if not 0 < marks[Marker.REBUILD] <= marks[Marker.CLEAN]:
        _rebuild(machine)
    TIMED.run(machine, _FIRST)
    return _retain_again(machine)


def _ingest(machine: SimulatedPosix) -> None:
    TIMED.run(machine, _SECOND)


def _ingest_again(machine: SimulatedPosix) -> str:
    TIMED.run(machine, _SECOND)
    return _wrong(machine, _SECOND, low=2, deleted=True)


def _retained() -> SimulatedPosix:
    machine = _initial_machine(_FIRST)
    retain_old(machine)
    machine.syncfs("/")
    return machine


EXPIRE = (
    Program("expire", partial(_initial_machine, _FIRST), retain_old, _retain_again),
    Program("retain-then-run", partial(_initial_machine, _FIRST), retain_old, _run_instead),
    Program("retain-late", _retained, _ingest, _ingest_again),
    Program("retain-abandoned", _quarantined, _abandon, _abandon_and_retain),
    Program("retain-rebuilt", _store_lost, _rebuild, _rebuild_and_retain),
)

"""Programs for the crash explorer: damaged and foreign files in the store, and unfit file systems."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any, cast

import pyarrow as pa
import pyarrow.parquet as pq
from msgspec import structs

from distcommit.app.auditing.audit import audit_store
from distcommit.core.errors import ConfigurationError, CorruptError
from distcommit.core.watermark import Watermark
from distcommit.core.work_units import TaskOutcome, TaskState
from distcommit.engine.committing.drain import drain_partition
from distcommit.engine.reading.ingest import ingest_partition
from distcommit.engine.run_settings import RunSettings
from distcommit.fs.local_disk.posix_calls import PosixCalls
from distcommit.protocol.paths.store import MANIFEST, partition_name
from distcommit.protocol.paths.temporary_and_probes import TEMPORARY
from distcommit.stores.state.job_store import open_store
from distcommit.stores.state.plan_and_task_state_encoding import table_name
from distcommit.stores.state.run_plans import PlanReader, put_manifest, read_manifest
from distcommit.stores.state.table_schemas import PLAN_SCHEMA, TASK_STATE_SCHEMA
from distcommit.stores.state.task_states import TaskStateWriter, record_ingest_ended, run_folder
from distcommit.testing.fakes.model_source import ModelDataset, ModelSource
from tests.simulation.altered_files import footer_in, with_values_swapped
from tests.simulation.programs.parts import (
    ASIDE,
    SOURCE,
    Program,
    files_below,
    half_done,
    new_machine,
    planned,
    put_file,
    run_and_look,
)
from tests.simulation.simulated_posix import SimulatedPosix
from tests.simulation.world import ROOTS, SimulatedFileSystem, World

_MORE = ModelSource({"a": ModelDataset({"0": 3, "1": 1}), "b": ModelDataset({"0": 2})})
_ELSEWHERE = ModelSource({"a": ModelDataset({"0": 1}), "g": ModelDataset({"0": 1})})
_TWO_BUCKETS = World(buckets=2, partitions=2)
_DAMAGED = f"{ROOTS.store}/log/bucket=00001/000000000001.seg"


def _damaged() -> SimulatedPosix:
    """Move the first segment of one of two buckets aside."""
    machine = new_machine()
    half_done(machine, _TWO_BUCKETS)
    machine.rename_noreplace(_DAMAGED, ASIDE)
    machine.syncfs("/")
    return machine


def _run_damaged(machine: SimulatedPosix) -> None:
    result = _TWO_BUCKETS.run(machine, _MORE)
    if result.succeeded:
        raise AssertionError("a run succeeds though a bucket is unreadable")


def _repair_and_run_once(machine: SimulatedPosix) -> str:
    try:
        _TWO_BUCKETS.watermarks(machine)
    except CorruptError:
        machine.rename_noreplace(ASIDE, _DAMAGED)
    return run_and_look(machine, _TWO_BUCKETS, _MORE)


def _run_again(machine: SimulatedPosix) -> str:
    return run_and_look(machine, World(), SOURCE)


def _table(schema: pa.Schema, **values: object) -> bytes:
    """Return a table of one row of empty values, besides the given ones, under this version's name."""
    empty: dict[pa.DataType, object] = {pa.string(): "", pa.int64(): 0}
    row = {field.name: empty.get(field.type, []) for field in schema} | values
    columns = {name: pa.array([value], schema.field(name).type) for name, value in row.items()}
    loose = pa.schema([field.with_nullable(True) for field in schema] if None in values.values() else schema)
    return _parquet(pa.table(columns, schema=loose.with_metadata(schema.metadata)))


def _parquet(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink)
    return bytes(sink.getvalue())


def _newer(schema: pa.Schema) -> bytes:
    return _parquet(schema.with_metadata(dict.fromkeys(schema.metadata or (), b"3")).empty_table())


@cache
def _foreign_run() -> tuple[SimulatedPosix, RunSettings]:
    """Add to a planned run's task states tables that it cannot use, and damage one bucket's plan; all names fit
    their bytes."""
    machine = new_machine()
    settings = planned(machine, _TWO_BUCKETS, _ELSEWHERE)
    manifest = read_manifest(settings.store.fs, ROOTS.store, settings.run_id)
    bucket, spoilt = manifest.files
    for number, data in enumerate(
        (
            b"not a table",
            _newer(TASK_STATE_SCHEMA),
            _parquet(pa.table({"a": [1]})),
            _table(TASK_STATE_SCHEMA, outcome=None),
            _table(TASK_STATE_SCHEMA, outcome="no such outcome"),
        )
    ):
        owner = partition_name(bucket % settings.partitions, settings.partitions)
        folder = f"{run_folder(ROOTS.store, settings.run_id)}/{owner}"
        put_file(machine, f"{folder}/{table_name(str(number), data)}", data)
    put_file(machine, f"{folder}/{table_name('altered', data)}", data[:-1])
    plan = _table(PLAN_SCHEMA, start="no watermark")
    name = table_name("plan", plan)
    put_file(machine, f"{ROOTS.store}/plans/run={settings.run_id}/{name}", plan)
    settings.store.fs.delete(f"{ROOTS.store}/plans/run={settings.run_id}/{MANIFEST}")
    put_manifest(settings.store.fs, ROOTS.store, structs.replace(manifest, files={**manifest.files, spoilt: name}))
    machine.syncfs("/")
    return machine, settings


def _foreign_tables() -> SimulatedPosix:
    return _foreign_run()[0].after_kill()


def _ingest_and_drain(machine: SimulatedPosix) -> None:
    """Require that readable work units are published."""
    settings = replace(_foreign_run()[1], store=_TWO_BUCKETS.store(machine))
    for partition in range(2):
        ingest_partition(settings, partition)
    record_ingest_ended(settings.store.fs, ROOTS.store, settings.run_id)
    drained = [drain_partition(settings, partition) for partition in range(2)]
    if [report.counts.datasets_published for report in drained].count(1) != 1:
        raise AssertionError(f"not one of two datasets is published: {drained}")


def _strange_states() -> SimulatedPosix:
    """Plan two datasets, of which one has a task state of an unknown work unit, the other one a state with an
    impossible range."""
    return _run_with_strange_states()[0].after_kill()


@cache
def _run_with_strange_states() -> tuple[SimulatedPosix, RunSettings]:
    machine = new_machine()
    settings = planned(machine, World(), SOURCE)
    fs, run_id = settings.store.fs, settings.run_id
    plans = PlanReader(fs, ROOTS.store, read_manifest(fs, ROOTS.store, run_id)).of(0)
    units = {plan.dataset_urn: plan.work_units[0] for plan in plans}
    high = Watermark({"0": 99})
    states = [
        TaskState(run_id, settings.epoch, urn, unit_id, "stranger", TaskOutcome.SUCCEEDED, units[urn].low, high, high)
        for urn, unit_id in (("a", units["a"].work_unit_id), ("b", "no such unit"))
    ]
    TaskStateWriter(fs, ROOTS.store, run_id, settings.partitions).append({0: states})
    machine.syncfs("/")
    return machine, settings


def _commit_beside_strange_states(machine: SimulatedPosix) -> None:
    """Require that impossible states are ignored: one dataset fails, the other is published."""
    settings = replace(_run_with_strange_states()[1], store=World().store(machine))
    ingest_partition(settings, 0)
    record_ingest_ended(settings.store.fs, ROOTS.store, settings.run_id)
    report = drain_partition(settings, 0)
    if "reports the range" not in str(report.reasons) or set(World().watermarks(machine)) != {"b"}:
        raise AssertionError(f"not only dataset b is published: {report}")


def _run_two_more(machine: SimulatedPosix) -> str:
    return run_and_look(machine, _TWO_BUCKETS, _ELSEWHERE)


Rename = Callable[[SimulatedPosix, str, str], None]


class _UnfitCalls:
    """System calls of a file system with other rename semantics. Serves as `PosixCalls`."""

    def __init__(self, machine: SimulatedPosix, rename: Rename) -> None:
        self._machine, self._rename = machine, rename

    def __getattr__(self, name: str) -> Callable[..., Any]:
        call: Callable[..., Any] = getattr(self._machine, name)
        return call

    def rename_noreplace(self, source: str, target: str) -> None:
        self._rename(self._machine, source, target)


def _there(machine: SimulatedPosix, path: str) -> bool:
    return SimulatedFileSystem(machine).status(path) is not None


def _replaces(machine: SimulatedPosix, source: str, target: str) -> None:
    if _there(machine, target):
        machine.unlink(target)
    machine.rename_noreplace(source, target)


def _replaces_files(machine: SimulatedPosix, source: str, target: str) -> None:
    (SimulatedPosix.rename_noreplace if TEMPORARY in source else _replaces)(machine, source, target)


def _crosses(machine: SimulatedPosix, source: str, target: str) -> None:
    if source.startswith(ROOTS.staging) and target.startswith(ROOTS.output):
        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), target)
    machine.rename_noreplace(source, target)


def _crosses_late(machine: SimulatedPosix, source: str, target: str) -> None:
    (SimulatedPosix.rename_noreplace if _there(machine, target) else _crosses)(machine, source, target)


def _forgets(machine: SimulatedPosix, source: str, target: str) -> None:
    if source.startswith(ROOTS.staging):
        machine.unlink(source)
    machine.rename_noreplace(source, target)


def _forgets_late(machine: SimulatedPosix, source: str, target: str) -> None:
    try:
        machine.rename_noreplace(source, target)
    except FileExistsError:
        if source.startswith(ROOTS.staging):
            machine.unlink(source)
        raise


def _knows_no_rename(machine: SimulatedPosix, source: str, target: str) -> None:
    raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS), target)


_UNFIT: dict[Rename, str] = {
    _replaces: "put-if-absent",
    _replaces_files: "rename without replacing",
    _crosses: "rename from /job/staging",
    _crosses_late: "must share one file system",
    _forgets: "keeping a file",
    _forgets_late: "keeping a file",
}


def _folders_alone() -> SimulatedPosix:
    machine = new_machine()
    for root in (ROOTS.store, ROOTS.staging, ROOTS.output):
        machine.mkdir(root)
    machine.syncfs("/")
    return machine


def _probe_unfit(machine: SimulatedPosix) -> None:
    """Require that file systems without the needed semantics are refused with the reason; without renameat2 one is
    accepted."""
    for rename, reason in _UNFIT.items():
        _require_refused(SimulatedFileSystem(_unfit(machine, rename)), reason)
    _require_refused(SimulatedFileSystem(cast(PosixCalls, _OneCase(machine))), "names apart that differ only in case")
    _require_refused(_UntriedFileSystem(machine), "nothing at all")
    World().store(_unfit(machine, _knows_no_rename))


def _require_refused(fs: SimulatedFileSystem, reason: str) -> None:
    try:
        open_store(fs, ROOTS, "job", 1, create=True)
    except ConfigurationError as error:
        if reason not in str(error):
            raise AssertionError(f"not the reason: {error}") from error
    else:
        raise AssertionError(f"not refused: {fs}")


class _OneCase:
    """System calls of a file system that ignores case in names. Serves as `PosixCalls`."""

    def __init__(self, machine: SimulatedPosix) -> None:
        self._machine = machine

    def __getattr__(self, name: str) -> Callable[..., Any]:
        call: Callable[..., Any] = getattr(self._machine, name)
        return lambda *arguments: call(*(item.lower() if isinstance(item, str) else item for item in arguments))


class _UntriedFileSystem(SimulatedFileSystem):
    """An untested kind of file system that lacks the needed semantics."""

    def probe(self, folder: str) -> None:
        """Probe as `ProbedFileSystem` does."""
        self.make_folders(folder)
        raise ConfigurationError("this file system can do nothing at all", path=folder)


def _run_without_rename(machine: SimulatedPosix) -> str:
    World().run(_unfit(machine, _knows_no_rename), SOURCE)
    return World().violation(machine, SOURCE, {})


def _unfit(machine: SimulatedPosix, rename: Rename) -> PosixCalls:
    return cast(PosixCalls, _UnfitCalls(machine, rename))


def _altered() -> SimulatedPosix:
    """Publish everything, then alter two records of a file; the original file lies aside."""
    machine = new_machine()
    World().run(machine, _MORE)
    path = min(path for path in files_below(machine, f"{ROOTS.output}/a"))
    machine.rename_noreplace(path, ASIDE)
    put_file(machine, path, with_values_swapped(machine.read_file(ASIDE), "parquet"))
    machine.syncfs("/")
    return machine


def _audit_altered(machine: SimulatedPosix) -> None:
    """Require that a run continues normally, and that the deep audit reports that file and no other."""
    World().run(machine, _MORE)
    audit = audit_store(World().store(machine), _MORE.provenance, deep=True)
    path = min(path for path in files_below(machine, f"{ROOTS.output}/a")).removeprefix(f"{ROOTS.output}/")
    if audit.exact or audit.altered_count != 1 or not audit.altered[0].startswith(f"{path}: "):
        raise AssertionError(f"the altered file is not reported: {audit}")


def _restore_and_run(machine: SimulatedPosix) -> str:
    if _there(machine, ASIDE):
        footer = footer_in(machine.read_file(ASIDE), "parquet")
        name = f"{footer.epoch:010d}-{footer.work_unit_id}-{footer.attempt}-0001.parquet"
        path = f"{ROOTS.output}/a/{name}"
        if _there(machine, path):
            machine.unlink(path)
        machine.rename_noreplace(ASIDE, path)
        machine.syncfs("/")
    wrong = run_and_look(machine, World(), _MORE)
    audit = audit_store(World().store(machine), _MORE.provenance, deep=True)
    return wrong or ("" if audit.exact else f"not exact: {audit}")


DAMAGE = (
    Program("altered-records", _altered, _audit_altered, _restore_and_run),
    Program("damaged-bucket", _damaged, _run_damaged, _repair_and_run_once),
    Program("foreign-tables", _foreign_tables, _ingest_and_drain, _run_two_more),
    Program("strange-states", _strange_states, _commit_beside_strange_states, _run_again),
    Program("unfit-file-systems", _folders_alone, _probe_unfit, _run_without_rename),
)

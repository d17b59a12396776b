"""Programs for the crash explorer: a sink with a ledger whose target, or everything but the target, is restored to
before the crashed run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from typing import ClassVar

import msgspec
import pyarrow as pa

from distcommit.core.dataset_urn import folder_of
from distcommit.core.errors import StaleStoreError
from distcommit.core.interfaces.committer import (
    CommitOutcome,
    CommitRequest,
    Committed,
    CommitterContext,
    SinkCommitter,
)
from distcommit.core.interfaces.file_system import FileSystem
from distcommit.core.interfaces.ledger import LedgerRow
from distcommit.core.interfaces.sink import AttemptIdentity, Origin, Origins, Prepared, SinkWriter, StagingArea
from distcommit.core.records.log_records import DatasetStatus
from distcommit.core.support.decoding import from_json
from distcommit.fs.local_disk.posix_calls import PosixCalls
from distcommit.protocol.paths.temporary_and_probes import is_temporary
from distcommit.sinks.base.committer_sink import CommitterSink
from distcommit.sinks.base.idempotent_commit import answered, committed
from distcommit.testing.fakes.model_source import ModelDataset, ModelSource
from tests.simulation.programs.parts import Program, files_below, new_machine, replace_files
from tests.simulation.simulated_posix import SimulatedPosix
from tests.simulation.world import ROOTS, SimulatedFileSystem, World

_TABLE = "/job/table"
_WORLD = World()
_BEFORE = ModelSource({"a": ModelDataset({"0": 2}), "g": ModelDataset({"0": 1})})
_THEN = ModelSource({"a": ModelDataset({"0": 4}, units=2), "g": ModelDataset({"0": 2})})
_AFTER = ModelSource({"a": ModelDataset({"0": 5}), "g": ModelDataset({"0": 3})})


class _Version(msgspec.Struct, frozen=True):
    """A dataset's table: all of its records, and the ledger's row. The newest version counts."""

    row: LedgerRow
    values: list[str]


@dataclass(frozen=True, slots=True)
class VersionedSink(CommitterSink):
    """Sink with one document, put if absent, for each version of a dataset's table: data and ledger change together."""

    name: ClassVar[str] = "testing-versions"
    fs: FileSystem

    def open_writer(self, attempt: AttemptIdentity, area: StagingArea, origin: Origin) -> SinkWriter:
        return ValuesWriter()

    def open_committer(self, context: CommitterContext) -> SinkCommitter:
        self.fs.make_folders(_TABLE)
        return _Committer(self.fs)


@dataclass(slots=True)
class ValuesWriter(SinkWriter):
    """Writer that prepares the values of its records."""

    values: list[str] = field(default_factory=list)

    def write(self, batch: pa.RecordBatch, origins: Origins | None = None) -> None:
        self.values += batch["value"].to_pylist()

    def prepare_commit(self) -> Prepared:
        return Prepared([self.values] if self.values else [])

    def abort(self) -> None:
        pass


@dataclass(slots=True)
class _Committer(SinkCommitter):
    fs: FileSystem

    def commit(self, requests: Sequence[CommitRequest]) -> Sequence[CommitOutcome]:
        return [self._commit(request) for request in requests]

    def _commit(self, request: CommitRequest) -> CommitOutcome:
        prefix = folder_of(request.dataset_urn)
        while True:
            number, version = _newest(self.fs).get(prefix, (0, None))
            row = version.row if version else None
            if (answer := answered(row, request)) is not None:
                self.fs.sync([_TABLE], _TABLE)  # it may be of a crashed process
                return answer
            values = [*(version.values if version else ()), *(value for info in request.infos for value in info)]
            after = msgspec.json.encode(_Version(committed(row, request, ()), values))
            if self.fs.put_if_absent(f"{_TABLE}/{prefix}-{number + 1:06d}", after):
                return Committed()


def _newest(fs: FileSystem) -> dict[str, tuple[int, _Version]]:
    newest: dict[str, tuple[int, _Version]] = {}
    for name in sorted(entry.name for entry in fs.list_folder(_TABLE)):
        if not is_temporary(name):
            prefix, _, number = name.rpartition("-")
            newest[prefix] = int(number), from_json(fs.read(f"{_TABLE}/{name}"), _Version)
    return newest


def _run(machine: PosixCalls, source: ModelSource) -> bool:
    return _WORLD.run(machine, source, sink=VersionedSink(SimulatedFileSystem(machine))).succeeded


def _visible(machine: SimulatedPosix) -> dict[str, list[str]]:
    return {prefix: version.values for prefix, (_, version) in _newest(SimulatedFileSystem(machine)).items()}


@cache
def _before() -> SimulatedPosix:
    machine = new_machine()
    _run(machine, _BEFORE)
    machine.syncfs("/")
    return machine


def _put_back(roots: Sequence[str], machine: SimulatedPosix) -> str:
    for root in roots:
        replace_files(machine, root, files_below(_before(), root))
    table = _visible(machine)
    try:
        _run(machine, _AFTER)
    except StaleStoreError:
        return "" if _visible(machine) == table else "a run that was refused has written"
    return _wrong(machine, table)


def _wrong(machine: SimulatedPosix, table: Mapping[str, list[str]]) -> str:
    """Require that each dataset is complete, or quarantined with its restored table."""
    states = _WORLD.store(machine).bucket_log(0).refresh().datasets
    visible = _visible(machine)
    for urn, dataset in _AFTER.datasets.items():
        values = visible.get(folder_of(urn), [])
        if states[urn].status is DatasetStatus.QUARANTINED:
            if values != table.get(folder_of(urn), []):
                return f"{urn} is quarantined, and was written to: {values}"
        elif values != [f"{urn}/0/{offset}" for offset in range(dataset.partitions["0"])]:
            return f"{urn} has {values}"
    return ""


def _then(machine: SimulatedPosix) -> None:
    _run(machine, _THEN)


def _program(name: str, *roots: str) -> Program:
    return Program(name, lambda: _before().after_kill(), _then, partial(_put_back, roots))


RESTORED_TARGETS = (
    _program("target-restored", _TABLE),
    _program("all-but-target-restored", ROOTS.store, ROOTS.staging, ROOTS.output),
)

"""Programs for the crash explorer: a run that publishes its whole job or nothing, to one table of all its datasets."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import msgspec

from distcommit.core.commit_groups import CommitGroups
from distcommit.core.interfaces.committer import (
    CommitOutcome,
    CommitRequest,
    Committed,
    CommitterContext,
    SinkCommitter,
)
from distcommit.core.interfaces.file_system import FileSystem
from distcommit.core.interfaces.ledger import LedgerRow
from distcommit.core.interfaces.sink import AttemptIdentity, Origin, SinkWriter, StagingArea
from distcommit.core.records.log_records import DatasetStatus
from distcommit.core.support.decoding import from_json
from distcommit.fs.local_disk.posix_calls import PosixCalls
from distcommit.protocol.paths.temporary_and_probes import is_temporary
from distcommit.sinks.base.aggregated_committer import AggregatedCommitter
from distcommit.sinks.base.committer_sink import CommitterSink
from distcommit.sinks.base.idempotent_commit import allowed_again, answered, committed, taken_back
from distcommit.sinks.databases.table_committer import RefusedError
from distcommit.stores.operator import operator_actions
from distcommit.testing.fakes.model_source import ModelDataset, ModelSource
from tests.simulation.programs.parts import Program, new_machine
from tests.simulation.programs.restored_targets import ValuesWriter
from tests.simulation.simulated_posix import SimulatedPosix
from tests.simulation.world import SimulatedFileSystem, World

_Changed = Callable[[LedgerRow | None, CommitRequest], LedgerRow | None]
_TABLE = "/job/table"
_WORLD = World(job_level=True)
_BEFORE = ModelSource({"a": ModelDataset({"0": 2}), "g": ModelDataset({"0": 1})})
_THEN = ModelSource({"a": ModelDataset({"0": 4}, units=2), "g": ModelDataset({"0": 2})})
_AFTER = ModelSource({"a": ModelDataset({"0": 5}), "g": ModelDataset({"0": 3})})


class _Version(msgspec.Struct, frozen=True):
    """A version of the table: its records, its ledger, and the number of datasets in its commit. The newest version
    counts."""

    values: list[str] = []
    rows: list[LedgerRow] = []
    new: int = 0


@dataclass(frozen=True, slots=True)
class OneTable(CommitterSink):
    """Sink of one document, put if absent, for each version of the table. `refuses`: the dataset that it never
    takes."""

    name: ClassVar[str] = "testing-table"
    grouped_by: ClassVar[str] = "table"
    fs: FileSystem
    refuses: str = ""

    def commit_group(self, dataset_urn: str) -> str:
        return "table"

    def open_writer(self, attempt: AttemptIdentity, area: StagingArea, origin: Origin) -> SinkWriter:
        return ValuesWriter()

    def open_committer(self, context: CommitterContext) -> SinkCommitter:
        self.fs.make_folders(_TABLE)
        return _Committer(self.fs, self.refuses)


@dataclass(slots=True)
class _Committer(AggregatedCommitter[Sequence[CommitRequest]]):
    fs: FileSystem
    refuses: str

    def combine(self, requests: Sequence[CommitRequest]) -> Sequence[CommitRequest]:
        if self.refuses in [request.dataset_urn for request in requests]:
            raise RefusedError(f"{self.refuses} is not taken")
        return requests

    def commit_aggregated(self, aggregated: Sequence[CommitRequest]) -> Sequence[CommitOutcome]:
        while True:
            number, version = _newest(self.fs)
            rows = {row.dataset_urn: row for row in version.rows}
            answers = [answered(rows.get(request.dataset_urn), request) for request in aggregated]
            new = [commit_request for commit_request, answer in zip(aggregated, answers, strict=True) if answer is None]
            rows |= {
                commit_request.dataset_urn: committed(rows.get(commit_request.dataset_urn), commit_request, ())
                for commit_request in new
            }
            values = [
                *version.values,
                *(value for commit_request in new for info in commit_request.infos for value in info),
            ]
            if not new or self._put(number, _Version(values, list(rows.values()), len(new))):
                self.fs.sync([_TABLE], _TABLE)  # it may be of a crashed process
                return [answer or Committed() for answer in answers]

    def withdraw(self, requests: Sequence[CommitRequest]) -> None:
        self._change(lambda row, request: taken_back(row, request, ()), requests)

    def allow(self, requests: Sequence[CommitRequest]) -> None:
        self._change(allowed_again, requests)

    def _change(self, changed: _Changed, requests: Sequence[CommitRequest]) -> None:
        """Change uncommitted sequences only: the records stay."""
        while True:
            number, version = _newest(self.fs)
            rows = {row.dataset_urn: row for row in version.rows}
            new_values = {request.dataset_urn: changed(rows.get(request.dataset_urn), request) for request in requests}
            after = [row for row in (rows | new_values).values() if row is not None]
            if after == version.rows or self._put(number, _Version(version.values, after)):
                self.fs.sync([_TABLE], _TABLE)
                return

    def _put(self, number: int, version: _Version) -> bool:
        return self.fs.put_if_absent(f"{_TABLE}/{number + 1:06d}", msgspec.json.encode(version))

    def probe(self) -> None:
        self.fs.list_folder(_TABLE)


def _versions(fs: FileSystem) -> list[tuple[int, _Version]]:
    names = sorted(entry.name for entry in fs.list_folder(_TABLE) if not is_temporary(entry.name))
    return [(int(name), from_json(fs.read(f"{_TABLE}/{name}"), _Version)) for name in names]


def _newest(fs: FileSystem) -> tuple[int, _Version]:
    return [(0, _Version()), *_versions(fs)][-1]


def _run(machine: PosixCalls, source: ModelSource, refuses: str = "") -> bool:
    return _WORLD.run(machine, source, sink=OneTable(SimulatedFileSystem(machine), refuses)).succeeded


def _lived() -> SimulatedPosix:
    machine = new_machine()
    _run(machine, _BEFORE)
    machine.syncfs("/")
    return machine


def _all_or_none(machine: SimulatedPosix) -> str:
    """Require that each commit of the table had both datasets, and each record is there once."""
    if not (_run(machine, _THEN) and _run(machine, _AFTER)):
        return "a run after it does not succeed"
    fs = SimulatedFileSystem(machine)
    requested = sorted(
        f"{urn}/{p}/{offset}"
        for urn, dataset in _AFTER.datasets.items()
        for p, end in dataset.partitions.items()
        for offset in range(end)
    )
    values = sorted(_newest(fs)[1].values)
    if values != requested:
        return f"the table has {values}, and not {requested}"
    parts = [version.new for _, version in _versions(fs) if version.new not in (0, len(_AFTER.datasets))]
    return f"commits have brought {parts} of two datasets" if parts else ""


def _then(machine: SimulatedPosix) -> None:
    _run(machine, _THEN)


def _refused(machine: SimulatedPosix) -> None:
    _run(machine, _THEN, refuses="a")


def _released(machine: SimulatedPosix) -> str:
    """Require that the unpublishable dataset holds the other; once it is abandoned, both are read and published
    again."""
    fs = SimulatedFileSystem(machine)
    before = len(_newest(fs)[1].values)
    _run(machine, _THEN, refuses="a")
    if len(_newest(fs)[1].values) != before:
        return "a part of an atomic commit is published"
    store = replace(_WORLD.store(machine), groups=CommitGroups(OneTable(fs)))
    for bucket in range(store.buckets):
        for urn, state in store.bucket_log(bucket).refresh().datasets.items():
            if state.status is DatasetStatus.QUARANTINED:
                operator_actions.retry(store, urn, "person")
    return _all_or_none(machine)


ATOMIC_GROUPS = (
    Program("whole-job-to-a-table", _lived, _then, _all_or_none),
    Program("whole-job-refused", _lived, _refused, _released),
)

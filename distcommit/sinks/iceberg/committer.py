"""Committer to Iceberg tables, which creates one snapshot for each table and call."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import partial
from typing import Any

from pyiceberg.manifest import DataFile
from pyiceberg.table import Table, TableProperties

from distcommit.core.errors import CorruptError, error_text
from distcommit.core.interfaces.committer import (
    AbortedAttempt,
    CommitRequest,
    Committed,
    CommitterContext,
    RetryLater,
)
from distcommit.core.interfaces.ledger import LedgerRow
from distcommit.core.support.parallel import run_parallel
from distcommit.sinks.iceberg.altered_tables import alterations
from distcommit.sinks.iceberg.catalog.open_catalogs import opened
from distcommit.sinks.iceberg.catalog.tables import Change, Identifier, readable
from distcommit.sinks.iceberg.data_files import data_file, folders_of
from distcommit.sinks.iceberg.new_snapshot import NewSnapshot
from distcommit.sinks.iceberg.orphaned_files import delete, existing, live_files, needed, orphaned_files
from distcommit.sinks.iceberg.settings import IcebergSettings
from distcommit.sinks.table_formats.committer import Batch, DataFileCommitter, files_of, shown
from distcommit.sinks.table_formats.data_files import sync_locations
from distcommit.sinks.table_formats.ledger_files import Change as LedgerChange
from distcommit.sinks.table_formats.ledger_files import Ledger, Ledgers
from distcommit.sinks.table_formats.table_refusals import FILES_REPLACED, not_removable, was_dropped

_WRITE_PATHS = (TableProperties.WRITE_DATA_PATH, TableProperties.WRITE_METADATA_PATH)


@dataclass(slots=True)
class _Batch(Batch[Identifier]):
    """The requests for one table, an uncommitted snapshot, and the ledger change."""

    snapshot: NewSnapshot | None = None
    ledger: LedgerChange | None = None


class IcebergCommitter(DataFileCommitter[Identifier, Table, _Batch]):
    id_key = "uuid"
    new_batch = _Batch
    ledger_can_be_unset = True

    def __init__(self, sink: IcebergSettings, context: CommitterContext) -> None:
        super().__init__(sink, context)
        self._sink = sink
        self._tables, self._namespace = opened(sink.catalog), tuple(sink.namespace.split("."))
        self._ledgers = Ledgers(context.fs, context.output_root, context.store_id)

    def try_batches(self, batches: Sequence[_Batch]) -> None:
        try:
            self._round(batches)
        except Exception as error:  # noqa: BLE001 - of the catalog's client
            self.failed((batch for batch in batches if not batch.is_answered), error)

    def probe(self) -> None:
        self._tables.probe(self._namespace)
        configured = (self._sink.properties.get(name, "") for name in _WRITE_PATHS)
        self._tables.probe_locations([*configured, self._tables.catalog.properties.get("warehouse", "")])

    # -- the table format

    def name_in(self, info: Mapping[str, Any]) -> Identifier:
        return tuple(info["table"])

    def name_for(self, dataset_urn: str) -> Identifier:
        return self._sink.table_of(dataset_urn)

    def load(self, name: Identifier) -> Table | None:
        return self._tables.load([name]).get(name)

    def has_changed(self, name: Identifier, table: Table) -> bool:
        now = self.load(name)
        return now is None or now.metadata_location != table.metadata_location

    def table_id(self, table: Table) -> str:
        return str(table.metadata.table_uuid)

    def read_ledger(self, table: Table) -> Ledger:
        return self._ledgers.read(table.metadata.properties.get(self._ledgers.name), self.table_id(table))

    def has_ledger(self, table: Table) -> bool:
        return self._ledgers.name in table.metadata.properties

    def has_rows(self, table: Table) -> bool:
        snapshot = table.current_snapshot()
        manifests = snapshot.manifests(table.io) if snapshot is not None else []
        return any(file.has_added_files() or file.has_existing_files() for file in manifests)

    def count(self, table: Table) -> int:
        return table.scan().count()

    def live_files(self, table: Table, paths: AbstractSet[str]) -> set[str]:
        return live_files(table, paths, self._tables.parallel_calls)

    def missing_files(self, table: Table, request: CommitRequest) -> Sequence[str]:
        paths = [file["path"] for file in files_of(request)]
        is_present = run_parallel(self._tables.parallel_calls, lambda path: table.io.new_input(path).exists(), paths)
        return [path for path, ok in zip(paths, is_present, strict=True) if not ok]

    def alterations(self, table: Table, request: CommitRequest) -> Iterator[str]:
        return alterations(table, files_of(request))

    def tables(self) -> Iterator[tuple[Identifier, Callable[[], Table]]]:
        for name, read in self._tables.read(self._tables.names(self._namespace)).items():
            yield name, partial(readable, read)

    def orphaned_files(self, aborted: Sequence[AbortedAttempt]) -> Mapping[Identifier, Mapping[str, int]]:
        return orphaned_files(self._context, self._sink.name, aborted)

    def existing(self, paths: Iterable[str]) -> set[str]:
        return existing(self._tables, paths)

    def needed(self, name: Identifier, table: Table, files: Mapping[str, int]) -> set[str]:
        return needed(table, files, self._tables.parallel_calls)

    def delete(self, paths: Iterable[str], table: Table | None) -> None:
        delete(self._tables, paths, table)

    def put(
        self,
        name: Identifier,
        table: Table,
        ledger: Ledger,
        rows: Sequence[LedgerRow],
        removed: Sequence[Mapping[str, Any]],
        trace: Mapping[str, str],
    ) -> bool:
        changed = self._ledgers.changed(ledger, rows, self.table_id(table))
        snapshot, paths = NewSnapshot.of(table), {file["path"] for file in removed}
        change = snapshot.change([], paths, {self._ledgers.name: changed.text}, trace)
        if change is None:
            snapshot.delete_files()
            raise not_removable(shown(name), len(paths), FILES_REPLACED)
        (is_applied,) = self._tables.commit([change], lambda: sync_locations(self._context.fs, folders_of(table)))
        if is_applied:
            self._ledgers.delete(changed.superseded)
        return is_applied

    # -- committing

    def _round(self, batches: Sequence[_Batch]) -> None:
        tables = self._tables.read([batch.name for batch in batches])
        changes = run_parallel(
            self._tables.parallel_calls, lambda batch: self._change(batch, tables.get(batch.name)), batches
        )
        going = [(batch, change) for batch, change in zip(batches, changes, strict=True) if change is not None]
        if not going:
            return
        applied = self._tables.commit(
            [change for _, change in going],
            lambda: sync_locations(
                self._context.fs, (folder for _, change in going for folder in folders_of(change.table))
            ),
        )
        for (batch, _), ok in zip(going, applied, strict=True):
            if ok:
                batch.answers |= dict.fromkeys(batch.indices, Committed())
                assert batch.ledger is not None
                self._ledgers.delete(batch.ledger.superseded)
                batch.snapshot = None

    def _change(self, batch: _Batch, table: Table | Exception | None) -> Change | None:
        batch.answers = {}
        if isinstance(table, Exception):
            batch.answer_all(RetryLater(error_text(table)))
            return None
        try:
            return self._stage(batch, table)
        except CorruptError as error:
            self.refused(batch, error)
        except Exception as error:  # noqa: BLE001 - of one table's client or file system: other tables continue
            batch.answer_all(RetryLater(error_text(error)))
        return None

    def _stage(self, batch: _Batch, table: Table | None) -> Change | None:
        newest = self.with_ledger(batch.name, table)
        if newest is None:
            name = ".".join(batch.name)
            batch.answers |= {index: was_dropped(name, request) for index, request in batch.requests.items()}
            return None
        table, ledger = newest
        _forget_overtaken(batch, table, self._ledgers)
        rows = self.decide(batch, table, ledger)
        if not rows:
            return None
        requests = [batch.requests[index] for index in batch.indices]
        files = [file for request in requests for file in data_files_of(table, request)]
        batch.ledger = self._ledgers.changed(ledger, rows, self.table_id(table))
        batch.snapshot = NewSnapshot.of(table)
        trace = self.trace(epoch=max(request.epoch for request in requests))
        return batch.snapshot.change(files, frozenset(), {self._ledgers.name: batch.ledger.text}, trace)


def _forget_overtaken(batch: _Batch, table: Table, ledgers: Ledgers) -> None:
    snapshot, batch.snapshot = batch.snapshot, None
    if snapshot is None or not snapshot.is_replaced(table):
        return
    snapshot.delete_files()
    if batch.ledger is not None and batch.ledger.put:
        ledgers.delete([batch.ledger.put])


def data_files_of(table: Table, request: CommitRequest) -> list[DataFile]:
    specs, schemas = table.metadata.specs(), {schema.schema_id: schema for schema in table.metadata.schemas}
    return [data_file(file, specs[file["spec"]], schemas[file["schema"]]) for file in files_of(request)]

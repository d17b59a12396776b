"""Committer to Delta tables, which creates one version for each table and call."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from deltalake import DeltaTable

from distcommit.core.errors import ConfigurationError, CorruptError
from distcommit.core.interfaces.committer import (
    AbortedAttempt,
    AlreadyCommitted,
    CommitRequest,
    Committed,
    CommitterContext,
)
from distcommit.core.interfaces.ledger import LedgerRow
from distcommit.core.support.parallel import run_parallel
from distcommit.sinks.delta.altered_tables import alterations
from distcommit.sinks.delta.data_files import added, name_in_table, removal
from distcommit.sinks.delta.ledger import TableLedgers
from distcommit.sinks.delta.schemas import check_writable
from distcommit.sinks.delta.settings import DeltaSettings
from distcommit.sinks.delta.tables import DeltaTables, table_id
from distcommit.sinks.table_formats.committer import Batch, DataFileCommitter, files_of
from distcommit.sinks.table_formats.data_files import data_files_of_attempt, sync_locations, warn_of_files_in_use
from distcommit.sinks.table_formats.ledger_files import Ledger
from distcommit.sinks.table_formats.table_refusals import FILES_REPLACED, not_removable, was_dropped


@dataclass(slots=True)
class _Batch(Batch[str]):
    """The requests for one table, ledger files that tries on `version` wrote (`put`), and those that are
    `superseded`."""

    put: list[str] = field(default_factory=list)
    version: int = -1
    superseded: tuple[str, ...] = ()


class DeltaCommitter(DataFileCommitter[str, DeltaTable, _Batch]):
    id_key = "id"
    new_batch = _Batch

    def __init__(self, sink: DeltaSettings, context: CommitterContext) -> None:
        super().__init__(sink, context)
        self._sink, self._tables = sink, DeltaTables(sink.location)
        self._ledgers = TableLedgers(context)

    def try_batches(self, batches: Sequence[_Batch]) -> None:
        run_parallel(self._tables.location.parallel_calls, self._try_batch, batches)

    def end_commit(self, batches: Sequence[_Batch]) -> None:
        done = [
            self._tables.uri(batch.name)
            for batch in batches
            if any(isinstance(answer, Committed | AlreadyCommitted) for answer in batch.answers.values())
        ]
        sync_locations(self._context.fs, done)  # also of versions that another process has committed
        self._ledgers.delete(name for batch in batches for name in batch.superseded)

    def abort(self, aborted_attempts: Sequence[AbortedAttempt]) -> None:
        self._tables.location.check()
        super().abort(aborted_attempts)

    def probe(self) -> None:
        self._tables.location.probe()

    # -- the table format

    def name_in(self, info: Mapping[str, Any]) -> str:
        return str(info["table"])

    def name_for(self, dataset_urn: str) -> str:
        return self._sink.table_of(dataset_urn)

    def load(self, name: str) -> DeltaTable | None:
        return self._tables.load(name)

    def has_changed(self, name: str, table: DeltaTable) -> bool:
        now = self._tables.load(name)
        return now is None or (table_id(now), now.version()) != (table_id(table), table.version())

    def table_id(self, table: DeltaTable) -> str:
        return table_id(table)

    def read_ledger(self, table: DeltaTable) -> Ledger:
        return self._ledgers.read(table)

    def has_ledger(self, table: DeltaTable) -> bool:
        return self._ledgers.is_in(table)

    def has_rows(self, table: DeltaTable) -> bool:
        return bool(table.file_uris())

    def count(self, table: DeltaTable) -> int:
        return int(table.count())

    def live_files(self, table: DeltaTable, paths: AbstractSet[str]) -> set[str]:
        names = {os.path.basename(uri) for uri in table.file_uris()}
        return {path for path in paths if name_in_table(path) in names}

    def missing_files(self, table: DeltaTable, request: CommitRequest) -> Sequence[str]:
        location, files = self._tables.location, files_of(request)
        sizes = run_parallel(location.parallel_calls, location.size_of, [file["path"] for file in files])
        return [location.uri(file["path"]) for file, size in zip(files, sizes, strict=True) if size != file["bytes"]]

    def alterations(self, table: DeltaTable, request: CommitRequest) -> Iterator[str]:
        return alterations(table, self._tables.location, request.infos)

    def tables(self) -> Iterator[tuple[str, Callable[[], DeltaTable | None]]]:
        for name in [self._sink.table] if self._sink.shares_tables else self._tables.names():
            yield name, partial(self._tables.load, name)

    def orphaned_files(self, aborted: Sequence[AbortedAttempt]) -> Mapping[str, Mapping[str, int]]:
        by_table: dict[str, dict[str, int]] = {}
        for path in (
            path for attempt in aborted for path in data_files_of_attempt(self._context, self._sink.name, attempt)
        ):
            by_table.setdefault(path.partition("/")[0], {})[path] = 0
        return by_table

    def existing(self, paths: Iterable[str]) -> set[str]:
        names, location = sorted(paths), self._tables.location
        sizes = run_parallel(location.parallel_calls, location.size_of, names)
        return {path for path, size in zip(names, sizes, strict=True) if size >= 0}

    def needed(self, name: str, table: DeltaTable, files: Mapping[str, int]) -> set[str]:
        """Return and log the files that the present or an older version of the table has."""
        removed = table.vacuum(0, dry_run=True, enforce_retention_duration=False)
        named = {os.path.basename(path) for path in (*table.file_uris(), *removed)}
        needed = {path for path in files if name_in_table(path) in named}
        if needed:
            warn_of_files_in_use(name, needed)
        return needed

    def delete(self, paths: Iterable[str], table: DeltaTable | None) -> None:
        for path in paths:
            self._tables.location.delete(path)

    def put(
        self,
        name: str,
        table: DeltaTable,
        ledger: Ledger,
        rows: Sequence[LedgerRow],
        removed: Sequence[Mapping[str, Any]],
        trace: Mapping[str, str],
    ) -> bool:
        if removed:
            self._check_live(table, name, {file["path"] for file in removed})
        change = self._ledgers.changed(ledger, rows, table)
        if not self._tables.commit(table, [removal(file) for file in removed], change.transaction, trace):
            return False
        self.make_durable(name)
        self._ledgers.delete(change.superseded)
        return True

    def make_durable(self, name: str) -> None:
        sync_locations(self._context.fs, [self._tables.uri(name)])

    # -- committing

    def _try_batch(self, batch: _Batch) -> None:
        try:
            self._try(batch)
        except (ConfigurationError, CorruptError) as error:
            self.refused(batch, error)
        except Exception as error:  # noqa: BLE001 - of one table: the others continue
            self.failed([batch], error)

    def _try(self, batch: _Batch) -> None:
        newest, batch.answers = self.with_ledger(batch.name, self._tables.load(batch.name)), {}
        if newest is None:
            batch.answers |= {index: was_dropped(batch.name, request) for index, request in batch.requests.items()}
            return
        table, ledger = newest
        check_writable(table, batch.name)
        if batch.put and table.version() > batch.version:
            self._ledgers.delete(set(batch.put) - set(ledger.files))
            batch.put = []
        rows = self.decide(batch, table, ledger)
        if not rows:
            return
        change = self._ledgers.changed(ledger, rows, table)
        batch.put, batch.version = [*batch.put, *change.put], table.version()
        requests = [batch.requests[index] for index in batch.indices]
        actions = [added(file) for request in requests for file in files_of(request)]
        trace = self.trace(epoch=max(request.epoch for request in requests))
        if self._tables.commit(table, actions, change.transaction, trace):
            batch.answers |= dict.fromkeys(batch.indices, Committed())
            batch.superseded = change.superseded

    def _check_live(self, table: DeltaTable, name: str, paths: AbstractSet[str]) -> None:
        append_only = table.metadata().configuration.get("delta.appendOnly", "false").lower() == "true"
        if append_only or self.live_files(table, paths) != paths:
            raise not_removable(name, len(paths), "delta.appendOnly" if append_only else FILES_REPLACED)

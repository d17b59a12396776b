"""Committer of rows and ledger rows to an SQLite file."""

from __future__ import annotations

import sqlite3
import uuid
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, ClassVar

import pyarrow as pa

from distcommit.core.interfaces.committer import CommitOutcome, CommitterContext
from distcommit.core.interfaces.ledger import LedgerRow
from distcommit.sinks.databases.ledger_table_committer import LedgerTableCommitter
from distcommit.sinks.databases.newer_rows import OF
from distcommit.sinks.databases.row_loading_committer import LEDGER_COLUMNS
from distcommit.sinks.databases.table_committer import LEDGER, Key
from distcommit.sinks.databases.table_sink import TableSink
from distcommit.sinks.sqlite import table_writes
from distcommit.sinks.sqlite.sessions import outcome_of, savepoint, transaction

_CREATED = """
CREATE TABLE IF NOT EXISTS {ledger} (
    store TEXT NOT NULL, dataset TEXT NOT NULL, branch TEXT NOT NULL,
    epoch INTEGER NOT NULL DEFAULT 0, base INTEGER NOT NULL DEFAULT 0, revoked INTEGER NOT NULL DEFAULT 0,
    commit_id TEXT NOT NULL DEFAULT '', covered TEXT NOT NULL DEFAULT '[]', target TEXT, tag INTEGER,
    target_mark INTEGER, changed_at TEXT NOT NULL DEFAULT CURRENT_TIMESTAMP,
    PRIMARY KEY (store, dataset, branch))
"""
_NAMED = "INSERT OR IGNORE INTO {ledger} (store, dataset, branch, commit_id) VALUES ('', '', '', %s)"


class SqliteCommitter(LedgerTableCommitter):
    driver_error: ClassVar = sqlite3.Error
    now: ClassVar = "CURRENT_TIMESTAMP"
    exact_keys: ClassVar = "Copy it into a table whose key columns are declared without COLLATE"

    def __init__(self, connection: sqlite3.Connection, settings: TableSink, context: CommitterContext) -> None:
        super().__init__(settings, context)
        self._connection = connection
        if self.execute("SELECT count(*) FROM sqlite_master WHERE name = %s", (LEDGER,)).fetchone() == (0,):
            with transaction(connection):
                self.execute(_CREATED)
        if not self.identity():
            with transaction(connection):
                self.execute(_NAMED, (uuid.uuid4().hex,))

    def transaction(self) -> AbstractContextManager[object]:
        return transaction(self._connection)

    def savepoint(self) -> AbstractContextManager[object]:
        return savepoint(self._connection)

    def locked(self, keys: Sequence[Key]) -> dict[Key, LedgerRow]:
        statement = f"SELECT {LEDGER_COLUMNS}, target, target_mark FROM {{ledger}} WHERE {self.row_condition}"
        rows = [self.execute(statement, self.row_values(self._context.store_id, key)).fetchone() for key in keys]
        return self.take_rows(row for row in rows if row is not None)

    def record(self, row: LedgerRow) -> None:
        self.execute(
            "INSERT OR REPLACE INTO {ledger} (store, dataset, branch, epoch, base, revoked, commit_id, covered, target,"
            " target_mark, tag) VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)",
            (self._context.store_id, row.dataset_urn, row.branch, *self.recorded(row)),
        )

    def find(self, name: str, tags: Mapping[str, int]) -> table_writes.Table | None:
        return table_writes.find(self._connection, name, tags)

    def create_table(self, name: str, rows: pa.Schema, tags: Mapping[str, int]) -> table_writes.Table:
        return table_writes.create(self._connection, name, rows, self._settings.keys, tags)

    def shown(self, name: str) -> str:
        return name

    def outcome_of_rows(self, error: sqlite3.Error) -> CommitOutcome | None:
        return outcome_of(error, self._connection)

    def count_rows(self, table: str, tag: int) -> int:
        statement = f"SELECT count(*) FROM {table_writes.quoted(table)} WHERE {OF} = ?"
        (rows,) = self._connection.execute(statement, (tag,)).fetchone()
        return int(rows)

    def close(self) -> None:
        self._connection.close()

    def execute(self, statement: str, values: Sequence[Any] = ()) -> sqlite3.Cursor:
        return self._connection.execute(statement.format(ledger=LEDGER).replace("%s", "?"), tuple(values))

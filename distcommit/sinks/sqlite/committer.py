"""Commits to tables of an SQLite file: the rows of many datasets, and their ledger rows, in one transaction."""

from __future__ import annotations

import os
import sqlite3
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager

import msgspec
import pyarrow as pa

from distcommit.core.interfaces.committer import CommitOutcome, CommitterContext, RetryLater
from distcommit.core.interfaces.ledger import LedgerRow
from distcommit.sinks.databases.newest_row import OF
from distcommit.sinks.databases.table_committer import LEDGER, Key
from distcommit.sinks.databases.table_loading import LEDGER_COLUMNS, LoadingCommitter, as_row
from distcommit.sinks.databases.table_sink import TableSink, tag_of
from distcommit.sinks.sqlite import tables
from distcommit.sinks.sqlite.connection import outcome_of, savepoint, transaction

_MADE = f"""
CREATE TABLE IF NOT EXISTS {LEDGER} (
    store TEXT NOT NULL, dataset TEXT NOT NULL, branch TEXT NOT NULL,
    epoch INTEGER NOT NULL DEFAULT 0, base INTEGER NOT NULL DEFAULT 0, revoked INTEGER NOT NULL DEFAULT 0,
    commit_id TEXT NOT NULL DEFAULT '', covered TEXT NOT NULL DEFAULT '[]', target TEXT, tag INTEGER,
    target_mark INTEGER, changed_at TEXT NOT NULL DEFAULT CURRENT_TIMESTAMP,
    PRIMARY KEY (store, dataset, branch))
"""
_NAMED = f"INSERT OR IGNORE INTO {LEDGER} (store, dataset, branch, commit_id) VALUES ('', '', '', ?)"
_NAME = f"SELECT commit_id FROM {LEDGER} WHERE store = '' AND dataset = '' AND branch = ''"
_PROBED_BYTES = 32_768


class SqliteCommitter(LoadingCommitter):
    """Has one connection, and the ledger in a table of the same file."""

    def __init__(self, connection: sqlite3.Connection, settings: TableSink, context: CommitterContext) -> None:
        super().__init__(settings, context)
        self._connection = connection
        asked = "SELECT count(*) FROM sqlite_master WHERE name = ?"
        if connection.execute(asked, (LEDGER,)).fetchone() == (0,):
            with transaction(connection):
                connection.execute(_MADE)
        self._add_marks()
        if not self.identity():
            with transaction(connection):
                connection.execute(_NAMED, (uuid.uuid4().hex,))

    def _add_marks(self) -> None:
        """To a ledger that was made before tables had marks."""
        asked = "SELECT count(*) FROM pragma_table_info(?) WHERE name = 'target_mark'"
        if self._connection.execute(asked, (LEDGER,)).fetchone() == (0,):
            with transaction(self._connection):
                if self._connection.execute(asked, (LEDGER,)).fetchone() == (0,):
                    self._connection.execute(f"ALTER TABLE {LEDGER} ADD COLUMN target_mark INTEGER")

    def transaction(self) -> AbstractContextManager[object]:
        return transaction(self._connection)

    def savepoint(self) -> AbstractContextManager[object]:
        return savepoint(self._connection)

    def locked(self, keys: Sequence[Key]) -> dict[Key, LedgerRow]:
        """The whole file is locked against others who write."""
        self._targets.clear()
        rows: dict[Key, LedgerRow] = {}
        asked = (
            f"SELECT {LEDGER_COLUMNS}, target, target_mark FROM {LEDGER} WHERE store = ? AND dataset = ? AND branch = ?"
        )
        for key in keys:
            found = self._connection.execute(asked, (self._context.store_id, *key)).fetchone()
            if found is not None:
                rows[key], target = as_row(found), found[7]
                self._targets[key] = (target, None if target is None else found[8] or 0)
        return rows

    def identity(self) -> str:
        found = self._connection.execute(_NAME).fetchone()
        return "" if found is None else str(found[0])

    def find(self, name: str, tags: Mapping[str, int]) -> tables.Table | None:
        return tables.find(self._connection, name, tags)

    def make(self, name: str, rows: pa.Schema, tags: Mapping[str, int], key: Key) -> tables.Table:
        return tables.make(self._connection, name, rows, self._settings.keys, tags)

    def shown(self, name: str) -> str:
        return name

    def was_there(self, target: str) -> bool:
        asked = f"SELECT EXISTS (SELECT 1 FROM {LEDGER} WHERE target = ? AND epoch > 0)"
        found: tuple[int] = self._connection.execute(asked, (target,)).fetchone()
        return found == (1,)

    def record(self, row: LedgerRow) -> None:
        key = (row.dataset_urn, row.branch)
        target, mark = self._targets.get(key, (None, None))
        covered, tag = msgspec.json.encode(row.covered).decode(), tag_of(self._context.store_id, *key)
        self._connection.execute(
            f"INSERT OR REPLACE INTO {LEDGER} (store, {LEDGER_COLUMNS}, target, tag, target_mark)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (self._context.store_id, *key, row.epoch, row.base, row.revoked, row.commit_id, covered, target, tag, mark),
        )

    def outcome_of(self, error: Exception) -> CommitOutcome | None:
        if isinstance(error, sqlite3.Error):
            return outcome_of(error, self._connection)
        return RetryLater(f"{type(error).__name__}: {error}") if isinstance(error, OSError) else None

    def ledger(self) -> Iterator[LedgerRow]:
        asked = f"SELECT {LEDGER_COLUMNS} FROM {LEDGER} WHERE store = ?"
        return map(as_row, self._connection.execute(asked, (self._context.store_id,)).fetchall())

    def visible_rows(self, dataset_urn: str, branch: str) -> int | None:
        """Of append with tags alone: else others may have put rows there, or taken the place of some."""
        if not self._settings.takes_back:
            return None
        table = tables.quoted(self._settings.table_of(dataset_urn))
        tag = tag_of(self._context.store_id, dataset_urn, branch)
        (rows,) = self._connection.execute(f"SELECT count(*) FROM {table} WHERE {OF} = ?", (tag,)).fetchone()
        return int(rows)

    def probe(self) -> None:
        """Writes a row to the ledger, of as many bytes as a file system's probe has, and undoes it."""
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            probed = (uuid.uuid4().hex, os.urandom(_PROBED_BYTES).hex())
            self._connection.execute(
                f"INSERT INTO {LEDGER} (store, dataset, branch, covered) VALUES ('', ?, '', ?)", probed
            )
        finally:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")

    def close(self) -> None:
        self._connection.close()

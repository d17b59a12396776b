"""Commits to tables of PostgreSQL: the rows of many datasets, and their ledger rows, in one transaction."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, ClassVar, LiteralString

import msgspec
import psycopg
import pyarrow as pa
from psycopg import sql
from psycopg.types.json import Jsonb

from distcommit.core.errors import TransientError
from distcommit.core.interfaces.committer import CommitOutcome, CommitterContext, RetryLater
from distcommit.core.interfaces.ledger import LedgerRow
from distcommit.sinks.databases.newest_row import OF
from distcommit.sinks.databases.table_committer import LEDGER, Key
from distcommit.sinks.databases.table_loading import LEDGER_COLUMNS, LoadingCommitter, as_row
from distcommit.sinks.databases.table_sink import tag_of
from distcommit.sinks.postgresql import tables
from distcommit.sinks.postgresql.connection import outcome_of, transaction
from distcommit.sinks.postgresql.settings import PostgresqlTables

_MADE = """
CREATE TABLE IF NOT EXISTS {ledger} (
    store text NOT NULL, dataset text NOT NULL, branch text NOT NULL,
    epoch bigint NOT NULL DEFAULT 0, base bigint NOT NULL DEFAULT 0, revoked bigint NOT NULL DEFAULT 0,
    commit_id text NOT NULL DEFAULT '', covered jsonb NOT NULL DEFAULT '[]', target text, target_oid bigint, tag bigint,
    changed_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (store, dataset, branch))
"""
_NAMED = "INSERT INTO {ledger} (store, dataset, branch, commit_id) VALUES ('', '', '', %s) ON CONFLICT DO NOTHING"
_NAME = "SELECT commit_id FROM {ledger} WHERE store = '' AND dataset = '' AND branch = ''"
_PROBED_BYTES = 32_768


class PostgresqlCommitter(LoadingCommitter):
    """Has one connection, and the ledger in a table of the same database."""

    forgotten: ClassVar = "target_oid"

    def __init__(self, connection: psycopg.Connection, settings: PostgresqlTables, context: CommitterContext) -> None:
        super().__init__(settings, context)
        self._connection, self._schema = connection, settings.schema_name
        self._ledger = sql.Identifier(settings.ledger_schema or settings.schema_name, LEDGER)
        shown = self._ledger.as_string(connection)
        if connection.execute("SELECT to_regclass(%s) IS NULL", (shown,)).fetchone() == (True,):
            with transaction(connection):
                connection.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", (shown,))
                self._execute(_MADE)
        if not self.identity():
            with transaction(connection):
                self._execute(_NAMED, (uuid.uuid4().hex,))

    def transaction(self) -> AbstractContextManager[object]:
        return transaction(self._connection)

    def savepoint(self) -> AbstractContextManager[object]:
        return self._connection.transaction()

    def locked(self, keys: Sequence[Key]) -> dict[Key, LedgerRow]:
        datasets, branches = [dataset for dataset, _ in keys], [branch for _, branch in keys]
        named = (self._context.store_id, datasets, branches)
        self._execute(
            "INSERT INTO {ledger} (store, dataset, branch)"
            " SELECT %s, d, b FROM unnest(%s::text[], %s::text[]) AS asked (d, b)"
            ' ORDER BY d COLLATE "C", b COLLATE "C" ON CONFLICT DO NOTHING',
            named,
        )
        found = self._execute(
            f"SELECT {LEDGER_COLUMNS}, target, target_oid FROM {{ledger}} WHERE store = %s"
            " AND (dataset, branch) IN (SELECT * FROM unnest(%s::text[], %s::text[]))"
            ' ORDER BY dataset COLLATE "C", branch COLLATE "C" FOR UPDATE',
            named,
        ).fetchall()
        self._targets = {(row[0], row[1]): (row[7], row[8]) for row in found}
        return {(row[0], row[1]): as_row(row) for row in found if row[2] or row[4]}

    def unlocked(self, keys: Iterable[Key]) -> None:
        named = [*keys]
        if named:
            self._execute(
                "DELETE FROM {ledger} WHERE store = %s AND epoch = 0 AND revoked = 0"
                " AND (dataset, branch) IN (SELECT * FROM unnest(%s::text[], %s::text[]))",
                (self._context.store_id, [dataset for dataset, _ in named], [branch for _, branch in named]),
            )

    def identity(self) -> str:
        found = self._execute(_NAME).fetchone()
        return "" if found is None else str(found[0])

    def find(self, name: str, tags: Mapping[str, int]) -> tables.Table | None:
        return tables.find(self._connection, self._schema, name, tags)

    def make(self, name: str, rows: pa.Schema, tags: Mapping[str, int], key: Key) -> tables.Table:
        return tables.make(self._connection, self._schema, name, rows, self._settings.keys, tags)

    def shown(self, name: str) -> str:
        return f"{self._schema}.{name}"

    def was_there(self, target: str) -> bool:
        asked = "SELECT EXISTS (SELECT FROM {ledger} WHERE target = %s AND epoch > 0 AND target_oid IS NOT NULL)"
        return self._execute(asked, (target,)).fetchone() == (True,)

    def record(self, row: LedgerRow) -> None:
        key = (row.dataset_urn, row.branch)
        target, oid = self._targets.get(key, (None, None))
        commit, covered = (row.epoch, row.base, row.revoked, row.commit_id), Jsonb(msgspec.to_builtins(row.covered))
        written = self._execute(
            "UPDATE {ledger} SET epoch = %s, base = %s, revoked = %s, commit_id = %s, covered = %s, target = %s,"
            " target_oid = %s, tag = %s, changed_at = now() WHERE store = %s AND dataset = %s AND branch = %s",
            (*commit, covered, target, oid, tag_of(self._context.store_id, *key), self._context.store_id, *key),
        ).rowcount
        if written != 1:  # somebody has deleted it, who was waited for as it was locked
            raise TransientError("a row of the ledger was not written", dataset=key[0], found=f"{written} rows")

    def outcome_of(self, error: Exception) -> CommitOutcome | None:
        if isinstance(error, psycopg.Error):
            return outcome_of(error, self._connection)
        return RetryLater(f"{type(error).__name__}: {error}") if isinstance(error, OSError) else None

    def ledger(self) -> Iterator[LedgerRow]:
        found = self._execute(
            f"SELECT {LEDGER_COLUMNS} FROM {{ledger}} WHERE store = %s AND (epoch > 0 OR revoked > 0)",
            (self._context.store_id,),
        )
        return map(as_row, found.fetchall())

    def visible_rows(self, dataset_urn: str, branch: str) -> int | None:
        """Of append with tags alone: else others may have put rows there, or taken the place of some."""
        if not self._settings.takes_back:
            return None
        table = sql.Identifier(self._schema, self._settings.table_of(dataset_urn))
        tag = sql.Literal(tag_of(self._context.store_id, dataset_urn, branch))
        asked = sql.SQL("SELECT count(*) FROM {} WHERE {} = {}").format(table, sql.Identifier(OF), tag)
        (rows,) = self._connection.execute(asked).fetchone() or (0,)
        return int(rows)

    def probe(self) -> None:
        """Writes a row to the ledger, of as many bytes as a file system's probe has, and undoes it."""
        with transaction(self._connection), self._connection.transaction(force_rollback=True):
            self._execute(
                "INSERT INTO {ledger} (store, dataset, branch, covered) VALUES ('', %s, '', %s)",
                (uuid.uuid4().hex, Jsonb(os.urandom(_PROBED_BYTES).hex())),
            )

    def close(self) -> None:
        self._connection.close()

    def _execute(self, statement: LiteralString, values: Sequence[Any] = ()) -> psycopg.Cursor[Any]:
        return self._connection.execute(sql.SQL(statement).format(ledger=self._ledger), values or None)

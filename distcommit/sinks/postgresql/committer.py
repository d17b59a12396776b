"""Commits to tables of PostgreSQL: the rows of many datasets, and their ledger rows, in one transaction."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, LiteralString

import msgspec
import psycopg
import pyarrow as pa
from psycopg import sql
from psycopg.types.json import Jsonb

from distcommit.model.committer import CommitOutcome, CommitRequest, CommitterContext, RetryLater
from distcommit.model.errors import ConflictError
from distcommit.model.ledger import Covered, LedgerRow
from distcommit.sinks.postgresql import tables
from distcommit.sinks.postgresql.connection import outcome_of, transaction
from distcommit.sinks.postgresql.settings import PostgresqlTables
from distcommit.sinks.staged_rows import files_of, rows_of, staged_batches
from distcommit.sinks.table_committer import Key, RefusedError, TableCommitter
from distcommit.sinks.table_names import DATASET
from distcommit.sinks.table_sink import EPOCH, LEDGER, OF, tag_of

_MADE = """
CREATE TABLE IF NOT EXISTS {ledger} (
    store text NOT NULL, dataset text NOT NULL, branch text NOT NULL,
    epoch bigint NOT NULL DEFAULT 0, base bigint NOT NULL DEFAULT 0, revoked bigint NOT NULL DEFAULT 0,
    commit_id text NOT NULL DEFAULT '', covered jsonb NOT NULL DEFAULT '[]', target text, target_oid bigint, tag bigint,
    changed_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (store, dataset, branch))
"""
_ROW = "dataset, branch, epoch, base, revoked, commit_id, covered"
_PROBED_BYTES = 32_768


class PostgresqlCommitter(TableCommitter):
    """Has one connection, and the ledger in a table of the same database."""

    def __init__(self, connection: psycopg.Connection, settings: PostgresqlTables, context: CommitterContext) -> None:
        self._connection, self._settings, self._context = connection, settings, context
        self._ledger = sql.Identifier(settings.ledger_schema or settings.schema_name, LEDGER)
        self._targets: dict[Key, tuple[str, int | None]] = {}
        shown = self._ledger.as_string(connection)
        if connection.execute("SELECT to_regclass(%s) IS NULL", (shown,)).fetchone() == (True,):
            with transaction(connection):
                connection.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", (shown,))
                self._execute(_MADE)

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
            f"SELECT {_ROW}, target, target_oid FROM {{ledger}} WHERE store = %s"
            " AND (dataset, branch) IN (SELECT * FROM unnest(%s::text[], %s::text[]))"
            ' ORDER BY dataset COLLATE "C", branch COLLATE "C" FOR UPDATE',
            named,
        ).fetchall()
        self._targets = {(row[0], row[1]): (row[7], row[8]) for row in found}
        return {(row[0], row[1]): _as_row(row) for row in found if row[2] or row[4]}

    def unlocked(self, keys: Iterable[Key]) -> None:
        named = [*keys]
        if named:
            self._execute(
                "DELETE FROM {ledger} WHERE store = %s AND epoch = 0 AND revoked = 0"
                " AND (dataset, branch) IN (SELECT * FROM unnest(%s::text[], %s::text[]))",
                (self._context.store_id, [dataset for dataset, _ in named], [branch for _, branch in named]),
            )

    def load(self, request: CommitRequest, row: LedgerRow | None) -> None:
        table = None
        for path, checksum in files_of(request.infos):
            batches = [*staged_batches(self._context, path, checksum)]
            if table is None:
                table = self._table(request, row, batches[0].schema)
                self._targets[request.dataset_urn, request.branch] = (f"{table.schema}.{table.name}", table.oid)
                if self._settings.mode == "replace":
                    self._delete_older(table, request)
            table.fit(batches[0].schema, add_columns=self._settings.evolve == "add_columns")
            if self._settings.mode == "upsert":
                table.upsert(batches, self._settings.keys)
            else:
                table.copy(batches)

    def unload(self, request: CommitRequest) -> None:
        urn, epoch = request.dataset_urn, request.epoch
        if not self._settings.takes_back:
            raise ConflictError(
                "what is committed to this table can't be taken back",
                dataset=urn,
                epoch=epoch,
                expected="a sink of mode append with `tags: true`, so that its rows can be told",
                found=f"mode {self._settings.mode}" + ("" if self._settings.tags else " without tags"),
                todo="release the dataset with accept",
            )
        name = self._settings.table_of(urn)
        table = tables.find(self._connection, self._settings.schema_name, name, self._tags(request))
        expected, found = rows_of(request.infos), 0 if table is None else table.delete(table.tags)
        if found != expected:
            raise ConflictError(
                "the rows that were committed are not all there any more",
                dataset=urn,
                epoch=epoch,
                expected=f"{expected} rows with its tags in table {name}",
                found=str(found),
                todo="release the dataset with accept",
            )

    def record(self, row: LedgerRow) -> None:
        key = (row.dataset_urn, row.branch)
        target, oid = self._targets.get(key, (None, None))
        commit, covered = (row.epoch, row.base, row.revoked, row.commit_id), Jsonb(msgspec.to_builtins(row.covered))
        self._execute(
            "UPDATE {ledger} SET epoch = %s, base = %s, revoked = %s, commit_id = %s, covered = %s, target = %s,"
            " target_oid = %s, tag = %s, changed_at = now() WHERE store = %s AND dataset = %s AND branch = %s",
            (*commit, covered, target, oid, tag_of(self._context.store_id, *key), self._context.store_id, *key),
        )

    def outcome_of(self, error: Exception) -> CommitOutcome | None:
        if isinstance(error, psycopg.Error):
            return outcome_of(error, self._connection)
        return RetryLater(f"{type(error).__name__}: {error}") if isinstance(error, OSError) else None

    def ledger(self) -> Iterator[LedgerRow]:
        found = self._execute(
            f"SELECT {_ROW} FROM {{ledger}} WHERE store = %s AND (epoch > 0 OR revoked > 0)", (self._context.store_id,)
        )
        return map(_as_row, found.fetchall())

    def visible_rows(self, dataset_urn: str, branch: str) -> int | None:
        """Of append with tags alone: else others may have put rows there, or taken the place of some."""
        if not self._settings.takes_back:
            return None
        table = sql.Identifier(self._settings.schema_name, self._settings.table_of(dataset_urn))
        asked = sql.SQL("SELECT count(*) FROM {} WHERE {} = %s").format(table, sql.Identifier(OF))
        (rows,) = self._connection.execute(
            asked, (tag_of(self._context.store_id, dataset_urn, branch),)
        ).fetchone() or (0,)
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

    def _table(self, request: CommitRequest, row: LedgerRow | None, rows: pa.Schema) -> tables.Table:
        """The table of a dataset, locked, and made if it is new.

        Raises:
            RefusedError: if it is not the one that the ledger's row is of, or is missing.
        """
        settings, connection, urn = self._settings, self._connection, request.dataset_urn
        schema, name, tags = settings.schema_name, settings.table_of(urn), self._tags(request)
        table = tables.find(connection, schema, name, tags)
        _, oid = self._targets.get((urn, request.branch), (None, None))
        known = row is not None and row.epoch > 0 and oid is not None
        if table is None and settings.create and not known and not self._was_there(f"{schema}.{name}"):
            return tables.make(connection, schema, name, rows, settings.keys, tags)
        if table is None or (known and table.oid != oid):
            found = "there is none" if table is None else "it was dropped and made again"
            why = f"the ledger says that it was there: {found} now" if known or settings.create else found
            raise RefusedError(
                f"table {schema}.{name}: {why}. Nothing was written. Put it back, with its rows, or create it; set"
                f" target_oid to null in {LEDGER} if it is to count as the same; then release the dataset with retry"
            )
        return table

    def _was_there(self, target: str) -> bool:
        """Whether the ledger knows of anything committed to a table that datasets share."""
        asked = "SELECT EXISTS (SELECT FROM {ledger} WHERE target = %s AND epoch > 0 AND target_oid IS NOT NULL)"
        return DATASET not in self._settings.table and self._execute(asked, (target,)).fetchone() == (True,)

    def _delete_older(self, table: tables.Table, request: CommitRequest) -> None:
        tags = self._tags(request)
        tags.pop(EPOCH, None)
        table.delete(tags)

    def _tags(self, request: CommitRequest) -> dict[str, int]:
        if not self._settings.tags:
            return {}
        key = (request.dataset_urn, request.branch)
        return {OF: tag_of(self._context.store_id, *key), EPOCH: request.epoch}

    def _execute(self, statement: LiteralString, values: Sequence[Any] = ()) -> psycopg.Cursor[Any]:
        return self._connection.execute(sql.SQL(statement).format(ledger=self._ledger), values or None)


def _as_row(row: Sequence[Any]) -> LedgerRow:
    dataset, branch, epoch, base, revoked, commit_id, covered = row[:7]
    return LedgerRow(
        dataset_urn=dataset,
        branch=branch,
        epoch=epoch,
        base=base,
        revoked=revoked,
        commit_id=commit_id,
        covered=tuple(msgspec.convert(covered, list[Covered])),
    )

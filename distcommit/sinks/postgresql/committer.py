"""Committer of rows and ledger rows to PostgreSQL."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, ClassVar, LiteralString

import msgspec
import psycopg
import pyarrow as pa
from psycopg import sql
from psycopg.types.json import Jsonb

from distcommit.core.errors import SinkUnavailableError
from distcommit.core.interfaces.committer import CommitOutcome, CommitterContext
from distcommit.core.interfaces.ledger import LedgerRow
from distcommit.sinks.databases.connection_pool import Lease
from distcommit.sinks.databases.newer_rows import OF
from distcommit.sinks.databases.row_loading_committer import LEDGER_COLUMNS
from distcommit.sinks.databases.server_committer import ServerCommitter
from distcommit.sinks.databases.table_committer import LEDGER, PROOFS, Key
from distcommit.sinks.postgresql import table_writes
from distcommit.sinks.postgresql.settings import PostgresqlSettings
from distcommit.sinks.postgresql.transactions import outcome_of, transaction

_CREATED = """
CREATE TABLE IF NOT EXISTS {ledger} (
    store text NOT NULL, dataset text NOT NULL, branch text NOT NULL,
    epoch bigint NOT NULL DEFAULT 0, base bigint NOT NULL DEFAULT 0, revoked bigint NOT NULL DEFAULT 0,
    commit_id text NOT NULL DEFAULT '', covered jsonb NOT NULL DEFAULT '[]', target text, target_oid bigint, tag bigint,
    changed_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (store, dataset, branch))
"""
_NAMED = "INSERT INTO {ledger} (store, dataset, branch, commit_id) VALUES ('', '', '', %s) ON CONFLICT DO NOTHING"

_RIGHTS = """
SELECT has_schema_privilege(there.oid, 'CREATE'), (
    SELECT bool_and(has_table_privilege(named.oid, needed)) FROM pg_class AS named,
    unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE']) AS needed
    WHERE named.relnamespace = there.oid AND named.relname = %s)
FROM (SELECT 1) AS one LEFT JOIN pg_namespace AS there ON there.nspname = %s
"""


def require_rights(connection: psycopg.Connection, settings: PostgresqlSettings) -> None:
    """Raise SinkUnavailableError if the user can neither write nor create the ledger."""
    schema = settings.ledger_schema or settings.schema_name
    creates, has_ledger = connection.execute(_RIGHTS, (LEDGER, schema)).fetchone() or (True, None)
    if creates is None:
        found, todo = "a missing schema", "create the schema, or correct the sink's schema"
    elif has_ledger is False or not (has_ledger or creates):
        found = f"no right to {'create' if has_ledger is None else 'write'} the table {LEDGER}"
        todo = "grant it to the user" if has_ledger is False else "grant CREATE on the schema to the user"
    else:
        return
    raise SinkUnavailableError(
        "the user of the sink can't write the ledger",
        schema=schema,
        expected="SELECT, INSERT, UPDATE and DELETE on the ledger, or CREATE on its schema",
        found=found,
        todo=todo,
    )


class PostgresqlCommitter(ServerCommitter):
    forgotten: ClassVar = "target_oid"
    driver_error: ClassVar = psycopg.Error
    identity_column: ClassVar = "target_oid"
    now: ClassVar = "now()"
    exact_keys: ClassVar = 'Give them and their index a deterministic collation such as "C", and the type text'

    def __init__(self, leased: Lease, settings: PostgresqlSettings, context: CommitterContext) -> None:
        super().__init__(leased, settings, context)
        self._schema = settings.schema_name
        schema = settings.ledger_schema or settings.schema_name
        self._named = {"ledger": sql.Identifier(schema, LEDGER), "proofs": sql.Identifier(schema, PROOFS)}
        self.create_missing("ledger", _CREATED)
        if not self.identity():
            with transaction(self._connection):
                self.execute(_NAMED, (uuid.uuid4().hex,))

    def create_missing(self, name: str, statement: LiteralString) -> None:
        shown = self._named[name].as_string(self._connection)
        if self._connection.execute("SELECT to_regclass(%s) IS NULL", (shown,)).fetchone() == (True,):
            with transaction(self._connection):
                self._connection.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", (shown,))
                self.execute(statement)

    def transaction(self) -> AbstractContextManager[object]:
        return transaction(self._connection)

    def savepoint(self) -> AbstractContextManager[object]:
        return self._connection.transaction()

    def locked(self, keys: Sequence[Key]) -> dict[Key, LedgerRow]:
        datasets, branches = [dataset for dataset, _ in keys], [branch for _, branch in keys]
        requested = (self._context.store_id, datasets, branches)
        self.execute(
            "INSERT INTO {ledger} (store, dataset, branch)"
            " SELECT %s, d, b FROM unnest(%s::text[], %s::text[]) AS asked (d, b)"
            ' ORDER BY d COLLATE "C", b COLLATE "C" ON CONFLICT DO NOTHING',
            requested,
        )
        cursor = self.execute(
            f"SELECT {LEDGER_COLUMNS}, target, target_oid FROM {{ledger}} WHERE store = %s"
            " AND (dataset, branch) IN (SELECT * FROM unnest(%s::text[], %s::text[]))"
            ' ORDER BY dataset COLLATE "C", branch COLLATE "C" FOR UPDATE',
            requested,
        )
        return self.take_rows(cursor.fetchall())

    def delete_unused_rows(self, keys: Iterable[Key]) -> None:
        named = [*keys]
        if named:
            self.execute(
                "DELETE FROM {ledger} WHERE store = %s AND epoch = 0 AND revoked = 0"
                " AND (dataset, branch) IN (SELECT * FROM unnest(%s::text[], %s::text[]))",
                (self._context.store_id, [dataset for dataset, _ in named], [branch for _, branch in named]),
            )

    def find(self, name: str, tags: Mapping[str, int]) -> table_writes.Table | None:
        return table_writes.find(self._connection, self._schema, name, tags)

    def create_table(self, name: str, rows: pa.Schema, tags: Mapping[str, int]) -> table_writes.Table:
        return table_writes.create(self._connection, self._schema, name, rows, self._settings.keys, tags)

    def shown(self, name: str) -> str:
        return f"{self._schema}.{name}"

    def as_json(self, covered: Any) -> Jsonb:
        return Jsonb(msgspec.to_builtins(covered))

    def outcome_of_rows(self, error: psycopg.Error) -> CommitOutcome | None:
        return outcome_of(error, self._connection)

    def count_rows(self, table: str, tag: int) -> int:
        named = (sql.Identifier(self._schema, table), sql.Identifier(OF), sql.Literal(tag))
        statement = sql.SQL("SELECT count(*) FROM {} WHERE {} = {}").format(*named)
        (rows,) = self._connection.execute(statement).fetchone() or (0,)
        return int(rows)

    @property
    def _connection(self) -> psycopg.Connection:
        connection: psycopg.Connection = self._leased.connection
        return connection

    def execute(self, statement: LiteralString, values: Sequence[Any] = ()) -> psycopg.Cursor[Any]:
        return self._connection.execute(sql.SQL(statement).format(**self._named), values or None)

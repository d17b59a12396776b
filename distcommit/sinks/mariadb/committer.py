"""Committer of rows and ledger rows to MariaDB."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from hashlib import blake2b
from typing import Any, ClassVar

import pyarrow as pa
from pymysql.connections import Connection
from pymysql.cursors import Cursor
from pymysql.err import MySQLError

from distcommit.core.errors import ConfigurationError
from distcommit.core.interfaces.committer import (
    CommitOutcome,
    CommitRequest,
    CommitterContext,
    FailedForGood,
    HeldBack,
    RetryLater,
)
from distcommit.core.interfaces.ledger import LedgerRow
from distcommit.sinks.databases.connection_pool import Lease
from distcommit.sinks.databases.ledger_table_committer import placeholders
from distcommit.sinks.databases.newer_rows import OF
from distcommit.sinks.databases.row_loading_committer import LEDGER_COLUMNS
from distcommit.sinks.databases.server_committer import ServerCommitter
from distcommit.sinks.databases.server_sink import ServerSink
from distcommit.sinks.databases.table_committer import LEDGER, PROOFS, Key
from distcommit.sinks.mariadb import table_writes
from distcommit.sinks.mariadb.sessions import (
    TOO_NARROW,
    TWO_COLUMNS,
    check_durable,
    code_of,
    execute,
    outcome_of,
    savepoint,
    transaction,
)

_CREATED = """
CREATE TABLE IF NOT EXISTS {ledger} (
    id binary(16) PRIMARY KEY, store varchar(255) NOT NULL, dataset text NOT NULL, branch text NOT NULL,
    epoch bigint NOT NULL DEFAULT 0, base bigint NOT NULL DEFAULT 0, revoked bigint NOT NULL DEFAULT 0,
    commit_id varchar(64) NOT NULL DEFAULT '', covered longtext NOT NULL, target varchar(255), tag bigint,
    target_mark bigint, changed_at datetime(6))
ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin
"""
_NAMED = (
    "INSERT IGNORE INTO {ledger} (id, store, dataset, branch, commit_id, covered) VALUES (%s, '', '', '', %s, '[]')"
)
_IDENTITY_ID = bytes(16)
_MOST_ALTERED = 100
"""Most rounds of altering tables and repeating requests in one call."""


class MariadbCommitter(ServerCommitter):
    """Committer to MariaDB.

    Creating or altering a table ends a transaction in MariaDB. So a dataset that needs this is rolled back to its
    savepoint. Once its table is altered, it is committed separately.
    """

    driver_error: ClassVar = MySQLError
    now: ClassVar = "UTC_TIMESTAMP(6)"
    exact_keys: ClassVar = "Give them the collation utf8mb4_nopad_bin, or utf8mb4_0900_bin in MySQL"
    row_columns: ClassVar = "id, store, dataset, branch"
    row_condition: ClassVar = "id = %s"

    def __init__(self, leased: Lease, settings: ServerSink, context: CommitterContext) -> None:
        super().__init__(leased, settings, context)
        self._altered_first: dict[Key, str] = {}
        check_durable(self._connection)
        (most_bytes,) = execute(self._connection, "SELECT @@max_allowed_packet").fetchone() or (0,)
        self._most_bytes = int(most_bytes)
        self.create_missing(LEDGER, _CREATED)
        if not self.identity():
            self.execute(_NAMED, (_IDENTITY_ID, uuid.uuid4().hex))

    def create_missing(self, name: str, statement: str) -> None:
        """Create a missing table; raises ConfigurationError if its engine is not InnoDB."""
        query = "SELECT count(*) FROM information_schema.TABLES WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = %s"
        if execute(self._connection, query, (name,)).fetchone() == (0,):
            self.execute(statement)
        engine = table_writes.engine_of(self._connection, name)
        if engine != "InnoDB":
            raise ConfigurationError(
                "the ledger must use the engine InnoDB, as a rollback would leave rows behind in others",
                id="TARGET_SETUP_INVALID",
                table=name,
                expected="InnoDB",
                found=engine or "a view",
                todo=f"ALTER TABLE {name} ENGINE = InnoDB",
            )

    def commit(self, requests: Sequence[CommitRequest]) -> Sequence[CommitOutcome]:
        outcomes = [*super().commit(requests)]
        altered: set[str] = set()
        for _ in range(_MOST_ALTERED):
            to_alter, self._altered_first = self._altered_first, {}
            if not to_alter:
                break
            failed = {
                key: self._alter(statement) if statement not in altered else _retry_outcome(statement)
                for key, statement in to_alter.items()
            }
            altered.update(to_alter.values())
            retried: list[int] = []
            for index, request in enumerate(requests):
                key = (request.dataset_urn, request.branch)
                outcome = failed.get(key)
                if outcome is not None:
                    outcomes[index] = outcome
                elif key in failed:
                    retried.append(index)
            for index, outcome in zip(retried, super().commit([requests[index] for index in retried]), strict=True):
                outcomes[index] = outcome
        return outcomes

    def commit_atomically(self, requests: Sequence[CommitRequest]) -> Sequence[CommitOutcome]:
        outcomes = super().commit_atomically(requests)
        altered: set[str] = set()
        for _ in range(_MOST_ALTERED):
            to_alter, self._altered_first = self._altered_first, {}
            if not to_alter or any(isinstance(outcome, FailedForGood) for outcome in outcomes):
                break
            for (dataset_urn, branch), statement in to_alter.items():
                failed = self._alter(statement) if statement not in altered else _retry_outcome(statement)
                if failed is not None:
                    key = (dataset_urn, branch)
                    return [failed if key == (r.dataset_urn, r.branch) else HeldBack(dataset_urn) for r in requests]
            altered.update(to_alter.values())
            outcomes = super().commit_atomically(requests)
        return outcomes

    def _alter(self, statement: str) -> CommitOutcome | None:
        try:
            execute(self._connection, statement)
        except MySQLError as error:
            is_altered = statement.startswith("ALTER")
            if is_altered and code_of(error) in (TWO_COLUMNS, *TOO_NARROW):
                return None  # another session has just added or widened the column
            outcome = self.outcome_of(error)
            if outcome is None:
                raise
            return outcome
        return None

    def transaction(self) -> AbstractContextManager[object]:
        return transaction(self._connection)

    def savepoint(self) -> AbstractContextManager[object]:
        return savepoint(self._connection)

    def locked(self, keys: Sequence[Key]) -> dict[Key, LedgerRow]:
        """Insert missing rows with a statement that also locks present rows exclusively. With INSERT IGNORE, two
        sessions would share the locks and then deadlock."""
        for key in keys:
            self._altered_first.pop(key, None)
        if not keys:
            return self.take_rows(())
        store = self._context.store_id
        named = sorted(self.row_inserted(store, key) for key in keys)
        self.execute(
            "INSERT INTO {ledger} (id, store, dataset, branch, covered) VALUES"
            f" {', '.join(['(%s, %s, %s, %s, %s)'] * len(named))} ON DUPLICATE KEY UPDATE id = id",
            [value for row in named for value in (*row, "[]")],
        )
        cursor = self.execute(
            f"SELECT {LEDGER_COLUMNS}, target, target_mark FROM {{ledger}} WHERE id IN ({placeholders(named)})"
            " ORDER BY id FOR UPDATE",
            [id_ for id_, *_ in named],
        )
        return self.take_rows(cursor.fetchall())

    def delete_unused_rows(self, keys: Iterable[Key]) -> None:
        ids = [value for key in keys for value in self.row_values(self._context.store_id, key)]
        if ids:
            self.execute(f"DELETE FROM {{ledger}} WHERE id IN ({placeholders(ids)}) AND epoch = 0 AND revoked = 0", ids)

    def load(self, request: CommitRequest, row: LedgerRow | None) -> None:
        try:
            super().load(request, row)
        except table_writes.AlterTableFirst as error:
            self._altered_first[request.dataset_urn, request.branch] = error.statement
            raise

    def find(self, name: str, tags: Mapping[str, int]) -> table_writes.Table | None:
        return table_writes.find(self._connection, name, tags, self._most_bytes)

    def create_table(self, name: str, rows: pa.Schema, tags: Mapping[str, int]) -> table_writes.Table:
        raise table_writes.AlterTableFirst(
            table_writes.create_statement(self._connection, name, rows, self._settings.keys, tags)
        )

    def shown(self, name: str) -> str:
        return name

    def outcome_of(self, error: Exception) -> CommitOutcome | None:
        if isinstance(error, table_writes.AlterTableFirst):
            return RetryLater(f"the table must be altered first: {error.statement}")
        return super().outcome_of(error)

    def outcome_of_rows(self, error: MySQLError) -> CommitOutcome | None:
        return outcome_of(error, self._connection)

    def count_rows(self, table: str, tag: int) -> int:
        statement = f"SELECT count(*) FROM {table_writes.quoted(table)} WHERE {OF} = {tag}"
        (rows,) = execute(self._connection, statement).fetchone() or (0,)
        return int(rows)

    def row_values(self, store: str, key: Key) -> tuple[bytes]:
        if not store and not any(key):
            return (_IDENTITY_ID,)
        return (blake2b("\0".join((store, *key)).encode(), digest_size=16).digest(),)

    def row_inserted(self, store: str, key: Key) -> tuple[Any, ...]:
        return (*self.row_values(store, key), store, *key)

    @property
    def _connection(self) -> Connection[Cursor]:
        return self._leased.connection

    def execute(self, statement: str, values: Sequence[Any] = ()) -> Cursor:
        return execute(self._connection, statement.format(ledger=LEDGER, proofs=PROOFS), values or None)


def _retry_outcome(statement: str) -> CommitOutcome:
    return FailedForGood(
        f"the table needs {statement} again after it was executed: alter the table, then release the dataset with retry"
    )

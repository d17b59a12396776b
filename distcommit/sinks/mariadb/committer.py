"""Commits to tables of MariaDB: the rows of many datasets, and their ledger rows, in one transaction."""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from hashlib import blake2b
from typing import Any

import msgspec
import pyarrow as pa
from pymysql.connections import Connection
from pymysql.cursors import Cursor
from pymysql.err import MySQLError

from distcommit.core.errors import ConfigurationError, TransientError
from distcommit.core.interfaces.committer import (
    CommitOutcome,
    CommitRequest,
    CommitterContext,
    FailedForGood,
    HeldBack,
    RetryLater,
)
from distcommit.core.interfaces.ledger import LedgerRow
from distcommit.sinks.databases.newest_row import OF
from distcommit.sinks.databases.table_committer import LEDGER, Key
from distcommit.sinks.databases.table_loading import LEDGER_COLUMNS, LoadingCommitter, as_row
from distcommit.sinks.databases.table_sink import TableSink, tag_of
from distcommit.sinks.mariadb import tables
from distcommit.sinks.mariadb.connection import (
    TOO_NARROW,
    TWO_COLUMNS,
    check_durable,
    code_of,
    execute,
    outcome_of,
    savepoint,
    transaction,
)

_MADE = f"""
CREATE TABLE IF NOT EXISTS {LEDGER} (
    id binary(16) PRIMARY KEY, store varchar(255) NOT NULL, dataset text NOT NULL, branch text NOT NULL,
    epoch bigint NOT NULL DEFAULT 0, base bigint NOT NULL DEFAULT 0, revoked bigint NOT NULL DEFAULT 0,
    commit_id varchar(64) NOT NULL DEFAULT '', covered longtext NOT NULL, target varchar(255), tag bigint,
    target_mark bigint, changed_at datetime(6))
ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin
"""
_NAMED = (
    f"INSERT IGNORE INTO {LEDGER} (id, store, dataset, branch, commit_id, covered) VALUES (%s, '', '', '', %s, '[]')"
)
_NAME = f"SELECT commit_id FROM {LEDGER} WHERE id = %s"
_NAME_ID = bytes(16)
_PROBED_BYTES = 32_768
_MOST_ALTERED = 100
"""How often a dataset's table is widened for one commit."""


class MariadbCommitter(LoadingCommitter):
    """Has one connection, and the ledger in a table of the same database.

    What makes or widens a table ends the transaction it is in. So a dataset that needs it is undone to its savepoint,
    the others are committed, the table is altered, and that dataset comes in a transaction of its own.
    """

    def __init__(self, connection: Connection[Cursor], settings: TableSink, context: CommitterContext) -> None:
        super().__init__(settings, context)
        self._connection = connection
        self._altered_first: dict[Key, str] = {}
        check_durable(connection)
        (most_bytes,) = execute(connection, "SELECT @@max_allowed_packet").fetchone() or (0,)
        self._most_bytes = int(most_bytes)
        self.make_ledger(LEDGER, _MADE)
        self._add_marks()
        if not self.identity():
            self._execute(_NAMED, (_NAME_ID, uuid.uuid4().hex))

    def make_ledger(self, name: str, statement: str) -> None:
        """Makes the ledger, or what stands beside it, by that statement if it is missing.

        Raises:
            ConfigurationError: if it is not of InnoDB.
        """
        asked = "SELECT count(*) FROM information_schema.TABLES WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = %s"
        if execute(self._connection, asked, (name,)).fetchone() == (0,):
            execute(self._connection, statement)
        engine = tables.engine_of(self._connection, name)
        if engine != "InnoDB":
            raise ConfigurationError(
                "the ledger is no table of InnoDB, so that what is undone may stay there",
                table=name,
                expected="InnoDB",
                found=engine or "a view",
                todo=f"ALTER TABLE {name} ENGINE = InnoDB",
            )

    def _add_marks(self) -> None:
        """To a ledger that was made before tables had marks."""
        asked = (
            "SELECT count(*) FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = %s"
            " AND COLUMN_NAME = 'target_mark'"
        )
        if execute(self._connection, asked, (LEDGER,)).fetchone() == (0,):
            failed = self._alter(f"ALTER TABLE {LEDGER} ADD COLUMN target_mark bigint")
            if failed is not None:
                raise TransientError("the ledger lacks a column", table=LEDGER, found=str(failed))

    def commit(self, requests: Sequence[CommitRequest]) -> Sequence[CommitOutcome]:
        outcomes = [*super().commit(requests)]
        altered: set[str] = set()
        for _ in range(_MOST_ALTERED):
            to_alter, self._altered_first = self._altered_first, {}
            if not to_alter:
                break
            failed = {
                key: self._alter(statement) if statement not in altered else _still_asked(statement)
                for key, statement in to_alter.items()
            }
            altered.update(to_alter.values())
            again: list[int] = []
            for index, request in enumerate(requests):
                key = (request.dataset_urn, request.branch)
                outcome = failed.get(key)
                if outcome is not None:
                    outcomes[index] = outcome
                elif key in failed:
                    again.append(index)
            for index, outcome in zip(again, super().commit([requests[index] for index in again]), strict=True):
                outcomes[index] = outcome
        return outcomes

    def commit_whole(self, requests: Sequence[CommitRequest]) -> Sequence[CommitOutcome]:
        """As `TableCommitter.commit_whole`, once the tables are there and wide enough."""
        outcomes = super().commit_whole(requests)
        for _ in range(_MOST_ALTERED):
            to_alter, self._altered_first = self._altered_first, {}
            if not to_alter or any(isinstance(outcome, FailedForGood) for outcome in outcomes):
                break
            for (dataset_urn, branch), statement in to_alter.items():
                failed = self._alter(statement)
                if failed is not None:
                    key = (dataset_urn, branch)
                    return [failed if key == (r.dataset_urn, r.branch) else HeldBack(dataset_urn) for r in requests]
            outcomes = super().commit_whole(requests)
        return outcomes

    def _alter(self, statement: str) -> CommitOutcome | None:
        """Makes or widens a table, in no transaction; what keeps it from that."""
        try:
            execute(self._connection, statement)
        except MySQLError as error:
            is_altered = statement.startswith("ALTER")
            if is_altered and code_of(error) in (TWO_COLUMNS, *TOO_NARROW):
                return None  # somebody else has just added it, or made it wider still
            outcome = outcome_of(error, self._connection)
            if outcome is None:
                raise
            return outcome
        return None

    def transaction(self) -> AbstractContextManager[object]:
        return transaction(self._connection)

    def savepoint(self) -> AbstractContextManager[object]:
        return savepoint(self._connection)

    def locked(self, keys: Sequence[Key]) -> dict[Key, LedgerRow]:
        """Rows that are missing are put there, by a statement that locks those it finds: by IGNORE two would share a
        lock, and both wait for the other to give it up."""
        self._targets.clear()
        for key in keys:
            self._altered_first.pop(key, None)
        if not keys:
            return {}
        named = sorted((self._id(key), key) for key in keys)
        new = [value for id_, key in named for value in (id_, self._context.store_id, *key, "[]")]
        self._execute(
            f"INSERT INTO {LEDGER} (id, store, dataset, branch, covered) VALUES"
            f" {', '.join(['(%s, %s, %s, %s, %s)'] * len(named))} ON DUPLICATE KEY UPDATE id = id",
            new,
        )
        found = self._execute(
            f"SELECT {LEDGER_COLUMNS}, target, target_mark FROM {LEDGER} WHERE id IN ({', '.join(['%s'] * len(named))})"
            " ORDER BY id FOR UPDATE",
            [id_ for id_, _ in named],
        ).fetchall()
        self._targets.update({(row[0], row[1]): (row[7], None if row[7] is None else row[8] or 0) for row in found})
        return {(row[0], row[1]): as_row(row) for row in found if row[2] or row[4]}

    def unlocked(self, keys: Iterable[Key]) -> None:
        ids = [self._id(key) for key in keys]
        if ids:
            where = f"id IN ({', '.join(['%s'] * len(ids))}) AND epoch = 0 AND revoked = 0"
            self._execute(f"DELETE FROM {LEDGER} WHERE {where}", ids)

    def load(self, request: CommitRequest, row: LedgerRow | None) -> None:
        try:
            super().load(request, row)
        except tables.AlterFirst as error:
            self._altered_first[request.dataset_urn, request.branch] = error.statement
            raise

    def identity(self) -> str:
        found = self._execute(_NAME, (_NAME_ID,)).fetchone()
        return "" if found is None else str(found[0])

    def find(self, name: str, tags: Mapping[str, int]) -> tables.Table | None:
        return tables.find(self._connection, name, tags, self._most_bytes)

    def make(self, name: str, rows: pa.Schema, tags: Mapping[str, int], key: Key) -> tables.Table:
        raise tables.AlterFirst(tables.making(self._connection, name, rows, self._settings.keys, tags))

    def shown(self, name: str) -> str:
        return name

    def was_there(self, target: str) -> bool:
        asked = f"SELECT count(*) FROM {LEDGER} WHERE target = %s AND epoch > 0"
        return bool(self._execute(asked, (target,)).fetchone() != (0,))

    def record(self, row: LedgerRow) -> None:
        key = (row.dataset_urn, row.branch)
        target, mark = self._targets.get(key, (None, None))
        covered, tag = msgspec.json.encode(row.covered).decode(), tag_of(self._context.store_id, *key)
        written = self._execute(
            f"UPDATE {LEDGER} SET epoch = %s, base = %s, revoked = %s, commit_id = %s, covered = %s, target = %s,"
            " tag = %s, target_mark = %s, changed_at = UTC_TIMESTAMP(6) WHERE id = %s",
            (row.epoch, row.base, row.revoked, row.commit_id, covered, target, tag, mark, self._id(key)),
        ).rowcount
        if written != 1:
            raise TransientError("a row of the ledger was not written", dataset=key[0], found=f"{written} rows")

    def outcome_of(self, error: Exception) -> CommitOutcome | None:
        if isinstance(error, tables.AlterFirst):
            return RetryLater(f"the table has to be altered first: {error.statement}")
        if isinstance(error, MySQLError):
            return outcome_of(error, self._connection)
        return RetryLater(f"{type(error).__name__}: {error}") if isinstance(error, OSError) else None

    def ledger(self) -> Iterator[LedgerRow]:
        asked = f"SELECT {LEDGER_COLUMNS} FROM {LEDGER} WHERE store = %s AND (epoch > 0 OR revoked > 0)"
        return map(as_row, self._execute(asked, (self._context.store_id,)).fetchall())

    def visible_rows(self, dataset_urn: str, branch: str) -> int | None:
        """Of append with tags alone: else others may have put rows there, or taken the place of some."""
        if not self._settings.takes_back:
            return None
        table, tag = self._settings.table_of(dataset_urn), tag_of(self._context.store_id, dataset_urn, branch)
        asked = f"SELECT count(*) FROM {tables.quoted(table)} WHERE {OF} = {tag}"
        (rows,) = execute(self._connection, asked).fetchone() or (0,)
        return int(rows)

    def probe(self) -> None:
        """Writes a row to the ledger, of as many bytes as a file system's probe has, and undoes it."""
        execute(self._connection, "BEGIN")
        try:
            probed = (uuid.uuid4().bytes, uuid.uuid4().hex, os.urandom(_PROBED_BYTES).hex())
            self._execute(
                f"INSERT INTO {LEDGER} (id, store, dataset, branch, covered) VALUES (%s, '', %s, '', %s)", probed
            )
        finally:
            if self._connection.open:
                execute(self._connection, "ROLLBACK")

    def close(self) -> None:
        with contextlib.suppress(MySQLError):  # one that broke is closed already
            self._connection.close()

    def _id(self, key: Key) -> bytes:
        """The key of a ledger's row: of one length, and of no collation."""
        return blake2b("\0".join((self._context.store_id, *key)).encode(), digest_size=16).digest()

    def _execute(self, statement: str, values: Sequence[Any]) -> Cursor:
        return execute(self._connection, statement, values)


def _still_asked(statement: str) -> CommitOutcome:
    """Return the outcome if a table needs the same change again after it was made, as of a name it does not keep."""
    return FailedForGood(
        f"the table is not as it should be after {statement}: alter it, then release the dataset with retry"
    )

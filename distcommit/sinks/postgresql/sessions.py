"""Sessions at a PostgreSQL server: connections, transactions, and commit outcomes of errors."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg import pq

from distcommit.core.errors import TransientError, plain_text
from distcommit.core.interfaces.committer import CommitOutcome, FailedForGood, RetryLater
from distcommit.fs.database_tls import LIBPQ_TIME_LIMITS, Tls, postgresql_arguments
from distcommit.sinks.databases.connection_pool import Client
from distcommit.sinks.databases.server_sink import IDLE_TIMEOUT_S, LOCK_TIMEOUT_S
from distcommit.sinks.databases.table_committer import CollisionError

_BEGIN = f"""
BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE;
SET LOCAL lock_timeout = '{LOCK_TIMEOUT_S}s';
SET LOCAL idle_in_transaction_session_timeout = '{IDLE_TIMEOUT_S}s';
SET CONSTRAINTS ALL IMMEDIATE;
SELECT set_config('synchronous_commit', 'on', true) WHERE current_setting('synchronous_commit') = 'off'
"""
"""With these settings, deferred constraints are checked at once, and COMMIT returns after the transaction is on
disk."""


def connected(url: str, password: str, tls: Tls) -> psycopg.Connection:
    """Open a connection in autocommit, without prepared statements, which poolers do not support."""
    arguments: dict[str, Any] = {**LIBPQ_TIME_LIMITS, **postgresql_arguments(url, tls)}
    return psycopg.connect(
        url,
        autocommit=True,
        prepare_threshold=None,
        password=password or None,
        client_encoding="UTF8",
        application_name="distcommit",
        **arguments,
    )


def reset(connection: psycopg.Connection) -> None:
    connection.execute("DISCARD ALL")


def check(connection: psycopg.Connection) -> None:
    connection.execute("")


POOLED = Client(connected, check, reset)


@contextmanager
def transaction(connection: psycopg.Connection) -> Iterator[None]:
    """Open a transaction that commits on normal exit and rolls back on an exception. Raises CollisionError on a
    conflict, and TransientError if COMMIT rolls back, which only its command tag shows."""
    with manual_transaction(connection):
        yield
        tag = connection.execute("COMMIT").statusmessage
    if tag != "COMMIT":
        raise TransientError(
            "PostgreSQL rolled the transaction back instead of committing it",
            id="TARGET_UNAVAILABLE",
            expected="the answer COMMIT",
            found=str(tag),
        )


@contextmanager
def manual_transaction(connection: psycopg.Connection) -> Iterator[None]:
    """Begin a transaction that the block must end. An exception rolls it back. Raises CollisionError on a conflict."""
    try:
        connection.execute(_BEGIN)
        yield
    except psycopg.errors.TransactionRollback as error:
        _undo(connection)
        raise CollisionError(_text(error)) from error
    except BaseException:
        _undo(connection)
        raise


def outcome_of(error: psycopg.Error, connection: psycopg.Connection) -> CommitOutcome | None:
    state = error.sqlstate or ""
    if connection.broken or connection.info.transaction_status != pq.TransactionStatus.INTRANS:
        return None
    if error.diag.schema_name == "pg_catalog":  # CREATE TABLE IF NOT EXISTS of two sessions at once
        return RetryLater(f"another session was creating the same table: {_text(error)}")
    if state[:2] in ("22", "23", "44") or state == "P0001":  # values, constraints, errors of triggers
        return FailedForGood(
            f"the table does not take the rows: {_text(error)}. Alter the table and release the dataset with retry; or"
            " abandon it, and convert or reject such records"
        )
    if state[:2] in ("08", "40", "53", "57", "58"):  # the connection, collisions, resources, operators, the system
        return None
    return RetryLater(f"{_text(error)} (SQLSTATE {state})")


def _undo(connection: psycopg.Connection) -> None:
    if not connection.broken and connection.info.transaction_status != pq.TransactionStatus.IDLE:
        try:
            connection.execute("ROLLBACK")
        except psycopg.Error:
            connection.close()


def _text(error: psycopg.Error) -> str:
    diag = error.diag
    parts = (diag.message_primary or str(error), diag.message_detail, diag.column_name and f"column {diag.column_name}")
    return plain_text("; ".join(part for part in parts if part), 1000)

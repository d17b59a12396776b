"""Sessions at a MariaDB server: connections, transactions, savepoints, and commit outcomes of errors."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from urllib.parse import unquote, urlsplit

import pymysql
from pymysql.connections import Connection
from pymysql.constants import CLIENT, SERVER_STATUS
from pymysql.cursors import Cursor
from pymysql.err import MySQLError

from distcommit.core.errors import ConfigurationError, TransientError, plain_text
from distcommit.core.interfaces.committer import CommitOutcome, FailedForGood, RetryLater
from distcommit.fs.database_tls import CONNECT_TIMEOUT_S, Tls, mysql_arguments
from distcommit.sinks.databases.connection_pool import Client
from distcommit.sinks.databases.server_sink import IDLE_TIMEOUT_S, LOCK_TIMEOUT_S
from distcommit.sinks.databases.table_committer import CollisionError

NO_SUCH_TABLE, TWO_COLUMNS = 1146, 1060
TOO_NARROW = (1264, 1265, 1406)
_NO_SAVEPOINT = 1305
_CLIENT = 2000
"""First of the client's error codes."""
_COLLISIONS = {1020, 1213, 1412}
"""Codes of a changed row, a deadlock, and an altered table."""
_OF_ROWS = {1048, 1062, 1118, 1138, 1216, 1263, 1264, 1265, 1292, 1364, 1366, 1367, 1406, 1411, 1452, 1467, 1644, 1690}
_OF_ROWS |= {1217, 1451, 3140, 3819, 4025}
"""Codes of invalid values, violated constraints, errors of triggers, and rows that are too large."""
_OF_NAMES = {1059, 1060, 1166}
"""Codes of column names that are too long, used twice, or not allowed."""
_OF_THE_SERVER = {1021, 1026, 1028, 1030, 1037, 1038, 1040, 1041, 1053, 1114, 1158, 1159, 1160, 1161, 1180, 1203, 1206}
_OF_THE_SERVER |= {1290, 1317, 1792, 1836, 1927, 3024, 3032}
"""Codes of disks, memory, connections, shutdown, read-only servers, and killed sessions."""
_MODE = (
    "STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION,NO_AUTO_VALUE_ON_ZERO,NO_ZERO_DATE,NO_ZERO_IN_DATE,"
    "ERROR_FOR_DIVISION_BY_ZERO"
)
_SETTINGS = (
    f"SET SESSION sql_mode = '{_MODE}', time_zone = '+00:00', foreign_key_checks = 1, unique_checks = 1,"
    f" innodb_lock_wait_timeout = {LOCK_TIMEOUT_S}, lock_wait_timeout = {LOCK_TIMEOUT_S},"
    f" wait_timeout = {IDLE_TIMEOUT_S}"
    " /*M! , check_constraint_checks = 1 */",
    "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED, READ WRITE",
)
_TIMEOUTS_S = {"connect_timeout": CONNECT_TIMEOUT_S, "read_timeout": 120, "write_timeout": 120}


def connected(url: str, password: str, tls: Tls) -> Connection[Cursor]:
    """Open a strict session in autocommit that checks constraints, whatever the server's settings."""
    parts = urlsplit(url)
    connection = pymysql.connect(
        host=parts.hostname,
        port=parts.port or 3306,
        user=unquote(parts.username or ""),
        password=password,
        database=unquote(parts.path.strip("/")),
        autocommit=True,
        binary_prefix=True,
        client_flag=CLIENT.FOUND_ROWS,  # the row count of an UPDATE that changes nothing includes its row
        program_name="distcommit",
        **{**_TIMEOUTS_S, **mysql_arguments(url, tls), "charset": "utf8mb4"},
    )
    try:
        _settle(connection)
    except BaseException:
        connection.close()
        raise
    return connection


def reset(connection: Connection[Cursor]) -> None:
    for statement in ("ROLLBACK", "DO RELEASE_ALL_LOCKS()"):
        execute(connection, statement)
    _settle(connection)


def check(connection: Connection[Cursor]) -> None:
    connection.ping(reconnect=False)


POOLED = Client(connected, check, reset)


def execute(connection: Connection[Cursor], statement: str | bytes, values: Sequence[Any] | None = None) -> Cursor:
    """Execute a statement; without values, `%` is a plain character."""
    cursor = connection.cursor()
    cursor.execute(statement, values)
    return cursor


def check_durable(connection: Connection[Cursor]) -> None:
    """Raise ConfigurationError if COMMIT returns before the transaction is on disk."""
    statement = "SELECT @@innodb_flush_log_at_trx_commit, @@log_bin, @@sync_binlog"
    flushed, has_log, synced = execute(connection, statement).fetchone() or (0, 0, 0)
    if flushed != 1 or (has_log and synced != 1):
        raise ConfigurationError(
            "the server answers COMMIT before it is on disk, so that a power loss would lose commits",
            id="TARGET_SETUP_INVALID",
            expected="innodb_flush_log_at_trx_commit = 1, and with a binary log sync_binlog = 1",
            found=f"{flushed}, and sync_binlog = {synced} with {'a' if has_log else 'no'} binary log",
            todo="SET GLOBAL innodb_flush_log_at_trx_commit = 1, sync_binlog = 1, and in the server's configuration",
        )


@contextmanager
def transaction(connection: Connection[Cursor]) -> Iterator[None]:
    """Open a transaction that commits on normal exit and rolls back on an exception. Raises CollisionError on a
    conflict.

    If a deadlock or an ALTER TABLE ends the transaction, the server commits later statements one by one. TransientError
    is then raised instead of COMMIT.
    """
    try:
        execute(connection, "BEGIN")
        yield
        if not connection.server_status & SERVER_STATUS.SERVER_STATUS_IN_TRANS:
            raise TransientError(
                "the database ended a transaction before its COMMIT",
                id="TARGET_UNAVAILABLE",
                expected="a transaction that stays open until COMMIT",
                found="no open transaction; a deadlock or an ALTER TABLE ends one",
                todo="run again: the ledger shows which commits are done. If it recurs, find the session"
                " that locks or alters the table",
            )
        execute(connection, "COMMIT")
    except MySQLError as error:
        _undo(connection)
        if code_of(error) in _COLLISIONS:
            raise CollisionError(text_of(error)) from error
        raise
    except BaseException:
        _undo(connection)
        raise


@contextmanager
def savepoint(connection: Connection[Cursor]) -> Iterator[None]:
    """Open a savepoint. An exception rolls back to it. Raises CollisionError if the server has ended the
    transaction."""
    execute(connection, "SAVEPOINT dataset")
    try:
        yield
    except BaseException as error:
        try:
            if connection.open:
                execute(connection, "ROLLBACK TO SAVEPOINT dataset")
        except MySQLError as gone:
            if code_of(gone) == _NO_SAVEPOINT:
                raise CollisionError(plain_text(error, 1000)) from error
        raise
    execute(connection, "RELEASE SAVEPOINT dataset")


def outcome_of(error: MySQLError, connection: Connection[Cursor]) -> CommitOutcome | None:
    code = code_of(error)
    if not connection.open or not code > 0 or _CLIENT <= code < _CLIENT + 1000 or code in _OF_THE_SERVER | _COLLISIONS:
        return None
    if code in _OF_ROWS | _OF_NAMES:
        return FailedForGood(
            f"the table does not take the rows: {text_of(error)}. Alter the table and release the dataset with retry;"
            " or abandon it, and convert or reject such records"
        )
    return RetryLater(f"{text_of(error)} (error {code})")


def code_of(error: Exception) -> int:
    code = next(iter(error.args), 0)
    return code if isinstance(code, int) else 0


def text_of(error: Exception) -> str:
    return plain_text(error.args[-1] if error.args else error, 1000)


def _settle(connection: Connection[Cursor]) -> None:
    for setting in _SETTINGS:
        execute(connection, setting)


def _undo(connection: Connection[Cursor]) -> None:
    if connection.open:
        try:
            execute(connection, "ROLLBACK")
        except MySQLError:
            with contextlib.suppress(MySQLError):
                connection.close()

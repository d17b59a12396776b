"""Sessions with an SQLite file: connections, transactions, savepoints, and commit outcomes of errors."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import quote

from distcommit.core.errors import TransientError, plain_text
from distcommit.core.interfaces.committer import CommitOutcome, FailedForGood, RetryLater

_LOCK_TIMEOUT_S = 30
_OF_ROWS = {sqlite3.SQLITE_CONSTRAINT, sqlite3.SQLITE_MISMATCH, sqlite3.SQLITE_TOOBIG}
_OF_THE_FILE = {
    sqlite3.SQLITE_BUSY,
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_CORRUPT,
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_LOCKED,
    sqlite3.SQLITE_NOMEM,
    sqlite3.SQLITE_NOTADB,
    sqlite3.SQLITE_PROTOCOL,
    sqlite3.SQLITE_READONLY,
}


def connected(path: str) -> sqlite3.Connection:
    """Open a connection in autocommit. COMMIT returns after the transaction is on disk."""
    connection = sqlite3.connect(f"file:{quote(path)}?mode=rwc", _LOCK_TIMEOUT_S, isolation_level=None, uri=True)
    try:
        for setting in ("synchronous = EXTRA", "foreign_keys = ON", "ignore_check_constraints = OFF"):
            connection.execute(f"PRAGMA {setting}")
    except BaseException:
        connection.close()
        raise
    return connection


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """Open a transaction, which locks the file and commits on normal exit.

    If an error ends the transaction, SQLite commits later statements one by one. TransientError is then raised instead
    of COMMIT.
    """
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        if not connection.in_transaction:
            raise TransientError(
                "the database ended a transaction before its COMMIT",
                id="TARGET_UNAVAILABLE",
                expected="a transaction that stays open until COMMIT",
                found="no open transaction; a full disk, an I/O error or too little memory ends one",
                todo="repair the disk that the database is on, then run again: the ledger shows which commits are done",
            )
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


@contextmanager
def savepoint(connection: sqlite3.Connection) -> Iterator[None]:
    """Open a savepoint. An exception rolls back to it, unless SQLite has rolled back the transaction."""
    connection.execute("SAVEPOINT dataset")
    try:
        yield
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK TO dataset")
            connection.execute("RELEASE dataset")
        raise
    connection.execute("RELEASE dataset")


def outcome_of(error: sqlite3.Error, connection: sqlite3.Connection) -> CommitOutcome | None:
    code, text = getattr(error, "sqlite_errorcode", 0) & 0xFF, plain_text(error, 1000)
    if not connection.in_transaction or code in _OF_THE_FILE:
        return None
    if code in _OF_ROWS:
        return FailedForGood(
            f"the table does not take the rows: {text}. Alter the table and release the dataset with retry; or abandon"
            " it, and convert or reject such records"
        )
    return RetryLater(text)

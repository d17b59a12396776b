"""Connection to a database, with typed errors."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any
from urllib.parse import quote, unquote, urlsplit

import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError, InterfaceError, NoSuchTableError, OperationalError, SQLAlchemyError

from distcommit.core.errors import ConfigurationError, DistcommitError, SourceError, TransientError, plain_text
from distcommit.core.support.install_command import install_command
from distcommit.fs.database_tls import CONNECT_TIMEOUT_S, LIBPQ_TIME_LIMITS, Tls, mysql_arguments, postgresql_arguments

__all__ = ["Database"]

_LOCK_TIMEOUT_S = 10
_SILENCE_S = 600
"""Seconds that MySQL and its client wait for each other, without keep-alive."""
_DRIVERS = {"postgresql": "postgresql+psycopg", "mysql": "mysql+pymysql", "sqlite": "sqlite"}
_CONNECT: dict[str, dict[str, Any]] = {
    "postgresql": {**LIBPQ_TIME_LIMITS},
    "mysql": {"connect_timeout": CONNECT_TIMEOUT_S, "read_timeout": _SILENCE_S, "charset": "utf8mb4"},
}
_READING: dict[str, dict[str, Any]] = {
    "postgresql": {"isolation_level": "REPEATABLE READ", "postgresql_readonly": True},
    "mysql": {"isolation_level": "REPEATABLE READ"},
}
_MYSQL_TRANSIENT = {1040, 1045, 1053, 1158, 1159, 1160, 1161, 1203, 1205, 1213, 1317, 1927, 3024}
_MYSQL_CLIENT = 2000
"""Error codes of this value and above are errors of the client's connection."""
_UNREACHABLE = ("the database can't be reached, or closed the connection", "check the server, then run again")
_REFUSALS = (
    (
        re.compile(r"certificate|\bSSL\b|\bTLS\b", re.IGNORECASE),
        (
            "the connection to the database can't be secured",
            "name the authority of its certificate (sslrootcert, ssl_ca), or set source.tls",
        ),
    ),
    (
        re.compile(r"authentication failed|Access denied|no pg_hba\.conf entry|no password supplied"),
        ("the database refuses this user or password", "correct source.url and source.password"),
    ),
    (re.compile(r"database .* does not exist|Unknown database"), ("the database does not exist", "correct source.url")),
)
"""Problems of a connection that need a remedy: pattern of the error, problem, and remedy."""
_SQLITE_TRANSIENT = {
    sqlite3.SQLITE_BUSY,
    sqlite3.SQLITE_LOCKED,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_CANTOPEN,
}


@dataclass(frozen=True)
class Database:
    """A database, with at most one connection, which is reused.

    Attributes:
        url: the URL without a password.
        password: the user's password; empty for none. Masked in all messages.
        tls: the setting `tls`.
    """

    url: str
    password: str = field(default="", repr=False)
    tls: Tls = "verify"

    @property
    def dialect(self) -> str:
        return urlsplit(self.url).scheme

    @contextmanager
    def reading(self, table: str = "") -> Iterator[sa.Connection]:
        """Connect if needed, and open a read-only transaction. It sees one snapshot if the database supports that.

        Raises:
            TransientError: if the server can't be reached, or the connection breaks.
            SourceError: if the database rejects a statement.
            ConfigurationError: if the database's driver is missing.
        """
        with self.errors(table), self._engine.connect() as connection:
            yield connection.execution_options(**_READING.get(self.dialect, {}))

    @contextmanager
    def errors(self, table: str = "") -> Iterator[None]:
        """Raise errors of the database as typed errors that name the table."""
        try:
            yield
        except (SQLAlchemyError, ValueError) as error:
            raise self._typed(error, table) from None

    def close(self) -> None:
        self._engine.dispose()

    @cached_property
    def _engine(self) -> sa.Engine:
        options: dict[str, Any] = {"poolclass": sa.QueuePool, "pool_size": 1, "pool_pre_ping": True}
        if self.dialect == "sqlite":
            options["creator"] = self._open_file
        try:
            url = sa.make_url(self.url).set(drivername=_DRIVERS[self.dialect])
            url = url.set(password=self.password) if self.password else url
            usual = {name: value for name, value in _CONNECT.get(self.dialect, {}).items() if name not in url.query}
            if self.dialect == "mysql":  # the options are in the arguments; SQLAlchemy would interpret them differently
                url, usual = url.set(query={}), {**usual, **mysql_arguments(self.url, self.tls)}
            elif self.dialect == "postgresql":
                usual |= postgresql_arguments(self.url, self.tls)
            engine = sa.create_engine(url, connect_args=usual, **options)
        except ImportError as error:
            raise ConfigurationError(
                "the database's driver is missing",
                id="PACKAGE_MISSING",
                found=str(error),
                todo=f"run `{install_command('sql-source')}` on the driver and on all executors",
            ) from error
        if settings := _settings(self.dialect):
            sa.event.listen(engine, "connect", lambda connection, _record: _settle(connection, settings))
        else:
            sa.event.listen(engine, "begin", lambda connection: connection.exec_driver_sql("BEGIN"))
        return engine

    def _open_file(self) -> sqlite3.Connection:
        path = quote(unquote(urlsplit(self.url).path.removeprefix("/")))
        return sqlite3.connect(f"file:{path}?mode=ro", _LOCK_TIMEOUT_S, isolation_level=None, uri=True)

    def _typed(self, error: Exception, table: str) -> DistcommitError:
        ids = {"table": table} if table else {}
        if isinstance(error, NoSuchTableError):
            return SourceError(
                "the table does not exist",
                id="SOURCE_TABLE_MISSING",
                expected="a table or view that the database shows to this user",
                found="no table or view of that name",
                todo="create it, grant SELECT on it, or remove it from source.tables",
                **ids,
            )
        text = plain_text(error.orig if isinstance(error, DBAPIError) else error, 1000)
        text = text.replace(self.password, "***") if self.password else text
        if _is_transient(error):
            subject, todo = next((texts for content, texts in _REFUSALS if content.search(text)), _UNREACHABLE)
            return TransientError(
                subject,
                id="SOURCE_SERVER_UNAVAILABLE",
                url=self.url,
                found=text,
                todo=f"{todo}; nothing was lost",
                **ids,
            )
        return SourceError(
            "the database rejected a statement",
            id="SOURCE_REQUEST_REJECTED",
            found=text,
            todo="grant SELECT on the table, or correct its query in source.queries, its where or columns in"
            " source.overrides, or its values",
            **ids,
        )


def _settings(dialect: str) -> list[str]:
    """Return a connection's first statements: UTC, read-only, and limited waits for locks, so that a locked table fails
    only its own work unit."""
    if dialect == "postgresql":
        read_only = "SET default_transaction_read_only = on"
        return ["SET TIME ZONE 'UTC'", f"SET lock_timeout = '{_LOCK_TIMEOUT_S}s'", read_only]
    if dialect == "mysql":
        waits = f"lock_wait_timeout = {_LOCK_TIMEOUT_S}, innodb_lock_wait_timeout = {_LOCK_TIMEOUT_S}"
        waits += f", net_write_timeout = {_SILENCE_S}"
        return [f"SET time_zone = '+00:00', {waits}", "SET SESSION TRANSACTION READ ONLY"]
    return []


def _settle(connection: Any, settings: Sequence[str]) -> None:
    with connection.cursor() as cursor:
        for setting in settings:
            cursor.execute(setting)
    connection.commit()


def _is_transient(error: Exception) -> bool:
    """Return whether connection or server failed. A rejected login counts, because it affects all tables."""
    if not isinstance(error, DBAPIError):
        return False
    code = getattr(error.orig, "sqlite_errorcode", None)
    if code is not None:
        return code & 0xFF in _SQLITE_TRANSIENT
    if type(error.orig).__module__.startswith("pymysql"):  # it raises OperationalError for faulty statements, too
        number = next(iter(error.orig.args), 0) if error.orig else 0
        return error.connection_invalidated or not number or number >= _MYSQL_CLIENT or number in _MYSQL_TRANSIENT
    return error.connection_invalidated or isinstance(error, OperationalError | InterfaceError)

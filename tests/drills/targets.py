"""Targets of drills: database tables, lake tables and topics, each read back by a plain client."""

from __future__ import annotations

import shutil
import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake
from psycopg import sql
from pyiceberg.catalog import load_catalog
from pyiceberg.types import BinaryType

from tests.servers.kafka import KafkaServer
from tests.servers.kafka_records import committed_records
from tests.servers.mariadb import MariadbServer, prepared_at, roll_back
from tests.servers.postgresql import PostgresServer

NAME = "a"
"""The dataset whose table is changed, and the table's name."""
LEDGER = "distcommit_ledger"


@dataclass
class Target(ABC):
    """Target with a table for each dataset, under the dataset's name."""

    folder: Path

    @property
    @abstractmethod
    def sink(self) -> dict[str, Any]:
        """Return the `sink` section."""

    @abstractmethod
    def values(self, table: str) -> list[bytes]:
        """Return the values in a table."""


class LakeTables(Target):
    """Lake tables that an operator drops, recreates or alters."""

    @abstractmethod
    def drop(self) -> None:
        """Drop the table `NAME`."""

    @abstractmethod
    def recreate(self) -> None:
        """Drop the table `NAME`, and create an empty one with its columns."""

    @abstractmethod
    def alter(self) -> None:
        """Drop the column `value` of the table `NAME`, so that files with it no longer fit."""

    @abstractmethod
    def forget(self) -> None:
        """Delete the table's ledger, and leave its rows."""

    @abstractmethod
    def compact(self) -> None:
        """Rewrite all rows of the table `NAME` to one new file."""


class IcebergTables(LakeTables):
    """Iceberg tables in a SQLite catalog."""

    @property
    def _catalog(self) -> dict[str, str]:
        place = {"uri": f"sqlite:///{self.folder}/catalog.db", "warehouse": f"file://{self.folder}/warehouse"}
        return {"type": "sql", **place}

    @property
    def sink(self) -> dict[str, Any]:
        return {"type": "iceberg", "catalog": self._catalog, "namespace": "n", "evolve": "add_columns"}

    def values(self, table: str) -> list[bytes]:
        with load_catalog("default", **self._catalog) as catalog:
            column: list[bytes] = catalog.load_table(("n", table)).scan().to_arrow()["value"].to_pylist()
        return column

    def drop(self) -> None:
        with load_catalog("default", **self._catalog) as catalog:
            catalog.drop_table(("n", NAME))

    def recreate(self) -> None:
        with load_catalog("default", **self._catalog) as catalog:
            schema = catalog.load_table(("n", NAME)).schema()
            catalog.drop_table(("n", NAME))
            catalog.create_table(("n", NAME), schema)

    def alter(self) -> None:
        with load_catalog("default", **self._catalog) as catalog:
            with catalog.load_table(("n", NAME)).update_schema(allow_incompatible_changes=True) as change:
                change.delete_column("value")
            with catalog.load_table(("n", NAME)).update_schema() as change:
                change.add_column("value", BinaryType())

    def forget(self) -> None:
        with load_catalog("default", **self._catalog) as catalog:
            table = catalog.load_table(("n", NAME))
            with table.transaction() as change:
                change.remove_properties(*(name for name in table.properties if name.startswith("distcommit.")))

    def compact(self) -> None:
        with load_catalog("default", **self._catalog) as catalog:
            table = catalog.load_table(("n", NAME))
            table.overwrite(table.scan().to_arrow())


class DeltaTables(LakeTables):
    """Delta tables in a folder."""

    @property
    def location(self) -> Path:
        """Return the folder."""
        return self.folder / "tables"

    @property
    def sink(self) -> dict[str, Any]:
        self.location.mkdir(exist_ok=True)
        return {"type": "delta", "location": str(self.location), "evolve": "add_columns"}

    def values(self, table: str) -> list[bytes]:
        column: list[bytes] = DeltaTable(self.location / table).to_pyarrow_table()["value"].to_pylist()
        return column

    def drop(self) -> None:
        shutil.rmtree(self.location / NAME / "_delta_log")

    def recreate(self) -> None:
        empty = self._columns().empty_table()
        self.drop()
        write_deltalake(self.location / NAME, empty)

    def alter(self) -> None:
        without = pa.schema([field for field in self._columns() if field.name != "value"])
        write_deltalake(self.location / NAME, without.empty_table(), mode="overwrite", schema_mode="overwrite")

    def forget(self) -> None:
        rows = DeltaTable(self.location / NAME).to_pyarrow_table()
        self.drop()
        write_deltalake(self.location / NAME, rows)

    def compact(self) -> None:
        DeltaTable(self.location / NAME).optimize.compact()

    def _columns(self) -> pa.Schema:
        return pa.schema(DeltaTable(self.location / NAME).schema().to_arrow())


class SqlTables(Target):
    """Database tables, beside the sink's ledger."""

    @abstractmethod
    def do(self, statement: str) -> list[tuple[Any, ...]]:
        """Execute a statement, commit it, and return its rows."""

    def values(self, table: str) -> list[bytes]:
        return [bytes(value) for (value,) in self.do(f"SELECT value FROM {table}")]

    def in_doubt(self, *, commit: bool) -> None:
        """Commit or roll back all prepared transactions, as an administrator does.

        Raises:
            NotImplementedError: if the database has none.
        """
        raise NotImplementedError


class SqliteTables(SqlTables):
    """SQLite tables in a file."""

    @property
    def sink(self) -> dict[str, Any]:
        return {"type": "sqlite", "path": str(self.folder / "rows.db")}

    def do(self, statement: str) -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(self.folder / "rows.db", timeout=60)) as file, file:
            return file.execute(statement).fetchall()


@dataclass
class MariadbTables(SqlTables):
    """MariaDB tables on a server."""

    server: MariadbServer

    @property
    def sink(self) -> dict[str, Any]:
        return {"type": "mariadb", "url": self.server.url, "password": _secret(self.folder, self.server.password)}

    def do(self, statement: str) -> list[tuple[Any, ...]]:
        with self.server.connect() as connection, connection.cursor() as cursor:
            cursor.execute(statement)
            return [*cursor.fetchall()]

    def in_doubt(self, *, commit: bool) -> None:
        for begin, end in prepared_at(self.server):
            if commit:
                self.do(f"XA COMMIT '{begin}', '{end}'")
            else:
                roll_back(self.server, begin, end)


@dataclass
class PostgresTables(SqlTables):
    """PostgreSQL tables on a server."""

    server: PostgresServer

    @property
    def sink(self) -> dict[str, Any]:
        return {"type": "postgresql", "url": self.server.url, "password": _secret(self.folder, self.server.password)}

    def do(self, statement: str) -> list[tuple[Any, ...]]:
        with self.server.connect() as connection:
            cursor = connection.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []

    def in_doubt(self, *, commit: bool) -> None:
        how = sql.SQL("COMMIT" if commit else "ROLLBACK")
        with self.server.connect() as connection:
            for (name,) in connection.execute("SELECT gid FROM pg_prepared_xacts").fetchall():
                connection.execute(sql.SQL("{} PREPARED {}").format(how, sql.Literal(name)))


@dataclass
class KafkaTopics(Target):
    """Topics of a broker with transactions."""

    server: KafkaServer

    @property
    def sink(self) -> dict[str, Any]:
        topics = {"topic": "copied-{dataset}", "ledger": "copied.ledger", "create": True, "key": ""}
        return {"type": "kafka", "brokers": self.server.bootstrap_servers, "transaction_timeout_s": 10, **topics}

    def values(self, table: str) -> list[bytes]:
        return [
            record.value() or b"" for record in committed_records(self.server.bootstrap_servers, [f"copied-{table}"])
        ]


def _secret(folder: Path, password: str) -> str:
    (folder / "password").write_text(password + "\n")
    return f"${{file:{folder / 'password'}}}"


_Opened = Callable[[Path], AbstractContextManager[Target]]


@contextmanager
def _mariadb(folder: Path) -> Iterator[Target]:
    with MariadbServer() as server:
        yield MariadbTables(folder, server)


@contextmanager
def _postgresql(folder: Path) -> Iterator[Target]:
    with PostgresServer("max_prepared_transactions=20") as server:
        yield PostgresTables(folder, server)


@contextmanager
def _kafka(folder: Path) -> Iterator[Target]:
    with KafkaServer() as server:
        yield KafkaTopics(folder, server)


LAKES: dict[str, type[LakeTables]] = {"iceberg": IcebergTables, "delta": DeltaTables}
_SERVED: dict[str, _Opened] = {"mariadb": _mariadb, "postgresql": _postgresql, "kafka": _kafka}


@contextmanager
def open_target(kind: str, folder: Path) -> Iterator[Target]:
    """Open a target in a drill's folder, with its server if it needs one."""
    if kind in _SERVED:
        with _SERVED[kind](folder) as target:
            yield target
    else:
        yield SqliteTables(folder) if kind == "sqlite" else LAKES[kind](folder)

"""Targets of the sinks' main jobs, each with a count that shares no code with the sink."""

from __future__ import annotations

import sqlite3
import uuid
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any, ClassVar

import pyarrow.dataset as ds
import pyarrow.parquet as pq
from confluent_kafka import IsolationLevel, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._listoffsets import OffsetSpec
from deltalake import DeltaTable
from psycopg import sql
from pyiceberg.catalog import Catalog, load_catalog

from tests.servers.kafka import KafkaServer
from tests.servers.kafka_records import committed_records
from tests.servers.mariadb import MariadbServer
from tests.servers.postgresql import PostgresServer

_SCHEMA, _LEDGER, _PROOFS = "ingested", "distcommit_ledger", "distcommit_prepared"


class Target(ABC):
    """Target of a job's records, with a count of its content. Its servers end with `stack`.

    Raises:
        ServerUnavailableError: if it needs a server that is unavailable.
    """

    def __init__(self, broker: KafkaServer, folder: Path, topics: Sequence[str], stack: ExitStack) -> None:
        self.broker, self.folder, self.topics, self.stack = broker, folder, topics, stack
        self.name = f"out-{uuid.uuid4().hex[:8]}"

    @abstractmethod
    def sections(self) -> dict[str, Any]:
        """Return the job's sections that select the target."""

    @abstractmethod
    def visible(self) -> Iterator[Counter[str]]:
        """Return the visible values at each target."""

    def in_doubt(self) -> int:
        """Return the number of unfinished transactions or orphaned files."""
        return 0


class ToKafka(Target):
    """Kafka topic for each topic."""

    def sink(self) -> dict[str, Any]:
        """Return the section `sink`."""
        brokers, topics = self.broker.bootstrap_servers, f"{self.name}-{{dataset}}"
        return {"type": "kafka", "brokers": brokers, "topic": topics, "create": True, "ledger": f"{self.name}.ledger"}

    def sections(self) -> dict[str, Any]:
        return {"sink": self.sink()}

    def visible(self) -> Iterator[Counter[str]]:
        topics = [f"{self.name}-{topic}" for topic in self.topics]
        yield Counter(
            (record.value() or b"").decode() for record in committed_records(self.broker.bootstrap_servers, topics)
        )

    def in_doubt(self) -> int:
        """Return the records between the last stable offset and the end."""
        admin = AdminClient({"bootstrap.servers": self.broker.bootstrap_servers})
        there = admin.list_topics(timeout=60).topics
        places = [
            TopicPartition(topic, partition)
            for topic in there
            if topic.startswith(self.name)
            for partition in there[topic].partitions
        ]
        ends = [
            sum(
                offsets.result(60).offset
                for offsets in admin.list_offsets(
                    {place: OffsetSpec.latest() for place in places},  # type: ignore[no-untyped-call]
                    isolation_level=isolation,
                ).values()
            )
            for isolation in (IsolationLevel.READ_UNCOMMITTED, IsolationLevel.READ_COMMITTED)
        ]
        return int(ends[0] - ends[1])


class ToTables(Target):
    """PostgreSQL table for each topic."""

    server_settings: ClassVar[Sequence[str]] = ()
    settings: ClassVar[dict[str, Any]] = {}

    def __init__(self, broker: KafkaServer, folder: Path, topics: Sequence[str], stack: ExitStack) -> None:
        super().__init__(broker, folder, topics, stack)
        self.server = stack.enter_context(PostgresServer(*self.server_settings))
        with self.server.connect() as connection:
            connection.execute(f"CREATE SCHEMA {_SCHEMA}")
        (folder / "password").write_text(self.server.password + "\n")

    def sections(self) -> dict[str, Any]:
        secret = f"${{file:{self.folder / 'password'}}}"
        where = {"url": self.server.url, "password": secret, "schema": _SCHEMA}
        return {"sink": {"type": "postgresql", **where, **self.settings}}

    def visible(self) -> Iterator[Counter[str]]:
        counts = Counter[str]()
        with self.server.connect() as connection:
            asked = "SELECT tablename FROM pg_tables WHERE schemaname = %s AND tablename <> ALL (%s)"
            for (table,) in connection.execute(asked, (_SCHEMA, [_LEDGER, _PROOFS])).fetchall():
                rows = connection.execute(sql.SQL("SELECT value FROM {}").format(sql.Identifier(_SCHEMA, table)))
                counts.update(bytes(value).decode() for (value,) in rows)
        yield counts

    def in_doubt(self) -> int:
        """Return the prepared transactions, and open ones of other sessions."""
        asked = (
            "SELECT (SELECT count(*) FROM pg_prepared_xacts) + (SELECT count(*) FROM pg_stat_activity"
            " WHERE xact_start IS NOT NULL AND backend_type = 'client backend' AND pid <> pg_backend_pid())"
        )
        with self.server.connect() as connection:
            (count,) = connection.execute(asked).fetchone() or (0,)
        return int(count)


class ToTablesInTwoPhases(ToTables):
    """PostgreSQL tables by transactions that writers prepare."""

    server_settings = ("max_prepared_transactions=1000",)
    settings: ClassVar = {"two_phase": True}


class ToMariadb(Target):
    """MariaDB table for each topic."""

    settings: ClassVar[dict[str, Any]] = {}

    def __init__(self, broker: KafkaServer, folder: Path, topics: Sequence[str], stack: ExitStack) -> None:
        super().__init__(broker, folder, topics, stack)
        self.server = stack.enter_context(MariadbServer())
        (folder / "password").write_text(self.server.password + "\n")

    def sections(self) -> dict[str, Any]:
        secret = f"${{file:{self.folder / 'password'}}}"
        return {"sink": {"type": "mariadb", "url": self.server.url, "password": secret, **self.settings}}

    def visible(self) -> Iterator[Counter[str]]:
        counts = Counter[str]()
        with self.server.connect() as connection, connection.cursor() as cursor:
            cursor.execute("SHOW TABLES")
            for (table,) in cursor.fetchall():
                if table not in (_LEDGER, _PROOFS):
                    cursor.execute(f"SELECT value FROM `{table}`")
                    counts.update(value.decode() for (value,) in cursor.fetchall())
        yield counts

    def in_doubt(self) -> int:
        """Return the prepared and the open transactions."""
        with self.server.connect() as connection, connection.cursor() as cursor:
            cursor.execute("SELECT count(*) FROM information_schema.INNODB_TRX")
            (open_ones,) = cursor.fetchone() or (0,)
            cursor.execute("XA RECOVER")
            return int(open_ones) + len(cursor.fetchall())


class ToMariadbByXa(ToMariadb):
    """MariaDB tables by XA."""

    settings: ClassVar = {"two_phase": True}


class ToSqlite(Target):
    """Table of one SQLite file for each topic."""

    def sections(self) -> dict[str, Any]:
        return {"sink": {"type": "sqlite", "path": str(self.folder / "rows.db")}}

    def visible(self) -> Iterator[Counter[str]]:
        counts = Counter[str]()
        with closing(sqlite3.connect(self.folder / "rows.db")) as file:
            asked = "SELECT name FROM sqlite_master WHERE type = 'table' AND name <> ?"
            for (table,) in file.execute(asked, (_LEDGER,)).fetchall():
                counts.update(bytes(value).decode() for (value,) in file.execute(f'SELECT value FROM "{table}"'))
        yield counts

    def in_doubt(self) -> int:
        """Return whether the journal of an unfinished transaction is left."""
        with closing(sqlite3.connect(self.folder / "rows.db")) as file:
            file.execute("SELECT count(*) FROM sqlite_master").fetchone()  # the first reader rolls it back
        return int((self.folder / "rows.db-journal").exists())


class ToIceberg(Target):
    """Iceberg table for each topic."""

    table: ClassVar[str] = "{dataset}"

    def sink(self) -> dict[str, Any]:
        """Return the section `sink`."""
        return {"type": "iceberg", "catalog": self._catalog(), "namespace": _SCHEMA, "table": self.table}

    def sections(self) -> dict[str, Any]:
        return {"sink": self.sink()}

    def visible(self) -> Iterator[Counter[str]]:
        counts = Counter[str]()
        with self._opened() as catalog:
            for name in catalog.list_tables(_SCHEMA):
                values = catalog.load_table(name).scan(selected_fields=("value",)).to_arrow()["value"]
                counts.update(value.decode() for value in values.to_pylist())
        yield counts

    def in_doubt(self) -> int:
        """Return the data files that no version of a table references."""
        with self._opened() as catalog:
            tables = [catalog.load_table(name) for name in catalog.list_tables(_SCHEMA)]
            live = {path.rpartition("/")[2] for t in tables for path in t.inspect.files()["file_path"].to_pylist()}
        return len({file.name for file in (self.folder / "warehouse").rglob("*.parquet")} - live)

    def _catalog(self) -> dict[str, str]:
        where = {"uri": f"sqlite:///{self.folder}/catalog.db", "warehouse": f"file://{self.folder}/warehouse"}
        return {"type": "sql", **where}

    def _opened(self) -> Catalog:
        return load_catalog("default", **self._catalog())


class ToOneIceberg(ToIceberg):
    """One Iceberg table for all topics."""

    table = "events"


class ToDelta(Target):
    """Delta table for each topic; pyarrow reads the files that deltalake lists."""

    def sections(self) -> dict[str, Any]:
        (self.folder / "tables").mkdir(exist_ok=True)
        return {"sink": {"type": "delta", "location": str(self.folder / "tables")}}

    def visible(self) -> Iterator[Counter[str]]:
        counts = Counter[str]()
        for files in self._live():
            values = ds.dataset(files, format="parquet").to_table(columns=["value"])["value"] if files else []
            counts.update(value.as_py().decode() for value in values)
        yield counts

    def in_doubt(self) -> int:
        """Return the data files that no table references."""
        live = {path for files in self._live() for path in files}
        return len({str(path) for path in (self.folder / "tables").rglob("*.parquet")} - live)

    def _live(self) -> list[list[str]]:
        logs = sorted((self.folder / "tables").glob("*/_delta_log"))
        return [[uri.removeprefix("file://") for uri in DeltaTable(log.parent).file_uris()] for log in logs]


class FannedOut(ToKafka):
    """Files, an Iceberg table and Kafka for each record, under one watermark."""

    def __init__(self, broker: KafkaServer, folder: Path, topics: Sequence[str], stack: ExitStack) -> None:
        super().__init__(broker, folder, topics, stack)
        self.iceberg = ToOneIceberg(broker, folder, topics, stack)

    def sections(self) -> dict[str, Any]:
        sinks = {"topics": self.sink(), "table": self.iceberg.sink(), "files": {"type": "files"}}
        branches = {name: {"sink": sink} for name, sink in sinks.items()}
        return {"sink": None, "fork": {"type": "all", "branches": branches}}

    def visible(self) -> Iterator[Counter[str]]:
        yield from super().visible()
        yield from self.iceberg.visible()
        output = self.folder / "output"
        files = [
            path
            for path in output.rglob("*.parquet")
            if not any(part.startswith((".", "_")) for part in path.relative_to(output).parts)
        ]
        yield Counter(
            value.decode()
            for path in files
            for value in pq.ParquetFile(path).read(columns=["value"])["value"].to_pylist()
        )

    def in_doubt(self) -> int:
        return super().in_doubt() + self.iceberg.in_doubt()


TARGETS: dict[str, type[Target]] = {
    "postgresql_tables": ToTables,
    "postgresql_two_phase": ToTablesInTwoPhases,
    "mariadb_tables": ToMariadb,
    "mariadb_xa": ToMariadbByXa,
    "sqlite_tables": ToSqlite,
    "iceberg_tables": ToIceberg,
    "iceberg_one_table": ToOneIceberg,
    "delta": ToDelta,
    "fan_out": FannedOut,
    "kafka": ToKafka,
}

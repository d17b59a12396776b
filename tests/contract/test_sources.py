"""The built-in sources fulfill the source contract."""

from __future__ import annotations

import contextlib
import gzip
import os
import sqlite3
from collections.abc import Iterator, Mapping
from datetime import datetime, tzinfo
from pathlib import Path
from typing import ClassVar

import pytest
from confluent_kafka import Producer

from distcommit.app.demo.broker import MockBroker
from distcommit.core.interfaces.source import Extractor, Source
from distcommit.core.records.log_records import DatasetState
from distcommit.sources.files.source import FilesSource
from distcommit.sources.kafka.source import KafkaSource
from distcommit.sources.rest.source import RestSource
from distcommit.sources.sql.source import SqlSource
from distcommit.testing.contracts import SourceContract
from distcommit.testing.fakes.model_source import ModelDataset, ModelSource
from tests.servers.mariadb import MariadbServer
from tests.servers.postgresql import PostgresServer
from tests.servers.rest import RestServer

HELD = {"orders": {"0": 10, "1": 7}, "clicks": {"0": 3}, "empty": {"0": 0}}


class TestModelSource(SourceContract):
    def make_source(self) -> Source:
        return ModelSource({urn: ModelDataset(partitions, units=2) for urn, partitions in HELD.items()})

    def holds(self) -> Mapping[str, Mapping[str, int]]:
        return HELD


@pytest.fixture(scope="module")
def broker() -> Iterator[MockBroker]:
    with MockBroker.start({topic: len(partitions) for topic, partitions in HELD.items()}) as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
        for topic, partitions in HELD.items():
            for partition, count in partitions.items():
                for number in range(count):
                    producer.produce(topic, f"{number}", partition=int(partition))
        assert producer.flush(20) == 0
        del producer
        yield broker


class TestKafkaSource(SourceContract):
    target = 4

    @pytest.fixture(autouse=True)
    def _broker(self, broker: MockBroker) -> None:
        self.brokers = broker.bootstrap_servers

    def make_source(self) -> Source:
        settings = {"type": "kafka", "brokers": self.brokers, "topic_patterns": [".*"]}
        return KafkaSource.model_validate({**settings, "records_per_work_unit": self.target})

    def holds(self) -> Mapping[str, Mapping[str, int]]:
        return HELD


class TestFilesSource(SourceContract):
    """A source of files, in which each work unit numbers its rows in a partition of its own."""

    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path: Path) -> None:
        self.folder = tmp_path
        for urn, files in {"orders": (10, 0, 7), "clicks": (3,), "empty": (0,)}.items():
            (tmp_path / urn).mkdir()
            for number, rows in enumerate(files):
                path = tmp_path / urn / f"{number}.jsonl"
                path.write_bytes(b'{"a": 1}\n' * rows)
                os.utime(path, (1_700_000_000 + number // 2,) * 2)

    def make_source(self) -> Source:
        settings = {"type": "files", "paths": [f"{self.folder}/{{dataset}}/*.jsonl"], "format": "jsonl"}
        return FilesSource.model_validate({**settings, "bytes_per_work_unit": 1})

    def holds(self) -> Mapping[str, Mapping[str, int]]:
        row_counts = {"orders": 17, "clicks": 3, "empty": 0}
        units = {"orders": 3, "clicks": 1, "empty": 1}
        return {
            urn: {"files": rows, **{str(number): 0 for number in range(units[urn])}} for urn, rows in row_counts.items()
        }


class TestFilesSourceWithUnreadableFiles(TestFilesSource):
    """A source of files that diverts unreadable ones: each is one record."""

    def make_source(self) -> Source:
        for urn in ("orders", "broken"):
            path = self.folder / urn / "9.jsonl.gz"
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(gzip.compress(b"1\n")[:-4])
            os.utime(path, (1_700_000_009,) * 2)
        paths = [f"{self.folder}/{{dataset}}/*.jsonl", f"{self.folder}/{{dataset}}/*.gz"]
        settings = {"type": "files", "paths": paths, "format": "jsonl", "on_unreadable_file": "divert"}
        return FilesSource.model_validate({**settings, "bytes_per_work_unit": 1})

    def holds(self) -> Mapping[str, Mapping[str, int]]:
        row_counts = {"orders": (18, 4), "clicks": (3, 1), "empty": (0, 1), "broken": (1, 1)}
        own = ("{}", "skipped-{}")
        return {
            urn: {"files": rows, **{name.format(number): 0 for number in range(units) for name in own}}
            for urn, (rows, units) in row_counts.items()
        }


class TestKafkaSourceOfSmallPartitions(TestKafkaSource):
    """A Kafka source in which several partitions share a work unit."""

    target = 100


class TestSqlSource(SourceContract):
    """Tables of SQLite with unique integers, of which the last one is read too."""

    rows: ClassVar = {"orders": 10, "clicks": 3, "empty": 0}

    @pytest.fixture(autouse=True)
    def _tables(self, tmp_path: Path) -> None:
        self.file = tmp_path / "tables.sqlite"
        with contextlib.closing(sqlite3.connect(self.file)) as connection, connection:
            for table, rows in self.rows.items():
                connection.execute(f"CREATE TABLE {table} (id INTEGER PRIMARY KEY, s TEXT)")
                connection.executemany(f"INSERT INTO {table} VALUES (?, 'x')", [(2 * row,) for row in range(rows)])

    def make_source(self) -> Source:
        settings = {"type": "sql", "url": f"sqlite:///{self.file}", "table_patterns": [".*"], "batch_rows": 2}
        return SqlSource.model_validate({**settings, "watermark": "id", "lookback": 0, "records_per_work_unit": 4})

    def holds(self) -> Mapping[str, Mapping[str, int]]:
        return {table: {"": rows} for table, rows in self.rows.items()}


class TestQueriesOfSql(TestSqlSource):
    """Queries of the same tables, with a key from the job file."""

    def make_source(self) -> Source:
        settings = {"type": "sql", "url": f"sqlite:///{self.file}", "watermark": "id", "lookback": 0, "batch_rows": 2}
        settings |= {"queries": {table: f"SELECT s, id FROM {table} AS t ORDER BY s" for table in self.rows}}
        settings |= {"overrides": {table: {"keys": ["id"]} for table in self.rows}}
        return SqlSource.model_validate({**settings, "records_per_work_unit": 4})


class TestSnapshotsOfSql(TestSqlSource):
    """Each table as a whole, in any order; positions count snapshots."""

    def make_source(self) -> Source:
        settings = {"type": "sql", "url": f"sqlite:///{self.file}", "table_patterns": [".*"], "batch_rows": 2}
        return SqlSource.model_validate({**settings, "table_type": "snapshot_only"})

    def test_next_plan_continues_where_the_last_one_ended(self, source: Source, extractor: Extractor) -> None:
        """All rows are read again as the next snapshot."""
        for urn, plan in self.plan(source).items():
            again = self.plan(source, {urn: DatasetState(urn, watermark=self.reached(plan))})[urn]
            assert again.planned_low == self.reached(plan)
            assert self.reached(again).positions == {"": 2}
            assert sum(self.count(extractor, unit) for unit in again.work_units) == self.rows[urn]

    def test_plan_is_empty_after_everything_was_read(self, source: Source, extractor: Extractor) -> None:
        """A snapshot always exists, so that the plan is never empty."""


class TestSqlSourceOfPostgreSQL(TestSqlSource):
    """Timestamps, equal in pairs, read up to the present."""

    @pytest.fixture(autouse=True)
    def _tables(self, tmp_path: Path, postgres_server: PostgresServer) -> None:
        self.server, self.name = postgres_server, f"c_{tmp_path.name.strip('_')}"[:60].lower()
        with postgres_server.connect() as connection:
            connection.execute(f"CREATE SCHEMA {self.name}".encode())
            for table, rows in self.rows.items():
                name = f"{self.name}.{table}"
                connection.execute(f"CREATE TABLE {name} (id timestamptz, n int)".encode())
                values = f"SELECT now() - interval '1 hour' * (1 + i / 2), i FROM generate_series(1, {rows}) i"
                connection.execute(f"INSERT INTO {name} {values}".encode())

    def make_source(self) -> Source:
        settings = {"type": "sql", "url": self.server.url, "schema": self.name, "table_patterns": [".*"]}
        secret = {"password": self.server.password, "batch_rows": 2}
        return SqlSource.model_validate(
            {**settings, **secret, "watermark": "id", "lookback": 0, "records_per_work_unit": 4}
        )

    def test_planning_twice_gives_the_same(self, source: Source) -> None:
        """The plans differ only in their time."""
        first, again = (self.plan(source) for _ in range(2))
        for urn, plan in first.items():
            assert [unit.size for unit in plan.work_units] == [unit.size for unit in again[urn].work_units]
            assert self.reached(again[urn]).covers(self.reached(plan))


class TestSqlSourceOfMariaDB(TestSqlSource):
    """Integers that are a key."""

    @pytest.fixture(autouse=True)
    def _tables(self, tmp_path: Path, mariadb_server: MariadbServer) -> None:
        self.server, self.name = mariadb_server, f"c_{tmp_path.name.strip('_')}"[:60].lower()
        with mariadb_server.connect() as connection, connection.cursor() as cursor:
            cursor.execute(f"CREATE DATABASE {self.name}")
            for table, rows in self.rows.items():
                cursor.execute(f"CREATE TABLE {self.name}.{table} (id int PRIMARY KEY, s text)")
                values = [(2 * row, "x") for row in range(rows)]
                cursor.executemany(f"INSERT INTO {self.name}.{table} VALUES (%s, %s)", values)

    def make_source(self) -> Source:
        url = self.server.url.replace("/shop", f"/{self.name}")
        settings = {"type": "sql", "url": url, "password": self.server.password, "table_patterns": [".*"]}
        return SqlSource.model_validate(
            {**settings, "batch_rows": 2, "watermark": "id", "lookback": 0, "records_per_work_unit": 4}
        )


class TestRestSource(SourceContract):
    """Unique integers whose end is known only after reading; records are numbered."""

    rows: ClassVar = {"orders": 10, "clicks": 3, "empty": 0}
    field: ClassVar = {"field": "id", "type": "integer", "since": "since", "lookback": 0, "unique": True}

    @pytest.fixture(autouse=True)
    def _lists(self, tmp_path: Path, rest_server: RestServer) -> None:
        self.server, self.prefix = rest_server, tmp_path.name
        for name, rows in self.rows.items():
            records = [self.record(row) for row in range(rows)]
            rest_server.put(
                f"{self.prefix}-{name}", rows=records, field="id", is_number=self.field["type"] == "integer"
            )

    def record(self, row: int) -> str:
        return f'{{"id": {row}, "name": "x"}}'

    def make_source(self) -> Source:
        datasets = [f"{self.prefix}-{name}" for name in self.rows]
        where = {"url": f"{self.server.url}/cursor/{{dataset}}", "datasets": datasets, "records": "data.items"}
        paging = {"type": "cursor", "path": "next", "param": "cursor"}
        return RestSource.model_validate({"type": "rest", **where, "watermark": self.field, "paging": paging})

    def holds(self) -> Mapping[str, Mapping[str, int]]:
        return {f"{self.prefix}-{name}": {"": 0, "rows": rows} for name, rows in self.rows.items()}


class TestRestSourceOfTimes(TestRestSource):
    """Times, equal in pairs, read up to the present of the planning machine."""

    field: ClassVar = {"field": "id", "type": "time", "since": "since", "until": "until", "lookback": 0}

    def record(self, row: int) -> str:
        return f'{{"id": "2024-01-01T00:00:{row // 2:02d}Z", "n": {row}}}'

    @pytest.fixture(autouse=True)
    def _stopped_clock(self, _lists: None, monkeypatch: pytest.MonkeyPatch) -> None:
        from distcommit.sources.rest import source

        class Clock(datetime):
            @classmethod
            def now(cls, tz: tzinfo | None = None) -> Clock:
                return cls(2024, 1, 2, tzinfo=tz)

        monkeypatch.setattr(source, "datetime", Clock)

"""Kafka topics to tables by a job file: killed at random moments, exact by the database's plain client."""

from __future__ import annotations

import json
import random
import shutil
import signal
import sqlite3
import time
from abc import ABC, abstractmethod
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import yaml
from confluent_kafka import Producer
from psycopg import sql

from distcommit import Job
from distcommit.app.demo.killed_run import CommitWatcher, RunProcess
from tests.jobs.kafka_job import KafkaJob, kafka_job
from tests.jobs.victims import strike
from tests.servers.mariadb import MariadbServer, prepared_at
from tests.servers.postgresql import PostgresServer

TOPICS = {f"topic-{number:02d}": 2 for number in range(12)}
KILLS, PER_WORK_UNIT = 3, 200
_LEDGER, _PROOFS = "distcommit_ledger", "distcommit_prepared"


class Place(ABC):
    """Location of a job's rows."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.settings: dict[str, Any] = {}

    @abstractmethod
    def sink(self) -> dict[str, Any]:
        """Return the section `sink`, with additional settings of a test."""

    @abstractmethod
    def sql(self, statement: str) -> list[tuple[Any, ...]]:
        """Return the result of a test's own statement."""

    def named(self, table: str) -> str:
        """Return a table's name in such a statement."""
        return table

    @abstractmethod
    def offsets(self) -> dict[str, list[tuple[int, int]]]:
        """Return partition and offset of each row, in order, by table."""

    def in_doubt(self) -> int:
        """Return the transactions that are neither committed nor rolled back."""
        return 0


class InSqlite(Place):
    """SQLite file."""

    def sink(self) -> dict[str, Any]:
        return {"type": "sqlite", "path": str(self.folder / "rows.db")}

    def sql(self, statement: str) -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(self.folder / "rows.db", timeout=60)) as file, file:
            return file.execute(statement).fetchall()

    def offsets(self) -> dict[str, list[tuple[int, int]]]:
        with closing(sqlite3.connect(self.folder / "rows.db", timeout=60)) as file:
            asked = "SELECT name FROM sqlite_master WHERE type = 'table' AND name <> ?"
            tables = [name for (name,) in file.execute(asked, (_LEDGER,))]
            every = 'SELECT kafka_partition, kafka_offset FROM "{}" ORDER BY 1, 2'
            return {table: file.execute(every.format(table)).fetchall() for table in tables}


class InMariadb(Place):
    """MariaDB database of its own."""

    def __init__(self, folder: Path, server: MariadbServer) -> None:
        super().__init__(folder)
        self.server = server
        with server.connect() as connection, connection.cursor() as cursor:
            cursor.execute("CREATE OR REPLACE DATABASE killed")
        (folder / "password").write_text(server.password + "\n")

    def sink(self) -> dict[str, Any]:
        secret = f"${{file:{self.folder / 'password'}}}"
        url = self.server.url.replace("/shop", "/killed")
        return {"type": "mariadb", "url": url, "password": secret, **self.settings}

    def sql(self, statement: str) -> list[tuple[Any, ...]]:
        with self.server.connect("killed") as connection, connection.cursor() as cursor:
            cursor.execute(statement)
            return [*cursor.fetchall()]

    def offsets(self) -> dict[str, list[tuple[int, int]]]:
        by_table: dict[str, list[tuple[int, int]]] = {}
        with self.server.connect("killed") as connection, connection.cursor() as cursor:
            cursor.execute("SHOW TABLES")
            for table in {name for (name,) in cursor.fetchall()} - {_LEDGER, _PROOFS}:
                cursor.execute(f"SELECT kafka_partition, kafka_offset FROM `{table}` ORDER BY 1, 2")
                by_table[table] = [*cursor.fetchall()]
        return by_table

    def in_doubt(self) -> int:
        """Return the prepared and the open transactions."""
        with self.server.connect("killed") as connection, connection.cursor() as cursor:
            cursor.execute("SELECT count(*) FROM information_schema.INNODB_TRX")
            (open_ones,) = cursor.fetchone() or (0,)
            return int(open_ones) + len(prepared_at(self.server))


class InPostgresql(Place):
    """PostgreSQL schema of its own."""

    def __init__(self, folder: Path, server: PostgresServer) -> None:
        super().__init__(folder)
        self.server = server
        with server.connect() as connection:
            connection.execute("DROP SCHEMA IF EXISTS killed CASCADE")
            connection.execute("CREATE SCHEMA killed")
        (folder / "password").write_text(server.password + "\n")

    def sink(self) -> dict[str, Any]:
        secret = f"${{file:{self.folder / 'password'}}}"
        where = {"url": self.server.url, "password": secret, "schema": "killed"}
        return {"type": "postgresql", **where, **self.settings}

    def sql(self, statement: str) -> list[tuple[Any, ...]]:
        with self.server.connect() as connection:
            cursor = connection.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []

    def named(self, table: str) -> str:
        return f"killed.{table}"

    def offsets(self) -> dict[str, list[tuple[int, int]]]:
        with self.server.connect() as connection:
            asked = "SELECT tablename FROM pg_tables WHERE schemaname = 'killed' AND tablename <> ALL (%s)"
            tables = [name for (name,) in connection.execute(asked, ([_LEDGER, _PROOFS],)).fetchall()]
            every = sql.SQL("SELECT kafka_partition, kafka_offset FROM {} ORDER BY 1, 2")
            return {
                table: connection.execute(every.format(sql.Identifier("killed", table))).fetchall() for table in tables
            }

    def in_doubt(self) -> int:
        """Return the prepared transactions, and open ones of committers."""
        with self.server.connect() as connection:
            (prepared,) = connection.execute("SELECT count(*) FROM pg_prepared_xacts").fetchone() or (0,)
            asked = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'distcommit' AND state <> 'idle'"
            (open_ones,) = connection.execute(asked).fetchone() or (0,)
        return int(prepared) + int(open_ones)


def write_job(job: KafkaJob, sink: dict[str, Any]) -> None:
    """Write a job file with that sink; each partition with some records becomes several work units."""
    job.write(commit={"buckets": 4, "min_interval_ms": 0}, source={"records_per_work_unit": PER_WORK_UNIT})
    written = yaml.safe_load(job.path.read_text())
    job.path.write_text(yaml.safe_dump({**written, "sink": sink}))


KINDS = ("sqlite", "mariadb", "postgresql", "mariadb, two-phase", "postgresql, two-phase")


def _first(*kinds: str) -> list[Any]:
    """Return all targets; all but these run in the long profile only."""
    return [kind if kind in kinds else pytest.param(kind, marks=pytest.mark.long) for kind in KINDS]


@pytest.fixture(params=KINDS)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "sqlite":
        return InSqlite(tmp_path)
    name, _, two_phase = request.param.partition(", ")
    server = {"mariadb": "mariadb_server", "postgresql": "preparing_server" if two_phase else "postgres_server"}[name]
    kind = {"mariadb": InMariadb, "postgresql": InPostgresql}[name]
    own_place: Place = kind(tmp_path, request.getfixturevalue(server))
    own_place.settings = {"two_phase": True} if two_phase else {}
    return own_place


@pytest.mark.slow
@pytest.mark.parametrize("place", _first("postgresql"), indirect=True)
def test_runs_killed_at_random_moments_publish_each_record_once(tmp_path: Path, place: Place) -> None:
    rng, produced = random.Random(17), 0
    with kafka_job(tmp_path, TOPICS) as job:
        write_job(job, place.sink())
        for _ in range(KILLS):
            job.produce(300)
            produced += 300
            with job.start() as run:
                before = sum(map(len, place.offsets().values()))
                begun_s = time.monotonic()
                while run.wait(0.002) is None and time.monotonic() < begun_s + 120:
                    if sum(map(len, place.offsets().values())) > before:  # some are committed
                        break
                time.sleep(rng.random() * 0.3)
                assert strike(run, "all", signal.SIGKILL, rng), "it had ended before"
        job.run()
        expected = [(partition, offset) for partition in range(2) for offset in range(produced)]
        assert place.offsets() == dict.fromkeys(TOPICS, expected)
        status = Job.from_file(job.path).status()
        assert {row.status for row in status.datasets} == {"idle"}
        assert len(status.datasets) == len(TOPICS)
        job.assert_exact()
    assert place.in_doubt() == 0


@pytest.mark.slow
@pytest.mark.parametrize("place", _first("sqlite"), indirect=True)
def test_lost_and_rebuilt_store_publishes_each_record_once(tmp_path: Path, place: Place) -> None:
    with kafka_job(tmp_path, TOPICS) as job:
        write_job(job, place.sink())
        job.produce(50)
        job.run()
        shutil.rmtree(tmp_path / "store")
        rebuilt = Job.from_file(job.path).rebuild()
        assert not rebuilt.problems, rebuilt
        job.produce(50)
        job.run()
        expected = [(partition, offset) for partition in range(2) for offset in range(100)]
        assert place.offsets() == dict.fromkeys(TOPICS, expected)
        job.assert_exact()
    assert place.in_doubt() == 0


def checked(least: int) -> dict[str, Any]:
    """Return a flow that rejects records with a smaller number."""
    numbers = {"type": "json", "fields": {"n": "int64"}}
    return {"converters": [numbers], "row_checkers": [{"type": "range", "column": "n", "min": least}]}


def produce_numbers(job: KafkaJob, count: int) -> None:
    """Send that many numbers to each topic, every third of them negative."""
    producer = Producer({"bootstrap.servers": job.broker.bootstrap_servers})
    for topic in job.topics:
        for number in range(count):
            producer.produce(topic, json.dumps({"n": -number if number % 3 == 2 else number}).encode(), partition=0)
    assert producer.flush(30) == 0
    job.produced += count * len(job.topics)


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("place", ["sqlite", "postgresql"], indirect=True)
def test_reprocessed_rows_reach_their_table_once_in_spite_of_kills(tmp_path: Path, place: Place) -> None:
    with kafka_job(tmp_path, dict.fromkeys(TOPICS, 1), **checked(0)) as job:
        produce_numbers(job, 30)
        write_job(job, place.sink())
        job.run()
        good = [(0, offset) for offset in range(30) if offset % 3 != 2]
        assert place.offsets() == dict.fromkeys(TOPICS, good)
        assert job.audit().rejected == 10 * len(TOPICS)

        job.config |= checked(-30)
        write_job(job, place.sink())
        watcher = CommitWatcher(Job.from_file(job.path).open_store(create=False))
        with RunProcess(
            ["dataset", "reprocess", str(job.path), "--all"], tmp_path / "out", tmp_path / "err"
        ) as command:
            while not watcher.pending():
                assert command.wait(0.002) is None, (tmp_path / "err").read_text()[-3000:]
            command.kill()
        job.run()
        if job.audit().rejected:
            code, _, errors = job.cli("dataset reprocess", "--all")
            assert code == 0, errors[-3000:]
        everything = [(0, offset) for offset in range(30)]
        assert place.offsets() == dict.fromkeys(TOPICS, everything)
        assert job.audit().rejected == 0
        job.assert_exact()
    assert place.in_doubt() == 0


def test_server_that_prepares_nothing_is_reported_before_a_record_is_read(
    tmp_path: Path, postgres_server: PostgresServer
) -> None:
    place = InPostgresql(tmp_path, postgres_server)
    place.settings = {"two_phase": True}
    with kafka_job(tmp_path, {"topic-00": 1}) as job:
        write_job(job, place.sink())
        job.produce(5)
        code, result, _ = job.cli("run")
    assert code != 0
    assert "max_prepared_transactions above 0" in str(result)
    assert place.offsets() == {}


def test_prepared_transactions_of_a_failed_dataset_are_rolled_back_so_that_its_table_can_be_altered(
    tmp_path: Path, preparing_server: PostgresServer
) -> None:
    place = InPostgresql(tmp_path, preparing_server)
    place.settings = {"two_phase": True, "tags": True}
    with kafka_job(tmp_path, {"topic-00": 2, "topic-01": 2}) as job:
        write_job(job, place.sink())
        job.produce(PER_WORK_UNIT)
        job.run()
        with preparing_server.connect() as connection:
            connection.execute('ALTER TABLE killed."topic-00" ADD CHECK (kafka_partition = 0 OR kafka_offset < 200)')
        job.produce(PER_WORK_UNIT)
        code, result, _ = job.cli("run")
        assert code != 0
        assert "check constraint" in str(result)
        assert place.in_doubt() == 1, "partition 0 was prepared and is not committed"
        assert place.offsets()["topic-01"] == [(partition, offset) for partition in (0, 1) for offset in range(400)]
        assert job.cli("recover")[0] == 0
        assert place.in_doubt() == 0
        with preparing_server.connect() as connection:
            connection.execute('ALTER TABLE killed."topic-00" DROP CONSTRAINT "topic-00_check"')
        job.run()
        job.assert_exact()
        assert place.in_doubt() == 0

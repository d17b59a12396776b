"""Tables of SQLite and MariaDB by a job file: runs are killed in mid-commit while rows arrive, exact by plain
Python."""

from __future__ import annotations

import json
import shlex
import sqlite3
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from decimal import Decimal
from functools import partial
from pathlib import Path
from threading import Event
from typing import Any

import pyarrow.dataset as ds
import pytest
import yaml
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from distcommit import Job
from distcommit.app.demo.killed_run import RunProcess
from distcommit.cli.main import app
from distcommit.core.interfaces.source_table import Extract, TableType
from distcommit.engine.driver.run import RunResult
from tests.jobs.in_commit import killed_in_commit, run_of
from tests.jobs.kafka_job import PACKAGE_ROOT
from tests.servers.mariadb import MariadbServer
from tests.servers.postgresql import PostgresServer

TABLES = [f"t{number:02d}" for number in range(20)]


class SqlJob:
    """Job on 20 tables: those with even numbers have a key, the others groups of rows with equal values."""

    def __init__(self, folder: Path, **source: Any) -> None:
        self.folder, self.path, self.file = folder, folder / "job.yaml", folder / "tables.db"
        self.rows: dict[str, list[tuple[int, str]]] = {table: [] for table in TABLES}
        base = {"type": "sql", "table_patterns": ["t.*"], "watermark": "id", "lookback": 0, "batch_rows": 7}
        base["records_per_work_unit"] = 20
        base |= self.database()
        config = {
            "job": "tables",
            "source": {**base, **source},
            "paths": {name: name for name in ("store", "staging", "output")},
            "commit": {"buckets": 8, "min_interval_ms": 60_000},
            "spark": {"master": "local[2,4]"},
        }
        self.path.write_text(yaml.safe_dump(config))
        for number, table in enumerate(TABLES):
            key = "INTEGER NOT NULL" if number % 2 else "INTEGER PRIMARY KEY"
            self.write(f"CREATE TABLE {table} (id {key}, s TEXT)")

    def database(self) -> dict[str, str]:
        """Return the database's settings for the source."""
        return {"url": f"sqlite:///{self.file}"}

    def write(self, statement: str, rows: Sequence[tuple[Any, ...]] = ((),)) -> None:
        """Execute a statement for each row, in one transaction."""
        with closing(sqlite3.connect(self.file)) as connection, connection:
            connection.executemany(statement, rows)

    def add(self, rows: int) -> None:
        """Add that many rows to each table."""
        for number, table in enumerate(TABLES):
            begin = len(self.rows[table])
            new = [(row // 3 if number % 2 else row * 2, f"{table}-{row}") for row in range(begin, begin + rows)]
            self.write(f"INSERT INTO {table} VALUES (?, ?)", new)
            self.rows[table] += new

    def start(self, name: str) -> RunProcess:
        return RunProcess(["run", str(self.path), "--json"], self.folder / f"{name}.out", self.folder / f"{name}.err")

    def expected(self) -> Counter[tuple[int, str]]:
        """Return all rows except the newest group of a table without a key."""
        return Counter(
            row
            for number, table in enumerate(TABLES)
            for row in self.rows[table]
            if not number % 2 or row[0] < self.rows[table][-1][0]
        )

    def published(self) -> Counter[tuple[int, str]]:
        records: Counter[tuple[int, str]] = Counter()
        for path in (self.folder / "output").glob("t*/**/*.parquet"):
            rows = ds.dataset(str(path)).to_table()
            assert {text.partition("-")[0] for text in rows["s"].to_pylist()} == {
                path.relative_to(self.folder).parts[1]
            }
            records.update(zip(rows["id"].to_pylist(), rows["s"].to_pylist(), strict=True))
        return records


class MariadbJob(SqlJob):
    """SQL job on a MariaDB database of its own."""

    def __init__(self, folder: Path, server: MariadbServer) -> None:
        self.server, self.name = server, f"job_{folder.name.strip('_')}"[:60].lower()
        with server.connect() as connection, connection.cursor() as cursor:
            cursor.execute(f"CREATE DATABASE {self.name}")
        super().__init__(folder)

    def database(self) -> dict[str, str]:
        return {"url": self.server.url.replace("/shop", f"/{self.name}"), "password": self.server.password}

    def write(self, statement: str, rows: Sequence[tuple[Any, ...]] = ((),)) -> None:
        with self.server.connect(self.name) as connection, connection.cursor() as cursor:
            connection.begin()
            cursor.executemany(statement.replace("?", "%s"), rows)
            connection.commit()


class QueryJob(SqlJob):
    """SQL job whose datasets are queries that join their table with another one; even-numbered ones name a key."""

    def __init__(self, folder: Path, **source: Any) -> None:
        queries = {table: self.query(table) for table in TABLES}
        keys = {table: {"keys": ["id"]} for table in TABLES[::2]}
        super().__init__(folder, table_patterns=[], queries=queries, overrides=keys, **source)
        self.write("CREATE TABLE last (word TEXT)")
        self.write("INSERT INTO last VALUES ('end')")

    @staticmethod
    def query(table: str) -> str:
        return f"SELECT {table}.id, {table}.s, last.word FROM {table} CROSS JOIN last ORDER BY {table}.s DESC; -- 'all'"

    def change(self, table: str, query: str) -> None:
        """Replace one dataset's query."""
        config = yaml.safe_load(self.path.read_text())
        config["source"]["queries"][table] = query
        self.path.write_text(yaml.safe_dump(config))


def watermarks(job: SqlJob) -> dict[str, Any]:
    return {row.dataset: row.positions for row in Job.from_file(job.path).status().datasets}


def test_tables_are_published_run_after_run(tmp_path: Path, spark: SparkSession) -> None:
    job = SqlJob(tmp_path)
    for rows in (30, 0, 10):
        job.add(rows)
        result: RunResult = Job.from_file(job.path, session=spark).run()
        assert result.succeeded
        assert job.published() == job.expected()
    status = Job.from_file(job.path).status()
    assert len(status.datasets) == len(TABLES)
    audit = Job.from_file(job.path).audit(deep=True)
    assert audit.exact
    assert audit.records == job.expected().total()
    path = min((tmp_path / "output").rglob("*.parquet"))
    path.unlink()
    audit = Job.from_file(job.path).audit()
    assert not audit.exact
    assert [altered.partition(": the file is missing")[0] for altered in audit.altered] == [
        str(path.relative_to(tmp_path / "output"))
    ]


def test_run_and_status_show_how_many_rows_wait_and_why(tmp_path: Path, spark: SparkSession) -> None:
    job = SqlJob(tmp_path)
    job.add(9)
    shown = CliRunner().invoke(app, ["run", str(job.path)]).output
    line = next(line for line in shown.splitlines() if line.startswith("left for later"))
    assert "30 of 10 datasets (t01: 3, t03: 3, t05: 3, ...)" in line
    assert " ".join(shown.split()).count("greatest value of the watermark column") == 1, "one line for all tables"
    status = json.loads(CliRunner().invoke(app, ["status", str(job.path), "--json"]).stdout)
    (cause,) = status["last_run"]["totals"]["deferred"]["causes"]
    assert (cause["datasets"], cause["records"], cause["is_minimum"]) == (10, 30, False)
    assert cause["largest"] == dict.fromkeys(TABLES[1::2], 3)
    assert "30 of 10 datasets" in CliRunner().invoke(app, ["status", str(job.path)]).output
    again = CliRunner().invoke(app, ["run", str(job.path), "--json"])
    (cause,) = json.loads(again.stdout)["totals"]["deferred"]["causes"]
    assert (cause["datasets"], cause["records"], cause["is_minimum"]) == (10, 10, True)


def test_table_with_a_problem_keeps_its_watermark_and_others_are_published(tmp_path: Path, spark: SparkSession) -> None:
    job = SqlJob(tmp_path)
    job.add(9)
    assert Job.from_file(job.path, session=spark).run().succeeded
    with closing(sqlite3.connect(job.file)) as connection, connection:
        connection.execute("DELETE FROM t00 WHERE id > 4")
        connection.execute("ALTER TABLE t02 RENAME COLUMN id TO other")
        connection.execute("INSERT INTO t04 VALUES (100, 't04-new')")
    before, marks = job.published(), watermarks(job)
    result = Job.from_file(job.path, session=spark).run()
    assert not result.succeeded
    assert job.published() - before == Counter([(100, "t04-new")])
    assert [urn for urn, mark in watermarks(job).items() if mark != marks[urn]] == ["t04"]
    (trouble,) = (
        problem for problem in Job.from_file(job.path).status().problems if problem.finding.startswith("t00 could not")
    )
    command = shlex.split(trouble.command)
    assert command[1:] == ["dataset", "set-watermark", str(job.path), "t00", "null"]
    subprocess.run([sys.executable, "-m", *command], check=True, capture_output=True)
    before = job.published()
    Job.from_file(job.path, session=spark).run()
    assert job.published() - before == Counter([(0, "t00-0"), (2, "t00-1"), (4, "t00-2")]), "read again from scratch"


def test_example_job_file_reads_postgresql(
    tmp_path: Path, spark: SparkSession, postgres_server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    with postgres_server.connect() as connection:
        connection.execute(
            "CREATE TABLE sales_orders (order_id int, customer text, total numeric(10, 2), notes tsvector,"
            " updated_at timestamptz DEFAULT now() - interval '10 minutes')"
        )
        connection.execute("CREATE TABLE sales_places (id int PRIMARY KEY, name text)")
        connection.execute("INSERT INTO sales_orders VALUES (1, 'a', 9.99), (2, 'b', NULL), (3, 'c', 0.01)")
        connection.execute("INSERT INTO sales_places SELECT i, 'place' FROM generate_series(1, 2500) i")
    monkeypatch.setenv("URL", postgres_server.url)
    monkeypatch.setenv("PASSWORD", postgres_server.password)
    paths = [f"paths.{name}={tmp_path / name}" for name in ("store", "staging", "output")]
    job = Job.from_file(PACKAGE_ROOT / "conf" / "jobs" / "sql-to-parquet.yaml", overrides=paths, session=spark)
    assert job.run().succeeded
    with postgres_server.connect() as connection:
        connection.execute("DROP TABLE sales_orders, sales_places")
    names = ("sales_orders", "sales_places", "large_orders")
    tables = {name: ds.dataset(str(tmp_path / "output" / name)).to_table() for name in names}
    assert tables["sales_orders"]["total"].to_pylist() == [Decimal("9.99"), Decimal("0.01")]
    assert tables["sales_places"]["id"].to_pylist() == list(range(1, 1501))
    assert tables["large_orders"].drop(["updated_at"]).to_pylist() == [
        {"order_id": 1, "customer": "A", "total": Decimal("9.99")}
    ]


@pytest.mark.slow
def test_runs_killed_in_mid_commit_publish_each_row_once_in_the_end(tmp_path: Path) -> None:
    killed_and_audited(SqlJob(tmp_path))


@pytest.mark.slow
@pytest.mark.long
def test_query_rows_are_published_once_in_spite_of_kills(tmp_path: Path) -> None:
    killed_and_audited(QueryJob(tmp_path))


def test_changed_query_stops_its_dataset_until_the_printed_command(tmp_path: Path, spark: SparkSession) -> None:
    job = QueryJob(tmp_path)
    job.add(9)
    assert Job.from_file(job.path, session=spark).run().succeeded
    before, marks = job.published(), watermarks(job)
    assert before == job.expected()
    job.change("t00", job.query("t00").replace("; -- 'all'", "  -- all"))
    job.change("t01", job.query("t01").replace(" ORDER", " WHERE t01.s <> 't01-7' ORDER").replace("word", "rowid AS n"))
    job.add(3)
    stopped = Job.from_file(job.path, session=spark)
    assert not stopped.run().succeeded
    assert {urn for urn, mark in watermarks(job).items() if mark == marks[urn]} == {"t01"}
    troubles = stopped.status().problems
    (trouble,) = (
        problem
        for problem in troubles
        if problem.finding.startswith("t01 could not be planned: ") and "the dataset was read by" in problem.finding
    )
    command = shlex.split(trouble.command)
    assert command[1:] == ["dataset", "set-watermark", str(job.path), "t01", '{"": 2}']
    subprocess.run([sys.executable, "-m", *command], check=True, capture_output=True)
    assert stopped.run().succeeded
    assert job.published() == job.expected() - Counter([(2, "t01-7")])
    (_, newest) = sorted((tmp_path / "output" / "t01").glob("**/*.parquet"), key=lambda path: path.stat().st_mtime)
    assert ds.dataset(str(newest)).to_table().schema.names == ["id", "s", "n"]
    audit = stopped.audit(deep=True)
    assert audit.exact
    assert audit.records == job.published().total()


def test_a_large_table_is_read_by_several_work_units(tmp_path: Path, spark: SparkSession) -> None:
    job = SqlJob(tmp_path)
    job.add(35)
    result = Job.from_file(job.path, session=spark).run()
    planned = result.totals
    assert (result.succeeded, planned.datasets_planned, planned.work_units) == (True, len(TABLES), 2 * len(TABLES))
    assert job.published() == job.expected()


def test_writer_and_status_know_the_table_that_a_dataset_extracts(tmp_path: Path, spark: SparkSession) -> None:
    job = SqlJob(tmp_path, tables=["u"], table_patterns=[], schema="main", table_type="snapshot_append")
    job.write("CREATE TABLE u (id INTEGER NOT NULL, shop TEXT NOT NULL, PRIMARY KEY (shop, id))")
    job.write("INSERT INTO u VALUES (?, ?)", [(1, "a"), (1, "b"), (2, "a")])
    notes = tmp_path / "notes.db"
    sink = {
        "type": "python",
        "class": "tests.integration.parts.keyed_notes:KeyedNotes",
        "options": {"path": str(notes)},
    }
    ran = Job.from_file(job.path, overrides=[f"sink={json.dumps(sink)}"], session=spark)
    assert ran.run().succeeded
    (row,) = ran.status().datasets
    assert row.extract == Extract("main", "u", TableType.SNAPSHOT_APPEND, (), ("id",))
    with closing(sqlite3.connect(notes)) as connection:
        keys = sorted(json.loads(note)["keys"] for (note,) in connection.execute("SELECT note FROM notes"))
    assert keys == [["a", 1], ["b", 1]]


@contextmanager
def constantly_updated(server: PostgresServer, tables: Sequence[str]) -> Iterator[None]:
    """Give all rows of a table a new version in one transaction, again and again."""
    has_ended = Event()

    def change() -> None:
        with server.connect() as connection:
            while not has_ended.is_set():
                for table in tables:
                    connection.execute(f"UPDATE {table} SET version = version + 1".encode())

    with ThreadPoolExecutor(1) as pool:
        changing = pool.submit(change)
        try:
            yield
        finally:
            has_ended.set()
            changing.result()


@pytest.mark.slow
@pytest.mark.long
def test_postgresql_snapshots_are_consistent_and_newest_in_spite_of_kills(
    tmp_path: Path, postgres_server: PostgresServer
) -> None:
    tables, path, kills = [f"snap_{number}" for number in range(8)], tmp_path / "job.yaml", 0
    source = {"url": postgres_server.url, "password": postgres_server.password, "table_type": "snapshot_only"}
    job = {
        "job": "snapshots",
        "source": {"type": "sql", **source, "table_patterns": ["snap_.*"], "batch_rows": 100},
        "sink": {"publish": "replace"},
        "paths": {name: name for name in ("store", "staging", "output")},
        "commit": {"buckets": 4, "min_interval_ms": 60_000},
        "spark": {"master": "local[2,4]"},
    }
    path.write_text(yaml.safe_dump(job))
    with postgres_server.connect() as connection:
        for table in tables:
            rows = "SELECT i, 0 AS version FROM generate_series(1, 2000) i"
            connection.execute(f"CREATE TABLE {table} AS {rows}".encode())
    with constantly_updated(postgres_server, tables):
        for attempt in range(3):
            kills += killed_in_commit(path, partial(run_of, path, f"killed-{attempt}"))
    assert kills, "no run was killed in the middle of its commit"
    command = [sys.executable, "-m", "distcommit", "run", str(path), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    versions: dict[str, int] = {}
    with postgres_server.connect() as connection:
        for table in tables:
            ((versions[table],),) = connection.execute(f"SELECT max(version) FROM {table}".encode()).fetchall()
            connection.execute(f"DROP TABLE {table}".encode())
    for table in tables:
        paths = sorted((tmp_path / "output" / table).glob("**/*.parquet"))
        snapshots = [ds.dataset(str(item)).to_table() for item in paths]
        for item in snapshots:  # replaced files stay until the next run: each is complete and shows one moment
            assert sorted(item["i"].to_pylist()) == list(range(1, 2001))
            assert len(set(item["version"].to_pylist())) == 1
        assert snapshots[-1]["version"][0].as_py() == versions[table]
    assert Job.from_file(path).audit(deep=True).exact


@pytest.mark.slow
@pytest.mark.long
def test_mariadb_rows_are_published_once_in_spite_of_kills(tmp_path: Path, mariadb_server: MariadbServer) -> None:
    killed_and_audited(MariadbJob(tmp_path, mariadb_server))


def killed_and_audited(job: SqlJob) -> None:
    """Kill four runs once their commit has begun, complete a fifth, and audit."""
    kills = 0
    for attempt in range(4):
        job.add(30)
        kills += killed_in_commit(job.path, partial(job.start, f"run-{attempt}"))
    job.add(10)
    command = [sys.executable, "-m", "distcommit", "run", str(job.path), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1])
    assert kills, "no run was killed in the middle of its commit"
    assert job.published() == job.expected()
    assert Job.from_file(job.path).audit(deep=True).exact

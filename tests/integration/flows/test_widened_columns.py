"""Source columns that widen or are added later, and tables that follow or refuse, by `distcommit run`.

The target is queried without the sinks' code.
"""

from __future__ import annotations

import json
import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from distcommit import Job
from distcommit.cli.main import app
from distcommit.sinks.iceberg.catalog.open_catalogs import close_opened
from tests.servers.postgresql import PostgresServer

ROWS = 20
WIDE = 2**40
TENTH = 0.1
"""A value that no 32-bit float equals."""
Row = tuple[int, int, float, str | None]


class Tables(ABC):
    """Tables of a job, as an independent client sees them.

    Attributes: folder: an empty folder of the test. widened: the types of the columns `n` and `x` once they are as
    wide as the records'.
    """

    widened: tuple[str, str]

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @abstractmethod
    def sink(self) -> dict[str, Any]:
        """Return the `sink` section of a job file."""

    @abstractmethod
    def table(self, name: str) -> pa.Table:
        """Return all rows of a table, with all of its columns."""

    @abstractmethod
    def types(self) -> tuple[str, str]:
        """Return the table's types of the columns `n` and `x`."""

    def rows(self, name: str) -> list[Row]:
        """Return the rows as in the source; a renamed column counts as the original one."""
        columns = ("id", "n", "x", "extra", "n_wide", "x_wide")
        table_rows = [[row.get(text) for text in columns] for row in self.table(name).to_pylist()]
        return sorted(
            (id_, n_wide if n is None else n, x_wide if x is None else x, extra)
            for id_, n, x, extra, n_wide, x_wide in table_rows
        )


class InPostgresql(Tables):
    widened = ("bigint", "double precision")

    def __init__(self, folder: Path, server: PostgresServer) -> None:
        super().__init__(folder)
        self.server = server
        with server.connect() as connection:
            connection.execute("DROP SCHEMA IF EXISTS widening CASCADE")
            connection.execute("CREATE SCHEMA widening")

    def sink(self) -> dict[str, Any]:
        return {"type": "postgresql", "url": self.server.url, "password": self.server.password, "schema": "widening"}

    def table(self, name: str) -> pa.Table:
        with self.server.connect() as connection:
            cursor = connection.execute(f"SELECT * FROM widening.{name}".encode())
            names = [column.name for column in cursor.description or ()]
            return pa.Table.from_pylist([dict(zip(names, row, strict=True)) for row in cursor])

    def types(self) -> tuple[str, str]:
        asked = "SELECT format_type(atttypid, NULL) FROM pg_attribute WHERE attrelid = 'widening.d'::regclass"
        with self.server.connect() as connection:
            column_types = connection.execute(f"{asked} AND attname IN ('n', 'x') ORDER BY attname".encode()).fetchall()
            return column_types[0][0], column_types[1][0]


class InSqlite(Tables):
    widened = ("INTEGER", "REAL")

    def sink(self) -> dict[str, Any]:
        return {"type": "sqlite", "path": f"{self.folder}/rows.db"}

    def table(self, name: str) -> pa.Table:
        with closing(sqlite3.connect(self.folder / "rows.db")) as file:
            file.row_factory = sqlite3.Row
            return pa.Table.from_pylist([dict(row) for row in file.execute(f"SELECT * FROM {name}")])

    def types(self) -> tuple[str, str]:
        with closing(sqlite3.connect(self.folder / "rows.db")) as file:
            column_types = {name: kind for _, name, kind, *_ in file.execute("PRAGMA table_info(d)")}
            return column_types["n"], column_types["x"]


class InIceberg(Tables):
    widened = ("long", "double")

    @property
    def catalog(self) -> dict[str, Any]:
        return {"uri": f"sqlite:///{self.folder}/catalog.db", "warehouse": f"file://{self.folder}/warehouse"}

    def sink(self) -> dict[str, Any]:
        return {"type": "iceberg", "namespace": "widening", "catalog": {"type": "sql", **self.catalog}}

    def table(self, name: str) -> pa.Table:
        with load_catalog("default", type="sql", **self.catalog) as catalog:
            return catalog.load_table(("widening", name)).scan().to_arrow()

    def types(self) -> tuple[str, str]:
        with load_catalog("default", type="sql", **self.catalog) as catalog:
            schema = catalog.load_table(("widening", "d")).schema()
            return str(schema.find_type("n")), str(schema.find_type("x"))


class InDelta(Tables):
    widened = ("int32", "float")

    def sink(self) -> dict[str, Any]:
        (self.folder / "tables").mkdir(exist_ok=True)
        return {"type": "delta", "location": f"{self.folder}/tables"}

    def table(self, name: str) -> pa.Table:
        return DeltaTable(f"{self.folder}/tables/{name}").to_pyarrow_table()

    def types(self) -> tuple[str, str]:
        schema = pa.schema(DeltaTable(f"{self.folder}/tables/d").schema().to_arrow())
        return str(schema.field("n").type), str(schema.field("x").type)


class WideningJob:
    """Job of Parquet files into tables, in which dataset `d` widens. `arrived`: the rows of each dataset so far."""

    def __init__(self, folder: Path, tables: Tables) -> None:
        self.folder, self.tables, self.path = folder, tables, folder / "job.yaml"
        self.arrived: dict[str, list[Row]] = {}
        self._files = 0
        self.write()

    def write(self, converters: list[dict[str, Any]] | None = None, **sink: Any) -> None:
        source = {"type": "files", "paths": [f"{self.folder}/in/{{dataset}}/*.parquet"], "format": "parquet"}
        job = {
            "job": "widening",
            "source": {**source, "min_file_age_s": 0},
            "converters": converters or [],
            "sink": {**self.tables.sink(), **sink},
            "paths": {name: f"{self.folder}/{name}" for name in ("store", "staging", "output")},
            "commit": {"buckets": 2},
        }
        self.path.write_text(yaml.safe_dump(job))

    def arrive(self, dataset: str = "d", *, wide: bool = False, extra: bool = False) -> None:
        """Add a file whose columns `n` and `x` have 32 bits, or 64 if `wide`, and an additional column with `extra`."""
        begin = self._files * ROWS
        self._files += 1
        rows: list[Row] = [
            (id_, id_ + WIDE, TENTH * id_, None) if wide else (id_, id_, id_ / 2, None)
            for id_ in range(begin, begin + ROWS)
        ]
        if extra:
            rows = [(id_, n, x, f"more {id_}") for id_, n, x, _ in rows]
        ids, ns, xs, more = (list(column) for column in zip(*rows, strict=True))
        kinds = (pa.int64(), pa.float64()) if wide else (pa.int32(), pa.float32())
        columns = {"id": pa.array(ids, pa.int64()), "n": pa.array(ns, kinds[0]), "x": pa.array(xs, kinds[1])}
        (self.folder / "in" / dataset).mkdir(parents=True, exist_ok=True)
        table = pa.table({**columns, "extra": pa.array(more, pa.string())} if extra else columns)
        pq.write_table(table, self.folder / "in" / dataset / f"{self._files:03d}.parquet")
        self.arrived[dataset] = [*self.arrived.get(dataset, []), *rows]

    def command(self, *words: str) -> tuple[int, str]:
        """Return the exit code and the complete output of a command."""
        done = CliRunner().invoke(app, [*words[0].split(), str(self.path), *words[1:]])
        return done.exit_code, done.output if "--json" in words else " ".join(done.output.split())

    def run(self) -> None:
        code, output = self.command("run")
        assert code == 0, output

    def assert_exact(self) -> None:
        """Assert that the output is exact, by the target itself and by the audit."""
        for dataset, rows in self.arrived.items():
            assert self.tables.rows(dataset) == rows
        code, output = self.command("audit", "--deep", "--json")
        assert code == 0, output
        assert json.loads(output)["exact"], output
        assert {row.status for row in Job.from_file(self.path).status().datasets} == {"idle"}


@pytest.fixture(params=["postgresql", "sqlite", "iceberg", "delta"])
def job(request: pytest.FixtureRequest, tmp_path: Path, spark: SparkSession) -> Iterator[WideningJob]:
    """Return a job whose runs use the open Spark session."""
    kinds: dict[str, type[InSqlite | InIceberg | InDelta]] = {
        "sqlite": InSqlite,
        "iceberg": InIceberg,
        "delta": InDelta,
    }
    if request.param == "postgresql":
        yield WideningJob(tmp_path, InPostgresql(tmp_path, request.getfixturevalue("postgres_server")))
    else:
        yield WideningJob(tmp_path, kinds[request.param](tmp_path))
    close_opened()


def test_table_is_widened_in_mid_work_unit_and_takes_narrow_records_later(job: WideningJob) -> None:
    """Delta follows where it can: an additional column."""
    wide = not isinstance(job.tables, InDelta)
    job.write(evolve="add_columns")
    job.arrive()
    job.run()
    before = job.tables.types()
    assert isinstance(job.tables, InSqlite | InDelta) or before != job.tables.widened
    job.arrive()
    job.arrive(wide=wide, extra=True)
    job.arrive(wide=wide)
    job.run()
    assert job.tables.types() == job.tables.widened
    job.arrive()
    job.run()
    job.assert_exact()


def test_refused_widening_is_committed_completely_once_allowed(job: WideningJob) -> None:
    job.arrive()
    job.arrive("other")
    job.run()
    first, before = list(job.arrived["d"]), job.tables.types()
    for _ in range(2):
        job.arrive(wide=True, extra=True)
        job.arrive("other")
        code, output = job.command("run")
        assert code == 1, output
        assert "no column" in output
        assert "extra" in output
        assert "add_columns" in output, "what to do"
        assert job.tables.rows("d") == first, "nothing of it"
        assert job.tables.rows("other") == job.arrived["other"]
        assert job.tables.types() == before
    if isinstance(job.tables, InDelta):
        job.write(evolve="add_columns")
        code, output = job.command("run")
        assert code == 1, output
        assert "column n is int32, and records have int64" in output
        assert "convert the column before the sink" in output, "what to do"
        assert job.tables.rows("d") == first
        renamed = {"type": "rename", "columns": {"n": "n_wide", "x": "x_wide"}}
        job.write([renamed], evolve="add_columns")
    else:
        job.write(evolve="add_columns")
    code, output = job.command("dataset release", "--all", "retry")
    job.run()
    job.assert_exact()

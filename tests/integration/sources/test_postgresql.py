"""The SQL source on a real PostgreSQL server: types, ties, late commits, locks, and a server that is killed."""

from __future__ import annotations

import datetime as dt
import gc
import itertools
import pickle
import re
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from decimal import Decimal
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pytest
import yaml

import distcommit
from distcommit.core.errors import DistcommitError, SourceError, TransientError
from distcommit.core.interfaces.source import DatasetProblem, SkippedDataset, SourceState
from distcommit.core.watermark import Watermark
from distcommit.core.work_units import DatasetPlan
from distcommit.sources.sql.source import SqlSource
from tests.servers.postgresql import PostgresServer
from tests.unit.sources.sql.sql_tables import Reader, deferred, planned, queried, source

_NUMBERS = itertools.count()


class Schema:
    """Schema of one test."""

    def __init__(self, server: PostgresServer) -> None:
        self.server, self.name = server, f"s{next(_NUMBERS)}"
        self.run(f"CREATE SCHEMA {self.name}")

    def connect(self) -> psycopg.Connection:
        connection = self.server.connect()
        connection.execute(f"SET search_path TO {self.name}".encode())
        return connection

    def run(self, *statements: str) -> None:
        with self.connect() as connection:
            for statement in statements:
                connection.execute(statement.encode())

    def wait_for_end_of_second(self) -> None:
        """Wait until the server's present second is over; until then no reader returns rows of it."""
        self.run("SELECT pg_sleep_until(date_trunc('second', clock_timestamp()) + interval '1 second')")

    def source(self, **settings: Any) -> SqlSource:
        password = settings.pop("password", self.server.password)
        sql_source = source(self.server.url, password=password, schema=self.name, **settings)
        travelled: SqlSource = pickle.loads(pickle.dumps(sql_source))
        return travelled


@pytest.fixture
def schema(postgres_server: PostgresServer) -> Iterator[Schema]:
    own_schema = Schema(postgres_server)
    yield own_schema
    own_schema.run(f"DROP SCHEMA {own_schema.name} CASCADE")


def ids(rows: list[dict[str, Any]]) -> list[Any]:
    return [row["id"] for row in rows]


def test_types(schema: Schema) -> None:
    zone = dt.timezone(dt.timedelta(hours=2))
    columns: dict[str, tuple[str, Any, pa.DataType, Any]] = {
        "small": ("smallint", -5, pa.int16(), -5),
        "usual": ("integer", 1 << 30, pa.int32(), 1 << 30),
        "big": ("bigint", 1 << 60, pa.int64(), 1 << 60),
        "money": ("numeric(20, 4)", Decimal("1234567890123456.7891"), pa.decimal128(20, 4), ...),
        "wide": ("numeric(60, 0)", Decimal(10**59), pa.decimal256(60, 0), ...),
        "single": ("real", 0.5, pa.float64(), 0.5),
        "double": ("double precision", 0.1, pa.float64(), 0.1),
        "words": ("text", "äöü\n", pa.string(), ...),
        "short": ("varchar(3)", "abc", pa.string(), ...),
        "fixed": ("char(3)", "a", pa.string(), "a  "),
        "mood": (f"{schema.name}.mood", "sad", pa.string(), ...),
        "raw": ("bytea", b"\0\xff", pa.binary(), ...),
        "flag": ("boolean", True, pa.bool_(), ...),
        "day": ("date", dt.date(2024, 2, 29), pa.date32(), ...),
        "clock": ("time", dt.time(1, 2, 3, 4), pa.time64("us"), ...),
        "local": ("timestamp", dt.datetime(2024, 1, 1, 1, 2, 3, 4), pa.timestamp("us"), ...),
        "zoned": (
            "timestamptz",
            dt.datetime(2024, 1, 1, 1, 2, 3, 4, tzinfo=zone),
            pa.timestamp("us", tz="UTC"),
            dt.datetime(2023, 12, 31, 23, 2, 3, 4, tzinfo=dt.UTC),
        ),
        "named": ("uuid", "0b0e6ad2-0000-4000-8000-00000000000f", pa.string(), ...),
        "json": ("json", '{"b":1, "a":[1]}', pa.string(), ...),
        "jsonb": ("jsonb", '{"b":1,"a":[1]}', pa.string(), '{"a": [1], "b": 1}'),
    }
    declared = ", ".join(f'"{name}" {column[0]}' for name, column in columns.items())
    schema.run("CREATE TYPE mood AS ENUM ('sad', 'ok')", f"CREATE TABLE t (id int PRIMARY KEY, {declared})")
    with schema.connect() as connection:
        marks = ", ".join(["%s"] * len(columns))
        values = [column[1] for column in columns.values()]
        connection.execute(f"INSERT INTO t VALUES (1, {marks}), (2{', NULL' * len(columns)})".encode(), values)
    reader = Reader(schema.source())
    plan = reader.plan()
    assert plan is not None, reader.problems
    with closing(reader.source.open()) as extractor:
        (batch,) = extractor.extract(plan.work_units[0])
    assert batch.schema == pa.schema([("id", pa.int32()), *((name, column[2]) for name, column in columns.items())])
    first, second = batch.to_pylist()
    assert first == {
        "id": 1,
        **{name: written if read is ... else read for name, (_, written, _, read) in columns.items()},
    }
    assert set(second.values()) == {2, None}
    assert queried(schema.source, f"SELECT * FROM {schema.name}.t") == batch


def test_query_is_read_like_a_table_with_types_only_its_database_knows(schema: Schema) -> None:
    name = schema.name
    schema.run(
        "CREATE DOMAIN price AS numeric(8, 2)",
        "CREATE TABLE t (id int PRIMARY KEY, s text, price price, at timestamptz)",
        "INSERT INTO t VALUES (1, '1%', 9.99, '2024-01-01Z'), (2, ':a', NULL, '2024-01-02Z'), (3, 'x', 1, NULL)",
    )
    batch = queried(
        schema.source,
        "SELECT id::bigint AS id, $$:x;)$$ AS mark, sum(price)::numeric(10, 2) AS total, s LIKE '%!%' ESCAPE '!' AS"
        f' "5%", count(*) AS n, max(at) AS at FROM {name}.t /* nested /* ; */ ) */ WHERE s <> $$:x$$'
        " GROUP BY id, s; -- all",
    )
    assert batch.schema.types == [
        pa.int64(),
        pa.string(),
        pa.decimal128(10, 2),
        pa.bool_(),
        pa.int64(),
        pa.timestamp("us", tz="UTC"),
    ]
    assert [tuple(row.values())[:5] for row in batch.to_pylist()] == [
        (1, ":x;)", Decimal("9.99"), True, 1),
        (2, ":x;)", None, False, 1),
        (3, ":x;)", Decimal(1), False, 1),
    ]
    by_time = {"queries": {"q": f"SELECT s, at FROM {name}.t WHERE at IS NOT NULL"}, "watermark": "at", "lookback": 60}
    reader = Reader(schema.source(tables=[], **by_time), "q")
    assert [row["s"] for row in reader.run()] == ["1%", ":a"]
    schema.run("INSERT INTO t VALUES (4, 'late', 1, now() - interval '2 minutes')")
    reader.watermark = Watermark({"": "2024-01-03T00:00:00.000000Z"})
    assert [row["s"] for row in reader.run()] == ["late"]
    by_text = {"queries": {"q": f"SELECT s, id FROM {name}.t"}, "watermark": "s"}
    assert [row["s"] for row in Reader(schema.source(tables=[], **by_text), "q").run()] == ["1%", ":a", "late"]


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        ("SELECT id, s AS a, s AS a FROM {t}", "two columns of one name"),
        ("SELECT s FROM {t}", "no such watermark column"),
        ("SELECT id, sum(id::numeric) AS n FROM {t} GROUP BY id", "column=n"),
        ("SELECT id, now() - now() AS odd FROM {t}", "found type interval"),
        ("SELECT id FROM {t} WHERE s = :name", "syntax error"),
        ("WITH gone AS (DELETE FROM {t} RETURNING id) SELECT id FROM gone", "must be at the top level"),
        ("SELECT id FROM {t} FOR UPDATE", "read-only transaction"),
        ("SELECT nextval('{schema}.numbers') AS id FROM {t}", "read-only transaction"),
        ("SELECT {schema}.emptied() AS id", "read-only transaction"),
        (
            "SELECT length(set_config('transaction_read_only', 'off', true)) AS id",
            "read-write mode must be set before any query",
        ),
    ],
)
def test_unreadable_query_is_reported_and_changes_nothing(schema: Schema, query: str, reason: str) -> None:
    schema.run(
        "CREATE TABLE t (id int PRIMARY KEY, s text)",
        "INSERT INTO t VALUES (1, 'a'), (2, 'b')",
        "CREATE SEQUENCE numbers",
        f"CREATE FUNCTION emptied() RETURNS int LANGUAGE sql AS 'DELETE FROM {schema.name}.t; SELECT 1'",
    )
    text = query.format(t=f"{schema.name}.t", schema=schema.name)
    problem, plan = planned(schema.source(queries={"q": text}))
    assert isinstance(problem, DatasetProblem)
    assert reason in problem.error
    assert isinstance(plan, DatasetPlan)
    assert_unchanged(schema)


def assert_unchanged(schema: Schema) -> None:
    with schema.connect() as connection:
        assert connection.execute("SELECT count(*) FROM t").fetchone() == (2,)
        assert connection.execute("SELECT is_called FROM numbers").fetchone() == (False,)


@pytest.mark.parametrize("then", ["", "COMMIT; ", "ROLLBACK; BEGIN READ WRITE; "])
def test_unchecked_query_cannot_change_anything(schema: Schema, then: str) -> None:
    from distcommit.sources.query_checks import Query
    from distcommit.sources.sql.query_columns import query_columns
    from distcommit.sources.sql.table_selection import TableRules

    schema.run("CREATE TABLE t (id int)", "INSERT INTO t VALUES (1), (2)", "CREATE SEQUENCE numbers")
    body = f"SELECT 1 AS id) AS q; {then}DELETE FROM {schema.name}.t; COMMIT; SELECT * FROM (SELECT 1 AS id"
    connections = schema.source()._database()
    with (
        pytest.raises(SourceError, match="multiple commands"),
        closing(connections),
        connections.reading("q") as connection,
    ):
        query_columns(connection, "q", TableRules("id", 0, query=Query(body, "")))
    with pytest.raises(SourceError, match="read-only"), closing(connections), connections.reading() as connection:
        connection.exec_driver_sql(f"COMMIT; DELETE FROM {schema.name}.t")
    assert_unchanged(schema)


@pytest.mark.parametrize("declared", ["numeric", "interval", "int[]", "point", "timetz", "tsvector"])
def test_unsupported_type_is_reported_with_its_column(schema: Schema, declared: str) -> None:
    schema.run(f"CREATE TABLE t (id int PRIMARY KEY, odd {declared})")
    (problem,) = planned(schema.source())
    assert isinstance(problem, DatasetProblem)
    assert "column=odd" in problem.error
    (plan,) = planned(schema.source(overrides={"t": {"columns": ["id"]}}))
    assert isinstance(plan, DatasetPlan)


@pytest.mark.parametrize(("declared", "last"), [("smallint", 2**15 - 1), ("integer", 2**31 - 1), ("bigint", 2**63 - 2)])
def test_a_column_is_read_up_to_its_largest_number(schema: Schema, declared: str, last: int) -> None:
    schema.run(f"CREATE TABLE t (id {declared} PRIMARY KEY)", f"INSERT INTO t VALUES ({-last}), ({last})")
    reader = Reader(schema.source())
    assert ids(reader.run()) == [-last, last]
    assert reader.plan() is None
    assert reader.problems == []


def test_late_committed_transaction_is_lost_without_lookback_and_read_with_it(schema: Schema) -> None:
    """This is the trap of sequences: a number is assigned when a row is inserted, and visible when its transaction
    commits."""
    schema.run("CREATE TABLE t (id serial PRIMARY KEY)")
    naive, careful = Reader(schema.source()), Reader(schema.source(lookback=10))
    with schema.connect() as slow:
        slow.autocommit = False
        slow.execute("INSERT INTO t DEFAULT VALUES")
        schema.run("INSERT INTO t DEFAULT VALUES")
        for reader in (naive, careful):
            reader.run()
        slow.commit()
    schema.run(*["INSERT INTO t DEFAULT VALUES"] * 20)
    for reader in (naive, careful):
        reader.run()
    assert 1 not in ids(naive.rows)
    assert ids(careful.rows) == list(range(1, 13))


@pytest.mark.parametrize("declared", ["timestamptz DEFAULT now()", "timestamp DEFAULT timezone('UTC', now())"])
def test_times_are_read_up_to_the_databases_own_time(schema: Schema, declared: str) -> None:
    schema.run(f"CREATE TABLE t (id {declared}, n int)")
    schema.run("INSERT INTO t (n) VALUES (1), (2)")  # one transaction: the same time
    schema.run("INSERT INTO t (id, n) VALUES ('2999-01-01', 9), ('0001-01-01 00:00:00+00', 0)")
    schema.wait_for_end_of_second()
    reader = Reader(schema.source(batch_rows=1))
    assert [row["n"] for row in reader.run()] == [0, 1, 2]
    assert reader.watermark is not None
    assert reader.watermark.incarnation == "id:time"
    assert reader.run() == []
    schema.run("INSERT INTO t (n) VALUES (3)")
    schema.wait_for_end_of_second()
    assert [row["n"] for row in reader.run()] == [3]
    later = Reader(schema.source(lookback=3600))
    assert [row["n"] for row in later.run()] == [0]


@pytest.mark.parametrize(
    ("declared", "present"),
    [("timestamp(0)", "timezone('UTC', clock_timestamp())"), ("timestamptz", "clock_timestamp()")],
)
def test_rows_of_one_second_are_all_read_also_if_inserted_late_in_it(
    schema: Schema, declared: str, present: str
) -> None:
    """Whole seconds come from the column's type or from the writer."""
    schema.run(f"CREATE TABLE t (id {declared}, n int)")
    row = f"INSERT INTO t SELECT date_trunc('second', {present}), "
    reader, number = Reader(schema.source()), 0
    began = time.monotonic()
    while time.monotonic() < began + 2:
        schema.run(f"{row}{number}")
        reader.run()
        number += 1
    schema.wait_for_end_of_second()
    reader.run()
    assert [row["n"] for row in reader.rows] == list(range(number))


def test_late_committed_time_is_lost_without_lookback_and_read_with_it(schema: Schema) -> None:
    schema.run("CREATE TABLE t (id timestamptz DEFAULT now(), n int)")
    naive, careful = Reader(schema.source()), Reader(schema.source(lookback=600))
    with schema.connect() as slow:
        slow.autocommit = False
        slow.execute("INSERT INTO t (n) VALUES (1)")
        schema.run("INSERT INTO t (n) VALUES (2)")
        schema.wait_for_end_of_second()
        for reader in (naive, careful):
            reader.run()
        slow.commit()
    careful.source = naive.source  # as if the ten minutes were over
    for reader in (naive, careful):
        reader.run()
    assert [row["n"] for row in naive.rows] == [2]
    assert [row["n"] for row in careful.rows] == [1, 2]


def test_time_outside_python_s_range_fails_the_work_unit(schema: Schema) -> None:
    schema.run("CREATE TABLE t (id timestamptz, n int)", "INSERT INTO t VALUES ('-infinity', 1), ('infinity', 2)")
    reader = Reader(schema.source())
    with pytest.raises(SourceError, match="rejected a statement"):
        reader.run()


def test_text_is_ordered_byte_by_byte_for_any_collation(schema: Schema) -> None:
    schema.run('CREATE TABLE t (id text COLLATE "und-x-icu" NOT NULL)')
    schema.run("INSERT INTO t VALUES ('b'), ('A'), ('a'), ('B'), ('ä'), ('a-b'), ('ab'), ('😀'), ('\ufffd'), ('zz')")
    reader = Reader(schema.source(records_per_dataset=3))
    for _ in range(4):
        reader.run()
    assert ids(reader.rows) == sorted(["b", "A", "a", "B", "ä", "a-b", "ab", "\ufffd", "zz"])


def test_partitions_are_read_with_their_parent_and_views_by_name(schema: Schema) -> None:
    schema.run(
        "CREATE TABLE t (id int NOT NULL, part int) PARTITION BY LIST (part)",
        "CREATE TABLE t1 PARTITION OF t FOR VALUES IN (1)",
        "CREATE TABLE t2 PARTITION OF t FOR VALUES IN (2)",
        "CREATE VIEW t3 AS SELECT id FROM t",
        "CREATE VIEW seen AS SELECT id FROM t",
        "INSERT INTO t VALUES (1, 1), (2, 2), (3, 1)",
    )
    plan = planned(schema.source(table_patterns=["t.*"], tables=["seen"]))
    assert sorted(dataset_plan.dataset_urn for dataset_plan in plan if isinstance(dataset_plan, DatasetPlan)) == [
        "seen",
        "t",
    ]
    assert ids(Reader(schema.source()).run()) == [1, 2]


def test_padded_text_is_a_position_without_its_padding(schema: Schema) -> None:
    schema.run("CREATE TABLE t (id char(3) NOT NULL)")
    schema.run("INSERT INTO t VALUES ('b'), ('a'), ('ab'), (E'a\\t'), ('abc'), ('z')")
    for settings in ({}, {"tables": [], "queries": {"t": f"SELECT id FROM {schema.name}.t"}}):
        reader = Reader(schema.source(records_per_dataset=2, **settings))
        for _ in range(3):
            reader.run()
        assert ids(reader.rows) == ["a  ", "a\t ", "ab ", "abc", "b  "]
        assert reader.watermark is not None
        assert reader.watermark.positions == {"": "z"}


def test_inheriting_tables_are_read_with_their_parent_whose_key_does_not_apply_to_them(schema: Schema) -> None:
    """This includes children in another schema of the connection's search path."""
    other = f"{schema.name}_other"
    schema.run(
        f"CREATE SCHEMA {other}",
        "CREATE TABLE t (id int PRIMARY KEY)",
        f"CREATE TABLE {other}.t_child () INHERITS (t)",
        "INSERT INTO t VALUES (1), (2)",
    )
    try:
        url = f"{schema.server.url}?options=-csearch_path%3D{schema.name}%2C{other}"
        plan = planned(source(url, password=schema.server.password, table_patterns=["t.*"]))
        assert [dataset_plan.dataset_urn for dataset_plan in plan if isinstance(dataset_plan, DatasetPlan)] == ["t"]
        reader = Reader(schema.source())
        assert ids(reader.run()) == [1]
        schema.run(f"INSERT INTO {other}.t_child VALUES (2), (3)")
        assert ids(reader.run()) == [2, 2]
    finally:
        schema.run(f"DROP SCHEMA {other} CASCADE")


def test_forbidden_or_locked_table_is_reported_and_others_are_planned(
    schema: Schema, monkeypatch: pytest.MonkeyPatch
) -> None:
    from distcommit.sources.sql import database_connections

    monkeypatch.setattr(database_connections, "_LOCK_TIMEOUT_S", 1)
    schema.run(*(f"CREATE TABLE t{number} (id int PRIMARY KEY)" for number in range(3)))
    schema.run(
        f"CREATE ROLE {schema.name}_user LOGIN PASSWORD 'other'",
        f"GRANT USAGE ON SCHEMA {schema.name} TO {schema.name}_user",
        f"GRANT SELECT ON t1, t2 TO {schema.name}_user",
    )
    url = schema.server.url.replace("reader", f"{schema.name}_user")
    sql = source(url, password="other", schema=schema.name, tables=["t0", "t1", "t2"])
    with schema.connect() as other:
        other.autocommit = False
        other.execute("LOCK TABLE t1")
        plan = planned(sql)
    problems = {
        dataset_plan.dataset_urn: dataset_plan.error
        for dataset_plan in plan
        if isinstance(dataset_plan, DatasetProblem)
    }
    assert "permission denied" in problems["t0"]
    assert "lock timeout" in problems["t1"]
    assert [dataset_plan.dataset_urn for dataset_plan in plan if isinstance(dataset_plan, DatasetPlan)] == ["t2"]
    schema.run(f"DROP OWNED BY {schema.name}_user", f"DROP ROLE {schema.name}_user")


@pytest.mark.parametrize("key", ["PRIMARY KEY (id, n)", "CHECK (n > 0)"])
def test_rows_that_wait_are_counted(schema: Schema, key: str) -> None:
    schema.run(
        f"CREATE TABLE t (id int NOT NULL, n int, {key})",
        "INSERT INTO t VALUES (1, 1), (2, 1), (2, 2), (2, 3)",
        f"CREATE TABLE times (id timestamptz NOT NULL, n int, {key})",
        "INSERT INTO times VALUES (now(), 1), (now() - interval '9 min', 2), ('2024-01-01Z', 3)",
        "CREATE TABLE partly (id int NOT NULL, n int)",
        "CREATE INDEX ON partly (id) WHERE n > 1",
        "INSERT INTO partly SELECT * FROM t",
    )
    assert deferred(schema.source(tables=["t", "partly"])) == {"partly": (3, False), "t": (3, False)}
    assert deferred(schema.source(tables=["times"], lookback=3600)) == {"times": (2, False)}
    reader = Reader(schema.source())
    reader.run()
    assert reader.plan() is None
    indexed = key.startswith("PRIMARY")
    assert deferred(reader.source, reader.watermark) == {"t": (3, False) if indexed else (1, True)}


def test_recommended_settings_for_updated_at_read_each_change_once(
    schema: Schema, caplog: pytest.LogCaptureFixture
) -> None:
    page = (Path(distcommit.__file__).parents[1] / "conf/docs/connectors/source-sql.md").read_text(encoding="utf-8")
    first_screen = "\n".join(page.splitlines()[:40])
    (snippet,) = re.findall(r"```yaml\n(.*?)```", first_screen, re.DOTALL)
    settings = yaml.safe_load(snippet)["source"]
    assert (settings.pop("type"), settings["watermark"]) == ("sql", "updated_at")
    assert {settings.pop("url").partition(":")[0], settings.pop("password")[:7]} == {"postgresql", "${file:"}
    reader = Reader(schema.source(**settings), "orders")
    schema.run(
        "CREATE TABLE orders (id int PRIMARY KEY, total int, updated_at timestamptz NOT NULL)",
        "CREATE INDEX ON orders (updated_at)",
        "INSERT INTO orders VALUES (1, 5, now() - interval '1 day'), (2, 5, now() - interval '1 min'), (3, 5, now())",
    )
    assert ids(reader.run()) == [1]
    assert deferred(reader.source) == {"orders": (2, False)}
    assert caplog.text == "", "rows that wait are not lost"
    schema.run(  # as 300 seconds later
        "UPDATE orders SET total = 6, updated_at = now() - interval '300 s' WHERE id = 1",
        "UPDATE orders SET updated_at = now() - interval '300 s' WHERE id = 2",
    )
    schema.wait_for_end_of_second()
    assert sorted((row["id"], row["total"]) for row in reader.run()) == [(1, 6), (2, 5)]
    assert (reader.run(), deferred(reader.source)) == ([], {"orders": (1, False)})


@pytest.mark.parametrize("times_end", ["clock", "newest"])
def test_first_run_by_times_skips_no_later_row_or_reports_it(
    schema: Schema, caplog: pytest.LogCaptureFixture, times_end: str
) -> None:
    schema.run("CREATE TABLE t (id timestamptz, n int)", "INSERT INTO t VALUES ('2024-01-01Z', 1), ('2024-01-02Z', 2)")
    sql = schema.source(times_end=times_end)
    notes = [(note.kind, note.reason) for note in planned(sql) if isinstance(note, SkippedDataset)]
    assert [kind for kind, _ in notes] == (["note on late rows"] if times_end == "clock" else []), (
        "run and status show it"
    )
    if times_end == "clock":
        assert notes[0][1].startswith("if a row is inserted later with a time of id after 2024-01-02T00:00:00")
        assert "This is harmless if each insert sets id to the present time." in notes[0][1]
        assert "If not, set source.times_end to newest before the first run" in notes[0][1]
        assert "After it, begin again in new folders with that setting" in notes[0][1]
    reader = Reader(sql)
    plan = reader.plan()
    assert plan is not None
    reader.read(plan)
    schema.run("INSERT INTO t VALUES ('2024-01-03Z', 3), ('2024-01-04Z', 4)")
    if plan := reader.plan():
        reader.read(plan)
    numbers = [row["n"] for row in reader.rows]
    is_reported = "if a row is inserted later with a time of id after 2024-01-02" in caplog.text
    assert (numbers, is_reported) == (([1, 2], True) if times_end == "clock" else ([1, 2, 3], False))
    assert not reader.plan() or times_end == "clock"


def test_wrong_password_is_reported_as_the_cause(schema: Schema) -> None:
    with pytest.raises(TransientError, match="the database refuses this user or password"):
        planned(schema.source(password="hunter2-hunter2"))


def test_all_queries_of_a_table_see_one_snapshot_and_cannot_write(schema: Schema) -> None:
    schema.run("CREATE TABLE t (id int PRIMARY KEY)")
    database, counts = schema.source()._database(), []
    with closing(database), database.reading() as connection:
        for number in range(2):
            counts.append(connection.exec_driver_sql(f"SELECT count(*) FROM {schema.name}.t").scalar())
            schema.run(f"INSERT INTO t VALUES ({number})")
    assert counts == [0, 0]
    with pytest.raises(SourceError, match="read-only"), closing(database), database.reading() as connection:
        connection.exec_driver_sql(f"DELETE FROM {schema.name}.t")


def test_a_work_unit_sees_one_snapshot(schema: Schema) -> None:
    schema.run(
        "CREATE TABLE t (id int PRIMARY KEY, n int)", "INSERT INTO t SELECT i, 0 FROM generate_series(1, 5000) i"
    )
    reader = Reader(schema.source(batch_rows=500))
    plan = reader.plan()
    assert plan is not None
    with closing(reader.source.open()) as extractor:
        batches = iter(extractor.extract(plan.work_units[0]))
        rows = next(batches).num_rows
        schema.run("UPDATE t SET n = 1", "DELETE FROM t WHERE id > 4000")
        for batch in batches:
            rows += batch.num_rows
            assert set(batch["n"].to_pylist()) == {0}
    assert rows == 5000


@pytest.mark.filterwarnings("ignore:Exception ignored in.*ServerCursor:pytest.PytestUnraisableExceptionWarning")
def test_server_killed_during_reading_loses_nothing(schema: Schema) -> None:
    schema.run("CREATE TABLE t (id int PRIMARY KEY, s text)")
    schema.run("INSERT INTO t SELECT i, repeat('x', 1000) FROM generate_series(1, 20000) i", "CHECKPOINT")
    reader = Reader(schema.source(batch_rows=100))
    plan = reader.plan()
    assert plan is not None
    extractor = reader.source.open()
    batches = iter(extractor.extract(plan.work_units[0]))
    next(batches)
    schema.server.kill()
    try:
        with pytest.raises(TransientError, match="closed the connection") as failure:
            list(batches)
        assert schema.server.password not in str(failure.value)
        with pytest.raises(DistcommitError, match="can't be reached"):
            planned(reader.source)
    finally:
        schema.server.restart()
    again = sum(batch.num_rows for batch in extractor.extract(plan.work_units[0]))
    extractor.close()
    assert again == 20000
    del batches, failure
    gc.collect()  # a cursor of a lost connection cannot be closed, and psycopg reports that


def test_server_killed_during_planning_is_one_outage_and_not_a_problem_of_each_table(schema: Schema) -> None:
    schema.run(*(f"CREATE TABLE t{number} (id int PRIMARY KEY)" for number in range(3)))
    plan = schema.source(table_patterns=["t."]).plan(lambda urn: True, SourceState())
    assert isinstance(next(plan), DatasetPlan)
    schema.server.kill()
    try:
        with pytest.raises(TransientError, match="can't be reached"):
            list(plan)
    finally:
        schema.server.restart()


def test_wrong_password_is_reported_and_not_shown(schema: Schema) -> None:
    sql = schema.source(password="hunter2-hunter2")
    extractor = sql.open()
    for act in (lambda: planned(sql), lambda: list(extractor.extract(_unit()))):
        with pytest.raises(TransientError, match="password authentication failed") as failure:
            act()
        assert "hunter2" not in str(failure.value)


def _unit() -> Any:
    from distcommit.core.work_units import WorkUnit

    low, high = (Watermark({"": position}, "id:integer") for position in (1, 2))
    return WorkUnit("0", "t", low, high, 1)


def test_each_row_is_read_once_while_several_write(schema: Schema) -> None:
    """Each writer commits at once; a lookback as large as all open numbers together loses no row."""
    schema.run("CREATE TABLE t (id serial PRIMARY KEY, writer int)")
    writers, rows_of_writer = 3, 150

    def write(writer: int) -> None:
        with schema.connect() as connection:
            for _ in range(rows_of_writer):
                connection.execute("INSERT INTO t (writer) VALUES (%s)", (writer,))

    threads = [threading.Thread(target=write, args=(writer,)) for writer in range(writers)]
    reader = Reader(schema.source(lookback=writers))
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        reader.run()
    for thread in threads:
        thread.join()
    reader.run()
    assert ids(reader.rows) == list(range(1, writers * rows_of_writer + 1 - writers))

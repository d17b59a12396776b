"""The SQL source on a real MariaDB server: types, ties, late commits, locks, and connections that time out."""

from __future__ import annotations

import datetime as dt
import itertools
import pickle
from collections.abc import Iterator
from contextlib import closing
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from distcommit.core.errors import SourceError, TransientError
from distcommit.core.interfaces.source import DatasetProblem
from distcommit.core.work_units import DatasetPlan
from distcommit.sources.sql.source import SqlSource
from tests.servers.mariadb import MariadbServer
from tests.unit.sources.sql.sql_tables import Reader, deferred, planned, queried, source

_NUMBERS = itertools.count()


class Database:
    """Database of one test."""

    def __init__(self, server: MariadbServer) -> None:
        self.server, self.name = server, f"d{next(_NUMBERS)}"
        with server.connect() as connection, connection.cursor() as cursor:
            cursor.execute(f"CREATE DATABASE {self.name}")

    def run(self, *statements: str, values: Any = None) -> None:
        with self.server.connect(self.name) as connection, connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement, values)

    def source(self, **settings: Any) -> SqlSource:
        password = settings.pop("password", self.server.password)
        url = settings.pop("url", self.server.url.replace("/shop", f"/{self.name}"))
        travelled: SqlSource = pickle.loads(pickle.dumps(source(url, password=password, **settings)))
        return travelled


@pytest.fixture
def database(mariadb_server: MariadbServer) -> Iterator[Database]:
    own_database = Database(mariadb_server)
    yield own_database
    own_database.run(f"DROP DATABASE {own_database.name}")


def ids(rows: list[dict[str, Any]]) -> list[Any]:
    return [row["id"] for row in rows]


def test_types(database: Database) -> None:
    moment = dt.datetime(2024, 7, 1, 1, 2, 3, 4)
    columns: dict[str, tuple[str, Any, pa.DataType, Any]] = {
        "flag": ("boolean", True, pa.int32(), 1),
        "small": ("smallint", -5, pa.int16(), ...),
        "medium": ("mediumint", -(1 << 23), pa.int32(), ...),
        "usual": ("int", -(1 << 31), pa.int32(), ...),
        "unsigned": ("int unsigned", (1 << 32) - 1, pa.int64(), ...),
        "big": ("bigint", 1 << 60, pa.int64(), ...),
        "bigger": ("bigint unsigned", (1 << 64) - 1, pa.uint64(), ...),
        "money": ("decimal(20, 4)", Decimal("1234567890123456.7891"), pa.decimal128(20, 4), ...),
        "wide": ("decimal(60, 0)", Decimal(10**59), pa.decimal256(60, 0), ...),
        "single": ("float", 0.5, pa.float64(), ...),
        "digits": ("float", 16777213.0, pa.float64(), ...),
        "twice": ("double", 0.1, pa.float64(), ...),
        "least": ("double", 5e-324, pa.float64(), ...),
        "words": ("text", "äöü\n😀", pa.string(), ...),
        "short": ("varchar(3) CHARACTER SET latin1", "äbc", pa.string(), ...),
        "fixed": ("char(3)", "a", pa.string(), ...),
        "mood": ("enum('sad', 'ok')", "sad", pa.string(), ...),
        "moods": ("set('sad', 'ok')", "sad,ok", pa.string(), ...),
        "raw": ("varbinary(9)", b"\0\xff", pa.binary(), ...),
        "blob_": ("longblob", b"\0\xfe", pa.binary(), ...),
        "day": ("date", dt.date(2024, 2, 29), pa.date32(), ...),
        "local": ("datetime(6)", moment, pa.timestamp("us"), ...),
        "zoned": ("timestamp(6) NULL", moment, pa.timestamp("us", tz="UTC"), moment.replace(tzinfo=dt.UTC)),
        "json": ("json", '{"b":1, "a":[1]}', pa.string(), ...),
    }
    declared = ", ".join(f"`{name}` {column[0]}" for name, column in columns.items())
    database.run(f"CREATE TABLE t (id int PRIMARY KEY, {declared})")
    written = [column[1] for column in columns.values()]
    database.run(f"INSERT INTO t VALUES (1{', %s' * len(columns)}), (2{', NULL' * len(columns)})", values=written)
    reader = Reader(database.source())
    plan = reader.plan()
    assert plan is not None, reader.problems
    with closing(reader.source.open()) as extractor:
        (batch,) = extractor.extract(plan.work_units[0])
    assert batch.schema == pa.schema([("id", pa.int32()), *((name, column[2]) for name, column in columns.items())])
    first, second = batch.to_pylist()
    assert first == {
        "id": 1,
        **{name: created if read is ... else read for name, (_, created, _, read) in columns.items()},
    }
    assert set(second.values()) == {2, None}
    assert queried(database.source, "SELECT * FROM t") == batch


def test_query_is_read_like_a_table_with_types_only_its_database_knows(database: Database) -> None:
    database.run(
        "CREATE TABLE t (id int PRIMARY KEY, s varchar(9), price decimal(8, 2), at timestamp(3) NULL)",
        "INSERT INTO t VALUES (1, '1%', 9.99, '2024-01-01'), (2, ':a', NULL, '2024-01-02'), (3, 'x', 1, NULL)",
    )
    batch = queried(
        database.source,
        "SELECT id, ';\\')' AS mark, CAST(sum(price) AS DECIMAL(10, 2)) AS total, s LIKE '%\\%' AS `5%`,"
        " count(*) AS n, concat(s, '!') AS text FROM t # ) ;\n WHERE s <> ':x' GROUP BY id, s; -- all",
    )
    assert batch.schema.types == [
        pa.int32(),
        pa.string(),
        pa.decimal128(10, 2),
        pa.int32(),
        pa.int64(),
        pa.string(),
    ]
    assert [tuple(row.values()) for row in batch.to_pylist()] == [
        (1, ";')", Decimal("9.99"), 1, 1, "1%!"),
        (2, ";')", None, 0, 1, ":a!"),
        (3, ";')", Decimal(1), 0, 1, "x!"),
    ]
    by_time = {"queries": {"q": "SELECT s, at FROM t WHERE at IS NOT NULL"}, "watermark": "at", "lookback": 60}
    assert [row["s"] for row in Reader(database.source(tables=[], **by_time), "q").run()] == ["1%", ":a"]
    by_text = {"queries": {"q": "SELECT s, id FROM t"}, "watermark": "s"}
    assert [row["s"] for row in Reader(database.source(tables=[], **by_text), "q").run()] == ["1%", ":a"]


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        ("SELECT id, s AS a, s AS a FROM t", "Duplicate column name"),
        ("SELECT s FROM t", "no such watermark column"),
        ("SELECT id, timediff(now(), now()) AS odd FROM t", "column=odd"),
        ("SELECT id FROM t WHERE s = :name", "error in your SQL syntax"),
        ("WITH gone AS (SELECT 1) DELETE FROM t", "error in your SQL syntax"),
        ("SELECT nextval(numbers) AS id FROM t", "READ ONLY"),
        ("SELECT emptied() AS id", "READ ONLY"),
    ],
)
def test_unreadable_query_is_reported_and_changes_nothing(database: Database, query: str, reason: str) -> None:
    database.run(
        "CREATE TABLE t (id int PRIMARY KEY, s text)",
        "INSERT INTO t VALUES (1, 'a'), (2, 'b')",
        "CREATE SEQUENCE numbers",
        "CREATE FUNCTION emptied() RETURNS int MODIFIES SQL DATA BEGIN DELETE FROM t; RETURN 1; END",
    )
    problem, plan = planned(database.source(queries={"q": query}))
    assert isinstance(problem, DatasetProblem)
    assert reason in problem.error
    assert isinstance(plan, DatasetPlan)
    with database.server.connect(database.name) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT count(*), (SELECT next_not_cached_value FROM numbers) FROM t")
        assert cursor.fetchone() == (2, 1)


@pytest.mark.parametrize("declared", ["time", "year", "bit(3)", "point", "inet6"])
def test_unsupported_type_is_reported_with_its_column(database: Database, declared: str) -> None:
    database.run(f"CREATE TABLE t (id int PRIMARY KEY, odd {declared})")
    (problem,) = planned(database.source())
    assert isinstance(problem, DatasetProblem)
    assert "column=odd" in problem.error
    (plan,) = planned(database.source(overrides={"t": {"columns": ["id"]}}))
    assert isinstance(plan, DatasetPlan)


def test_invalid_dates_fail_the_work_unit(database: Database) -> None:
    database.run("CREATE TABLE t (id datetime, n int)", "INSERT INTO t VALUES ('0000-00-00', 1)")
    with pytest.raises(SourceError, match="can't be a position"):
        Reader(database.source()).run()


_LAST = {"smallint": 2**15 - 1, "int unsigned": 2**32 - 1, "bigint": 2**63 - 2, "bigint unsigned": 2**63 - 2}


@pytest.mark.parametrize(("declared", "last"), _LAST.items())
def test_a_column_is_read_up_to_its_largest_number(database: Database, declared: str, last: int) -> None:
    database.run(f"CREATE TABLE t (id {declared} PRIMARY KEY)", f"INSERT INTO t VALUES (3), ({last})")
    reader = Reader(database.source())
    assert ids(reader.run()) == [3, last]
    assert reader.plan() is None
    assert reader.problems == []


def test_number_that_cannot_be_a_position_is_reported(database: Database) -> None:
    database.run("CREATE TABLE t (id bigint unsigned PRIMARY KEY)", f"INSERT INTO t VALUES (1), ({2**64 - 1})")
    reader = Reader(database.source())
    assert reader.plan() is None
    assert "can't be a position" in reader.problems[0]


def test_condition_is_evaluated_by_the_database_and_other_rows_are_not_read(database: Database) -> None:
    database.run("CREATE TABLE t (id int PRIMARY KEY, s text)", "INSERT INTO t VALUES (1, 'a%'), (2, 'b'), (3, 'a')")
    assert ids(Reader(database.source(overrides={"t": {"where": "s LIKE 'a%'"}})).run()) == [1, 3]


def test_driver_options_in_the_url_override_the_defaults(database: Database) -> None:
    database.run("CREATE TABLE t (id int PRIMARY KEY, s int)", "INSERT INTO t VALUES (1, 1)")
    url = database.server.url.replace("/shop", f"/{database.name}?read_timeout=1")
    sql = database.source(url=url, overrides={"t": {"where": "sleep(3) = 0"}})
    (problem,) = planned(sql)
    assert isinstance(problem, DatasetProblem)
    assert "timed out" in problem.error


def test_newest_group_of_ties_waits_for_a_greater_value(database: Database) -> None:
    database.run("CREATE TABLE t (id int NOT NULL, n int)", "INSERT INTO t VALUES (1, 0), (2, 0), (2, 1)")
    reader = Reader(database.source(batch_rows=1))
    assert ids(reader.run()) == [1]
    database.run("INSERT INTO t VALUES (2, 2), (3, 0)")
    assert ids(reader.run()) == [2, 2, 2]


@pytest.mark.parametrize("key", ["", ", KEY (id)"])
def test_rows_that_wait_are_counted(database: Database, key: str) -> None:
    past = "utc_timestamp() - INTERVAL 100 SECOND"
    database.run(
        f"CREATE TABLE t (id int NOT NULL{key})",
        "INSERT INTO t VALUES (1), (2), (2), (2)",
        f"CREATE TABLE times (id datetime NOT NULL{key})",
        f"INSERT INTO times SELECT {past} UNION ALL SELECT {past} UNION ALL SELECT '2024-01-01'",
    )
    assert deferred(database.source()) == {"t": (3, False)}
    assert deferred(database.source(tables=["times"], lookback=3600)) == {"times": (2, False)}


@pytest.mark.parametrize("declared", ["timestamp", "timestamp(6)", "datetime(3)"])
def test_times_are_read_up_to_the_databases_own_time(database: Database, declared: str) -> None:
    """The result does not depend on the server's own time zone."""
    database.run(f"CREATE TABLE t (id {declared} NULL, n int)")
    past = "utc_timestamp() - INTERVAL 10 SECOND"
    database.run(f"INSERT INTO t SELECT {past}, 1 UNION ALL SELECT {past}, 2 UNION ALL SELECT '2037-01-01', 9")
    reader = Reader(database.source(batch_rows=1))
    assert [row["n"] for row in reader.run()] == [1, 2]
    assert reader.run() == []
    assert Reader(database.source(lookback=3600)).run() == []


def test_late_committed_number_is_lost_without_lookback_and_read_with_it(database: Database) -> None:
    database.run("CREATE TABLE t (id int AUTO_INCREMENT PRIMARY KEY, n int)")
    naive, careful = Reader(database.source()), Reader(database.source(lookback=2))
    with database.server.connect(database.name) as slow, slow.cursor() as cursor:
        slow.begin()
        cursor.execute("INSERT INTO t (n) VALUES (1)")
        database.run("INSERT INTO t (n) VALUES (2)")
        for reader in (naive, careful):
            reader.run()
        slow.commit()
    database.run("INSERT INTO t (n) VALUES (3)", "INSERT INTO t (n) VALUES (4)")
    for reader in (naive, careful):
        reader.run()
    assert ids(naive.rows) == [2, 3, 4]
    assert ids(careful.rows) == [1, 2]


@pytest.mark.parametrize("of", ["CHARACTER SET utf8mb4", "COLLATE utf8mb4_general_ci"])
def test_text_is_ordered_byte_by_byte_for_any_collation(database: Database, of: str) -> None:
    """This includes collations that ignore trailing spaces."""
    texts = ["b", "A", "a", "B", "ä", "a ", "a\t", "a-b", "ab", "\ufffd", "zz", "😀"]
    database.run(f"CREATE TABLE t (id varchar(9) {of} NOT NULL)")
    for text in texts:
        database.run("INSERT INTO t VALUES (%s)", values=[text])
    reader = Reader(database.source(records_per_dataset=3))
    for _ in range(6):
        reader.run()
    assert ids(reader.rows) == sorted(texts)[:-1]


def test_forbidden_missing_or_locked_table_is_reported_and_others_are_planned(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    from distcommit.sources.sql import database_connections as connections

    monkeypatch.setattr(connections, "_LOCK_TIMEOUT_S", 1)
    database.run(*(f"CREATE TABLE t{number} (id int PRIMARY KEY)" for number in range(3)))
    user = f"{database.name}_user"
    database.run(f"CREATE USER {user}@127.0.0.1 IDENTIFIED BY 'other'")
    database.run(f"GRANT SELECT ON {database.name}.t1 TO {user}@127.0.0.1")
    database.run(f"GRANT SELECT ON {database.name}.t2 TO {user}@127.0.0.1")
    url = database.server.url.replace("reader", user).replace("/shop", f"/{database.name}")
    sql = database.source(url=url, password="other", tables=["t0", "t1", "t2", "gone"])
    with database.server.connect(database.name) as other, other.cursor() as cursor:
        cursor.execute("LOCK TABLES t1 WRITE")
        plan = planned(sql)
    problems = {
        dataset_plan.dataset_urn: dataset_plan.error
        for dataset_plan in plan
        if isinstance(dataset_plan, DatasetProblem)
    }
    assert "grant SELECT on it" in problems["t0"]
    assert "ock wait timeout" in problems["t1"]
    assert problems.keys() == {"t0", "t1", "gone"}
    assert [dataset_plan.dataset_urn for dataset_plan in plan if isinstance(dataset_plan, DatasetPlan)] == ["t2"]
    database.run(f"DROP USER {user}@127.0.0.1")


def test_work_unit_sees_one_snapshot_and_cannot_write(database: Database) -> None:
    database.run("CREATE TABLE t (id int PRIMARY KEY, n int)", "INSERT INTO t SELECT seq, 0 FROM seq_1_to_5000")
    reader = Reader(database.source(batch_rows=500))
    plan = reader.plan()
    assert plan is not None
    with closing(reader.source.open()) as extractor:
        batches = iter(extractor.extract(plan.work_units[0]))
        rows = next(batches).num_rows
        database.run("UPDATE t SET n = 1", "DELETE FROM t WHERE id > 4000")
        for batch in batches:
            rows += batch.num_rows
            assert set(batch["n"].to_pylist()) == {0}
    assert rows == 5000
    connections = database.source()._database()
    with pytest.raises(SourceError, match="READ ONLY"), closing(connections), connections.reading() as connection:
        connection.exec_driver_sql("DELETE FROM t")


def test_reading_stopped_early_can_be_resumed(database: Database) -> None:
    database.run("CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t SELECT seq FROM seq_1_to_5000")
    reader = Reader(database.source(batch_rows=100))
    for _ in range(60):
        if plan := reader.plan():
            reader.read(plan, batches=1)
    assert ids(reader.rows) == list(range(1, 5001))


def test_wrong_password_is_reported_and_not_shown(database: Database) -> None:
    with pytest.raises(TransientError, match=r"the database refuses this user or password.*Access denied") as failure:
        planned(database.source(password="hunter2-hunter2"))
    assert "hunter2" not in str(failure.value)

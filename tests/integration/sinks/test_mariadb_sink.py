"""Failures at a MariaDB server: each concerns one dataset, is reported, and leaves nothing half committed."""

from __future__ import annotations

import math
import threading
import time
import uuid
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pymysql
import pytest

from distcommit.core.errors import ConfigurationError, TransientError
from distcommit.core.interfaces.committer import (
    AlreadyCommitted,
    CommitOutcome,
    Committed,
    RetryLater,
)
from distcommit.core.interfaces.provenance import Provenance
from distcommit.core.interfaces.sink import Origin
from distcommit.sinks.databases.table_committer import CollisionError
from distcommit.sinks.mariadb.committer import MariadbCommitter
from distcommit.sinks.mariadb.sessions import connected, execute, transaction
from distcommit.sinks.mariadb.sink import MariadbSink
from distcommit.sinks.mariadb.table_writes import Table
from tests.servers.mariadb import MariadbServer
from tests.unit.sinks.databases.commit_steps import numbers, refused
from tests.unit.sinks.databases.table_sink_cases import ServerTableSinkCases, ServerTarget
from tests.unit.sinks.mirror_cases import Change, MirrorCases, rows_of
from tests.unit.sinks.odd_input_cases import OddInputCases
from tests.unit.sinks.upsert_cases import NewestCases


class Target(ServerTarget):
    """Target with a database of its own."""

    quote = "`"
    narrow_float = "float"
    raised = pymysql.MySQLError
    commit_sent = rb"\x03COMMIT"
    session_id = "CONNECTION_ID()"
    session_state: ClassVar = {
        "SET SESSION sql_mode = ''": "SELECT @@sql_mode",
        "SET SESSION lock_wait_timeout = 77": "SELECT @@lock_wait_timeout",
        "SELECT GET_LOCK('distcommit', 0)": "SELECT IS_USED_LOCK('distcommit')",
    }

    def __init__(self, server: MariadbServer, folder: Path) -> None:
        super().__init__(folder)
        self.server: MariadbServer = server
        self.database = f"t{uuid.uuid4().hex[:12]}"
        self.url = server.url.replace("/shop", f"/{self.database}")
        with server.connect() as connection, connection.cursor() as cursor:
            cursor.execute(f"CREATE DATABASE {self.database}")

    def sink(self, **settings: Any) -> MariadbSink:
        where = {"url": self.url, "password": self.server.password}
        return MariadbSink.model_validate({"type": "mariadb", **where, **settings})

    def sql(self, *statements: str) -> list[tuple[Any, ...]]:
        with self.server.connect(self.database) as connection, connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)
            return [*cursor.fetchall()]

    def tables(self) -> set[str]:
        return {name for (name,) in self.sql("SHOW TABLES")}


@pytest.fixture
def target(mariadb_server: MariadbServer, tmp_path: Path) -> Iterator[Target]:
    own_target = Target(mariadb_server, tmp_path)
    yield own_target
    own_target.sql(f"DROP DATABASE {own_target.database}")


class TestMariadb(ServerTableSinkCases, NewestCases, MirrorCases, OddInputCases):
    """Run the tests that all databases share."""

    refused_names: ClassVar = {
        ("x" * 65,): "65 characters",
        ("a ",): "a space at its end",
        ("\U0001f600",): "basic plane",
    }

    def test_delete_of_a_row_that_another_table_references_fails_until_it_is_released(self, target: Target) -> None:
        self.put_changes(target, 1, Change("k", "c", 1, 1))
        key = "k varchar(255) COLLATE utf8mb4_nopad_bin"
        target.sql(f"CREATE TABLE orders ({key}, FOREIGN KEY (k) REFERENCES a (k))", "INSERT INTO orders VALUES ('k')")
        origin = Origin(Provenance("p", "o"), "one")
        request = target.prepare(self.mirror(target), "a", 2, rows_of([Change("k", "d", None, 2)]), origin=origin)
        refused(target.commit(self.mirror(target), request)[0], "foreign key constraint fails")
        assert target.rows("a", "k") == [("k",)]

    @pytest.mark.parametrize("collation", ["utf8mb4_general_ci", "utf8mb4_bin", "utf8mb4_general_nopad_ci"])
    def test_key_that_ignores_case_or_spaces_is_refused(self, target: Target, collation: str) -> None:
        self.refuses_inexact_keys(target, f"k varchar(20) COLLATE {collation}")


# -- the rows


def of(value: Any, kind: pa.DataType | None = None) -> pa.RecordBatch:
    return pa.record_batch({"n": pa.array([value], kind)})


BAD_ROWS: list[tuple[str, pa.RecordBatch, str]] = [
    ("n bigint UNIQUE", numbers(7, 7), "Duplicate entry"),
    ("N bigint", numbers(7), "has the column 'N', and the records have 'n'"),
    ("n bigint NOT NULL", numbers(1, None), "null, which the server may replace by a default"),
    ("n timestamp NOT NULL", of(None, pa.timestamp("us", "UTC")), "null, which the server may replace by a default"),
    ("n bigint AUTO_INCREMENT PRIMARY KEY", numbers(1, None), "null, which the server may replace by a default"),
    ("n bigint CHECK (n < 2)", numbers(1, 2), "CONSTRAINT"),
    ("n bigint, FOREIGN KEY (n) REFERENCES others (n)", numbers(1), "foreign key constraint fails"),
    ("n bigint, m bigint NOT NULL", numbers(1), "doesn't have a default value"),
    ("n tinyint", numbers(128), "'n' does not go into the table's n tinyint"),
    ("n mediumint", numbers(2**23), "out of range"),
    ("n int unsigned", numbers(-1), "'n' does not go into the table's n int"),
    ("n bigint", of(2**63, pa.uint64()), "'n' does not go into the table's n bigint"),
    ("n bigint", of(1.5), "has the type double"),
    ("n double", numbers(1), "has the type int64, which does not go into the table's n double"),
    ("n float", of(0.1), "has the type double, which does not go into the table's n float"),
    ("n double(5,2)", of(0.123), "has the type double"),
    ("n double", of(math.nan), "NaN or infinity"),
    ("n decimal(3,0)", numbers(1000), "'n' does not go into the table's n decimal(3,0)"),
    ("n decimal(5,1)", of(Decimal("1.25")), "'n' does not go into the table's n decimal(5,1)"),
    ("n varchar(3)", of("abcd"), "longer than 3"),
    ("n varchar(3)", of("abc "), "longer than 3"),
    ("n char(3)", of("a "), "spaces at its end"),
    ("n tinytext", of("ü" * 128), "more than 255 bytes"),
    ("n varchar(3) CHARACTER SET latin1", of("\u20ac\u4e2d"), "Incorrect string value"),
    ("n text CHARACTER SET utf8mb3", of("\U0001f600"), "Incorrect string value"),
    ("n enum('a')", of("A"), "has the type string"),
    ("n varbinary(2)", of(b"abc"), "longer than 2"),
    ("n binary(3)", of(b"ab"), "not 3 bytes"),
    ("n json", of("{"), "CONSTRAINT"),
    ("n datetime(3)", of(datetime(2024, 1, 1, microsecond=1)), "more than 3 digits of a second"),
    ("n timestamp(6) NULL", of(datetime(1969, 1, 1, tzinfo=UTC)), "Incorrect datetime value"),
    ("n timestamp(6) NULL", of(datetime(2024, 1, 1)), "has the type timestamp[us]"),
    ("n datetime(6)", of(2**62, pa.timestamp("us")), "a year that MariaDB does not have"),
    ("n date", of(-1_000_000, pa.date32()), "a year that MariaDB does not have"),
    ("m bigint", numbers(1), "has no column 'n'"),
    ("m bigint, n bigint AS (m + 1)", numbers(1), "has no column 'n'"),
]


@pytest.mark.parametrize(("columns", "rows", "message"), BAD_ROWS, ids=[f"{each[0]}-{each[2]}" for each in BAD_ROWS])
def test_rows_refused_by_the_table_fail_alone(target: Target, columns: str, rows: pa.RecordBatch, message: str) -> None:
    target.refuses_rows(columns, rows, message)


def test_strictest_session_by_itself_changes_some_values(target: Target) -> None:
    """This is why the sink compares values."""
    target.sql(
        "CREATE TABLE naive (t timestamp NOT NULL, d decimal(5,1), v varchar(3), s datetime(3), b binary(3))",
        "SET SESSION sql_mode = 'STRICT_ALL_TABLES'",
        "INSERT INTO naive VALUES (NULL, 1.25, 'abc  ', '2024-01-01 00:00:00.000001', 'ab')",
    )
    ((time, digits, text, moment, filled),) = target.rows("naive", "*")
    assert time.year > 2000
    assert (digits, text, moment, filled) == (Decimal("1.3"), "abc", datetime(2024, 1, 1), b"ab\0")


def test_unexpected_value_change_is_detected_by_the_server_s_warnings(
    target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    target.sql("CREATE TABLE bad (n decimal(5,1))")
    sink = target.sink()
    monkeypatch.setattr("distcommit.sinks.mariadb.columns._sent_type", lambda kind, _: kind)
    rows = target.prepare(sink, "bad", 1, of(Decimal("1.25")))
    refused(target.beside_others(sink, rows), "would change values: Data truncated for column 'n'")
    assert target.rows("bad") == []


def test_each_type_is_read_back_unchanged(target: Target) -> None:
    now = datetime(2024, 5, 6, 7, 8, 9, 123456, UTC)
    naive = now.replace(tzinfo=None)
    columns: dict[str, tuple[pa.Array, Any]] = {
        "bool": (pa.array([True, None]), 1),
        "uint8": (pa.array([255, None], pa.uint8()), 255),
        "int32": (pa.array([-(2**31), None], pa.int32()), -(2**31)),
        "int64": (pa.array([-(2**63), None], pa.int64()), -(2**63)),
        "uint64": (pa.array([2**64 - 1, None], pa.uint64()), 2**64 - 1),
        "float32": (pa.array([0.1, None], pa.float32()), 0.10000000149011612),
        "float64": (pa.array([-1.7976931348623157e308, None]), -1.7976931348623157e308),
        "decimal": (pa.array([Decimal("-12.340"), None]), Decimal("-12.340")),
        "tiny": (pa.array([Decimal("1E-28"), None], pa.decimal128(38, 28)), Decimal("1E-28")),
        "text": (pa.array(["ü'\"\\%s\0\n\U0001f600 ", None], pa.large_string()), "ü'\"\\%s\0\n\U0001f600 "),
        "words": (pa.array(["a", None]).dictionary_encode(), "a"),
        "bytes": (pa.array([bytes(range(256)), None]), bytes(range(256))),
        "sixteen": (pa.array([b"0123456789abcd\0 ", None], pa.binary(16)), b"0123456789abcd\0 "),
        "date": (pa.array([now.date(), None]), now.date()),
        "early": (pa.array([date(1, 1, 1), None]), date(1, 1, 1)),
        "time": (pa.array([now.time(), None]), timedelta(hours=7, minutes=8, seconds=9, microseconds=123456)),
        "zoned": (pa.array([now, None], pa.timestamp("ns", "Europe/Berlin")), naive),
        "naive": (pa.array([naive, None]), naive),
        "list": (pa.array([[1, None], None]), "[1, null]"),
        "struct": (pa.array([{"a": [{"b": 1}]}, None]), '{"a": [{"b": 1}]}'),
        "map": (pa.array([[("k", 1)], None], pa.map_(pa.string(), pa.int64())), '[{"key": "k", "value": 1}]'),
        "nothing": (pa.nulls(2), None),
        "% `odd": (pa.array([1, None]), 1),
    }
    target.reads_back(columns)


def test_rows_in_foreign_tables_keep_their_values(target: Target) -> None:
    target.sql(
        "CREATE TABLE a (n bigint, d decimal(5,1), v varchar(3), c char(2), t timestamp NULL, z datetime, m mediumint"
        " unsigned, w decimal(50,2)) DEFAULT CHARACTER SET latin1"
    )
    now = datetime(2024, 5, 6, 7, 8, 9, tzinfo=UTC)
    batch = pa.record_batch(
        {"n": [1], "d": [Decimal("1.20")], "v": ["äöü"], "c": ["ä"], "t": [now], "z": [now], "m": [2**24 - 1], "w": [7]}
    )
    sink = target.sink()
    assert target.commit(sink, target.prepare(sink, "a", 1, batch)) == [Committed()]
    plain = now.replace(tzinfo=None)
    assert target.rows("a", "*") == [(1, Decimal("1.2"), "äöü", "ä", plain, plain, 2**24 - 1, Decimal(7))]
    target.sql("CREATE TABLE counted (n bigint AUTO_INCREMENT PRIMARY KEY)")
    assert target.commit(sink, target.prepare(sink, "counted", 1, numbers(5, 0))) == [Committed()]
    assert target.rows("counted") == [(0,), (5,)], "zero is not a next number"


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        (pa.schema([("d", pa.duration("s"))]), "no type for this column"),
        (pa.schema([("d", pa.decimal128(38, 31))]), "no type for this column"),
        (pa.schema([("n", pa.int64()), ("N", pa.int64())]), "cannot have a column of this name"),
        (pa.schema([("n" * 65, pa.int64())]), "cannot have a column of this name"),
        (pa.schema([("\U0001f600", pa.int64())]), "cannot have a column of this name"),
    ],
)
def test_columns_that_no_table_can_have_are_refused_before_a_record_is_read(
    target: Target, schema: pa.Schema, message: str
) -> None:
    with pytest.raises(ConfigurationError, match=message):
        target.sink().check_schema(schema)


def test_rows_are_sent_in_statements_that_the_server_takes(target: Target) -> None:
    packet = target.sql("SELECT @@global.max_allowed_packet")
    target.sql("SET GLOBAL max_allowed_packet = 1048576")
    try:
        sink = target.sink()
        many = pa.record_batch({"n": [*range(3000)], "s": ["x" * 1000] * 3000})
        assert target.commit(sink, target.prepare(sink, "a", 1, many)) == [Committed()]
        large = pa.record_batch({"n": [1], "s": ["x" * 1_048_576]})
        refused(target.beside_others(sink, target.prepare(sink, "bad", 1, large)), "max_allowed_packet")
    finally:
        target.sql(f"SET GLOBAL max_allowed_packet = {packet[0][0]}")
    assert target.sql("SELECT count(*), count(DISTINCT n), min(length(s)) FROM a") == [(3000, 3000, 1000)]


# -- modes


def test_upsert_uses_its_keys_and_no_other_index(target: Target) -> None:
    """ON DUPLICATE KEY by itself changes the row of another key that has an equal value in another index."""
    target.sql(
        "CREATE TABLE two (n bigint PRIMARY KEY, other bigint UNIQUE)",
        "INSERT INTO two VALUES (1, 10)",
        "CREATE TABLE naive LIKE two",
        "INSERT INTO naive SELECT * FROM two",
        "INSERT INTO naive VALUES (2, 10) ON DUPLICATE KEY UPDATE other = VALUES(other)",
        "CREATE TABLE without (n bigint, UNIQUE (n, other), other bigint)",
        "CREATE TABLE counted (id bigint AUTO_INCREMENT PRIMARY KEY, n bigint UNIQUE)",
    )
    assert target.rows("naive", "*") == [(1, 10)], "row 2 is gone"
    sink = target.sink(mode="upsert", keys=["n"], evolve="add_columns")
    clash = pa.record_batch({"n": [2], "other": [10]})
    refused(target.beside_others(sink, target.prepare(sink, "two", 1, clash)), "it also has other")
    assert target.rows("two", "n, other") == [(1, 10)]
    refused(target.commit(sink, target.prepare(sink, "without", 1))[0], "unique index on n")
    assert target.commit(sink, *(target.prepare(sink, "counted", epoch) for epoch in (1, 2)))[0] == Committed()
    assert target.rows("counted") == [(1,), (2,), (3,)]


# -- the tables


@pytest.mark.parametrize("statement", ["TABLE bad (n bigint) ENGINE = MyISAM", "VIEW bad AS SELECT 1 AS n"])
def test_table_without_a_transactional_engine_is_refused(target: Target, statement: str) -> None:
    target.sql(f"CREATE {statement}")
    sink = target.sink()
    refused(target.beside_others(sink, target.prepare(sink, "bad", 1)), "must use the engine InnoDB")


def test_rolled_back_rows_stay_in_other_engines(target: Target) -> None:
    """This is why the sink checks the engine of its tables and of the ledger."""
    target.sql("CREATE TABLE naive (n bigint) ENGINE = MyISAM", "BEGIN", "INSERT INTO naive VALUES (1)", "ROLLBACK")
    assert target.rows("naive") == [(1,)]
    sink = target.sink()
    assert target.commit(sink, target.prepare(sink, "a", 1)) == [Committed()]
    target.sql("ALTER TABLE distcommit_ledger ENGINE = MyISAM")
    with pytest.raises(ConfigurationError, match="the ledger must use the engine InnoDB"):
        target.commit(sink, target.prepare(sink, "a", 2))


# -- transactions


def test_a_statement_that_alters_a_table_ends_the_transaction(target: Target) -> None:
    """This is why tables are created outside of the transaction, and the server is asked for an open one before
    COMMIT."""
    target.sql("CREATE TABLE naive (n bigint)", "BEGIN", "INSERT INTO naive VALUES (1)", "CREATE TABLE x (n bigint)")
    assert target.rows("naive") == [(1,)], "without a COMMIT"
    connection = connected(target.url, target.server.password, "verify")
    with (
        connection,
        pytest.raises(TransientError, match="ended a transaction before its COMMIT"),
        transaction(connection),
    ):
        execute(connection, "CREATE TABLE y (n bigint)")


def test_deadlocked_transaction_leaves_nothing_and_is_retried(target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    """A deadlock ends the whole transaction: statements that are executed after it would be committed on their own."""
    target.sql("CREATE TABLE naive (n bigint)", "CREATE TABLE a (n bigint)")
    target.sql("CREATE TABLE held (n bigint PRIMARY KEY)", "INSERT INTO held VALUES (1)")
    copy, observed = Table.copy, list[pymysql.MySQLError]()

    def into_a_deadlock(self: Table, *arguments: Any) -> None:
        copy(self, *arguments)
        if self.shown == "b" and not observed:
            observed.append(deadlocked(target, self.connection))
            execute(self.connection, "INSERT INTO naive VALUES (1)")
            raise observed[0]

    monkeypatch.setattr(Table, "copy", into_a_deadlock)
    sink = target.sink()
    target.sql("CREATE TABLE b (n bigint)", "CREATE TABLE c (n bigint)")
    requests = [target.prepare(sink, urn, 1) for urn in ("a", "b", "c")]
    assert target.commit(sink, *requests) == [Committed()] * 3
    assert observed[0].args[0] == 1213
    assert target.rows("naive") == [(1,)], "though its transaction was undone"
    for urn in ("a", "b", "c"):
        assert target.rows(urn) == [(1,), (2,), (3,)]


@pytest.mark.parametrize("code", [1020, 1213, 1412])
def test_collision_outside_of_any_dataset_is_reported_as_a_collision(target: Target, code: int) -> None:
    """The ledger's own rows or COMMIT report the collision."""
    connection = connected(target.url, target.server.password, "verify")
    with connection, pytest.raises(CollisionError), transaction(connection):
        raise pymysql.OperationalError(code, "in the way")


def test_transaction_lost_at_an_error_of_one_dataset_is_retried_as_a_whole(
    target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With `innodb_rollback_on_timeout` the error alone would suggest that only one dataset is affected."""
    target.sql(*(f"CREATE TABLE {name} (n bigint)" for name in ("a", "b", "c")))
    copy, observed = Table.copy, list[str]()

    def timed_out(self: Table, *arguments: Any) -> None:
        if self.shown == "b" and not observed:
            observed.append(self.shown)
            execute(self.connection, "ROLLBACK")
            raise pymysql.OperationalError(1205, "Lock wait timeout exceeded")
        copy(self, *arguments)

    monkeypatch.setattr(Table, "copy", timed_out)
    sink = target.sink()
    assert target.commit(sink, *(target.prepare(sink, urn, 1) for urn in ("a", "b", "c"))) == [Committed()] * 3
    for urn in ("a", "b", "c"):
        assert target.rows(urn) == [(1,), (2,), (3,)]


def deadlocked(target: Target, connection: pymysql.Connection[Any]) -> pymysql.MySQLError:
    """Return the error that the connection gets when the server rolls it back for a heavier transaction."""
    with target.server.connect(target.database) as other, other.cursor() as cursor:
        execute(connection, "SELECT * FROM held FOR UPDATE")
        other.begin()
        cursor.execute("CREATE TEMPORARY TABLE heavy (n bigint) ENGINE = InnoDB")
        cursor.execute("CREATE TABLE IF NOT EXISTS weight (n bigint)")
        other.begin()
        cursor.execute("INSERT INTO weight SELECT seq FROM seq_1_to_10000")
        waiting = threading.Thread(target=lambda: cursor.execute("SELECT * FROM held FOR UPDATE"))
        waiting.start()
        try:
            while not target.sql("SELECT 1 FROM information_schema.INNODB_TRX WHERE trx_state = 'LOCK WAIT'"):
                time.sleep(0.2)  # a client that asks more often than every 0.1 s gets the same answer for ever
            with pytest.raises(pymysql.MySQLError) as caught:
                execute(connection, "SELECT * FROM weight FOR UPDATE")
        finally:
            waiting.join()
        other.rollback()
    return caught.value


def test_table_cannot_be_altered_between_inspection_and_insert(target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    sink = target.sink()
    target.sql("CREATE TABLE a (n bigint)")
    copy, observed = Table.copy, []

    def after_an_alter(self: Table, *arguments: Any) -> None:
        with pytest.raises(pymysql.OperationalError) as caught:
            target.sql("SET lock_wait_timeout = 1", "ALTER TABLE a MODIFY n double")
        observed.append(caught.value.args[0])
        copy(self, *arguments)

    monkeypatch.setattr(Table, "copy", after_an_alter)
    assert target.commit(sink, target.prepare(sink, "a", 1)) == [Committed()]
    assert observed == [1205]
    assert target.rows("a") == [(1,), (2,), (3,)]


def test_committer_overtaken_in_creating_or_widening_a_table_continues(
    target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    alter, observed = MariadbCommitter._alter, list[str]()

    def overtaken(self: MariadbCommitter, statement: str) -> CommitOutcome | None:
        target.sql(statement)
        observed.append(statement.partition(" ")[0])
        return alter(self, statement)

    monkeypatch.setattr(MariadbCommitter, "_alter", overtaken)
    sink = target.sink(evolve="add_columns")
    request = target.prepare(sink, "a", 1, numbers(1), pa.record_batch({"n": [2], "more": [3]}))
    assert target.commit(sink, request) == [Committed()]
    assert target.rows("a", "n, more") == [(1, None), (2, 3)]
    assert observed == ["CREATE", "ALTER"]


def test_committer_overtaken_by_a_wider_change_continues_with_it(
    target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A change that would make the column narrower again is refused because of the other committer's rows."""
    alter = MariadbCommitter._alter

    def overtaken(self: MariadbCommitter, statement: str) -> CommitOutcome | None:
        target.sql("ALTER TABLE a MODIFY COLUMN n bigint", f"INSERT INTO a VALUES ({2**40})")
        return alter(self, statement)

    target.sql("CREATE TABLE a (n smallint)")
    monkeypatch.setattr(MariadbCommitter, "_alter", overtaken)
    sink = target.sink(evolve="add_columns")
    request = target.prepare(sink, "a", 1, of(70_000, pa.int32()))
    assert target.commit(sink, request) == [Committed()]
    assert target.rows("a") == [(70_000,), (2**40,)]


# -- rights, servers


def test_without_rights_a_dataset_waits_for_them(target: Target) -> None:
    user = f"u{uuid.uuid4().hex[:8]}"
    plain = target.sink()
    assert target.commit(plain, target.prepare(plain, "a", 1), target.prepare(plain, "b", 1)) == [Committed()] * 2
    target.sql(f"CREATE USER {user}@127.0.0.1 IDENTIFIED BY 'secret'")
    target.sql(f"GRANT ALL ON {target.database}.distcommit_ledger TO {user}@127.0.0.1")
    target.sql(f"GRANT SELECT, INSERT ON {target.database}.b TO {user}@127.0.0.1")
    target.sql(f"GRANT SELECT ON {target.database}.a TO {user}@127.0.0.1")
    sink = target.sink(url=target.url.replace("reader", user), password="secret")
    second = [target.prepare(sink, urn, 2) for urn in ("a", "b", "new")]
    outcomes = target.commit(sink, *second)
    assert outcomes[1] == Committed()
    for outcome in (outcomes[0], outcomes[2]):
        assert isinstance(outcome, RetryLater)
        assert "denied" in outcome.reason
    target.sql(f"GRANT ALL ON {target.database}.* TO {user}@127.0.0.1")
    assert target.commit(sink, *second) == [Committed(), AlreadyCommitted(), Committed()]
    assert len(target.rows("a")) == len(target.rows("b")) == 6
    target.sql(f"DROP USER {user}@127.0.0.1")


def test_a_read_only_server_is_an_outage(target: Target) -> None:
    user = f"u{uuid.uuid4().hex[:8]}"
    plain = target.sink()
    assert target.commit(plain, target.prepare(plain, "a", 1)) == [Committed()]
    target.sql(f"CREATE USER {user}@127.0.0.1 IDENTIFIED BY 'secret'")
    target.sql(f"GRANT ALL ON {target.database}.* TO {user}@127.0.0.1")
    sink = target.sink(url=target.url.replace("reader", user), password="secret")
    request = target.prepare(sink, "a", 2)
    target.sql("SET GLOBAL read_only = 1")
    try:
        committer = sink.open_committer(target.context)
        for act in (lambda: committer.commit([request]), committer.probe):
            with pytest.raises(pymysql.OperationalError, match="read-only"):
                act()
        committer.close()
    finally:
        target.sql("SET GLOBAL read_only = 0")
    assert target.commit(sink, request) == [Committed()]
    target.sql(f"DROP USER {user}@127.0.0.1")


@pytest.mark.usefixtures("mariadb_server")  # where that is impossible, the test is skipped
def test_full_server_keeps_nothing_of_the_refused_dataset_and_takes_the_others(tmp_path: Path) -> None:
    with MariadbServer("--innodb-data-file-path=ibdata1:12M", "--innodb-file-per-table=0") as server:
        target = Target(server, tmp_path)
        sink = target.sink()
        large = target.prepare(sink, "large", 1, pa.record_batch({"s": ["x" * 1000] * 20_000}))
        small = target.prepare(sink, "small", 1)
        with pytest.raises(pymysql.OperationalError, match="is full"):
            target.commit(sink, small, large)
        assert target.ledger() == []
        assert target.commit(sink, small) == [Committed()], "as each is then tried by itself"
        with pytest.raises(pymysql.OperationalError, match="is full"):
            target.commit(sink, large)
        assert target.rows("large", "count(*)") == [(0,)]
        assert target.ledger() == [("small", 1)]


@pytest.mark.parametrize("flushed", [0, 2])
def test_server_that_confirms_commits_before_they_are_durable_is_refused(target: Target, flushed: int) -> None:
    sink = target.sink()
    target.sql(f"SET GLOBAL innodb_flush_log_at_trx_commit = {flushed}")
    try:
        with pytest.raises(ConfigurationError, match="before it is on disk"):
            target.commit(sink, target.prepare(sink, "a", 1))
    finally:
        target.sql("SET GLOBAL innodb_flush_log_at_trx_commit = 1")


def test_killed_connection_has_committed_nothing(target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    sink = target.sink()
    first, second = target.prepare(sink, "a", 1), target.prepare(sink, "a", 2, numbers(4))
    assert target.commit(sink, first) == [Committed()]
    copy = Table.copy

    def then_killed(self: Table, *arguments: Any) -> None:
        copy(self, *arguments)
        target.sql(f"KILL {self.connection.thread_id()}")

    monkeypatch.setattr(Table, "copy", then_killed)
    with pytest.raises(pymysql.MySQLError):
        target.commit(sink, second)
    monkeypatch.undo()
    assert target.rows("a") == [(1,), (2,), (3,)]
    assert target.commit(sink, second) == [Committed()]


def test_xa_does_not_distinguish_committed_from_rolled_back(target: Target) -> None:
    """XA alone is no proof: a finished transaction is unknown whether it was committed or rolled back, and so is one
    that another session holds."""
    unknown = []

    def assert_unknown(statement: str) -> None:
        with pytest.raises(pymysql.MySQLError) as caught:
            target.sql(statement)
        unknown.append(caught.value.args)

    target.sql("CREATE TABLE a (n bigint)")
    with target.server.connect(target.database) as holder, holder.cursor() as cursor:
        for statement in ("XA START 'x'", "INSERT INTO a VALUES (1)", "XA END 'x'", "XA PREPARE 'x'"):
            cursor.execute(statement)
        assert_unknown("XA COMMIT 'x'")
    prepared = ("XA START 'y'", "INSERT INTO a VALUES (2)", "XA END 'y'", "XA PREPARE 'y'")
    target.sql(*prepared)
    target.server.restart()
    assert len(target.sql("XA RECOVER")) == 2
    target.sql("XA COMMIT 'x'")
    target.sql("XA ROLLBACK 'y'")
    assert_unknown("XA COMMIT 'x'")
    assert_unknown("XA COMMIT 'y'")
    assert [code for code, _ in unknown] == [1397] * 3
    assert target.rows("a") == [(1,)]


# -- a target other than the store knows


def test_ledger_has_the_marks_of_tables_that_the_sink_creates(target: Target) -> None:
    sink = target.sink()
    target.sql("CREATE TABLE a (n bigint)")
    assert target.commit(sink, target.prepare(sink, "a", 1)) == [Committed()]
    assert target.commit(sink, target.prepare(sink, "a", 2), target.prepare(sink, "b", 2)) == [Committed()] * 2
    assert len(target.rows("a")) == 6
    (of_a, of_b) = target.sql("SELECT target_mark FROM distcommit_ledger WHERE store <> '' ORDER BY dataset")
    assert of_a == (0,), "a foreign table has no mark"
    assert of_b > (0,)

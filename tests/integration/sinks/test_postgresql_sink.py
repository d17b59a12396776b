"""Failures at a PostgreSQL server: each concerns one dataset, is reported, and leaves nothing half committed."""

from __future__ import annotations

import re
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import urlsplit

import psycopg
import pyarrow as pa
import pytest
from psycopg import sql

from distcommit.core.errors import SinkUnavailableError, TransientError
from distcommit.core.interfaces.committer import (
    AlreadyCommitted,
    Committed,
    RetryLater,
)
from distcommit.sinks.databases.table_committer import LEDGER
from distcommit.sinks.postgresql.sessions import transaction
from distcommit.sinks.postgresql.sink import PostgresqlSink
from distcommit.sinks.postgresql.table_writes import Table
from tests.servers.postgresql import PostgresServer
from tests.unit.sinks.databases.commit_steps import numbers, refused
from tests.unit.sinks.databases.table_sink_cases import ServerTableSinkCases, ServerTarget
from tests.unit.sinks.mirror_cases import MirrorCases
from tests.unit.sinks.odd_input_cases import OddInputCases
from tests.unit.sinks.upsert_cases import NewestCases
from tests.unit.test_pages import DOCS, text_of


class Target(ServerTarget):
    """Target with a schema of its own, in which its statements run."""

    forgotten = "target_oid"
    raised = psycopg.OperationalError
    commit_sent = rb"COMMIT\0"
    session_id = "pg_backend_pid()"
    session_state: ClassVar = {
        "SET work_mem = '77MB'": "SELECT current_setting('work_mem')",
        "CREATE TEMP TABLE left_behind (n int)": "SELECT to_regclass('left_behind')::text",
        "SELECT pg_advisory_lock(7)": "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'"
        " AND pid = pg_backend_pid()",
    }

    def __init__(self, server: PostgresServer, folder: Path) -> None:
        super().__init__(folder)
        self.server: PostgresServer = server
        self.url, self.schema = server.url, f"t{uuid.uuid4().hex[:12]}"
        self.schema_prefix = f"{self.schema}."
        self.sql(f"CREATE SCHEMA {self.schema}")

    def sink(self, **settings: Any) -> PostgresqlSink:
        where = {"url": self.url, "password": self.server.password, "schema": self.schema}
        return PostgresqlSink.model_validate({"type": "postgresql", **where, **settings})

    def sql(self, *statements: str) -> list[tuple[Any, ...]]:
        with self.server.connect() as connection:
            connection.execute(f"SET search_path TO {self.schema}".encode())
            for statement in statements:
                cursor = connection.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []

    def tables(self) -> set[str]:
        return {name for (name,) in self.sql(f"SELECT tablename FROM pg_tables WHERE schemaname = '{self.schema}'")}


@pytest.fixture
def target(postgres_server: PostgresServer, tmp_path: Path) -> Iterator[Target]:
    own_target = Target(postgres_server, tmp_path)
    yield own_target
    own_target.sql(f"DROP SCHEMA {own_target.schema} CASCADE")


class TestPostgresql(ServerTableSinkCases, NewestCases, MirrorCases, OddInputCases):
    """Run the tests that all databases share."""

    keeps_negative_zero = True
    keeps_negative_zero_in_json = False
    refused_names: ClassVar = {
        ("x" * 64,): "64 bytes",
        ("x" * 63 + "a", "x" * 63 + "b"): "64 bytes",
        ("ü" * 32,): "64 bytes",
        ("ctid",): "that the database reserves",
        ("xmin",): "that the database reserves",
    }

    def test_key_that_ignores_case_or_spaces_is_refused(self, target: Target) -> None:
        target.sql("CREATE COLLATION no_case (provider = icu, locale = 'und-u-ks-level2', deterministic = false)")
        for key in ("k text COLLATE no_case", "k char(5)"):
            self.refuses_inexact_keys(target, key)
        self.refuses_inexact_keys(target, "k text", "CREATE UNIQUE INDEX ON inexact (k COLLATE no_case)")

    def test_statement_of_the_page_lets_a_restored_table_receive_commits(self, target: Target) -> None:
        (statement,) = re.findall(r"```sql\n(UPDATE .*?)```", text_of(DOCS / "connectors" / "sink-postgresql.md"), re.S)
        sink = target.sink()
        assert target.commit(sink, target.prepare(sink, "a", 1)) == [Committed()]
        second = target.prepare(sink, "a", 2)
        target.sql("DROP TABLE a", "CREATE TABLE a (n bigint)")
        refused(target.commit(sink, second)[0], "was dropped and recreated")
        target.sql(statement)
        assert target.commit(sink, second) == [Committed()]

    def test_trigger_that_keeps_rows_from_being_deleted_is_detected(self, target: Target) -> None:
        self.keeps_rows(
            target,
            "CREATE FUNCTION keeps() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$",
            "CREATE TRIGGER keeps BEFORE DELETE ON a FOR EACH ROW EXECUTE FUNCTION keeps()",
        )


# -- the check before a run


@pytest.mark.parametrize(
    ("grants", "found"),
    [
        (["SELECT 1"], "no right to create the table"),
        (["GRANT CREATE ON SCHEMA {schema} TO {user}"], ""),
        (["CREATE TABLE {ledger} (n int)", "GRANT CREATE ON SCHEMA {schema} TO {user}"], "no right to write the table"),
        (["CREATE TABLE {ledger} (n int)", "GRANT SELECT, INSERT, UPDATE, DELETE ON {ledger} TO {user}"], ""),
        (
            ["CREATE TABLE {ledger} (n int)", "GRANT SELECT, INSERT ON {ledger} TO {user}"],
            "no right to write the table",
        ),
        (["ALTER SCHEMA {schema} RENAME TO other"], "a missing schema"),
    ],
)
def test_check_asks_for_the_right_to_write_the_ledger(target: Target, grants: list[str], found: str) -> None:
    user = f"u{uuid.uuid4().hex[:12]}"
    named = {"schema": target.schema, "user": user, "ledger": LEDGER}
    target.sql(f"CREATE ROLE {user} LOGIN PASSWORD 'x'", f"GRANT USAGE ON SCHEMA {target.schema} TO {user}")
    target.sql(*(grant.format(**named) for grant in grants))
    parts = urlsplit(target.url)
    url = parts._replace(netloc=f"{user}@{parts.netloc.rpartition('@')[2]}").geturl()
    sink = target.sink(url=url, password="x")
    try:
        if found:
            with pytest.raises(SinkUnavailableError, match=rf"can't write the ledger .*found {found}.*To do: "):
                sink.check_connection()
        else:
            assert "accepts the user" in sink.check_connection()
    finally:
        if "RENAME" in "".join(grants):
            target.sql(f"ALTER SCHEMA other RENAME TO {target.schema}")
        target.sql(f"DROP OWNED BY {user}", f"DROP ROLE {user}")


# -- the rows


BAD_ROWS: list[tuple[str, pa.RecordBatch, str]] = [
    ("n bigint UNIQUE", numbers(7, 7), "duplicate key"),
    ("n bigint UNIQUE DEFERRABLE INITIALLY DEFERRED", numbers(7, 7), "duplicate key"),
    ("n bigint NOT NULL", numbers(1, None), "null value"),
    ("n bigint CHECK (n < 2)", numbers(1, 2), "check constraint"),
    ("n integer", numbers(1, 2**40), "'n' does not go into the table's n integer"),
    ("n smallint", numbers(40_000), "'n' does not go into the table's n smallint"),
    ("n numeric(3, 0)", numbers(1000), "'n' does not go into the table's n numeric(3,0)"),
    ("n double precision", numbers(1), "has the type int64, which does not go into the table's n double precision"),
    ("n timestamptz", numbers(1), "has the type int64"),
    ("n varchar(3)", pa.record_batch({"n": ["abcd"]}), "too long"),
    ("n varchar(4)", pa.record_batch({"n": ["ab", "abc  "]}), "spaces are cut off"),
    ("n timestamp(3)", pa.record_batch({"n": pa.array([None, 1500], pa.timestamp("us"))}), "3 digits of a second"),
    ("n time(0)[]", pa.record_batch({"n": pa.array([[0, 1]], pa.list_(pa.time64("us")))}), "0 digits of a second"),
    ("n text", pa.record_batch({"n": ["a\0b"]}), "invalid byte sequence"),
    ("n bigint", pa.record_batch({"n": [1.5]}), "has the type double"),
    ("n numeric(5, 1)", pa.record_batch({"n": [Decimal("1.25")]}), "'n' does not go into the table's n numeric(5,1)"),
    ("n timestamp", pa.record_batch({"n": pa.array([-(2**63)], pa.timestamp("us"))}), "can't be written"),
    ("n jsonb", pa.record_batch({"n": ["{"]}), "invalid input syntax"),
    ("m bigint", numbers(1), "has no column 'n'"),
]


@pytest.mark.parametrize(("columns", "rows", "message"), BAD_ROWS, ids=[each[0] for each in BAD_ROWS])
def test_rows_refused_by_the_table_fail_alone(target: Target, columns: str, rows: pa.RecordBatch, message: str) -> None:
    target.refuses_rows(columns, rows, message)


def test_binary_copy_by_itself_misreads_a_float(target: Target) -> None:
    """This is why the sink compares types: the server does not."""
    target.sql("CREATE TABLE naive (n bigint)")
    with target.server.connect() as connection, connection.cursor() as cursor:
        naive = sql.SQL("COPY {} FROM STDIN (FORMAT BINARY)").format(sql.Identifier(target.schema, "naive"))
        with cursor.copy(naive) as copy:
            copy.set_types(["float8"])
            copy.write_row([1.5])
    assert target.rows("naive") == [(4609434218613702656,)]


def test_each_type_is_read_back_unchanged(target: Target) -> None:
    now = datetime(2024, 5, 6, 7, 8, 9, 123456, UTC)
    columns: dict[str, tuple[pa.Array, Any]] = {
        "bool": (pa.array([True, None]), True),
        "uint8": (pa.array([255, None], pa.uint8()), 255),
        "int32": (pa.array([-(2**31), None], pa.int32()), -(2**31)),
        "uint32": (pa.array([2**32 - 1, None], pa.uint32()), 2**32 - 1),
        "uint64": (pa.array([2**64 - 1, None], pa.uint64()), Decimal(2**64 - 1)),
        "float32": (pa.array([0.5, None], pa.float32()), 0.5),
        "decimal": (pa.array([Decimal("-12.340"), None]), Decimal("-12.340")),
        "text": (pa.array(["ü", None], pa.large_string()), "ü"),
        "words": (pa.array(["a", None]).dictionary_encode(), "a"),
        "bytes": (pa.array([b"\0\xff", None]), b"\0\xff"),
        "sixteen": (pa.array([b"0123456789abcdef", None], pa.binary(16)), b"0123456789abcdef"),
        "date": (pa.array([now.date(), None]), now.date()),
        "time": (pa.array([now.time(), None]), now.time()),
        "zoned": (pa.array([now, None], pa.timestamp("ns", "Europe/Berlin")), now),
        "naive": (pa.array([now.replace(tzinfo=None), None]), now.replace(tzinfo=None)),
        "list": (pa.array([[1, None], None]), [1, None]),
        "struct": (pa.array([{"a": [{"b": 1}]}, None]), {"a": [{"b": 1}]}),
        "map": (pa.array([[("k", 1)], None], pa.map_(pa.string(), pa.int64())), [{"key": "k", "value": 1}]),
        "nothing": (pa.nulls(2), None),
    }
    target.reads_back(columns)


def test_integers_go_into_columns_with_fewer_digits_than_their_type_could_have(target: Target) -> None:
    target.sql("CREATE TABLE a (n numeric(3, 0))")
    sink = target.sink()
    assert target.commit(sink, target.prepare(sink, "a", 1, numbers(-999, None, 999))) == [Committed()]
    assert target.rows("a") == [(Decimal(-999),), (Decimal(999),), (None,)]


# -- modes


def test_upsert_waits_for_an_index_on_its_keys(target: Target) -> None:
    target.sql("CREATE TABLE without (n bigint)")
    sink = target.sink(mode="upsert", keys=["n"], evolve="add_columns")
    (outcome,) = target.commit(sink, target.prepare(sink, "without", 1))
    assert isinstance(outcome, RetryLater), "until the index is created"
    assert "no unique or exclusion constraint" in outcome.reason


# -- the tables


@pytest.mark.parametrize("statement", ["UNLOGGED TABLE bad (n bigint)", "VIEW bad AS SELECT 1 AS n"])
def test_relation_that_does_not_keep_rows_is_refused(target: Target, statement: str) -> None:
    target.sql(f"CREATE {statement}")
    sink = target.sink()
    refused(target.beside_others(sink, target.prepare(sink, "bad", 1)), "must be an ordinary table")


@pytest.mark.parametrize("settings", [{}, {"mode": "upsert", "keys": ["n"], "version": "v"}], ids=["append", "upsert"])
def test_trigger_that_drops_rows_is_detected(target: Target, settings: dict[str, Any]) -> None:
    target.sql("CREATE TABLE bad (n bigint UNIQUE, v bigint)")
    body = "BEGIN IF NEW.n = 2 THEN RETURN NULL; END IF; RETURN NEW; END"
    target.sql(f"CREATE FUNCTION leaves() RETURNS trigger LANGUAGE plpgsql AS $$ {body} $$")
    target.sql("CREATE TRIGGER leaves BEFORE INSERT ON bad FOR EACH ROW EXECUTE FUNCTION leaves()")
    sink = target.sink(**settings)
    rows = pa.record_batch({"n": [1, 2, 3, 3], "v": [1, 1, 1, 2]} if settings else {"n": [1, 2, 3], "v": [1, 1, 1]})
    (outcome,) = target.commit(sink, target.prepare(sink, "bad", 1, rows))
    refused(outcome, "3 were sent, 2 were inserted")
    assert target.rows("bad") == []


def test_rows_without_a_key_are_refused_and_not_treated_as_equal(target: Target) -> None:
    """A unique index that is not a primary key accepts any number of them."""
    target.sql("CREATE TABLE a (n bigint UNIQUE, v bigint)")
    sink = target.sink(mode="upsert", keys=["n"], evolve="add_columns")
    rows = pa.record_batch({"n": pa.array([1, None, None], pa.int64()), "v": [1, 2, 3]})
    refused(target.commit(sink, target.prepare(sink, "a", 1, rows))[0], "null in a key")
    assert target.rows("a") == []


def waits(target: Target) -> bool:
    """Return whether a committer waits for a lock."""
    asked = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'distcommit' AND wait_event_type = 'Lock'"
    return target.sql(asked) != [(0,)]


def beside(target: Target, act: Callable[[], list[Any]], first: str, then: str = "SELECT") -> list[Any]:
    """Return the result of an action that waits for the transaction of a statement, which is then committed."""
    with target.server.connect() as other, ThreadPoolExecutor(1) as pool:
        for statement in ("BEGIN", f"SET search_path TO {target.schema}", first):
            other.execute(statement.encode())
        acting = pool.submit(act)
        while not waits(target) and not acting.done():
            time.sleep(0.05)
        other.execute(then.encode())
        other.execute("COMMIT")
        return acting.result()


def test_table_under_creation_by_another_session_is_waited_for(target: Target) -> None:
    """Of two concurrent CREATE TABLE statements the server refuses one, even with IF NOT EXISTS."""
    sink = target.sink()
    target.commit(sink, target.prepare(sink, "first", 1))
    request = target.prepare(sink, "a", 1)
    (outcome,) = beside(target, lambda: target.commit(sink, request), "CREATE TABLE a (n bigint)")
    assert isinstance(outcome, RetryLater), outcome
    assert "another session was creating the same table" in outcome.reason
    assert target.commit(sink, request) == [Committed()]
    assert target.rows("a") == [(1,), (2,), (3,)]


def test_commit_fails_if_its_ledger_row_was_just_deleted(target: Target) -> None:
    """Another committer may delete such a row once it is obsolete, because a revoked commit is allowed again."""
    sink = target.sink()
    request = target.prepare(sink, "a", 1)
    committer = sink.open_committer(target.context)
    committer.withdraw([request])
    committer.allow([request])
    committer.close()
    assert target.ledger() == [("a", 0)]
    its_row = "FROM distcommit_ledger WHERE dataset = 'a'"
    with pytest.raises(TransientError, match="ledger was not written"):
        beside(target, lambda: target.commit(sink, request), f"SELECT {its_row} FOR UPDATE", f"DELETE {its_row}")
    assert "a" not in target.tables()
    assert target.commit(sink, request) == [Committed()]
    assert target.commit(sink, request) == [AlreadyCommitted()]
    assert target.rows("a") == [(1,), (2,), (3,)]


# -- rights, locks, servers


def test_without_rights_a_dataset_waits_for_them(target: Target) -> None:
    user = f"u{uuid.uuid4().hex[:8]}"
    plain = target.sink()
    assert target.commit(plain, target.prepare(plain, "a", 1), target.prepare(plain, "b", 1)) == [Committed()] * 2
    target.sql(f"CREATE ROLE {user} LOGIN PASSWORD 'secret'")
    target.sql(f"GRANT USAGE ON SCHEMA {target.schema} TO {user}")
    target.sql(f"GRANT ALL ON distcommit_ledger, b TO {user}")
    sink = target.sink(url=target.url.replace("reader", user), password="secret")
    second = [target.prepare(sink, urn, 2) for urn in ("a", "b", "new")]
    outcomes = target.commit(sink, *second)
    assert outcomes[1] == Committed()
    for outcome in (outcomes[0], outcomes[2]):
        assert isinstance(outcome, RetryLater)
        assert "permission denied" in outcome.reason
    target.sql(f"GRANT ALL ON a TO {user}")
    target.sql(f"GRANT ALL ON SCHEMA {target.schema} TO {user}")
    assert target.commit(sink, *second) == [Committed(), AlreadyCommitted(), Committed()]
    assert len(target.rows("a")) == len(target.rows("b")) == 6
    target.sql(f"DROP OWNED BY {user}; DROP ROLE {user}")


def test_full_disk_keeps_nothing_of_the_refused_dataset_and_takes_the_others(target: Target) -> None:
    """`/dev/full` replaces the table's file: its rows have no room, those of other tables have."""
    target.sql("CREATE TABLE large (n bigint)")
    ((path, data),) = target.sql("SELECT pg_relation_filepath('large'), current_setting('data_directory')")
    sink, file = target.sink(), Path(data, path)
    large, small = target.prepare(sink, "large", 1), target.prepare(sink, "small", 1)
    file.rename(f"{file}.away")
    file.symlink_to("/dev/full")
    with pytest.raises(psycopg.errors.DiskFull):
        target.commit(sink, small, large)
    assert "small" not in target.tables()
    assert target.commit(sink, small) == [Committed()], "as each is then tried by itself"
    with pytest.raises(psycopg.errors.DiskFull):
        target.commit(sink, large)
    assert target.ledger() == [("small", 1)]
    Path(f"{file}.away").replace(file)
    assert target.commit(sink, small, large) == [AlreadyCommitted(), Committed()]
    assert target.rows("large") == [(1,), (2,), (3,)]


def test_commits_are_durable_in_spite_of_the_role_s_settings(target: Target) -> None:
    """`synchronous_commit = off` answers before anything is written: a crash would lose commits that count as done."""
    target.sql("CREATE TABLE a (n bigint, s text DEFAULT current_setting('synchronous_commit'))")
    target.sql("ALTER ROLE reader SET synchronous_commit = off")
    try:
        sink = target.sink()
        assert target.commit(sink, target.prepare(sink, "a", 1)) == [Committed()]
    finally:
        target.sql("ALTER ROLE reader RESET synchronous_commit")
    assert {setting for _, setting in target.rows("a", "n, s")} == {"on"}


def test_commit_of_a_failed_transaction_raises_nothing_by_itself(target: Target) -> None:
    """This is why the tag of COMMIT is checked."""

    def fails(connection: psycopg.Connection) -> None:
        with pytest.raises(psycopg.errors.DivisionByZero):
            connection.execute("SELECT 1 / 0")

    with target.server.connect() as naive:
        naive.autocommit = False
        fails(naive)
        naive.commit()  # raises nothing
    with (
        target.server.connect() as connection,
        pytest.raises(TransientError, match="rolled the transaction back"),
        transaction(connection),
    ):
        fails(connection)


def test_table_cannot_be_altered_between_inspection_and_insert(target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    sink = target.sink()
    target.sql("CREATE TABLE a (n bigint)")
    copy, observed = Table.copy, []

    def after_an_alter(self: Table, *arguments: Any, **named: Any) -> None:
        with target.server.connect() as other:
            other.execute("SET lock_timeout = '200ms'")
            with pytest.raises(psycopg.errors.LockNotAvailable) as caught:
                other.execute(f"ALTER TABLE {target.schema}.a ALTER n TYPE double precision".encode())
            observed.append(caught)
        copy(self, *arguments, **named)

    monkeypatch.setattr(Table, "copy", after_an_alter)
    assert target.commit(sink, target.prepare(sink, "a", 1)) == [Committed()]
    assert observed
    assert target.rows("a") == [(1,), (2,), (3,)]


def test_column_used_by_a_view_is_not_widened_and_takes_values_that_fit(target: Target) -> None:
    target.sql("CREATE TABLE a (n integer)", "CREATE VIEW b AS SELECT n FROM a")
    sink = target.sink(evolve="add_columns")
    assert target.commit(sink, target.prepare(sink, "a", 1)) == [Committed()]
    refused(target.commit(sink, target.prepare(sink, "a", 2, numbers(2**40)))[0], "'n'")
    assert target.rows("a") == [(1,), (2,), (3,)]


# -- a target other than the store knows


def test_new_and_existing_tables_cost_four_calls(target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    """The calls come beside a savepoint and its COPY: a lookup, create and lock, the columns, and the ledger's row.

    A run may be the first of thousands of tables, each with a long round trip to the server.
    """
    sink, execute, calls = target.sink(), psycopg.Connection.execute, list[object]()

    def counted(connection: psycopg.Connection, query: Any, *more: Any, **options: Any) -> Any:
        calls.append(query)
        return execute(connection, query, *more, **options)

    def calls_for(epoch: int, tables: int) -> int:
        bases = (epoch - 1,) if epoch % 2 else (0,)
        asked = [target.prepare(sink, f"t{tables}-{number}", epoch, bases=bases) for number in range(tables)]
        calls.clear()
        assert target.commit(sink, *asked) == [Committed()] * tables
        return len(calls)

    target.commit(sink, target.prepare(sink, "first", 1))
    monkeypatch.setattr(psycopg.Connection, "execute", counted)
    for epoch in (2, 3):
        assert calls_for(epoch, 25) - calls_for(epoch, 5) == 20 * 4

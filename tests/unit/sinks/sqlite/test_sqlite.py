"""Problems with an SQLite file: each one fails only its dataset, is reported, and leaves nothing half written."""

from __future__ import annotations

import math
import os
import resource
import signal
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from msgspec import structs

from distcommit.core.errors import ConfigurationError, TransientError
from distcommit.core.interfaces.committer import (
    Committed,
    RetryLater,
)
from distcommit.core.interfaces.ledger import LedgerRow
from distcommit.core.records.run_counts import SinkCounts
from distcommit.sinks.databases.table_committer import CollisionError, Key
from distcommit.sinks.sqlite.committer import SqliteCommitter
from distcommit.sinks.sqlite.sessions import connected, transaction
from distcommit.sinks.sqlite.sink import SqliteSink
from distcommit.steps.sink_step import SinkCommitStep
from tests.unit.sinks.databases.commit_steps import numbers, refused
from tests.unit.sinks.databases.table_sink_cases import TableSinkCases, TableTarget
from tests.unit.sinks.mirror_cases import MirrorCases
from tests.unit.sinks.odd_input_cases import OddInputCases
from tests.unit.sinks.upsert_cases import NewestCases


class Target(TableTarget):
    """A database file of one test."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.path = folder / "rows.db"

    def sink(self, **settings: Any) -> SqliteSink:
        return SqliteSink.model_validate({"type": "sqlite", "path": str(self.path), **settings})

    def sql(self, *statements: str) -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(self.path)) as file, file:
            return [file.execute(statement).fetchall() for statement in statements][-1]

    def tables(self) -> set[str]:
        return {name for (name,) in self.sql("SELECT name FROM sqlite_master WHERE type = 'table'")}


@pytest.fixture
def target(tmp_path: Path) -> Target:
    return Target(tmp_path)


class TestSqlite(TableSinkCases, NewestCases, MirrorCases, OddInputCases):
    """The cases of every database, with SQLite."""

    def test_decimal_key_is_rejected_before_the_run(self, target: Target) -> None:
        schema = pa.schema([("k", pa.decimal128(9, 2)), ("_op", pa.string())])
        with pytest.raises(ConfigurationError, match="SQLite stores decimals as text"):
            self.mirror(target).check_schema(schema)

    @pytest.mark.parametrize("collation", ["NOCASE", "RTRIM"])
    def test_key_that_ignores_case_or_spaces_is_refused(self, target: Target, collation: str) -> None:
        self.refuses_inexact_keys(target, f"k text COLLATE {collation}")

    def test_trigger_that_keeps_rows_from_being_deleted_is_detected(self, target: Target) -> None:
        self.keeps_rows(target, "CREATE TRIGGER keeps BEFORE DELETE ON a BEGIN SELECT RAISE(IGNORE); END")


# -- what the rows are


BAD_ROWS: list[tuple[str, pa.RecordBatch, str]] = [
    ("n INTEGER UNIQUE", numbers(7, 7), "UNIQUE constraint failed"),
    ("n INTEGER UNIQUE ON CONFLICT IGNORE", numbers(7, 7), "UNIQUE constraint failed"),
    ("n INTEGER UNIQUE ON CONFLICT REPLACE", numbers(7, 7), "UNIQUE constraint failed"),
    ("n INTEGER NOT NULL", numbers(1, None), "NOT NULL constraint failed"),
    ("n INTEGER NOT NULL ON CONFLICT IGNORE", numbers(1, None), "NOT NULL constraint failed"),
    ("n INTEGER CHECK (n < 2)", numbers(1, 2), "CHECK constraint failed"),
    ("n INTEGER REFERENCES others (n)", numbers(1), "FOREIGN KEY constraint failed"),
    ("n INTEGER PRIMARY KEY", numbers(1, None), "null in a primary key"),
    ("n INTEGER", pa.record_batch({"n": pa.array([2**63], pa.uint64())}), "'n' does not go into the table's n INTEGER"),
    ("n INTEGER", pa.record_batch({"n": ["12"]}), "has the type string, which does not go into the table's n INTEGER"),
    ("n INTEGER", pa.record_batch({"n": [1.0]}), "has the type double"),
    ("n DECIMAL(5, 1)", pa.record_batch({"n": [Decimal("1.5")]}), "has the type decimal128(2, 1)"),
    ("n REAL", numbers(1), "has the type int64, which does not go into the table's n REAL"),
    ("n REAL", pa.record_batch({"n": [math.nan]}), "NaN, which SQLite stores as NULL"),
    ("n TEXT", pa.record_batch({"n": [b"a"]}), "has the type binary"),
    ("n TEXT", pa.record_batch({"n": pa.array([2**62], pa.timestamp("s"))}), "does not go into the table's n TEXT"),
    ("m INTEGER", numbers(1), "has no column 'n'"),
    ("m INTEGER, n INTEGER AS (m + 1)", numbers(1), "has no column 'n'"),
]


@pytest.mark.parametrize(("columns", "rows", "message"), BAD_ROWS, ids=[bad_row[0] for bad_row in BAD_ROWS])
def test_rows_that_the_table_rejects_fail_alone(
    target: Target, columns: str, rows: pa.RecordBatch, message: str
) -> None:
    target.refuses_rows(columns, rows, message)


@pytest.mark.parametrize("evolve", ["none", "add_columns"])
def test_column_name_that_differs_only_in_case_is_neither_missing_nor_added(target: Target, evolve: str) -> None:
    target.sql("CREATE TABLE a (N INTEGER)")
    sink = target.sink(evolve=evolve)
    refused(target.commit(sink, target.prepare(sink, "a", 1))[0], "has the column 'N', and the records have 'n'")


def test_sqlite_alone_drops_rows_and_converts_values(target: Target) -> None:
    """This is why types are compared here and conflicts must abort."""
    target.sql("CREATE TABLE naive (n INTEGER UNIQUE ON CONFLICT IGNORE, i INTEGER, r REAL)")
    with closing(sqlite3.connect(target.path)) as naive, naive:
        naive.executemany("INSERT INTO naive VALUES (?, ?, ?)", [(1, "012", math.nan), (1, "x", 1)])
    assert target.rows("naive", "*") == [(1, 12, None)]


def test_each_type_is_read_back_unchanged(target: Target) -> None:
    now = datetime(2024, 5, 6, 7, 8, 9, 123456, UTC)
    columns: dict[str, tuple[pa.Array, Any]] = {
        "bool": (pa.array([True, None]), 1),
        "uint8": (pa.array([255, None], pa.uint8()), 255),
        "int64": (pa.array([-(2**63), None], pa.int64()), -(2**63)),
        "uint64": (pa.array([2**63 - 1, None], pa.uint64()), 2**63 - 1),
        "float32": (pa.array([0.5, None], pa.float32()), 0.5),
        "float64": (pa.array([math.inf, None]), math.inf),
        "decimal": (pa.array([Decimal("-12.340"), None]), "-12.340"),
        "text": (pa.array(["ü\0", None], pa.large_string()), "ü\0"),
        "words": (pa.array(["012", None]).dictionary_encode(), "012"),
        "bytes": (pa.array([b"\0\xff", None]), b"\0\xff"),
        "sixteen": (pa.array([b"0123456789abcdef", None], pa.binary(16)), b"0123456789abcdef"),
        "date": (pa.array([now.date(), None]), "2024-05-06"),
        "time": (pa.array([now.time(), None]), "07:08:09.123456"),
        "zoned": (pa.array([now, None], pa.timestamp("ns", "Europe/Berlin")), "2024-05-06 07:08:09.123456Z"),
        "naive": (pa.array([now.replace(tzinfo=None), None]), "2024-05-06 07:08:09.123456"),
        "list": (pa.array([[1, None], None]), "[1, null]"),
        "struct": (pa.array([{"a": [{"b": 1}]}, None]), '{"a": [{"b": 1}]}'),
        "map": (pa.array([[("k", 1)], None], pa.map_(pa.string(), pa.int64())), '[{"key": "k", "value": 1}]'),
        "nothing": (pa.nulls(2), None),
    }
    target.reads_back(columns)


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        (pa.schema([("d", pa.duration("s"))]), "no type for this column"),
        (pa.schema([("n", pa.int64()), ("N", pa.int64())]), "but for its case"),
    ],
)
def test_schema_that_no_table_can_have_is_rejected_before_a_record_is_read(
    target: Target, schema: pa.Schema, message: str
) -> None:
    with pytest.raises(ConfigurationError, match=message):
        target.sink().check_schema(schema)


def test_table_whose_first_commit_fails_is_not_created(target: Target) -> None:
    sink = target.sink()
    bad = target.prepare(sink, "bad", 1, numbers(1), pa.record_batch({"n": ["x"]}))
    refused(target.beside_others(sink, bad), "has the type string")
    assert target.sql("SELECT name FROM sqlite_master WHERE name = 'bad'") == []


# -- modes


def test_upsert_waits_for_an_index_on_its_keys(target: Target) -> None:
    target.sql("CREATE TABLE without (n INTEGER)")
    sink = target.sink(mode="upsert", keys=["n"], evolve="add_columns")
    (outcome,) = target.commit(sink, target.prepare(sink, "without", 1))
    assert isinstance(outcome, RetryLater), "until the index is created"
    assert "ON CONFLICT clause does not match" in outcome.reason


def test_upsert_works_with_only_key_columns_and_fails_on_another_unique_index(target: Target) -> None:
    sink = target.sink(mode="upsert", keys=["n"], evolve="add_columns")
    assert target.commit(sink, target.prepare(sink, "a", 1), target.prepare(sink, "b", 1)) == [Committed()] * 2
    assert target.commit(sink, target.prepare(sink, "a", 2)) == [Committed()]
    assert target.rows("a") == [(1,), (2,), (3,)]
    target.sql("CREATE TABLE two (n INTEGER PRIMARY KEY, other INTEGER UNIQUE)")
    target.sql("INSERT INTO two VALUES (1, 10)")
    clash = pa.record_batch({"n": [2], "other": [10]})
    refused(target.commit(sink, target.prepare(sink, "two", 1, clash))[0], "UNIQUE constraint failed: two.other")
    assert target.rows("two", "n, other") == [(1, 10)]


# -- what the tables are


def test_view_is_rejected_as_a_target(target: Target) -> None:
    target.sql("CREATE VIEW bad AS SELECT 1 AS n")
    sink = target.sink()
    refused(target.beside_others(sink, target.prepare(sink, "bad", 1)), "must be an ordinary table")


def test_trigger_that_drops_rows_is_detected(target: Target) -> None:
    target.sql("CREATE TABLE bad (n INTEGER)")
    target.sql("CREATE TRIGGER leaves BEFORE INSERT ON bad WHEN NEW.n = 2 BEGIN SELECT RAISE(IGNORE); END")
    sink = target.sink()
    refused(target.beside_others(sink, target.prepare(sink, "bad", 1)), "3 were sent, 2 were inserted")
    assert target.rows("bad") == []


# -- transactions


def test_trigger_that_ends_the_transaction_leaves_nothing_committed(target: Target) -> None:
    """A trigger may roll back the transaction; statements executed after it would be committed separately."""
    target.sql("CREATE TABLE bad (n INTEGER)")
    target.sql("CREATE TRIGGER undoes BEFORE INSERT ON bad BEGIN SELECT RAISE(ROLLBACK, 'all of it'); END")
    target.sql("CREATE TABLE naive (n INTEGER)")
    with closing(sqlite3.connect(target.path, isolation_level=None)) as naive:
        naive.execute("BEGIN")
        naive.execute("INSERT INTO naive VALUES (1)")
        with pytest.raises(sqlite3.IntegrityError):
            naive.execute("INSERT INTO bad VALUES (1)")
        naive.execute("INSERT INTO naive VALUES (2)")
    assert target.rows("naive") == [(2,)]
    sink = target.sink()
    good, bad = target.prepare(sink, "a", 1), target.prepare(sink, "bad", 1)
    with pytest.raises(sqlite3.IntegrityError, match="all of it"):
        target.commit(sink, good, bad, target.prepare(sink, "b", 1))
    assert target.ledger() == []
    assert target.sql("SELECT name FROM sqlite_master WHERE name IN ('a', 'b')") == []
    assert target.commit(sink, good) == [Committed()], "each request is then committed alone"


def test_missing_transaction_is_not_reported_as_committed(target: Target) -> None:
    connection = connected(str(target.path))
    with (
        closing(connection),
        pytest.raises(TransientError, match="ended a transaction before its COMMIT"),
        transaction(connection),
    ):
        connection.execute("ROLLBACK")


def test_committed_rows_are_durable_together_with_the_journal_s_name(target: Target) -> None:
    connection = connected(str(target.path))
    with closing(connection):
        assert connection.execute("PRAGMA synchronous").fetchone() == (3,)


# -- files


@contextmanager
def file_size_limit(size_bytes: int) -> Iterator[None]:
    """Limit the size of this process's files, as a full disk does."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)


def test_full_disk_leaves_nothing_and_the_same_request_succeeds_later(target: Target) -> None:
    sink = target.sink()
    large = pa.record_batch({"n": ["x" * 1000] * 1000})
    assert target.commit(sink, target.prepare(sink, "a", 1)) == [Committed()]
    requests = [target.prepare(sink, "b", 1), target.prepare(sink, "large", 1, large)]
    with file_size_limit(os.path.getsize(target.path) + 40_000), pytest.raises(sqlite3.OperationalError):
        target.commit(sink, *requests)
    assert target.ledger() == [("a", 1)]
    assert target.commit(sink, *requests) == [Committed()] * 2


def test_file_that_is_not_a_database_or_can_not_be_created_is_an_outage(target: Target, tmp_path: Path) -> None:
    sink = target.sink()
    request = target.prepare(sink, "a", 1)
    target.path.write_bytes(b"no database" * 1000)
    with pytest.raises(sqlite3.DatabaseError, match="not a database"):
        target.commit(sink, request)
    elsewhere = target.sink(path=str(tmp_path / "missing" / "rows.db"))
    with pytest.raises(sqlite3.OperationalError, match="unable to open"):
        target.commit(elsewhere, request)


# -- another target than the store knows


def remove_file(target: Target) -> None:
    target.path.unlink()


def test_ledger_has_the_marks_of_tables_that_the_sink_creates(target: Target) -> None:
    sink = target.sink()
    target.sql("CREATE TABLE a (n bigint)")
    assert target.commit(sink, target.prepare(sink, "a", 1)) == [Committed()]
    assert target.commit(sink, target.prepare(sink, "a", 2), target.prepare(sink, "b", 2)) == [Committed()] * 2
    assert len(target.rows("a")) == 6
    (of_a, of_b) = target.sql("SELECT target_mark FROM distcommit_ledger WHERE store <> '' ORDER BY dataset")
    assert of_a == (0,), "a table of another program has no mark"
    assert of_b > (0,)


def test_retries_within_a_committer_are_counted(target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    sink, collisions, locked = target.sink(), [1, 2], SqliteCommitter.locked
    request = replace(target.prepare(sink, "a", 1), infos_version=sink.infos_version)

    def collides(self: SqliteCommitter, keys: Sequence[Key]) -> dict[Key, LedgerRow]:
        if collisions:
            raise CollisionError(str(collisions.pop()))
        return locked(self, keys)

    monkeypatch.setattr(SqliteCommitter, "locked", collides)
    step = SinkCommitStep(sink, request, target.context)
    assert SinkCommitStep.execute_all([step]) == [None]
    (counted,) = step.commit_counts.sinks
    assert structs.replace(counted, target_ms=0) == SinkCounts(
        "main", sink.name, commit_attempts=1, commit_successes=1, commit_retries=2
    )

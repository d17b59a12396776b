"""The SQL source on SQLite: plans, rows read over several runs, and error messages."""

from __future__ import annotations

import datetime as dt
import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distcommit.core.errors import DistcommitError, SourceError
from distcommit.core.interfaces.source import DatasetProblem
from distcommit.core.records.log_records import DatasetState
from distcommit.core.watermark import Watermark, as_offset
from distcommit.core.work_units import DatasetPlan
from tests.unit.sources.sql.sql_tables import Reader, database, planned, source


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "db.sqlite"


def make(file: Path, *statements: str) -> None:
    with database(file) as connection:
        for statement in statements:
            connection.execute(statement)


def insert(file: Path, table: str, *rows: tuple[Any, ...]) -> None:
    with database(file) as connection:
        for row in rows:
            connection.execute(f"INSERT INTO {table} VALUES ({', '.join('?' * len(row))})", row)


UNIQUE = "CREATE TABLE t (id INTEGER PRIMARY KEY, s TEXT)"
TIES = "CREATE TABLE t (id INTEGER NOT NULL, s TEXT)"
TEXTS = "CREATE TABLE t (id TEXT NOT NULL, s TEXT)"


def ids(rows: list[dict[str, Any]]) -> list[Any]:
    return [row["id"] for row in rows]


def test_unique_integers_are_read_up_to_the_newest_and_then_only_new_rows(file: Path) -> None:
    make(file, UNIQUE)
    insert(file, "t", (-5, "a"), (3, "b"))
    reader = Reader(source(file))
    assert ids(reader.run()) == [-5, 3]
    assert reader.watermark == Watermark({"": 4}, "id:integer")
    assert reader.plan() is None
    insert(file, "t", (4, "c"))
    assert ids(reader.run()) == [4]


@pytest.mark.parametrize(("schema", "values"), [(TIES, (1, 2, 3)), (TEXTS, ("a", "b", "c"))])
def test_newest_group_of_ties_waits_for_a_greater_value(file: Path, schema: str, values: tuple[Any, ...]) -> None:
    one, two, three = values
    make(file, schema)
    insert(file, "t", (one, "a"), (two, "b"))
    reader = Reader(source(file))
    assert ids(reader.run()) == [one]
    insert(file, "t", (two, "c"))
    assert reader.run() == []
    insert(file, "t", (three, "d"))
    assert ids(reader.run()) == [two, two]


def test_number_that_commits_late_is_lost_without_lookback_and_read_with_it(file: Path) -> None:
    make(file, UNIQUE)
    naive, careful = Reader(source(file)), Reader(source(file, lookback=2))
    insert(file, "t", (1, ""), (3, ""))  # 2 is allocated but not committed yet
    for reader in (naive, careful):
        reader.run()
    insert(file, "t", (2, ""), (4, ""), (5, ""))
    for reader in (naive, careful):
        reader.run()
    assert ids(naive.rows) == [1, 3, 4, 5]
    assert ids(careful.rows) == [1, 2, 3]


@pytest.mark.parametrize(("schema", "kind"), [(UNIQUE, int), (TIES, int), (TEXTS, str)])
def test_read_failure_is_planned_up_to_its_end(file: Path, schema: str, kind: type[Any]) -> None:
    make(file, schema)
    insert(file, "t", *((kind(value), "") for value in (1, 2, 3, 4)))
    reader = Reader(source(file))
    failed = reader.plan()
    assert failed is not None
    high = failed.work_units[-1].expected_high
    insert(file, "t", *((kind(value), "") for value in (5, 6, 7)))
    plan = reader.plan(high)
    assert plan is not None
    assert plan.work_units[-1].expected_high == high
    assert ids(reader.read(plan)) == [kind(value) for value in ((1, 2, 3, 4) if schema is UNIQUE else (1, 2, 3))]
    assert ids(reader.run()) == [kind(value) for value in ((5, 6, 7) if schema is UNIQUE else (4, 5, 6))]


def test_read_failure_is_limited_as_any_other_range(file: Path) -> None:
    make(file, UNIQUE)
    insert(file, "t", *((number, "") for number in range(9)))
    reader = Reader(source(file, records_per_dataset=2))
    for expected in ([0, 1], [2, 3], [4]):
        plan = reader.plan(Watermark({"": 5}, "id:integer"))
        assert plan is not None
        assert ids(reader.read(plan)) == expected


def test_deleted_rows_of_a_read_failure_are_not_waited_for(file: Path) -> None:
    make(file, UNIQUE)
    insert(file, "t", *((number, "") for number in range(5)))
    reader = Reader(source(file))
    reader.watermark = Watermark({"": 2}, "id:integer")
    make(file, "DELETE FROM t WHERE id > 1")
    insert(file, "t", (7, ""))
    plan = reader.plan(Watermark({"": 5}, "id:integer"))
    assert plan is not None
    assert ids(reader.read(plan)) == [7]


@pytest.mark.parametrize(
    "again", [Watermark({"": 3}, "other:integer"), Watermark({"": 2}, "id:integer"), Watermark({"": 9}), Watermark({})]
)
def test_read_failure_end_of_another_column_or_out_of_range_is_ignored(file: Path, again: Watermark) -> None:
    make(file, UNIQUE)
    insert(file, "t", *((number, "") for number in range(5)))
    reader = Reader(source(file))
    reader.watermark = Watermark({"": 2}, "id:integer")
    plan = reader.plan(again)
    assert plan is not None
    assert ids(reader.read(plan)) == [2, 3, 4]


def test_text_is_ordered_bytewise_for_any_collation(file: Path) -> None:
    make(file, "CREATE TABLE t (id TEXT COLLATE NOCASE NOT NULL, s TEXT)")
    insert(file, "t", *((name, "") for name in ("b", "A", "a", "B", "ä", "z")))
    reader = Reader(source(file))
    assert ids(reader.run()) == ["A", "B", "a", "b", "z"]


def test_lookback_in_text_is_rejected(file: Path) -> None:
    make(file, TEXTS)
    insert(file, "t", ("a", ""))
    reader = Reader(source(file, lookback=5))
    assert reader.plan() is None
    assert "a watermark column of text must have lookback 0" in reader.problems[0]
    assert "source.overrides.t.lookback" in reader.problems[0]


def test_rows_without_a_value_are_counted_and_the_others_are_read(file: Path) -> None:
    make(file, "CREATE TABLE t (id INTEGER, s TEXT)")
    insert(file, "t", (None, "a"), (1, "b"), (None, "c"), (2, "d"))
    reader = Reader(source(file))
    assert ids(reader.run()) == [1]
    assert "NULL in 2 rows" in reader.problems[0]
    without = Reader(source(file, overrides={"t": {"where": "id IS NOT NULL -- and told so"}}))
    assert ids(without.run()) == [1]
    assert without.problems == []


def test_start_latest_reads_only_later_rows_also_of_an_empty_table(file: Path) -> None:
    make(file, UNIQUE, "CREATE TABLE empty (id INTEGER PRIMARY KEY)")
    insert(file, "t", (1, "a"))
    full, empty = (Reader(source(file, start="latest", tables=[name]), name) for name in ("t", "empty"))
    for reader in (full, empty):
        assert reader.run() == []
        assert reader.watermark is not None
    insert(file, "t", (2, "b"))
    insert(file, "empty", (1,))
    assert ids(full.run()) == [2]
    assert ids(empty.run()) == [1]


def test_limit_is_exceeded_only_for_rows_of_one_value(file: Path) -> None:
    make(file, TIES)
    insert(file, "t", *((value, "") for value in (1, 2, 2, 2, 2, 3, 4, 5)))
    reader = Reader(source(file, records_per_dataset=2))
    assert [ids(reader.run()) for _ in range(5)] == [[1], [2, 2, 2, 2], [3, 4], [], []]


@pytest.mark.parametrize(("schema", "kind"), [(TIES, int), (TEXTS, str)])
def test_large_table_has_several_work_units_with_rows_of_one_value_in_one_unit(
    file: Path, schema: str, kind: type[Any]
) -> None:
    make(file, schema)
    insert(file, "t", *((kind(value), "") for value in (1, 1, 1, 2, 3, 3, 3, 3, 3, 4, 5, 6)))
    reader = Reader(source(file, records_per_work_unit=2))
    plan = reader.plan()
    assert plan is not None
    assert [(unit.low.positions[""], unit.expected_high.positions[""]) for unit in plan.work_units][1:] == [
        (kind(3), kind(5)),  # the first row of the third unit has a value of the second one; likewise the fourth
        (kind(5), kind(6)),
    ]
    assert sum(unit.size for unit in plan.work_units) == 11
    assert ids(reader.read(plan)) == [kind(value) for value in (1, 1, 1, 2, 3, 3, 3, 3, 3, 4, 5)]
    (unit,) = Reader(source(file)).plan().work_units  # type: ignore[union-attr]
    assert unit.size == 11


def test_snapshot_contains_the_whole_table_in_each_run_even_if_empty(file: Path) -> None:
    make(file, "CREATE TABLE t (s TEXT, n INTEGER)")
    insert(file, "t", ("b", 1), ("a", None), ("b", 1))
    reader = Reader(source(file, table_type="snapshot_only", batch_rows=2))
    rows = [{"s": "b", "n": 1}, {"s": "a", "n": None}, {"s": "b", "n": 1}]
    assert reader.run() == reader.run() == rows
    assert reader.watermark == Watermark({"": 2}, "snapshot")
    make(file, "DELETE FROM t")
    assert reader.run() == []
    assert reader.watermark == Watermark({"": 3}, "snapshot")
    some = {"t": {"where": "n > 1", "columns": ["n"]}}
    insert(file, "t", ("a", 1), ("b", 2))
    assert Reader(source(file, table_type="snapshot_only", overrides=some)).run() == [{"n": 2}]


def test_snapshot_that_was_not_read_to_its_end_has_no_position(file: Path) -> None:
    make(file, UNIQUE)
    insert(file, "t", (1, ""), (2, ""), (3, ""))
    reader = Reader(source(file, table_type="snapshot_only", batch_rows=2))
    plan = reader.plan()
    assert plan is not None
    with pytest.raises(SourceError, match="not read to its end"):
        reader.read(plan, batches=1)


def test_table_read_by_a_column_is_rejected_as_a_snapshot(file: Path) -> None:
    make(file, UNIQUE)
    insert(file, "t", (1, ""))
    reader = Reader(source(file))
    reader.run()
    reader.source = source(file, table_type="snapshot_only")
    assert reader.plan() is None
    assert "expected a position of snapshot" in reader.problems[0]


def test_reading_may_end_between_two_values_and_resumes_there(file: Path) -> None:
    make(file, TIES)
    insert(file, "t", *((value, str(number)) for number, value in enumerate([1, 1, 1, 2, 2, 3, 4, 5])))
    reader = Reader(source(file, batch_rows=2))
    for _ in range(8):
        if plan := reader.plan():
            reader.read(plan, batches=1)
    assert ids(reader.rows) == [1, 1, 1, 2, 2, 3, 4]


def test_column_that_ends_before_the_watermark_is_reported_and_keeps_its_watermark(file: Path) -> None:
    make(file, UNIQUE)
    insert(file, "t", *((number, "") for number in range(10)))
    reader = Reader(source(file))
    reader.run()
    make(file, "DELETE FROM t WHERE id > 5")
    assert reader.plan() is None
    assert "ends before the stored position" in reader.problems[0]
    (dataset_problem,) = planned(reader.source, {"t": DatasetState("t", watermark=reader.watermark)})
    assert isinstance(dataset_problem, DatasetProblem)
    assert dataset_problem.remedy == ("dataset set-watermark", "t", "null")
    assert 'or to {"": 6} to continue at its present end' in dataset_problem.error
    make(file, "DELETE FROM t")
    assert reader.plan() is None
    assert reader.problems == []
    insert(file, "t", (10, ""))
    assert ids(reader.run()) == [10]


def test_emptied_table_restarts_after_an_operator_resets_it_and_a_never_filled_one_is_not_a_problem(
    file: Path,
) -> None:
    make(file, UNIQUE)
    reader = Reader(source(file))
    assert reader.run() == []
    assert (reader.plan(), reader.problems) == (None, [])
    insert(file, "t", (1, ""), (2, ""))
    reader.run()
    make(file, "DELETE FROM t")
    reader.watermark = None
    assert reader.run() == []
    assert (reader.plan(), reader.problems) == (None, [])
    insert(file, "t", (1, ""))
    assert ids(reader.run()) == [1]


def test_changed_watermark_column_is_rejected(file: Path) -> None:
    make(file, "CREATE TABLE t (id INTEGER PRIMARY KEY, other INTEGER NOT NULL)")
    insert(file, "t", (1, 100), (2, 200))
    reader = Reader(source(file))
    reader.run()
    reader.source = source(file, watermark="other")
    assert reader.plan() is None
    assert "is not one of the watermark column" in reader.problems[0]
    assert "id:integer" in reader.problems[0]


@pytest.mark.parametrize("position", ["text", 1.5, 1 << 63, True])
def test_stored_position_that_the_column_can_not_have_is_rejected(file: Path, position: Any) -> None:
    make(file, UNIQUE)
    insert(file, "t", (1, ""))
    (problem,) = planned(source(file), {"t": DatasetState("t", watermark=Watermark({"": position}))})
    assert isinstance(problem, DatasetProblem)


def test_operator_position_counts_in_the_present_column(file: Path) -> None:
    make(file, UNIQUE)
    insert(file, "t", (1, ""), (2, ""))
    reader = Reader(source(file))
    reader.watermark = Watermark({"": 2})
    plan = reader.plan()
    assert plan is not None
    assert plan.planned_low == Watermark({"": 2})
    assert ids(reader.read(plan)) == [2]


def test_operator_positions_are_validated(file: Path) -> None:
    sql = source(file, table_patterns=["t.*"])
    good: dict[str, dict[str, Any]] = {"t": {"": 5}, "t2": {"": "2024-01-01T00:00:00.000000Z"}}
    assert list(sql.position_problems(good)) == []
    bad: dict[str, dict[str, Any]] = {"x": {"": 5}, "t": {"0": 5}, "t1": {"": 1.5}, "t2": {"": True}}
    assert len(list(sql.position_problems(bad))) == 4


def test_tables_are_selected_by_name_and_pattern(file: Path) -> None:
    make(file, *(f"CREATE TABLE {name} (id INTEGER PRIMARY KEY)" for name in ("a1", "a2", "a3", "b1", "b2", "c")))
    make(file, "CREATE VIEW a4 AS SELECT id FROM c", "CREATE VIEW seen AS SELECT id FROM c")
    sql = source(file, tables=["c", "seen", "gone", "b2"], table_patterns=["a.*"], exclude=["a2", "b2"])
    results = planned(sql)
    assert sorted(result.dataset_urn for result in results if isinstance(result, DatasetPlan)) == [
        "a1",
        "a3",
        "c",
        "seen",
    ]
    (problem,) = (result for result in results if isinstance(result, DatasetProblem))
    assert problem.dataset_urn == "gone"
    assert "the table does not exist" in problem.error


def test_all_queries_of_a_table_use_one_snapshot(file: Path) -> None:
    make(file, "PRAGMA journal_mode = wal", UNIQUE)
    connections, counts = source(file)._database(), []
    with closing(connections), connections.reading() as connection:
        for number in range(2):
            counts.append(connection.exec_driver_sql("SELECT count(*) FROM t").scalar())
            insert(file, "t", (number, ""))
    assert counts == [0, 0]


def test_each_table_may_override_the_settings(file: Path) -> None:
    make(file, UNIQUE, "CREATE TABLE u (at INTEGER NOT NULL UNIQUE, id TEXT, weird BLOB)")
    insert(file, "t", *((number, "") for number in range(5)))
    insert(file, "u", *((number, "x", b"") for number in range(5)))
    other = {"u": {"watermark": "at", "lookback": 1, "columns": ["id"], "where": "at <> 2"}}
    sql = source(file, tables=["t", "u"], overrides=other)
    assert len(Reader(sql, "t").read(next(p for p in planned(sql) if isinstance(p, DatasetPlan)))) == 5
    reader = Reader(source(file, tables=["u"], overrides=other), "u")
    assert reader.run() == [{"id": "x"}] * 3


@pytest.mark.parametrize(
    ("statement", "settings", "message"),
    [
        ("CREATE TABLE t (x INTEGER)", {}, "columns x"),
        ("CREATE TABLE t (id REAL)", {}, "type REAL"),
        ("CREATE TABLE t (id DECIMAL(10, 0))", {}, "type DECIMAL"),
        ("CREATE TABLE t (id INTEGER)", {"overrides": {"t": {"columns": ["id", "gone"]}}}, "column=gone"),
        ("CREATE TABLE t (id INTEGER, a TEXT, odd)", {}, "set source.overrides.t.columns to [id, a]"),
        ("CREATE TABLE t (id INTEGER)", {"overrides": {"t": {"where": "no_such_column = 1"}}}, "no_such_column"),
        ("CREATE VIEW t AS SELECT id FROM gone", {}, "gone"),
    ],
)
def test_unreadable_table_is_reported_and_the_others_are_planned(
    file: Path, statement: str, settings: dict[str, Any], message: str
) -> None:
    make(file, statement, "CREATE TABLE good (id INTEGER PRIMARY KEY)")
    results = planned(source(file, tables=["good", "t"], **settings))
    (problem,) = (result for result in results if isinstance(result, DatasetProblem))
    assert problem.dataset_urn == "t"
    assert message in problem.error
    assert [result.dataset_urn for result in results if isinstance(result, DatasetPlan)] == ["good"]


@pytest.mark.parametrize("value", ["text", b"bytes", 1.5, (1 << 63) - 1])
def test_value_that_is_not_a_valid_position_is_reported(file: Path, value: Any) -> None:
    """SQLite keeps any value in any column."""
    make(file, "CREATE TABLE t (id INTEGER UNIQUE NOT NULL)")
    insert(file, "t", (1,), (value,))
    reader = Reader(source(file))
    assert reader.plan() is None
    assert "can't be a position" in reader.problems[0]


def test_value_between_others_that_is_not_a_valid_position_fails_the_work_unit(file: Path) -> None:
    make(file, "CREATE TABLE t (id INTEGER UNIQUE NOT NULL)")
    insert(file, "t", (1,), (1.5,), (3,))
    reader = Reader(source(file))
    with pytest.raises(SourceError, match="can't be a position"):
        reader.run()


@pytest.mark.parametrize(
    ("declared", "value", "arrow", "read"),
    [
        ("INTEGER", 1 << 40, pa.int64(), 1 << 40),
        ("SMALLINT", -3, pa.int64(), -3),
        ("DECIMAL(10, 2)", 1.5, pa.float64(), 1.5),
        ("REAL", 1.5, pa.float64(), 1.5),
        ("VARCHAR(3)", "äöü", pa.string(), "äöü"),
        ("BLOB", b"\0\xff", pa.binary(), b"\0\xff"),
        ("BOOLEAN", 1, pa.bool_(), True),
        ("BOOLEAN", 0, pa.bool_(), False),
        ("DATETIME", "2024-01-02 03:04:05.6", pa.timestamp("us"), dt.datetime(2024, 1, 2, 3, 4, 5, 600_000)),
        ("DATE", "2024-01-02", pa.date32(), dt.date(2024, 1, 2)),
        ("TIME", "03:04:05", pa.time64("us"), dt.time(3, 4, 5)),
        ("JSON", '{"a": [1]}', pa.string(), '{"a": [1]}'),
    ],
)
def test_sqlite_types_are_read_as_arrow_types(
    file: Path, declared: str, value: Any, arrow: pa.DataType, read: Any
) -> None:
    make(file, f"CREATE TABLE t (id INTEGER PRIMARY KEY, v {declared})")
    insert(file, "t", (1, value), (2, None))
    reader = Reader(source(file))
    plan = reader.plan()
    assert plan is not None
    with closing(reader.source.open()) as extractor:
        (batch,) = extractor.extract(plan.work_units[0])
    assert batch.schema.field("v").type == arrow
    assert batch["v"].to_pylist() == [read, None]


@pytest.mark.parametrize(
    ("declared", "value", "message"),
    [
        ("INTEGER", 1.5, "not whole"),
        ("TEXT", b"\xff", "not a utf8 string"),
        ("DATE", "soon", "Invalid isoformat string: 'soon'"),
        ("DATETIME", 1_700_000_000, "1700000000 must be text"),
        ("TIME", b"\0", "must be text in ISO 8601"),
        ("BOOLEAN", "f", "'f' must be 0 or 1"),
        ("BOOLEAN", 2, "2 must be 0 or 1"),
    ],
)
def test_value_that_does_not_fit_its_column_fails_the_work_unit(
    file: Path, declared: str, value: Any, message: str
) -> None:
    make(file, f"CREATE TABLE t (id INTEGER PRIMARY KEY, v {declared})")
    insert(file, "t", (1, value))
    with pytest.raises(SourceError, match=rf"a value does not fit its column.*column=v.*{message}") as caught:
        Reader(source(file)).run()
    assert (caught.value.ids["table"], caught.value.ids["row"]) == ("t", "id=1")


def test_unreadable_value_is_reported_with_its_row_and_a_bounded_part_of_it(file: Path) -> None:
    make(file, "CREATE TABLE t (id INTEGER UNIQUE NOT NULL, a TEXT, b INTEGER, v DATE, PRIMARY KEY (a, b))")
    insert(file, "t", (1, "x", 1, "2024-01-01"), (2, "x\x1b", 2, "y" * 1000), (3, "x", 3, "z"))
    with pytest.raises(SourceError) as caught:
        Reader(source(file)).run()
    assert caught.value.ids == {"table": "t", "column": "v", "row": "a='x\\x1b', b=2, id=2"}
    assert caught.value.found == f"Invalid isoformat string: '{'y' * 59}"
    with pytest.raises(SourceError) as caught:
        Reader(source(file, overrides={"t": {"columns": ["b", "v"]}})).run()
    assert caught.value.ids["row"] == "id=2", "the key is not read"


def test_value_that_is_not_a_position_is_reported_with_its_row(file: Path) -> None:
    make(file, "CREATE TABLE t (id INTEGER, k TEXT PRIMARY KEY)")
    insert(file, "t", (1, "a"), (1.5, "b"), (3, "c"), (4, "d"))
    with pytest.raises(SourceError) as caught:
        Reader(source(file)).run()
    assert caught.value.ids == {"table": "t", "column": "id", "row": "k='b', id=1.5"}


def test_sqlite_timestamps_are_text_watermarks(file: Path) -> None:
    make(file, "CREATE TABLE t (id TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP)")
    insert(file, "t", ("2024-01-01 00:00:00",), ("2024-01-01 00:00:01",))
    reader = Reader(source(file))
    assert len(reader.run()) == 1
    assert reader.watermark == Watermark({"": "2024-01-01 00:00:01"}, "id:text")


def test_added_column_changes_the_schema_of_the_next_rows(file: Path) -> None:
    make(file, UNIQUE)
    insert(file, "t", (1, "a"))
    reader = Reader(source(file))
    assert reader.run() == [{"id": 1, "s": "a"}]
    make(file, "ALTER TABLE t ADD COLUMN more REAL")
    insert(file, "t", (2, "b", 0.5))
    assert reader.run() == [{"id": 2, "s": "b", "more": 0.5}]


def test_missing_database_file_raises_and_is_not_created(file: Path) -> None:
    with pytest.raises(DistcommitError, match="can't be reached"):
        planned(source(file))
    assert not file.exists()


@pytest.mark.thorough
@pytest.mark.parametrize("key", ["NOT NULL", "PRIMARY KEY"])
@given(
    lookback=st.integers(0, 4),
    limit=st.sampled_from([0, 1, 3]),
    unit=st.sampled_from([1, 2, 3, 100]),
    batch_rows=st.integers(1, 4),
    steps=st.lists(
        st.lists(st.integers(-4, 3), min_size=1, max_size=12) | st.sampled_from([None, 1, 1, 2]), max_size=12
    ),
)
def test_after_each_run_exactly_the_rows_below_the_watermark_were_read(
    tmp_path_factory: pytest.TempPathFactory,
    key: str,
    lookback: int,
    limit: int,
    unit: int,
    batch_rows: int,
    steps: list[list[int] | int | None],
) -> None:
    """Steps are inserted rows, by their distance from the newest value (at most the lookback), and runs. Some runs
    stop after one or two batches."""
    file = tmp_path_factory.mktemp("db") / "db.sqlite"
    make(file, f"CREATE TABLE t (id INTEGER {key}, n INTEGER)")
    sizes = {"records_per_dataset": limit, "records_per_work_unit": unit, "batch_rows": batch_rows}
    reader = Reader(source(file, lookback=lookback, **sizes))
    held: list[tuple[int, int]] = []
    for step in steps:
        if isinstance(step, list):
            values, before = {row[0] for row in held}, len(held)
            for distance in step:
                newest = max(values, default=0)
                value = newest + max(distance, -lookback + (key == "PRIMARY KEY"))
                if key == "NOT NULL" or value not in values:
                    held.append((value, len(held)))
                    values.add(value)
            insert(file, "t", *held[before:])
        elif (plan := reader.plan()) is not None:
            reader.read(plan, batches=step)
        below = as_offset(reader.watermark.positions[""]) if reader.watermark else -(1 << 63)
        assert Counter((row["id"], row["n"]) for row in reader.rows) == Counter(row for row in held if row[0] < below)
    while (plan := reader.plan()) is not None:
        reader.read(plan)
    newest = max((row[0] for row in held), default=0)
    end = newest + (key == "PRIMARY KEY") - lookback
    assert sorted(ids(reader.rows)) == sorted(row[0] for row in held if row[0] < end)


def test_query_rows_out_of_order_fail_the_work_unit(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from distcommit.sources.sql.select_statements import Table

    make(file, TIES)
    insert(file, "t", *((number, "") for number in (3, 1, 2, 9)))
    reader = Reader(source(file))
    plan = reader.plan()
    assert plan is not None
    rows = Table.rows
    monkeypatch.setattr(Table, "rows", lambda self, low, high: rows(self, low, high).order_by(None))
    with pytest.raises(SourceError, match=r"expected a value from 3 on, below 9; found 1"):
        reader.read(plan)
    monkeypatch.setattr(Table, "rows", lambda self, low, high: rows(self, low, 100))
    with pytest.raises(SourceError, match=r"below 9; found 9"):
        reader.read(plan)


def test_locked_table_is_reported_as_transient(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from distcommit.sources.sql import database_connections as connections

    monkeypatch.setattr(connections, "_LOCK_TIMEOUT_S", 0.05)
    make(file, UNIQUE)
    with database(file) as connection:
        connection.execute("BEGIN EXCLUSIVE")
        with pytest.raises(DistcommitError, match="locked"):
            planned(source(file))
        assert isinstance(connection, sqlite3.Connection)

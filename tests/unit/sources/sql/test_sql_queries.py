"""Queries in place of tables, on SQLite: how they are read, and how unreadable ones are reported."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from distcommit.core.errors import SourceError
from distcommit.core.interfaces.source import DatasetProblem
from distcommit.core.interfaces.source_table import EXTRACT
from distcommit.core.records.deferred_records import DeferredRecords
from distcommit.core.records.log_records import DatasetState
from distcommit.core.watermark import Watermark
from distcommit.core.work_units import DatasetPlan
from distcommit.engine.driver.run import run
from distcommit.protocol.seal_decision import RetryPolicy
from distcommit.sources.query_checks import Query
from distcommit.sources.sql.select_statements import Table
from distcommit.sources.sql.source import SqlSource
from tests.simulation.world import World
from tests.unit.engine.driver.machines import NOTHING, OUTPUT, Machine, launch
from tests.unit.sources.sql.sql_tables import Reader, database, planned, source

JOINED = "SELECT o.id, o.s, p.name FROM orders AS o JOIN people AS p ON p.person = o.person"
QUERY = Query.of(JOINED, "sqlite").id
KEYED: dict[str, Any] = {"overrides": {"q": {"keys": ["id"]}}}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "db.sqlite"
    with database(path) as connection:
        connection.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, person INTEGER, s TEXT)")
        connection.execute("CREATE TABLE people (person INTEGER PRIMARY KEY, name TEXT)")
        connection.executemany("INSERT INTO people VALUES (?, ?)", [(0, "Ann"), (1, "Bob")])
    return path


def insert(file: Path, *numbers: int) -> None:
    with database(file) as connection:
        rows = [(number, number % 2, f"{number}%") for number in numbers]
        connection.executemany("INSERT INTO orders VALUES (?, ?, ?)", rows)


def reader(file: Path, query: str = JOINED, **settings: Any) -> Reader:
    return Reader(source(file, tables=[], queries={"q": query}, **settings), "q")


def ids(rows: list[dict[str, Any]]) -> list[Any]:
    return [row["id"] for row in rows]


def test_query_is_read_as_a_table_and_its_newest_value_waits(file: Path) -> None:
    insert(file, 1, 2)
    joined = reader(file)
    assert joined.run() == [{"id": 1, "s": "1%", "name": "Bob"}]
    assert joined.watermark == Watermark({"": 2}, f"id:integer of query {QUERY}")
    insert(file, 3)
    assert ids(joined.run()) == [2]
    assert joined.plan() is None
    assert joined.problems == []


def test_query_with_a_configured_key_is_read_up_to_the_newest_value(file: Path) -> None:
    insert(file, 1, 2)
    joined = reader(file, **KEYED)
    plan = joined.plan()
    assert plan is not None
    assert json.loads(plan.work_units[0].properties[EXTRACT])["keys"] == ["id"]
    assert ids(joined.read(plan)) == [1, 2]
    insert(file, 3)
    assert ids(joined.run()) == [3]


def test_composite_key_does_not_make_each_of_its_columns_unique(file: Path) -> None:
    insert(file, 1, 2)
    joined = reader(file, overrides={"q": {"keys": ["id", "name"]}})
    plan = joined.plan()
    assert plan is not None
    assert json.loads(plan.work_units[0].properties[EXTRACT])["keys"] == ["id", "name"]
    assert ids(joined.read(plan)) == [1]


@pytest.mark.parametrize("batch_rows", [1, 10])
def test_configured_key_that_is_not_unique_fails_the_work_unit(file: Path, batch_rows: int) -> None:
    insert(file, 1, 2)
    twice = reader(file, f"{JOINED} UNION ALL {JOINED} WHERE o.id = 1", **KEYED, batch_rows=batch_rows)
    with pytest.raises(
        SourceError, match=r"several rows have one value in the column that is declared as.*several of 1"
    ):
        twice.run()


def test_configured_key_that_is_not_a_column_is_reported(file: Path) -> None:
    joined = reader(file, overrides={"q": {"keys": ["id", "gone"]}})
    assert joined.plan() is None
    assert "a key is not a column" in joined.problems[0]
    assert "found gone" in joined.problems[0]


def test_view_may_have_configured_keys(file: Path) -> None:
    with database(file) as connection:
        connection.execute("CREATE VIEW seen AS SELECT id FROM orders")
    insert(file, 1, 2)
    assert ids(Reader(source(file, tables=["seen"]), "seen").run()) == [1]
    assert ids(Reader(source(file, tables=["seen"], overrides={"seen": {"keys": ["id"]}}), "seen").run()) == [1, 2]


def test_removed_key_is_reported_until_a_greater_value_exists_or_it_is_restored(file: Path) -> None:
    insert(file, 1, 2)
    joined = reader(file, **KEYED)
    assert ids(joined.run()) == [1, 2]
    keyed, joined.source = joined.source, reader(file).source
    assert joined.plan() is None
    (message,) = joined.problems
    assert "the watermark column is no longer a key, so further rows with its greatest value 2 would be" in message
    assert "expected a value past 2, or id as a key; found nothing past 2, and no key" in message
    assert "restore the key (source.overrides.q.keys, or the table's), or wait for a value past 2" in message
    joined.source, plain = keyed, joined.source
    assert (joined.plan(), joined.problems) == (None, [])
    joined.source = plain
    insert(file, 3)
    assert (joined.plan(), joined.problems) == (None, [])
    insert(file, 4)
    assert ids(joined.run()) == [3]


def test_rows_that_change_while_their_range_is_split_fail_no_dataset(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A query may return other rows in each statement, and so may a table of a database without snapshots."""
    insert(file, *range(50))
    split, count = Table.values_each, Table.count_both
    monkeypatch.setattr(
        Table,
        "values_each",
        lambda table, low, high, rows: split(table, low, low if table.name == "gone" else high, rows),
    )
    monkeypatch.setattr(
        Table, "count_both", lambda table, low, high: count(table, low, 9 if table.name == "more" else high)
    )
    queries = dict.fromkeys(("gone", "more", "same"), JOINED)
    results = planned(source(file, tables=[], queries=queries, records_per_work_unit=7))
    sizes = {
        result.dataset_urn: [unit.size for unit in result.work_units]
        for result in results
        if isinstance(result, DatasetPlan)
    }
    assert sizes == {"gone": [49], "more": [*[7] * 6, 1], "same": [7] * 7}


def test_query_accepts_the_settings_of_tables(file: Path) -> None:
    insert(file, *range(10))
    rules = {"lookback": 2, "columns": ["s"], "where": "name = 'Ann' -- alone", "keys": ["id"]}
    assert reader(file, overrides={"q": rules}).run() == [{"s": f"{number}%"} for number in (0, 2, 4, 6)]
    limited = reader(file, **KEYED, records_per_dataset=4, records_per_work_unit=2)
    plan = limited.plan()
    assert plan is not None
    assert [unit.size for unit in plan.work_units] == [2, 2]
    assert [ids(limited.read(plan)), ids(limited.run())] == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert reader(file, **KEYED, start="latest").run() == []


def test_read_failure_of_a_query_is_planned_up_to_its_end(file: Path) -> None:
    insert(file, 1, 2, 3)
    joined = reader(file)
    failed = joined.plan()
    assert failed is not None
    insert(file, 4, 5, 6)
    again = joined.plan(failed.work_units[-1].expected_high)
    assert again is not None
    assert ids(joined.read(again)) == [1, 2]
    assert ids(joined.run()) == [3, 4, 5]


@pytest.mark.parametrize(("retry", "first_end"), [(RetryPolicy.ALWAYS, 3), (RetryPolicy.NEVER, 6)])
def test_next_run_reads_a_query_s_read_failure_separately(file: Path, retry: RetryPolicy, first_end: int) -> None:
    """Tests `task.retry_across_runs` with complete runs of the engine."""
    world, machine, joined = World(retry_across_runs=retry), Machine(), reader(file).source

    def ran() -> bool:
        settings = world.begin(machine, NOTHING)
        return run(launch, replace(settings, flow=replace(settings.flow, source=joined))).succeeded

    def published() -> list[int]:
        files = [data for path, data in machine.paths(OUTPUT).items() if path.endswith(".parquet")]
        return sorted(number for data in files for number in pq.read_table(BytesIO(data))["id"].to_pylist())

    insert(file, 1, 2, 3)
    with database(file) as connection:
        connection.execute("UPDATE orders SET s = x'ff' WHERE id = 2")
    assert not ran()
    assert published() == []
    with database(file) as connection:
        connection.execute("UPDATE orders SET s = '2%' WHERE id = 2")
    insert(file, 4, 5, 6)
    for end in (first_end, 6):
        assert ran()
        assert published() == [*range(1, end)]
        assert world.watermarks(machine) == {"q": Watermark({"": end}, f"id:integer of query {QUERY}")}


@pytest.mark.parametrize(
    "query",
    [
        f"{JOINED} ORDER BY o.id DESC",
        f"{JOINED}; -- all of them",
        f"{JOINED} -- all of them",
        f"WITH x AS ({JOINED}) SELECT * FROM x",
        "SELECT id, s, ':id' AS a, '%s' AS b, '?' AS c FROM orders WHERE s LIKE '%\\%%' ESCAPE '\\' AND s <> ':x'",
        "SELECT CAST(max(id) AS INTEGER) AS id FROM orders GROUP BY id",
    ],
)
def test_any_reading_query_is_accepted(file: Path, query: str) -> None:
    insert(file, *range(5))
    assert ids(reader(file, query, overrides={"q": {"columns": ["id"]}}, batch_rows=2).run()) == [0, 1, 2, 3]


def test_computed_column_has_the_type_of_its_cast(file: Path) -> None:
    insert(file, 1, 2)
    typed = "SELECT id, CAST(id * 2 AS INTEGER) AS i, CAST(id AS REAL) / 2 AS f, CAST(s AS TEXT) AS t FROM orders"
    assert reader(file, typed, overrides={"q": {"columns": ["id", "i", "t"]}}).run() == [{"id": 1, "i": 2, "t": "1%"}]
    untyped = reader(file, typed)
    assert untyped.plan() is None
    assert "column=f" in untyped.problems[0]
    assert "a query can CAST it" in untyped.problems[0]


def test_queries_and_tables_are_read_together_and_leave_nothing_behind(file: Path) -> None:
    insert(file, 1, 2)
    queries = {"q": "SELECT id, CAST(1 AS TEXT) AS one FROM orders", "r": JOINED, "s": "SELECT id FROM orders"}
    sql = source(file, table_patterns=["o.*"], tables=["people"], queries=queries, watermark="id", exclude=["people"])
    states: dict[str, DatasetState] = {}
    plans = [result for result in planned(sql, states) if isinstance(result, DatasetPlan)]
    assert [plan.dataset_urn for plan in plans] == ["orders", "q", "r", "s"]
    assert all(sql.selects(urn, "") for urn in ("orders", "q", "r", "s"))
    with closing(sql.open()) as extractor:
        units = [unit for plan in plans for unit in plan.work_units]
        assert [[ids(batch.to_pylist()) for batch in extractor.extract(unit)] for unit in units * 2] == [
            [[1, 2]],
            [[1]],
            [[1]],
            [[1]],
        ] * 2
    with database(file) as connection:
        assert {name for (name,) in connection.execute("SELECT name FROM sqlite_master")} == {"orders", "people"}


def test_snapshot_of_a_query_continues_after_the_query_is_changed(file: Path) -> None:
    insert(file, 1, 2)
    whole = reader(file, table_type="snapshot_only")
    assert ids(whole.run()) == [1, 2]
    whole.source = source(file, tables=[], queries={"q": f"{JOINED} WHERE o.id > 1"}, table_type="snapshot_only")
    assert ids(whole.run()) == [2]
    assert whole.watermark == Watermark({"": 2}, "snapshot")


def test_changed_query_stops_until_it_is_restored_or_an_operator_sets_its_position(file: Path) -> None:
    insert(file, 1, 2, 3)
    joined = reader(file)
    joined.run()
    insert(file, 4)
    changed = f"{JOINED} WHERE o.id <> 3"
    joined.source = source(file, tables=[], queries={"q": changed})
    (problem,) = planned(joined.source, {"q": DatasetState("q", watermark=joined.watermark)})
    assert isinstance(problem, DatasetProblem)
    assert problem.remedy == ("dataset set-watermark", "q", '{"": 3}')
    assert "read by another query" in problem.error
    assert f"expected the query {QUERY}; found the query {Query.of(changed, 'sqlite').id}" in problem.error
    assert "restore the query" in problem.error
    joined.source = source(file, tables=[], queries={"q": f"{JOINED}  -- as it was"})
    assert ids(joined.run()) == [3]
    insert(file, 5)
    joined.source, joined.watermark = source(file, tables=[], queries={"q": changed}), Watermark({"": 3})
    assert ids(joined.run()) == [4]
    assert joined.watermark.incarnation.endswith(Query.of(changed, "sqlite").id)
    joined.watermark = None
    assert ids(joined.run()) == [1, 2, 4]


def test_table_replaced_by_a_query_of_its_name_is_reported_and_so_is_the_reverse(file: Path) -> None:
    insert(file, 1, 2)
    orders = Reader(source(file, tables=["orders"]), "orders")
    orders.run()
    table, query = orders.source, source(file, tables=[], queries={"orders": JOINED})
    orders.source = query
    assert orders.plan() is None
    assert "expected the table of that name; found the query" in orders.problems[0]
    orders.watermark = Watermark({"": 2})
    insert(file, 3)
    assert ids(orders.run()) == [2]
    orders.source = table
    assert orders.plan() is None
    assert f"expected the query {QUERY}; found the table of that name" in orders.problems[0]


def test_changed_watermark_column_of_a_query_is_rejected(file: Path) -> None:
    insert(file, 1, 2)
    joined = reader(file)
    joined.run()
    joined.source = source(file, tables=[], queries={"q": JOINED}, watermark="s")
    assert joined.plan() is None
    assert "is not one of the watermark column" in joined.problems[0]


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("SELECT s FROM orders", "the query has no such watermark column"),
        ("SELECT s FROM orders", "select it in source.queries.q"),
        ("SELECT id + 1 AS id FROM orders", "type NullType"),
        ("SELECT * FROM orders JOIN people USING (person) JOIN orders AS other", "found id, person, s"),
        ("SELECT id, s AS name, s AS NAME FROM orders", "two columns of one name"),
        ("SELECT id FROM gone", "no such table: gone"),
        ("SELECT id, gone FROM orders", "no such column: gone"),
        ("SELECT id FROM orders WHERE", "incomplete input"),
        ("SELECT id FROM orders WHERE id > %s", "syntax error"),
        ("WITH gone AS (SELECT 1) DELETE FROM orders", "syntax error"),
    ],
)
def test_unreadable_query_is_reported_and_the_others_are_planned(file: Path, query: str, message: str) -> None:
    insert(file, 1, 2)
    results = planned(source(file, tables=["orders"], queries={"q": query, "r": JOINED}))
    assert [result.dataset_urn for result in results if isinstance(result, DatasetPlan)] == ["orders", "r"]
    (problem,) = (result for result in results if isinstance(result, DatasetProblem))
    assert problem.dataset_urn == "q"
    assert message in problem.error


def test_table_selected_by_a_pattern_under_a_query_s_name_is_reported_until_it_is_excluded(file: Path) -> None:
    insert(file, 1, 2)
    both: dict[str, Any] = {"table_patterns": ["o.*"], "queries": {"orders": JOINED, "other": JOINED}}
    results = [one for one in planned(source(file, **both)) if isinstance(one, DatasetPlan | DatasetProblem)]
    plan, problem = sorted(results, key=lambda result: isinstance(result, DatasetProblem))
    assert isinstance(plan, DatasetPlan)
    assert isinstance(problem, DatasetProblem)
    assert (plan.dataset_urn, problem.dataset_urn) == ("other", "orders")
    assert "a table and a query have one name" in problem.error
    others = [one for one in planned(source(file, **both, exclude=["orders"])) if not isinstance(one, DeferredRecords)]
    assert [isinstance(result, DatasetPlan) for result in others] == [True, True]


def test_operator_positions_of_queries_are_validated(file: Path) -> None:
    joined = reader(file).source
    assert list(joined.position_problems({"q": {"": 5}})) == []
    assert len(list(joined.position_problems({"orders": {"": 5}}))) == 1


def test_query_rows_without_a_value_are_counted_and_the_others_are_read(file: Path) -> None:
    insert(file, 1, 2)
    outer = reader(file, "SELECT o.id, p.person FROM people AS p LEFT JOIN orders AS o ON o.id = p.person")
    assert outer.run() == []
    assert "NULL in 1 row" in outer.problems[0]


def test_query_rows_out_of_order_fail_the_work_unit(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading does not rely on a query's own order."""
    insert(file, 1, 2, 3)
    backwards = reader(file, f"{JOINED} ORDER BY o.id DESC")
    plan = backwards.plan()
    assert plan is not None
    rows = Table.rows
    monkeypatch.setattr(Table, "rows", lambda self, low, high: rows(self, low, high).order_by(None))
    with pytest.raises(SourceError, match=r"in another order.*column=id.*expected a value from 2 on, below 3; found 1"):
        backwards.read(plan)
    assert backwards.watermark is None
    monkeypatch.undo()
    assert ids(backwards.read(plan)) == [1, 2]


def test_query_can_not_write(file: Path) -> None:
    """The connection is read-only, so that an unchecked query can't write either."""
    insert(file, 1)
    sql = reader(file).source
    assert isinstance(sql, SqlSource)
    with (
        closing(sql._database()) as opened,
        pytest.raises(SourceError, match="readonly database"),
        opened.reading("q") as connection,
    ):
        connection.exec_driver_sql("DELETE FROM orders")
    with closing(sqlite3.connect(file)) as written:
        assert written.execute("SELECT count(*) FROM orders").fetchone() == (1,)

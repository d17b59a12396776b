"""Rows that a plan leaves for later runs: how many, and the cause."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from distcommit.core.records.deferred_records import DeferredRecords
from distcommit.core.watermark import Watermark
from distcommit.sources.sql import plan_table
from distcommit.sources.sql.source import SqlSource
from tests.unit.sources.retried_ranges import states_of
from tests.unit.sources.sql.sql_tables import Reader, database, deferred, planned, source

TIES, LOOKBACK = "the greatest value of the watermark column", "source.lookback"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "source.db"


def make(file: Path, *values: int, columns: str = "k INTEGER, id INTEGER NOT NULL", index: bool = True) -> None:
    with database(file) as connection:
        connection.execute(f"CREATE TABLE t ({columns})")
        if index:
            connection.execute("CREATE INDEX t_id ON t (id)")
        connection.executemany("INSERT INTO t (id, k) VALUES (?, 0)", [(value,) for value in values])


def cause(sql: SqlSource, states: Any = None) -> str:
    (one,) = (one for one in planned(sql, states) if isinstance(one, DeferredRecords))
    return one.cause


@pytest.mark.parametrize("index", [True, False])
def test_rows_of_the_greatest_value_are_counted(file: Path, *, index: bool) -> None:
    make(file, 1, 2, 3, 3, 3, index=index)
    assert deferred(source(file)) == {"t": (3, False)}
    assert TIES in cause(source(file))
    reader = Reader(source(file))
    reader.run()
    assert deferred(source(file), reader.watermark) == {"t": (3, False) if index else (1, True)}, (
        "no other pass over the table"
    )


@pytest.mark.parametrize("index", [True, False])
def test_rows_within_the_lookback_are_counted(file: Path, *, index: bool) -> None:
    make(file, *range(10), index=index)
    assert deferred(source(file, lookback=4)) == {"t": (5, False)}
    assert LOOKBACK in cause(source(file, lookback=4))


def test_nothing_is_deferred_of_a_key_without_lookback_or_of_an_empty_table(file: Path) -> None:
    make(file, 1, 2, columns="id INTEGER PRIMARY KEY, k INTEGER", index=False)
    assert deferred(source(file)) == {}
    with database(file) as connection:
        connection.execute("CREATE TABLE empty (id INTEGER)")
    assert deferred(source(file, tables=["empty"])) == {}


def test_many_rows_are_reported_as_a_minimum(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan_table, "MAX_COUNTED", 3)
    make(file, *[7] * 3)
    assert deferred(source(file)) == {"t": (3, False)}
    with database(file) as connection:
        connection.execute("INSERT INTO t (id, k) VALUES (7, 0)")
    assert deferred(source(file)) == {"t": (3, True)}


def test_limit_and_a_failed_range_are_causes(file: Path) -> None:
    make(file, *range(10), columns="id INTEGER PRIMARY KEY, k INTEGER", index=False)
    assert deferred(source(file, records_per_dataset=4)) == {"t": (6, True)}
    assert "source.records_per_dataset was reached" in cause(source(file, records_per_dataset=4))
    end = Watermark({"": 5}, "id:integer")
    states = states_of({}, {"t": end})
    assert "an earlier run could not read" in cause(source(file), states)
    (waiting,) = (one for one in planned(source(file), states) if isinstance(one, DeferredRecords))
    assert (waiting.records, waiting.is_minimum) == (5, False)


def test_counting_costs_no_pass_over_a_table_without_an_index(file: Path) -> None:
    make(file, 1, 2, 2, index=False)
    statements: list[str] = []

    def record(*event: Any) -> None:
        statements.append(event[2])

    sa.event.listen(sa.Engine, "before_cursor_execute", record)
    try:
        assert deferred(source(file)) == {"t": (2, False)}
    finally:
        sa.event.remove(sa.Engine, "before_cursor_execute", record)
    assert len([text for text in statements if "count(" in text]) == 1

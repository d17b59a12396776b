"""The check warns about tables whose changed rows a run would never read."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
from typer.testing import CliRunner

from distcommit.cli.main import app

BY_AN_INTEGER_KEY = "a row that changes is not read again, because the watermark column id is an integer key"
WITH_TIMES = "id INTEGER PRIMARY KEY, name TEXT, updated_at TIMESTAMP"
WITH_TIMES_AS_TEXT = "id INTEGER PRIMARY KEY, last_modified_on TEXT"
WITHOUT_TIMES = "id INTEGER PRIMARY KEY, name TEXT, changed_by TEXT, created_at TIMESTAMP"
WITHOUT_A_KEY = "id INTEGER, updated_at TIMESTAMP"


def checked(folder: Path, columns: str, settings: str) -> str:
    """Return what `distcommit check` prints for a job that reads table `orders`; the check must pass."""
    with sqlite3.connect(folder / "shop.db") as database:
        database.execute(f"CREATE TABLE orders ({columns})")
    path = folder / "job.yaml"
    path.write_text(
        f"job: shop\nsource: {{type: sql, url: 'sqlite:///{folder}/shop.db', tables: [orders], {settings}}}\n"
        "paths: {store: s, staging: t, output: o}\n"
    )
    done = CliRunner(env={"COLUMNS": "500"}).invoke(app, ["check", str(path)])
    assert done.exit_code == 0, done.output
    assert "1 of 1 tables selected, 0 queries" in done.stdout
    return " ".join(done.stdout.split())


@pytest.mark.parametrize(("columns", "changed"), [(WITH_TIMES, "updated_at"), (WITH_TIMES_AS_TEXT, "last_modified_on")])
def test_check_warns_if_a_table_with_a_time_of_change_is_read_by_its_key(
    tmp_path: Path, columns: str, changed: str
) -> None:
    shown = checked(tmp_path, columns, "watermark: id, lookback: 0")
    assert shown.startswith("ready: no problem was found; 1 warning, see below")
    assert f"table orders: {BY_AN_INTEGER_KEY}; column {changed} looks like a time of change" in shown
    assert (
        f"If rows change, set source.overrides.orders.watermark to {changed} and source.table_type to snapshot_append"
        " before the first run"
    ) in shown


@pytest.mark.parametrize(
    ("columns", "instead"),
    [(WITH_TIMES, "updated_at"), (WITHOUT_TIMES, "a column that each change sets to the present time")],
)
def test_check_warns_if_a_table_of_changing_rows_is_read_by_its_key(tmp_path: Path, columns: str, instead: str) -> None:
    shown = checked(tmp_path, columns, "table_type: snapshot_append, watermark: id, lookback: 0")
    assert f"table orders: {BY_AN_INTEGER_KEY}, but source.table_type is snapshot_append" in shown
    assert f"Before the first run, set source.overrides.orders.watermark to {instead}" in shown


@pytest.mark.parametrize(
    ("columns", "settings"),
    [
        (WITHOUT_TIMES, "watermark: id, lookback: 0"),
        (WITH_TIMES, "table_type: snapshot_append, watermark: updated_at, lookback: 0"),
        (WITH_TIMES, "table_type: snapshot_only}\nsink: {type: files, publish: replace"),
        (WITHOUT_A_KEY, "watermark: id, lookback: 0"),
    ],
    ids=["rows_are_only_added", "by_the_time_of_change", "snapshot", "not_a_key"],
)
def test_check_does_not_warn_if_changes_are_read_or_rows_are_only_added(
    tmp_path: Path, columns: str, settings: str
) -> None:
    assert "warning" not in checked(tmp_path, columns, settings)

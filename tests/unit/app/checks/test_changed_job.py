"""The check of a job file that was changed after the first run: types of published columns, datasets that are left out.

The job has never run: the tests set a watermark, and write a published file by hand.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from typer.testing import CliRunner

from distcommit import Job
from distcommit.app.checks import published_type_check
from distcommit.app.job_file.secrets import without_secrets
from distcommit.cli.main import app
from distcommit.core.records.run_counts import RunCounts
from distcommit.core.records.run_outcome import RunOutcome
from distcommit.sources.watermark_column import PARTITION
from distcommit.stores.history.run_records import (
    BEGINNING_VERSION,
    RECORD_VERSION,
    RunBeginning,
    RunFacts,
    RunRecord,
    put_beginning,
    put_record,
)

OLD, NEW = (f"{epoch:010}-00000_000000-{'0' * 32}-0001.parquet" for epoch in (2, 5))


def shop(folder: Path, *tables: str, **sections: Any) -> Path:
    """Write a job that reads tables of a SQLite file."""
    with sqlite3.connect(folder / "shop.db") as database:
        for table in tables:
            database.execute(f"CREATE TABLE IF NOT EXISTS {table} (id INTEGER PRIMARY KEY, price TEXT)")
    source = {"type": "sql", "url": f"sqlite:///{folder}/shop.db", "tables": [*tables], "watermark": "id"}
    path = folder / "job.yaml"
    paths = {name: str(folder / name) for name in ("store", "staging", "output")}
    path.write_text(yaml.safe_dump({"job": "shop", "source": {**source, "lookback": 0}, "paths": paths, **sections}))
    return path


def used(path: Path, *datasets: str) -> None:
    """Create the job's store with a watermark for each dataset."""
    Job.from_file(path)._folders.opened(create=True)
    for dataset in datasets:
        Job.from_file(path).set_watermark(dataset, {PARTITION: 1}, new=True)


def checked(path: Path, *options: str) -> str:
    done = CliRunner(env={"COLUMNS": "600"}).invoke(app, ["check", str(path), *options])
    assert done.exit_code == 0, done.output
    return " ".join(done.stdout.split())


def published(path: Path, dataset: str, name: str, kind: pa.DataType) -> None:
    folder = path.parent / "output" / dataset
    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"id": pa.array([1], pa.int64()), "price": pa.nulls(1, kind)}), folder / name)


def cast_to(kind: str) -> dict[str, Any]:
    return {"converters": [{"type": "cast", "columns": {"price": kind}}]}


def test_check_warns_of_a_type_that_readers_cannot_join_with_the_newest_published_one(tmp_path: Path) -> None:
    path = shop(tmp_path, "orders", **cast_to("timestamp"))
    used(path, "orders")
    published(path, "orders", OLD, pa.timestamp("us", "UTC"))
    assert "published files" not in checked(path)
    published(path, "orders", NEW, pa.string())
    shown = checked(path)
    assert shown.startswith("ready: no problem was found; 1 warning, see below")
    assert (
        "column price is string in published files, and timestamp[us, tz=UTC] in the job file (dataset orders;"
        " 1 dataset compared): readers"
        " can't join both. Restore the published type, or publish all records again in new folders: `distcommit run"
        f" {path} --set paths.store={tmp_path}/store-2 --set paths.staging={tmp_path}/staging-2"
        f" --set paths.output={tmp_path}/output-2`"
    ) in shown
    in_new_folders = [f"paths.{name}={tmp_path}/{name}-2" for name in ("store", "staging", "output")]
    assert "published files" not in checked(path, *(part for text in in_new_folders for part in ("--set", text)))


@pytest.mark.parametrize(
    ("before", "kind"),
    [(pa.int32(), "int64"), (pa.int64(), "float64"), (pa.string(), "string"), (pa.decimal128(9, 2), "decimal(18, 2)")],
    ids=str,
)
def test_check_does_not_warn_of_types_that_readers_join(tmp_path: Path, before: pa.DataType, kind: str) -> None:
    path = shop(tmp_path, "orders", **cast_to(kind))
    used(path, "orders")
    published(path, "orders", OLD, before)
    assert "warning" not in checked(path)


def test_comparison_of_types_stops_in_time_and_names_the_number_of_compared_datasets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = shop(tmp_path, "a", "b", "c", "d", "e", **cast_to("timestamp"))
    used(path, *"abcde")
    for dataset in "abcde":
        published(path, dataset, OLD, pa.string())
    shown = checked(path)
    assert "published types passed 5 datasets compared" in shown
    assert " and 2 more; 5 datasets compared): readers can't join both" in shown
    monkeypatch.setattr(published_type_check, "_MOST_SECONDS", 0)
    assert "; only the first 1 dataset compared): readers can't join both" in checked(path)


def recorded(path: Path, epoch: int, outcome: RunOutcome, command: str = "run") -> None:
    """Record a run with the settings that the job file has now."""
    folders, run_id = Job.from_file(path)._folders, f"run-{epoch}"
    store = folders.open_store(create=False)
    facts = RunFacts(without_secrets(folders.tree))
    put_beginning(store, RunBeginning(BEGINNING_VERSION, "shop", run_id, epoch, command, "ann", 1, facts))
    ended = RunRecord(RECORD_VERSION, "shop", run_id, epoch, command, "ann", 1, 2, outcome, "", "", (), RunCounts())
    put_record(store, ended)


def noted(path: Path, command: str = "run") -> list[str]:
    folders = Job.from_file(path)._folders
    return [note.text for note in published_type_check.changed_type_notes(folders, folders.opened(), command)]


def test_runs_note_changed_types_until_a_run_with_the_settings_has_returned(tmp_path: Path) -> None:
    path = shop(tmp_path, "orders", **cast_to("timestamp"))
    used(path, "orders")
    published(path, "orders", OLD, pa.string())
    assert noted(path) == [], "no run is recorded"
    shop(tmp_path, "orders", **cast_to("string"))
    recorded(path, 2, RunOutcome.SUCCEEDED)
    shop(tmp_path, "orders", **cast_to("timestamp"))
    (warning,) = noted(path)
    assert warning in checked(path)
    assert noted(path, "reprocess --all") == [warning]
    assert noted(path, "recover") == noted(path, "expire 90d") == [], "they write no records"
    recorded(path, 3, RunOutcome.INTERRUPTED)
    recorded(path, 4, RunOutcome.SUCCEEDED, "recover")
    assert noted(path) == [warning], "no run has printed it"
    recorded(path, 5, RunOutcome.INCOMPLETE)
    assert noted(path) == []


def test_unreadable_record_of_a_run_prevents_no_run(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = shop(tmp_path, "orders", **cast_to("timestamp"))
    used(path, "orders")
    recorded(path, 2, RunOutcome.SUCCEEDED)
    (record,) = (tmp_path / "store" / "runs").glob("*[0-9].json")
    record.write_bytes(b"{")
    assert noted(path) == []
    assert "the types of published columns were not compared" in caplog.text


def test_damaged_published_file_fails_no_check(tmp_path: Path) -> None:
    path = shop(tmp_path, "orders", **cast_to("timestamp"))
    used(path, "orders")
    published(path, "orders", OLD, pa.string())
    (tmp_path / "output" / "orders" / OLD).write_bytes(b"PAR1")
    assert "warning" not in checked(path)


def test_plan_names_datasets_of_the_store_that_the_job_file_no_longer_selects(tmp_path: Path) -> None:
    path = shop(tmp_path, "orders", "payments")
    used(path, "orders", "payments")
    assert "no longer selects" not in checked(path, "--plan")
    shop(tmp_path, "visits")
    shown = checked(path, "--plan")
    selected = "the job file no longer selects 2 datasets of the store (orders, payments)"
    assert f"{selected}: runs read nothing of them, and their watermarks stay" in shown

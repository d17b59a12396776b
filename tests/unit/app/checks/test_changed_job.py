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
from distcommit.cli.main import app
from distcommit.sources.watermark_column import PARTITION

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
        "column price is string in published files, and timestamp[us, tz=UTC] in the job file (dataset orders): readers"
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

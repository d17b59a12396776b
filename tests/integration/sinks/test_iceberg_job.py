"""A job that reads files into Iceberg tables, by the command line, killed at random moments; pyiceberg counts the
records."""

from __future__ import annotations

import json
import random
import shutil
import sqlite3
import time
from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import yaml
from pyiceberg.catalog import load_catalog
from pyspark.sql import SparkSession

from distcommit import Job
from distcommit.app.demo.killed_run import RunProcess
from distcommit.core.records.job_log_records import Decide
from distcommit.stores.logs.segment_format import decode_segment

DATASETS, FILES, ROWS = 8, 3, 40


def arrive(folder: Path, files: range) -> None:
    """Add the files with those numbers to each dataset."""
    for dataset in range(DATASETS):
        inbox = folder / "in" / f"d{dataset}"
        inbox.mkdir(parents=True, exist_ok=True)
        for file in files:
            lines = [json.dumps({"id": f"d{dataset}/{file}/{row}", "n": row}) for row in range(ROWS)]
            (inbox / f"{file}.jsonl").write_text("\n".join(lines) + "\n")


def names(files: range) -> set[str]:
    """Return the expected records of those files, of all datasets."""
    return {f"d{dataset}/{file}/{row}" for dataset in range(DATASETS) for file in files for row in range(ROWS)}


def write_job(folder: Path, table: str, scope: str = "dataset") -> Path:
    """Write the job file, and files for each dataset."""
    arrive(folder, range(FILES))
    job = {
        "job": "to-iceberg",
        "source": {
            "type": "files",
            "paths": [f"{folder}/in/{{dataset}}/*.jsonl"],
            "format": "jsonl",
            "min_file_age_s": 0,
            "bytes_per_work_unit": 500,
        },
        "converters": [{"type": "json", "fields": {"id": "string", "n": "int64"}}],
        "sink": {
            "type": "iceberg",
            "catalog": {
                "type": "sql",
                "uri": f"sqlite:///{folder}/catalog.db",
                "warehouse": f"file://{folder}/warehouse",
            },
            "namespace": "ingest",
            "table": table,
        },
        "paths": {name: name for name in ("store", "staging", "output")},
        "commit": {"buckets": 4, "scope": scope},
        "spark": {"master": "local[2,4]"},
    }
    path = folder / "job.yaml"
    path.write_text(yaml.safe_dump(job))
    return path


def table_records(folder: Path) -> Counter[str]:
    """Return how often each record occurs in any table."""
    with load_catalog(
        "default", type="sql", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}/warehouse"
    ) as catalog:
        tables = [catalog.load_table(name) for name in catalog.list_tables("ingest")]
        return Counter(name for table in tables for name in table.scan().to_arrow()["id"].to_pylist())


def snapshots(folder: Path) -> list[str]:
    """Return the epochs whose records the snapshots of the shared table added, in order."""
    with load_catalog(
        "default", type="sql", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}/warehouse"
    ) as catalog:
        summaries = [snapshot.summary for snapshot in catalog.load_table("ingest.events").snapshots()]
        return [summary["distcommit.epoch"] for summary in summaries if summary and summary["distcommit.epoch"]]


def run_job(path: Path, *words: str, killed_after_s: float | None = None) -> int | None:
    """Return the exit code of the command; None if it was killed."""
    folder = path.parent
    with RunProcess([*words, "--json"], folder / "out", folder / "err") as process:
        code = process.wait(150 if killed_after_s is None else killed_after_s)
        if code is None:
            process.kill()
        assert code is not None or killed_after_s is not None, (folder / "err").read_text()[-3000:]
        return code


def live_files(folder: Path) -> set[str]:
    """Return the names of the data files that a version of a table references."""
    with load_catalog(
        "default", type="sql", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}/warehouse"
    ) as catalog:
        tables = [catalog.load_table(name) for name in catalog.list_tables("ingest")]
        paths = [path for table in tables for path in table.inspect.files()["file_path"].to_pylist()]
        return {path.rpartition("/")[2] for path in paths}


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("table", "kills"),
    [
        ("{dataset}", 2),
        pytest.param("{dataset}", 4, marks=pytest.mark.long),
        pytest.param("events", 4, marks=pytest.mark.long),
    ],
)
def test_runs_killed_at_any_moment_publish_each_record_once(table: str, kills: int, tmp_path: Path) -> None:
    path, chance = write_job(tmp_path, table), random.Random(table)
    for attempt in range(kills):
        with RunProcess(["run", str(path), "--json"], tmp_path / "out", tmp_path / f"err{attempt}") as run:
            deadline_s = time.monotonic() + 60
            while not (tmp_path / "warehouse").exists() and run.wait(0.05) is None and time.monotonic() < deadline_s:
                pass
            run.wait(chance.uniform(0, 3))
            run.kill()
    for attempt in range(2):
        with RunProcess(["run", str(path), "--json"], tmp_path / "out", tmp_path / f"last{attempt}") as run:
            assert run.wait(300) == 0, (tmp_path / f"last{attempt}").read_text()[-3000:]
    expected = names(range(FILES))
    assert table_records(tmp_path) == dict.fromkeys(expected, 1)
    assert {row.status for row in Job.from_file(path).status().datasets} == {"idle"}
    audit = Job.from_file(path).audit(deep=True)
    assert audit.exact, audit
    assert audit.records == len(expected)
    files = {file.name for file in (tmp_path / "warehouse").rglob("*.parquet")}
    assert files == live_files(tmp_path), "files of attempts that lost or died are gone"


@pytest.mark.slow
@pytest.mark.parametrize("table", ["{dataset}", pytest.param("events", marks=pytest.mark.long)])
def test_lost_and_rebuilt_store_publishes_each_record_once(table: str, tmp_path: Path, spark: SparkSession) -> None:
    path = write_job(tmp_path, table)
    assert Job.from_file(path, session=spark).run().succeeded
    read = {row.dataset: row.positions for row in Job.from_file(path).status().datasets}
    shutil.rmtree(tmp_path / "store")
    rebuilt = Job.from_file(path).rebuild()
    assert not rebuilt.problems, rebuilt
    for dataset, positions in read.items():  # no table records which input files were read
        Job.from_file(path).set_watermark(dataset, positions)
    arrive(tmp_path, range(FILES, FILES + 1))
    assert Job.from_file(path, session=spark).run().succeeded
    assert table_records(tmp_path) == dict.fromkeys(names(range(FILES + 1)), 1)
    assert Job.from_file(path).audit(deep=True).exact


def decided(folder: Path) -> int:
    """Return how many runs decided to publish their whole job."""
    paths = sorted((folder / "store" / "log" / "job").glob("*.seg"))
    return sum(isinstance(decode_segment(path.read_bytes(), str(path)).record, Decide) for path in paths)


def orphaned_files(folder: Path, dataset: str) -> list[Path]:
    """Return the data files with rows of a dataset that no version of the table references."""
    live, orphaned = live_files(folder), list[Path]()
    for path in (folder / "warehouse").rglob("*.parquet"):
        if path.name not in live and pq.read_table(path)["id"][0].as_py().startswith(f"{dataset}/"):
            orphaned.append(path)
    return orphaned


@pytest.mark.slow
@pytest.mark.long
def test_whole_job_commits_one_snapshot_a_run_and_a_failing_dataset_holds_the_others(
    tmp_path: Path,
) -> None:
    path, chance = write_job(tmp_path, "events", scope="job"), random.Random(7)
    run_job(path, "run", str(path), killed_after_s=chance.uniform(6, 14))
    assert run_job(path, "run", str(path)) == 0
    assert len(snapshots(tmp_path)) == 1, "in spite of kills"
    arrive(tmp_path, range(FILES, 2 * FILES))
    before = decided(tmp_path)
    with sqlite3.connect(tmp_path / "catalog.db", isolation_level=None) as catalog:
        catalog.execute("BEGIN IMMEDIATE")  # no run can commit
        with RunProcess(["run", str(path), "--json"], tmp_path / "out", tmp_path / "killed") as run:
            deadline_s = time.monotonic() + 120
            while decided(tmp_path) == before:
                assert time.monotonic() < deadline_s, (tmp_path / "killed").read_text()[-3000:]
                assert run.wait(0.05) is None
            run.kill()
        catalog.execute("ROLLBACK")
    catalog.close()
    for file in orphaned_files(tmp_path, "d3"):
        file.unlink()
    assert run_job(path, "run", str(path)) == 1
    assert len(snapshots(tmp_path)) == 1
    states = {row.dataset: row for row in Job.from_file(path).status().datasets}
    assert {name: row.status for name, row in states.items()} == {
        f"d{number}": "quarantined" if number == 3 else "pending" for number in range(DATASETS)
    }
    assert "data files are missing" in states["d3"].reason
    assert "held_by=d3" in states["d4"].reason
    assert run_job(path, "dataset", "release", str(path), "d3", "abandon") == 0
    assert run_job(path, "run", str(path)) == 0
    epochs = snapshots(tmp_path)
    assert len(epochs) == len(set(epochs)) == 3, "the rest of the killed run, then the abandoned records again"
    assert table_records(tmp_path) == dict.fromkeys(names(range(2 * FILES)), 1)
    assert Job.from_file(path).audit(deep=True).exact

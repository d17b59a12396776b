"""Keys of an extract in the job file are the keys by which a sink upserts, also if runs are killed in mid-commit."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from functools import partial
from pathlib import Path

import yaml
from typer.testing import CliRunner

from distcommit.cli.main import app
from tests.jobs.commands_here import run_here
from tests.jobs.in_commit import killed_in_commit, run_of

DATASETS = [f"d{number:02d}" for number in range(20)]
KEYS = [f"{number}" for number in range(30)]


def job_in(folder: Path) -> Path:
    """Write a job that upserts CSV files into SQLite. Only the extract of its source names keys."""
    extract = {"keys": ["id"], "delta_fields": ["version"]}
    config = {
        "job": "declared-keys",
        "source": {
            "type": "files",
            "paths": [f"{folder}/in/{{dataset}}/*.csv"],
            "format": "csv",
            "min_file_age_s": 0,
            "extract": extract,
        },
        "sink": {"type": "sqlite", "path": str(folder / "rows.db"), "mode": "upsert"},
        "paths": {name: name for name in ("store", "staging", "output")},
        "commit": {"buckets": 8, "min_interval_ms": 60_000},
        "spark": {"master": "local[2,4]"},
    }
    path = folder / "job.yaml"
    path.write_text(yaml.safe_dump(config))
    return path


def put_files(folder: Path, version: int) -> None:
    """Add a file to each dataset: a new version of all rows."""
    for urn in DATASETS:
        (folder / "in" / urn).mkdir(parents=True, exist_ok=True)
        rows = "".join(f"{key},{version}\n" for key in KEYS)
        (folder / "in" / urn / f"{version}.csv").write_text(f"id,version\n{rows}")


def test_rows_are_upserted_by_the_keys_of_the_extract_in_spite_of_kills(tmp_path: Path) -> None:
    job, kills = job_in(tmp_path), 0
    for version in (1, 2):
        put_files(tmp_path, version)
        kills += killed_in_commit(job, partial(run_of, job, f"killed-{version}"))
    assert kills, "no run was killed in the middle of its commit"
    last = run_here(["run", str(job), "--json"], tmp_path)
    assert last.returncode == 0, last.stderr
    cli = CliRunner()
    status = json.loads(cli.invoke(app, ["status", str(job), "--json"]).stdout)
    assert {tuple(row["extract"]["keys"]) for row in status["datasets"]} == {("id",)}
    assert {tuple(row["extract"]["delta_fields"]) for row in status["datasets"]} == {("version",)}
    with closing(sqlite3.connect(tmp_path / "rows.db")) as rows:
        for urn in DATASETS:
            assert sorted(rows.execute(f"SELECT id, version FROM {urn}")) == sorted((key, "2") for key in KEYS)
    audit = cli.invoke(app, ["audit", str(job), "--deep"])
    assert audit.exit_code == 0, audit.output

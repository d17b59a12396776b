"""A job whose target has a ledger row of another version: that dataset waits, and the others are published."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from distcommit.cli.main import app
from tests.jobs.commands_here import run_here

DATASETS = ("held", "other")


def job_in(folder: Path) -> Path:
    """Write a job that adds CSV files to SQLite. A commit that fails once quarantines its dataset."""
    config = {
        "job": "versions",
        "source": {
            "type": "files",
            "paths": [f"{folder}/in/{{dataset}}/*.csv"],
            "format": "csv",
            "min_file_age_s": 0,
        },
        "sink": {"type": "sqlite", "path": str(folder / "rows.db")},
        "paths": {name: name for name in ("store", "staging", "output")},
        "commit": {"buckets": 1},
        "replay": {"max_attempts": 1},
        "spark": {"master": "local[2]"},
    }
    path = folder / "job.yaml"
    path.write_text(yaml.safe_dump(config))
    return path


def put_files(folder: Path, number: int) -> None:
    for urn in DATASETS:
        (folder / "in" / urn).mkdir(parents=True, exist_ok=True)
        (folder / "in" / urn / f"{number}.csv").write_text(f"id\n{number}\n")


def sql(folder: Path, statement: str, *values: Any) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(folder / "rows.db")) as connection, connection:
        return connection.execute(statement, values).fetchall()


def statuses(job: Path) -> dict[str, tuple[str, str]]:
    rows = json.loads(CliRunner().invoke(app, ["status", str(job), "--json"]).stdout)["datasets"]
    return {row["dataset"]: (row["status"], row["reason"]) for row in rows}


@pytest.mark.parametrize("version", [0, 2])
def test_dataset_waits_for_a_program_of_the_version_of_its_ledger_row(version: int, tmp_path: Path) -> None:
    job = job_in(tmp_path)
    put_files(tmp_path, 1)
    first = run_here(["run", str(job), "--json"], tmp_path)
    assert first.returncode == 0, first.stderr
    of_held = "FROM distcommit_ledger WHERE dataset = 'held'"
    ((covered,),) = sql(tmp_path, f"SELECT covered {of_held}")
    update = "UPDATE distcommit_ledger SET covered = ? WHERE dataset = 'held'"
    sql(tmp_path, update, json.dumps({"version": version, "entries": json.loads(covered)}))
    before = sql(tmp_path, f"SELECT * {of_held}")
    put_files(tmp_path, 2)
    for _ in range(2):
        refused = run_here(["run", str(job), "--json"], tmp_path)
        assert refused.returncode != 0
        status, reason = statuses(job)["held"]
        assert status == "pending"
        assert reason.startswith("FORMAT_VERSION_UNKNOWN: a ledger has an unknown format version"), reason
        assert f"expected version 1; found version {version}" in reason
        assert sql(tmp_path, f"SELECT * {of_held}") == before
        assert sql(tmp_path, "SELECT id FROM held") == [("1",)]
        assert sorted(sql(tmp_path, "SELECT id FROM other")) == [("1",), ("2",)]
    audit = CliRunner().invoke(app, ["audit", str(job)])
    assert audit.exit_code != 0
    assert f"found version {version}" in " ".join(audit.output.split())
    sql(tmp_path, update, covered)
    last = run_here(["run", str(job), "--json"], tmp_path)
    assert last.returncode == 0, last.stderr
    assert sorted(sql(tmp_path, "SELECT id FROM held")) == [("1",), ("2",)]
    audit = CliRunner().invoke(app, ["audit", str(job), "--deep"])
    assert audit.exit_code == 0, audit.output

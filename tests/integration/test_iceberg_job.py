"""A job that reads files into Iceberg tables, by the command line, killed at any moment; counted by pyiceberg alone."""

from __future__ import annotations

import json
import random
import time
from collections import Counter
from pathlib import Path

import pytest
import yaml
from pyiceberg.catalog import load_catalog

from distcommit import Job
from distcommit.app.demo.kill import RunProcess

DATASETS, FILES, ROWS = 8, 3, 40
KILLS = 4


def write_job(folder: Path, table: str) -> Path:
    """The job file, and files for each dataset."""
    for dataset in range(DATASETS):
        inbox = folder / "in" / f"d{dataset}"
        inbox.mkdir(parents=True)
        for file in range(FILES):
            lines = [json.dumps({"id": f"d{dataset}/{file}/{row}", "n": row}) for row in range(ROWS)]
            (inbox / f"{file}.jsonl").write_text("\n".join(lines) + "\n")
    job = {
        "job": "to-iceberg",
        "source": {
            "type": "files",
            "paths": [f"{folder}/in/{{dataset}}/*.jsonl"],
            "format": "jsonl",
            "settle_s": 0,
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
        "commit": {"buckets": 4},
        "spark": {"master": "local[2,4]"},
    }
    path = folder / "job.yaml"
    path.write_text(yaml.safe_dump(job))
    return path


def found(folder: Path) -> Counter[str]:
    """How often each record is in any table."""
    with load_catalog(
        "default", type="sql", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}/warehouse"
    ) as catalog:
        tables = [catalog.load_table(name) for name in catalog.list_tables("ingest")]
        return Counter(name for table in tables for name in table.scan().to_arrow()["id"].to_pylist())


def live_files(folder: Path) -> set[str]:
    """Names of data files that a version of a table has."""
    with load_catalog(
        "default", type="sql", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}/warehouse"
    ) as catalog:
        tables = [catalog.load_table(name) for name in catalog.list_tables("ingest")]
        paths = [path for table in tables for path in table.inspect.files()["file_path"].to_pylist()]
        return {path.rpartition("/")[2] for path in paths}


@pytest.mark.slow
@pytest.mark.parametrize("table", ["{dataset}", "events"])
def test_killed_at_any_moment_each_record_is_there_once(table: str, tmp_path: Path) -> None:
    path, chance = write_job(tmp_path, table), random.Random(table)
    for attempt in range(KILLS):
        with RunProcess(["run", str(path), "--json"], tmp_path / "out", tmp_path / f"err{attempt}") as run:
            deadline_s = time.monotonic() + 60
            while not (tmp_path / "warehouse").exists() and run.wait(0.05) is None and time.monotonic() < deadline_s:
                pass
            run.wait(chance.uniform(0, 3))
            run.kill()
    for attempt in range(2):
        with RunProcess(["run", str(path), "--json"], tmp_path / "out", tmp_path / f"last{attempt}") as run:
            assert run.wait(150) == 0, (tmp_path / f"last{attempt}").read_text()[-3000:]
    expected = {f"d{d}/{file}/{row}" for d in range(DATASETS) for file in range(FILES) for row in range(ROWS)}
    assert found(tmp_path) == dict.fromkeys(expected, 1)
    assert {row.status for row in Job.from_file(path).status().datasets} == {"idle"}
    audit = Job.from_file(path).audit(deep=True)
    assert audit.exact, audit
    assert audit.records == len(expected)
    left = {file.name for file in (tmp_path / "warehouse").rglob("*.parquet")}
    assert left == live_files(tmp_path), "files of attempts that lost or died are gone"

"""A job of the custom classes that the page about custom parts shows, named by dotted path, killed while it commits."""

from __future__ import annotations

import json
import os
import random
import signal
import sqlite3
import time
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import yaml

from distcommit.app.demo.killed_run import RunProcess
from tests.jobs.victims import strike
from tests.unit.test_custom_parts_page import blocks

NAMES = [f"log-{number:02d}" for number in range(40)]
LINES = 30
CATALOG_SINKS = [f"tests.integration.parts.catalog_sink:{name}" for name in ("CatalogSink", "SecondCatalogSink")]
LABELLED = """
from msgspec.structs import replace


class Labelled(Lines):
    def plan(self, owned, states):
        for plan in super().plan(owned, states):
            (unit,) = plan.work_units
            properties = {"label": unit.dataset_urn.upper(), "column": "by_record"}
            yield replace(plan, work_units=(replace(unit, properties=properties),))
"""
"""A source whose work units have properties."""


def write_job(folder: Path, monkeypatch: pytest.MonkeyPatch, **sections: Any) -> Path:
    """Write the job file, the logs that it reads, and the importable module with the page's classes.

    `sections` replace those of the job; None removes one.
    """
    (folder / "shown.py").write_text(
        "\n".join([*blocks("custom-source.md"), *blocks("custom-constructs.md"), LABELLED])
    )
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [str(folder), os.environ.get("PYTHONPATH", "")])))
    logs = folder / "logs"
    logs.mkdir()
    for name in NAMES:
        append_lines(folder, name, range(LINES))
    job = {
        "job": "own-parts",
        "source": {"type": "python", "class": "shown:Lines", "options": {"folder": str(logs)}},
        "converters": [{"type": "python", "class": "shown:Words", "options": {}}],
        "row_checkers": [{"type": "python", "class": "shown:Short", "options": {"most": 100}}],
        "task_checkers": [{"type": "python", "class": "shown:Sorted", "options": {}}],
        "paths": {name: name for name in ("store", "staging", "output")},
        "commit": {"buckets": 4},
        "spark": {"master": "local[2,4]"},
        **sections,
    }
    path = folder / "job.yaml"
    path.write_text(yaml.safe_dump({name: section for name, section in job.items() if section is not None}))
    return path


def append_lines(folder: Path, name: str, numbers: range) -> None:
    with (folder / "logs" / f"{name}.log").open("a") as log:
        log.writelines(f"{line:05d} {name}\n" for line in numbers)


def catalog(path: Path) -> dict[int, set[tuple[str, str | None]]]:
    """Return datasets and columns by the epoch of the run that wrote them."""
    by_epoch: dict[int, set[tuple[str, str | None]]] = {}
    with closing(sqlite3.connect(f"{path}.catalog")) as db:
        for epoch, urn, columns in db.execute("SELECT epoch, dataset, columns FROM catalog"):
            by_epoch.setdefault(epoch, set()).add((urn, columns))
    return by_epoch


def committed(path: Path) -> Counter[tuple[str, int]]:
    """Return how often each line of each file is at the target."""
    with closing(sqlite3.connect(path)) as db:
        found = [json.loads(columns) for (columns,) in db.execute("SELECT columns FROM records")]
    return Counter((row["file"], row["line"]) for row in found)


def published(folder: Path) -> list[Path]:
    return [path for path in (folder / "output").rglob("*.parquet") if not path.name.startswith(".")]


def rows(folder: Path) -> list[dict[str, Any]]:
    return [row for file in published(folder) for row in pq.ParquetFile(file).read().to_pylist()]


def run_killed_while_it_commits(path: Path, target: Path | None = None) -> None:
    """Kill a run once the first file is published, or once `target` exists."""
    with RunProcess(["run", str(path), "--json"], path.parent / "first.out", path.parent / "first.err") as run:
        deadline_s = time.monotonic() + 120
        while not (target.exists() if target else published(path.parent)) and time.monotonic() < deadline_s:
            assert run.wait(0.005) is None, run.stderr.read_text()[-3000:]
        strike(run, "all", signal.SIGKILL, random.Random(1))


def run_again(path: Path, name: str) -> None:
    with RunProcess(["run", str(path), "--json"], path.parent / f"{name}.out", path.parent / f"{name}.err") as run:
        assert run.wait(240) == 0, run.stderr.read_text()[-3000:]


def require_exact(path: Path) -> None:
    out = path.parent / "audit.out"
    with RunProcess(["audit", str(path), "--json", "--deep"], out, path.parent / "audit.err") as audit:
        assert audit.wait(120) == 0, audit.stderr.read_text()[-3000:]
    assert json.loads(out.read_text())["exact"]


@pytest.mark.slow
def test_custom_parts_of_the_page_are_exact_in_a_killed_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_job(tmp_path, monkeypatch)
    run_killed_while_it_commits(path)
    run_again(path, "second")
    counts = Counter((row["file"], row["line"], row["word"]) for row in rows(tmp_path))
    expected = Counter((name, line, word) for name in NAMES for line in range(LINES) for word in (f"{line:05d}", name))
    assert counts == expected
    require_exact(path)


@pytest.mark.slow
def test_converters_receive_their_output_schema_and_work_unit_in_a_killed_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = {"type": "python", "class": "shown:Labelled", "options": {"folder": str(tmp_path / "logs")}}
    converters = [
        {"type": "python", "class": f"tests.integration.parts.noting_converters:{n}"} for n in ("ByBatch", "ByRecord")
    ]
    converters.append({"type": "python", "class": "shown:Stamped"})
    path = write_job(tmp_path, monkeypatch, source=source, converters=converters)
    run_killed_while_it_commits(path)
    run_again(path, "second")
    for name in NAMES:
        append_lines(tmp_path, name, range(LINES, 2 * LINES))
    run_again(path, "third")
    assert Counter((row["file"], row["line"]) for row in rows(tmp_path)) == Counter(
        (name, line) for name in NAMES for line in range(2 * LINES)
    )
    for row in rows(tmp_path):
        name, low = row["file"], row["line"] // LINES * LINES
        columns, unit = ["file", "line", "value", "by_batch"], [name, {name: low}, {name: low + LINES}, name.upper()]
        assert json.loads(row["by_batch"]) == [columns, *unit]
        assert json.loads(row["by_record"]) == [[*columns, "by_record"], *unit]
        assert (row["dataset"], row["read_from"]) == (name, str({name: low}))
    require_exact(path)


@pytest.mark.slow
def test_writers_receive_declared_and_pinned_schemas_before_the_first_record_in_a_killed_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    declared, inferred = targets = tmp_path / "declared.db", tmp_path / "inferred.db"
    sinks = [
        {"type": "python", "class": name, "options": {"path": str(target)}}
        for name, target in zip(CATALOG_SINKS, targets, strict=True)
    ]
    quoted = {"type": "sql", "columns": {"value": "'{\"word\":\"' || replace(decode(value), chr(10), '') || '\"}'"}}
    fields = {"type": "json", "evolution": "pin", "keep_column": False}
    branches = {
        "declared": {"converters": [{"type": "python", "class": "shown:Stamped"}], "sink": sinks[0]},
        "inferred": {"converters": [quoted, fields], "sink": sinks[1]},
    }
    fork = {"type": "all", "branches": branches}
    path = write_job(tmp_path, monkeypatch, converters=None, row_checkers=None, task_checkers=None, fork=fork)
    run_killed_while_it_commits(path, declared)
    run_again(path, "second")
    for name in NAMES:
        append_lines(tmp_path, name, range(LINES, 2 * LINES))
    run_again(path, "third")
    every_line = Counter((name, line) for name in NAMES for line in range(2 * LINES))
    assert (committed(declared), committed(inferred)) == (every_line, every_line)
    columns = "file string, line int64, value binary, dataset string, read_from string"
    assert all(written == columns for rows_of_run in catalog(declared).values() for _, written in rows_of_run)
    runs = catalog(inferred)
    assert {written for _, written in runs[min(runs)]} == {None}, "no record was published before"
    assert runs[max(runs)] == {(name, "file string, line int64, word string") for name in NAMES}
    require_exact(path)

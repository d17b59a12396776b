"""A job of the custom classes that the page about custom parts shows, named by dotted path, killed while it commits."""

from __future__ import annotations

import json
import os
import random
import signal
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import yaml

from distcommit.app.demo.kill import RunProcess
from tests.jobs.victims import strike
from tests.unit.test_custom_parts_page import blocks

NAMES = [f"log-{number:02d}" for number in range(40)]
LINES = 30
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
    """Write the job file, the logs that it reads, and the importable module with the page's classes."""
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
    path.write_text(yaml.safe_dump(job))
    return path


def append_lines(folder: Path, name: str, numbers: range) -> None:
    with (folder / "logs" / f"{name}.log").open("a") as log:
        log.writelines(f"{line:05d} {name}\n" for line in numbers)


def published(folder: Path) -> list[Path]:
    return [path for path in (folder / "output").rglob("*.parquet") if not path.name.startswith(".")]


def rows(folder: Path) -> list[dict[str, Any]]:
    return [row for file in published(folder) for row in pq.ParquetFile(file).read().to_pylist()]


def run_killed_while_it_commits(path: Path) -> None:
    with RunProcess(["run", str(path), "--json"], path.parent / "first.out", path.parent / "first.err") as run:
        deadline_s = time.monotonic() + 120
        while not published(path.parent) and time.monotonic() < deadline_s:
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
        {"type": "python", "class": f"tests.integration.noting_converters:{n}"} for n in ("ByBatch", "ByRecord")
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

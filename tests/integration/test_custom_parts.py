"""A job of the custom classes that the page about custom parts shows, named by dotted path, killed while it commits."""

from __future__ import annotations

import json
import os
import random
import signal
import time
from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import yaml

from distcommit.app.demo.killed_run import RunProcess
from tests.jobs.victims import strike
from tests.unit.test_custom_parts_page import blocks

NAMES = [f"log-{number:02d}" for number in range(40)]
LINES = 30


def write_job(folder: Path) -> Path:
    """Write the job file, the logs that it reads, and the module with the page's classes."""
    (folder / "shown.py").write_text("\n".join([*blocks("custom-source.md"), *blocks("custom-constructs.md")]))
    logs = folder / "logs"
    logs.mkdir()
    for name in NAMES:
        (logs / f"{name}.log").write_text("".join(f"{line:05d} {name}\n" for line in range(LINES)))
    job = {
        "job": "own-parts",
        "source": {"type": "python", "class": "shown:Lines", "options": {"folder": str(logs)}},
        "converters": [{"type": "python", "class": "shown:Words", "options": {}}],
        "row_checkers": [{"type": "python", "class": "shown:Short", "options": {"most": 100}}],
        "task_checkers": [{"type": "python", "class": "shown:Sorted", "options": {}}],
        "paths": {name: name for name in ("store", "staging", "output")},
        "commit": {"buckets": 4},
        "spark": {"master": "local[2,4]"},
    }
    path = folder / "job.yaml"
    path.write_text(yaml.safe_dump(job))
    return path


def published(folder: Path) -> list[Path]:
    return [path for path in (folder / "output").rglob("*.parquet") if not path.name.startswith(".")]


@pytest.mark.slow
def test_custom_parts_of_the_page_are_exact_in_a_killed_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_job(tmp_path)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [str(tmp_path), os.environ.get("PYTHONPATH", "")])))
    with RunProcess(["run", str(path), "--json"], tmp_path / "first.out", tmp_path / "first.err") as run:
        deadline_s = time.monotonic() + 120
        while not published(tmp_path) and time.monotonic() < deadline_s:
            assert run.wait(0.005) is None, run.stderr.read_text()[-3000:]
        strike(run, "all", signal.SIGKILL, random.Random(1))
    with RunProcess(["run", str(path), "--json"], tmp_path / "second.out", tmp_path / "second.err") as run:
        assert run.wait(240) == 0, run.stderr.read_text()[-3000:]
    counts = Counter(
        (record["file"], record["line"], record["word"])
        for file in published(tmp_path)
        for record in pq.ParquetFile(file).read().to_pylist()
    )
    expected = Counter((name, line, word) for name in NAMES for line in range(LINES) for word in (f"{line:05d}", name))
    assert counts == expected
    with RunProcess(["audit", str(path), "--json", "--deep"], tmp_path / "audit.out", tmp_path / "audit.err") as audit:
        assert audit.wait(120) == 0, audit.stderr.read_text()[-3000:]
    assert json.loads((tmp_path / "audit.out").read_text())["exact"]

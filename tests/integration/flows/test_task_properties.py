"""Properties that the custom classes of a job file record: a run killed after the seal, its redo, and the next plan."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from distcommit.app.demo.killed_run import RunProcess
from tests.jobs.victims import strike

NAMES = ["alpha", "beta", "gamma"]


def write_job(folder: Path) -> Path:
    """Write a job whose worker pauses after the seal, when the committer reaches the second dataset's folder."""
    files = {name: str(folder / name) for name in ("half_way", "release", "seen")}
    module = "tests.integration.parts.recording_parts"
    job = {
        "job": "recording",
        "source": {
            "type": "python",
            "class": f"{module}:RecordingSource",
            "options": {"names": NAMES, "at": str(folder / "output" / NAMES[1]), **files},
        },
        "converters": [{"type": "python", "class": f"{module}:CountingConverter", "options": {"weight": 2}}],
        "task_checkers": [
            {"type": "python", "class": f"{module}:RecordingChecker"},
            {"type": "row_count", "level": "optional", "min": 99},
        ],
        "paths": {name: name for name in ("store", "staging", "output")},
        "commit": {"buckets": 1, "min_interval_ms": 1_000_000},
        "spark": {"master": "local[1,4]"},
    }
    path = folder / "job.yaml"
    path.write_text(yaml.safe_dump(job))
    return path


def command(*words: object) -> Any:
    """Return the JSON output of a command in another process."""
    done = subprocess.run(
        [sys.executable, "-m", "distcommit", *map(str, words), "--json"],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def seen(folder: Path) -> list[Any]:
    """Return what the source has seen since the last call."""
    file = folder / "seen"
    lines = file.read_text().splitlines() if file.exists() else []
    file.write_text("")
    return [json.loads(line) for line in lines]


def properties_of(name: str) -> dict[str, Any]:
    return {
        "source": {"etag": f"{name}-v1", "pages": 2},
        "python": {"weight": 30 if name == "beta" else 6, "is_full": True, "ratio": 0.5},
        "main.task_checkers.python": {"checked": "yes"},
    }


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_run_killed_after_the_seal_leaves_its_properties_to_the_plan_after_the_redo(tmp_path: Path) -> None:
    path = write_job(tmp_path)
    with RunProcess(["run", str(path), "--json"], tmp_path / "first.out", tmp_path / "first.err") as run:
        deadline_s = time.monotonic() + 240
        while not (tmp_path / "half_way").exists() and time.monotonic() < deadline_s:
            assert run.wait(0.02) is None, run.stderr.read_text()[-3000:]
        epoch = command("runs", path)["runs"][0]["epoch"]
        units = command("runs", path, epoch, "--work-units")
        assert (units["status"], units["counts"]) == ("RUNNING", {"succeeded": 3})
        strike(run, "all", signal.SIGKILL, random.Random(1))
    assert seen(tmp_path) == [], "the first plan has no previous run"
    sealed = {row["dataset"]: row for row in command("status", path)["datasets"]}
    assert sealed[NAMES[2]]["status"] == "pending"
    assert sealed[NAMES[2]]["work_units"] == [], "properties count with the commit, not with the seal"

    (tmp_path / "release").touch()
    assert command("run", path)["succeeded"]
    by_name = dict(seen(tmp_path))
    assert sorted(by_name) == NAMES, "each dataset is seen once, by the plan after the redo"
    for name, ((unit_id, outcome, committed, attempts, low, expected, actual, properties),) in by_name.items():
        assert unit_id.startswith("00000_")
        assert (outcome, committed, attempts) == ("succeeded", True, 1)
        assert (low, expected, actual) == ([{"0": 0}, ""], [{"0": 3}, ""], [{"0": 3}, ""])
        assert properties == properties_of(name)

    rows = {row["state"]["dataset"]: row["state"] for row in command("dataset", "list", path)["datasets"]}
    for name in NAMES:
        (unit,) = rows[name]["work_units"]
        assert rows[name]["previous_epoch"] == epoch
        assert (unit["properties"], unit["is_committed"], unit["actual_high"]) == (properties_of(name), True, {"0": 3})
    assert command("run", path)["succeeded"]
    assert sorted(name for name, _ in seen(tmp_path)) == NAMES, "a run without new records keeps them"

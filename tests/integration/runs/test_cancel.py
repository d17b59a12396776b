"""Runs that are cancelled in the middle of publishing: by Ctrl-C, by the signals of systemd and Kubernetes, or by
command."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from distcommit import Job
from distcommit.app.demo.killed_run import RunProcess
from tests.jobs.victims import strike

NAMES = [f"dataset-{number:02d}" for number in range(20)]
RECORDS = 3
"""Records of each dataset of `NamedSource`."""


def write_job(folder: Path) -> Path:
    """Write a job file whose worker pauses at the tenth dataset of its one bucket."""
    options = {"names": NAMES, "at": str(folder / "output" / NAMES[10])}
    job = {
        "job": "cancelled",
        "source": {
            "type": "python",
            "class": "tests.integration.parts.paused_source:PausedSource",
            "options": options | {name: str(folder / name) for name in ("half_way", "release")},
        },
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
        [sys.executable, "-m", "distcommit", *map(str, words)], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def stored_run(path: Path, status: str, number: int = 0) -> Any:
    """Return a stored run record: the newest one, or an older one."""
    row = command("runs", path, "--json")["runs"][number]
    assert row["status"] == status, row
    return row


def printed_stall_command(path: Path) -> str:
    """Return the command that `status` prints once the run's files are an hour old by the file system's clock."""
    assert not [t for t in command("status", path, "--json")["problems"] if t["id"] == "RUN_STALLED"]
    store = path.parent / "store"
    for changed in (file for file in store.rglob("*") if "lock" not in file.relative_to(store).parts):
        os.utime(changed, (time.time(), time.time() - 3600))
    (stall,) = [t for t in command("status", path, "--json")["problems"] if t["id"] == "RUN_STALLED"]
    assert isinstance(stall["command"], str)
    return stall["command"]


def published(folder: Path) -> set[str]:
    return {str(path) for path in (folder / "output").glob("dataset-*/**/*.parquet")}


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "how",
    [*(pytest.param(name, marks=pytest.mark.long) for name in (signal.SIGINT, signal.SIGKILL, signal.SIGTERM)), None],
)
def test_cancelled_run_publishes_nothing_more_and_the_next_run_is_exact(
    how: signal.Signals | None, tmp_path: Path
) -> None:
    """Cancel by a signal or, if None, by `distcommit cancel` from another process; SIGKILL leaves no record of its
    cause."""
    path = write_job(tmp_path)
    with RunProcess(["run", str(path), "--json"], tmp_path / "first.out", tmp_path / "first.err") as run:
        deadline_s = time.monotonic() + 240
        while not (tmp_path / "half_way").exists() and time.monotonic() < deadline_s:
            assert run.wait(0.02) is None, run.stderr.read_text()[-3000:]
        assert stored_run(path, "RUNNING")["ended_ms"] == 0
        if how is None:
            there = published(tmp_path)
            assert printed_stall_command(path) == f"distcommit cancel {path}"
            result = command("cancel", path, "--json")
            assert (result["ended"], result["runs"][0]["status"]) == (True, "CANCELLED")
            assert published(tmp_path) == there
        else:
            assert strike(run, "driver", how, random.Random(1))
        assert run.wait(60) == (-9 if how is signal.SIGKILL else 130), run.stderr.read_text()[-3000:]
        there = published(tmp_path)
        assert 0 < len(there) < len(NAMES), "it is in the midst of it"
        if how is not signal.SIGKILL:
            assert ("interrupted" if how else "the run was cancelled") in run.stderr.read_text()
        deadline_s = time.monotonic() + 20
        while run.processes() and time.monotonic() < deadline_s:
            time.sleep(0.1)  # Spark's daemon and workers end by themselves
        assert not run.processes(), "no process is left that could publish"
    (tmp_path / "release").touch()
    job = Job.from_file(path)
    assert published(tmp_path) == there
    assert {row.status for row in job.status().datasets} == {"pending"}, "all are sealed, none is done"
    reason = stored_run(path, "FAILED" if how is signal.SIGKILL else "CANCELLED")["reason"]
    assert "it died" in reason if how is signal.SIGKILL else reason
    assert command("cancel", path, "--json")["runs"] == [], "no process is left to cancel"
    with RunProcess(["run", str(path), "--json"], tmp_path / "last.out", tmp_path / "last.err") as run:
        assert run.wait(240) == 0, run.stderr.read_text()[-3000:]
    assert {row.dataset: row.positions for row in job.status().datasets} == {urn: {"0": RECORDS} for urn in NAMES}
    audit = job.audit(deep=True)
    row = stored_run(path, "COMMITTED", number=0)
    assert row["datasets_published"] == 0, "it replayed"
    table = command("runs", path, str(row["epoch"]), "--json")["datasets"]
    assert {item["dataset"]: item["outcome"] for item in table} == dict.fromkeys(NAMES, "replayed")
    assert (audit.exact, audit.records, audit.sweepable_files_count) == (True, RECORDS * len(NAMES), 0)

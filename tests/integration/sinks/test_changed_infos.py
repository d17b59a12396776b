"""A job whose sink commits in parts, by the command line on real Spark: killed before and after the record of changed
commit infos, then audited."""

from __future__ import annotations

import json
import random
import signal
import sqlite3
import time
from pathlib import Path

import msgspec
import pytest
import yaml
from typer.testing import CliRunner, Result

from distcommit import Job
from distcommit.app.demo.killed_run import RunProcess
from distcommit.cli.main import app
from tests.integration.parts.partial_sink import AFTER_PART, AFTER_RECORD, IN_PARTS, REACHED, REQUESTS
from tests.jobs.victims import strike

NAMES = [f"dataset-{number}" for number in range(6)]
RECORDS = 3
"""Records of each dataset of `NamedSource`, each with a commit info of its own."""


def write_job(folder: Path) -> Path:
    control = folder / "control"
    control.mkdir()
    (control / IN_PARTS).touch()
    job = {
        "job": "in-parts",
        "source": {
            "type": "python",
            "class": "tests.integration.parts.named_source:NamedSource",
            "options": {"names": NAMES},
        },
        "sink": {
            "type": "python",
            "class": "tests.integration.parts.partial_sink:PartialSink",
            "options": {"path": str(folder / "rows.db"), "folder": str(control)},
        },
        "paths": {name: name for name in ("store", "staging", "output")},
        "commit": {"buckets": 2, "min_interval_ms": 1_000_000},
        "replay": {"max_attempts": 9},
        "spark": {"master": "local[2,4]"},
    }
    path = folder / "job.yaml"
    path.write_text(yaml.safe_dump(job))
    return path


def run_killed(path: Path, stop: str) -> None:
    """Run the job, and kill all of its processes once a committer waits because of the file `stop`."""
    control = path.parent / "control"
    (control / stop).touch()
    (control / REACHED).unlink(missing_ok=True)
    with RunProcess(["run", str(path), "--json"], path.parent / f"{stop}.out", path.parent / f"{stop}.err") as run:
        deadline_s = time.monotonic() + 120
        while not (control / REACHED).exists() and time.monotonic() < deadline_s:
            assert run.wait(0.02) is None, run.stderr.read_text()[-3000:]
        assert (control / REACHED).exists(), "no committer has come to the place"
        time.sleep(0.5)  # committers of other buckets come there, too
        assert strike(run, "all", signal.SIGKILL, random.Random(1))
    (control / stop).unlink()


def take_requests(path: Path) -> dict[str, list[list[bool]]]:
    """Return the marks of the infos of each request since the last call, by dataset."""
    file = path.parent / "control" / REQUESTS
    requests: dict[str, list[list[bool]]] = {}
    for line in file.read_text().splitlines():
        urn, marks = json.loads(line)
        requests.setdefault(urn, []).append(marks)
    file.unlink()
    return requests


def rows(folder: Path) -> list[tuple[str, int]]:
    """Return dataset and offset of each row at the target."""
    db = sqlite3.connect(folder / "rows.db")
    records = db.execute("SELECT dataset, columns FROM records").fetchall()
    db.close()
    return sorted((urn, msgspec.json.decode(columns)["offset"]) for urn, columns in records)


def cli(*arguments: str) -> Result:
    return CliRunner().invoke(app, [*arguments])


@pytest.mark.slow
def test_runs_killed_around_the_record_of_changed_infos_continue_with_the_durable_ones(tmp_path: Path) -> None:
    path = write_job(tmp_path)
    run_killed(path, AFTER_RECORD)
    first = take_requests(path)
    durable = {urn: marks[-1] for urn, marks in first.items() if any(marks[-1])}
    assert durable, "a request was repeated with changed infos"
    assert all(marks[0] == [False] * RECORDS for marks in first.values())
    status = {row.dataset: row.status for row in Job.from_file(path).status().datasets}
    assert {status[urn] for urn in durable} == {"pending"}

    before = len(rows(tmp_path))
    run_killed(path, AFTER_PART)
    second = take_requests(path)
    stopped = {urn for urn in durable if urn in second}
    assert stopped
    assert len(rows(tmp_path)) > before, "rows were committed, and their infos not recorded"
    assert [second[urn] for urn in stopped] == [[durable[urn]] for urn in stopped], "the next run has the durable infos"

    done = cli("run", str(path), "--json")
    third = take_requests(path)
    assert [third[urn][0] for urn in stopped] == [durable[urn] for urn in stopped], "so has the one after it"
    for _ in range(RECORDS):  # each replay tries a commit once
        if done.exit_code == 0:
            break
        done = cli("run", str(path), "--json")
    assert done.exit_code == 0, done.output[-3000:]
    assert rows(tmp_path) == [(urn, offset) for urn in NAMES for offset in range(RECORDS)]
    audited = cli("audit", str(path), "--deep", "--json")
    assert audited.exit_code == 0, audited.output[-3000:]
    assert json.loads(audited.stdout)["exact"]
    log = cli("store", "log", str(path), "--dataset", next(iter(durable)))
    assert "of its commit infos" in log.output

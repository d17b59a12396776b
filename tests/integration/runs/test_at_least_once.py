"""An at-least-once job by the command line on real Spark: killed while it publishes, and audited."""

from __future__ import annotations

import random
import signal
import time
from pathlib import Path

import msgspec
import pytest
import yaml
from typer.testing import CliRunner

from distcommit import Job
from distcommit.app.demo.killed_run import RunProcess
from distcommit.cli.main import app
from distcommit.protocol.paths.shared_names import OWNERSHIP_FOLDER
from tests.jobs.victims import strike

NAMES = [f"dataset-{number:02d}" for number in range(40)]
RECORDS = 3
"""Records of each dataset of `NamedSource`."""


def write_job(folder: Path) -> Path:
    """Write a job file that commits at the end of a task, in one batch for the one bucket."""
    source = {
        "type": "python",
        "class": "tests.integration.parts.paused_source:PausedSource",
        "options": {"names": NAMES, "at": str(folder / "output" / NAMES[20])}
        | {name: str(folder / name) for name in ("half_way", "release")},
    }
    job = {
        "job": "at-least-once",
        "source": source,
        "paths": {name: name for name in ("store", "staging", "output")},
        "commit": {"buckets": 1, "min_interval_ms": 1_000_000, "delivery": "at_least_once"},
        "spark": {"master": "local[1,4]"},
    }
    path = folder / "job.yaml"
    path.write_text(yaml.safe_dump(job))
    return path


def audit(path: Path, *arguments: str) -> tuple[int, dict[str, int]]:
    done = CliRunner().invoke(app, ["audit", str(path), "--deep", "--json", *arguments])
    return done.exit_code, msgspec.json.decode(done.stdout.strip().splitlines()[-1])


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.timeout(600)
def test_run_killed_while_publishing_loses_nothing_and_duplicates_only_its_published_files(
    tmp_path: Path,
) -> None:
    path, half_way = write_job(tmp_path), tmp_path / "half_way"
    with RunProcess(["run", str(path), "--json"], tmp_path / "first.out", tmp_path / "first.err") as run:
        deadline_s = time.monotonic() + 240
        while not half_way.exists() and time.monotonic() < deadline_s:
            assert run.wait(0.02) is None, run.stderr.read_text()[-3000:]
        assert half_way.exists(), "it never came to publish"
        assert strike(run, "all", signal.SIGKILL, random.Random(1))
    early = len([*(tmp_path / "output").glob("dataset-*/**/*.parquet")])
    assert 0 < early < len(NAMES), "some are published and others are not"
    assert Job.from_file(path).status().datasets == [], "and no watermark has moved"
    code, report = audit(path)
    assert (code, report["unrecorded_files"], report["gaps"]) == (0, early, 0)
    assert report["sweepable_files_count"] > 0, "staged files are left until the next run"

    (tmp_path / "release").touch()
    with RunProcess(["run", str(path), "--json"], tmp_path / "last.out", tmp_path / "last.err") as run:
        assert run.wait(240) == 0, run.stderr.read_text()[-3000:]
    assert {row.dataset: row.positions for row in Job.from_file(path).status().datasets} == {
        urn: {"0": RECORDS} for urn in NAMES
    }
    assert [entry.name for entry in (tmp_path / "staging").iterdir()] == [OWNERSHIP_FOLDER]
    code, report = audit(path)
    assert (code, report["exact"], report["passed"], report["gaps"]) == (0, False, True, 0)
    assert (report["duplicates"], report["records"]) == (early * RECORDS, (len(NAMES) + early) * RECORDS)
    code, report = audit(path, "--set", "commit.delivery=exactly_once")
    assert (code, report["passed"]) == (6, False)

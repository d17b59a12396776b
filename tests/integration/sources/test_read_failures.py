"""`distcommit run` with a source of one unreadable dataset over several runs.

It is killed during its retry delay, stopped, and released by the command that `status` prints.
"""

from __future__ import annotations

import json
import random
import shlex
import signal
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from pyspark.sql import SparkSession

from distcommit import Job
from distcommit.app.demo.killed_run import RunProcess
from distcommit.core.watermark import as_offset
from distcommit.engine.driver.run import RunResult
from tests.jobs.commands_here import run_here
from tests.jobs.victims import strike

PACKAGE_ROOT = Path(__file__).parents[3]


@dataclass
class FailingJob:
    """Job of `FailingSource`; dataset `bad` cannot be read while `broken` names it."""

    folder: Path
    sizes: dict[str, int]
    task: dict[str, Any] = field(default_factory=dict)

    @property
    def path(self) -> Path:
        return self.folder / "job.yaml"

    def write(self, *broken: str, **sizes: int) -> None:
        self.sizes |= sizes
        (self.folder / "notes").mkdir(exist_ok=True)
        (self.folder / "broken").write_text(" ".join(broken))
        options = {"sizes": self.sizes, "broken": str(self.folder / "broken"), "notes": str(self.folder / "notes")}
        job = {
            "job": "failing",
            "source": {
                "type": "python",
                "class": "tests.integration.parts.failing_source:FailingSource",
                "options": options,
            },
            "paths": {name: name for name in ("store", "staging", "output")},
            "commit": {"buckets": 2, "min_interval_ms": 0},
            "task": self.task,
            "spark": {"master": "local[2,4]"},
        }
        self.path.write_text(yaml.safe_dump(job))

    def run(self, spark: SparkSession) -> RunResult:
        return Job.from_file(self.path, session=spark).run()

    def command(self, *words: str) -> subprocess.CompletedProcess[str]:
        return run_here(words, PACKAGE_ROOT)

    def states(self) -> dict[str, tuple[str, int, int]]:
        """Return each dataset's status, its position, and how many consecutive runs failed to read it."""
        rows = Job.from_file(self.path).status().datasets
        return {row.dataset: (row.status, as_offset(row.positions.get("0", 0)), row.failed_runs) for row in rows}

    def planned(self, urn: str) -> list[str]:
        return (self.folder / "notes" / urn).read_text().splitlines()

    def assert_exact(self) -> None:
        audit = Job.from_file(self.path).audit(deep=True)
        assert (audit.exact, audit.records) == (True, sum(self.sizes.values())), audit


def test_unreadable_dataset_is_stopped_reported_released_and_exact_in_the_end(
    tmp_path: Path, spark: SparkSession
) -> None:
    policies = {"stop_after_failed_runs": 3, "retry_across_runs": "always", "attempts": 1}
    job = FailingJob(tmp_path, {"good": 250, "bad": 300, "sevens": 21}, policies)
    job.write("bad")
    first = job.command("run", str(job.path), "--json")
    assert first.returncode == 1, first.stderr
    assert [reason["kind"] for reason in json.loads(first.stdout)["reasons"]["entries"]] == ["failed"]
    shown = " ".join(job.command("status", str(job.path)).stdout.split())
    assert "the last run could not read it" in shown
    for number in (1, 2, 3):
        job.write("bad", good=250 + number, bad=300 + number)
        kinds = [reason.kind for reason in job.run(spark).reasons.entries]
        assert kinds == {1: ["failed"], 2: ["failed", "stopped"], 3: ["skipped, stopped"]}[number]
    assert job.states() == {"good": ("idle", 253, 0), "bad": ("stopped", 0, 3), "sevens": ("idle", 21, 0)}
    datasets = Job.from_file(job.path).status().datasets
    assert "a page of the source is damaged" in next(row.reason for row in datasets if row.dataset == "bad")
    log = job.command("store", "log", str(job.path), "--dataset", "bad").stdout
    assert " ".join(log.split()).count("stopped: SOURCE_FAILED") == 1
    command = job.run(spark).reasons.entries[0].text.split("`")[1]
    assert command == "distcommit dataset release JOB.yaml bad retry"
    typed = shlex.split(command.replace("JOB.yaml", str(job.path)))
    assert job.command(*typed[1:]).returncode == 0
    job.write()
    assert job.run(spark).succeeded
    assert job.states()["bad"] == ("idle", 300, 0), "first the failed range alone"
    assert job.run(spark).succeeded
    job.assert_exact()
    batches = {urn: (tmp_path / "notes" / f"{urn}.batch").read_text() for urn in job.sizes}
    assert batches == {"good": "100", "bad": "100", "sevens": "7"}, "a work unit's property wins over the job's option"
    reason = "SOURCE_FAILED: a page of the source is damaged [dataset=bad]"
    expected = [f"from 0 up to 300, failed {count} times, {reason}" for count in (1, 2, 3, 3, 0)]
    planned = list(dict.fromkeys(job.planned("bad")))
    assert planned == ["from 0 up to 300, never failed", *dict.fromkeys(expected), "from 300 up to 303, never failed"]


def test_run_killed_during_a_retry_delay_has_committed_the_other_datasets(tmp_path: Path, spark: SparkSession) -> None:
    job = FailingJob(tmp_path, {"good": 250, "bad": 300, "fine": 40}, {"attempts": 3, "retry_wait_s": 600})
    job.write("bad")
    with RunProcess(["run", str(job.path), "--json"], tmp_path / "run.out", tmp_path / "run.err") as run:
        until_s = time.monotonic() + 120
        while not _are_done(job, {"good": 250, "fine": 40}) and time.monotonic() < until_s:
            assert run.wait(0.1) is None, run.stderr.read_text()[-3000:]
        assert _are_done(job, {"good": 250, "fine": 40}), "nothing is committed while a task waits"
        assert run.wait(1) is None, "it waits"
        assert strike(run, "all", signal.SIGKILL, random.Random(1))
    job.write()
    assert job.run(spark).succeeded
    job.assert_exact()


def _are_done(job: FailingJob, places: dict[str, int]) -> bool:
    if not (job.folder / "store" / "store.json").exists():
        return False
    states = {urn: (status, place) for urn, (status, place, _) in job.states().items()}
    return all(states.get(urn) == ("idle", place) for urn, place in places.items())

"""A service of two jobs, in one Spark session or in two, ended in the middle of both their commits and restarted."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pytest
import yaml

from distcommit import Job
from distcommit.app.demo.killed_run import RunProcess
from tests.integration.runs.test_clusters import on
from tests.jobs.victims import strike
from tests.servers.process import free_ports
from tests.servers.spark import SparkCluster, SparkConnectServer
from tests.unit.app.running.test_run_alerts import script

JOBS = ("first", "second")
NAMES = [f"dataset-{number:02d}" for number in range(12)]
RECORDS = 3
"""Records of each dataset of `NamedSource`."""


def write_job(folder: Path, name: str, source: str, options: dict[str, Any], **changes: Any) -> Path:
    """Write a job file in the folder `jobs`. One task commits all datasets of its one bucket together."""
    job = {
        "job": name,
        "source": {"type": "python", "class": source, "options": options},
        "paths": {place: str(folder / name / place) for place in ("store", "staging", "output")},
        "commit": {"buckets": 1, "min_interval_ms": 1_000_000},
        "schedule": {"interval_s": 1},
        "spark": {"partitions": 1},
    }
    path = folder / "jobs" / f"{name}.yaml"
    path.parent.mkdir(exist_ok=True)
    path.write_text(yaml.safe_dump(job | changes))
    return path


def write_paused(folder: Path, name: str, **changes: Any) -> Path:
    """Write a job whose worker pauses at the sixth dataset of its one bucket."""
    options = {"names": NAMES, "at": str(folder / name / "output" / NAMES[6])}
    options |= {what: str(folder / f"{name}-{what}") for what in ("half_way", "release")}
    return write_job(folder, name, "tests.integration.parts.paused_source:PausedSource", options, **changes)


def events(run: RunProcess) -> list[Any]:
    return [json.loads(line) for line in run.stdout.read_text().splitlines(keepends=True) if line.endswith("\n")]


def until(run: RunProcess, is_so: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + 240
    while not is_so():
        assert time.monotonic() < deadline_s, events(run)
        assert run.wait(0.05) is None, run.stderr.read_text()[-3000:]


def until_none_is_left(run: RunProcess) -> None:
    """Wait until all processes of a killed service have ended by themselves."""
    deadline_s = time.monotonic() + 60
    while run.processes():
        assert time.monotonic() < deadline_s
        time.sleep(0.1)


def count(run: RunProcess, name: str, what: str) -> int:
    return sum((item["job"], item["event"]) == (f"{name}.yaml", what) for item in events(run))


def published(folder: Path) -> set[str]:
    return {str(path) for path in folder.glob("*/output/dataset-*/**/*.parquet")}


def rows(folder: Path, name: str) -> list[tuple[int, int, int]]:
    """Return DuckDB's counts of a job's output: records, distinct records, datasets."""
    files = f"{folder}/{name}/output/dataset-*/**/*.parquet"
    query = 'SELECT count(*), count(DISTINCT (d, partition, "offset")), count(DISTINCT d) FROM'
    of_folder = (
        f"(SELECT *, regexp_extract(filename, 'dataset-[0-9]+') AS d FROM read_parquet('{files}', filename=true))"
    )
    with duckdb.connect() as database:
        return database.execute(f"{query} {of_folder}").fetchall()


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("how", [pytest.param(signal.SIGKILL, marks=pytest.mark.long), signal.SIGTERM])
def test_service_ended_in_mid_commit_of_two_jobs_is_exact_after_its_restart(
    how: signal.Signals, tmp_path: Path
) -> None:
    for name in JOBS:
        write_paused(tmp_path, name)
    require_exact_restart(how, tmp_path)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("how", [pytest.param(signal.SIGKILL, marks=pytest.mark.long), signal.SIGTERM])
def test_service_of_a_local_job_and_a_cluster_job_is_exact_after_its_restart(
    how: signal.Signals, tmp_path: Path, spark_cluster: SparkCluster
) -> None:
    """The job on the cluster runs in a process of its own. It dies with the service, and its metrics are served."""
    write_paused(tmp_path, "first", spark={"master": "local[1]", "partitions": 1})
    write_paused(tmp_path, "second", spark=on(spark_cluster) | {"partitions": 1})
    require_exact_restart(how, tmp_path)


def require_exact_restart(how: signal.Signals, tmp_path: Path) -> None:
    """End a service of both jobs in mid-commit, start it again, and audit both."""
    jobs = tmp_path / "jobs"
    (port,) = free_ports(1)
    command = ["schedule", "serve", str(jobs), "--json", "--poll", "0.2", "--metrics", str(port)]
    with RunProcess(command, tmp_path / "first.out", tmp_path / "first.err") as run:
        until(run, lambda: all((tmp_path / f"{name}-half_way").exists() for name in JOBS))
        if how is signal.SIGKILL:
            assert strike(run, "driver", how, random.Random(1))
            until_none_is_left(run)
        else:
            assert strike(run, "driver", how, random.Random(1))
            assert run.wait(120) == 130, run.stderr.read_text()[-3000:]
            assert sorted(item["job"] for item in events(run) if item["event"] == "cancelled") == [
                "first.yaml",
                "second.yaml",
            ]
    there = published(tmp_path)
    assert 0 < len(there) < len(JOBS) * len(NAMES), "both are in the midst of it"
    for name in JOBS:
        job = Job.from_file(jobs / f"{name}.yaml")
        assert {row.status for row in job.status().datasets} == {"pending"}, "all are sealed, none is done"
        assert job.runs().runs[0].status == ("FAILED" if how is signal.SIGKILL else "CANCELLED")
        (tmp_path / f"{name}-release").touch()
    assert published(tmp_path) == there, "no process is left that publishes"
    with RunProcess(command, tmp_path / "last.out", tmp_path / "last.err") as run:
        until(run, lambda: all(count(run, name, "committed") > 1 for name in JOBS))
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
            metrics = answer.read().decode()
        for name in JOBS:
            assert f'distcommit_runs_total{{job="{name}",outcome="succeeded"}}' in metrics
        assert strike(run, "driver", signal.SIGINT, random.Random(1))
        assert run.wait(120) == 130, run.stderr.read_text()[-3000:]
    for name in JOBS:
        job = Job.from_file(jobs / f"{name}.yaml")
        assert rows(tmp_path, name) == [(RECORDS * len(NAMES), RECORDS * len(NAMES), len(NAMES))]
        assert {row.dataset: row.positions for row in job.status().datasets} == {urn: {"0": RECORDS} for urn in NAMES}
        assert job.audit(deep=True).exact


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_failed_runs_do_not_disturb_other_runs_in_the_same_session(tmp_path: Path) -> None:
    """One run hangs in mid-commit and is cancelled, one job fails each time, workers are killed, and one job is
    paused and triggered from another process. A killed session ends the service."""
    good = write_job(tmp_path, "good", "tests.integration.parts.named_source:NamedSource", {"names": NAMES})
    write_paused(tmp_path, "overlong", schedule={"interval_s": 1, "cancel_after_s": 3})
    hook = script(tmp_path, f"cat >> {tmp_path}/told; echo >> {tmp_path}/told")
    alerts = {"after_failed_runs": 2, "commands": [{"command": list(hook.command)}]}
    (tmp_path / "broken").write_text("bad\n")
    options = {"sizes": {"bad": 5}, "broken": str(tmp_path / "broken"), "notes": str(tmp_path)}
    write_job(tmp_path, "failing", "tests.integration.parts.failing_source:FailingSource", options, alerts=alerts)
    command = ["schedule", "serve", str(good.parent), "--json", "--poll", "0.2"]
    with RunProcess(command, tmp_path / "out", tmp_path / "err") as run:
        until(run, lambda: count(run, "overlong", "cancelled") > 0)
        write_paused(tmp_path, "overlong")  # a slow machine may need longer than that for any run
        (tmp_path / "overlong-release").touch()
        until(run, lambda: count(run, "overlong", "committed") > 0 and count(run, "failing", "incomplete") > 1)
        strike(run, "worker", signal.SIGKILL, random.Random(1))
        before = count(run, "good", "committed")
        until(run, lambda: count(run, "good", "committed") > before)
        assert cli("schedule", "pause", good) == 0
        until(run, lambda: count(run, "good", "paused") > 0)
        assert cli("schedule", "trigger", good, "--wait", 120) == 0
        assert strike(run, "jvm", signal.SIGKILL, random.Random(1))
        assert run.wait(200) == 4, run.stderr.read_text()[-3000:]
        assert "the Spark session has ended" in run.stderr.read_text()
    assert [json.loads(line)["failed_in_a_row"] for line in (tmp_path / "told").read_text().splitlines()] == [2]
    for name in ("good", "overlong"):
        assert rows(tmp_path, name) == [(RECORDS * len(NAMES), RECORDS * len(NAMES), len(NAMES))]


def cli(*words: object) -> int:
    command = [sys.executable, "-m", "distcommit", *map(str, words)]
    return subprocess.run(command, stdout=subprocess.DEVNULL, timeout=240, check=False).returncode


@pytest.mark.parametrize(
    ("files", "why"),
    [
        ({}, "the folder has no job file to serve"),
        ({"a.yaml": "job: ["}, "a.yaml:1:7: must be valid YAML"),
        ({"a.yaml": "job: a\nschedule: {cron: '* * *'}"}, "expected five fields"),
    ],
)
def test_jobs_that_cannot_be_served_are_refused_before_spark_starts(
    files: dict[str, str], why: str, tmp_path: Path
) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    with RunProcess(["schedule", "serve", str(tmp_path)], tmp_path / "out", tmp_path / "err") as run:
        assert run.wait(120) == 2
    assert why in run.stderr.read_text()
    assert "Traceback" not in run.stderr.read_text()
    assert not run.stdout.read_text()


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_service_runs_a_job_of_spark_connect(tmp_path: Path, spark_connect: SparkConnectServer) -> None:
    source, spark = (
        "tests.integration.parts.named_source:NamedSource",
        {"remote": spark_connect.remote, "partitions": 2},
    )
    path = write_job(tmp_path, "remote", source, {"names": NAMES}, spark=spark)
    command = ["schedule", "serve", str(path.parent), "--json", "--poll", "0.2"]
    with RunProcess(command, tmp_path / "out", tmp_path / "err") as run:
        until(run, lambda: count(run, "remote", "committed") > 1)
        assert strike(run, "driver", signal.SIGTERM, random.Random(1))
        assert run.wait(120) == 130, run.stderr.read_text()[-3000:]
    assert Job.from_file(path).audit(deep=True).exact
    assert rows(tmp_path, "remote") == [(RECORDS * len(NAMES), RECORDS * len(NAMES), len(NAMES))]


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_unreachable_master_fails_only_its_own_job(tmp_path: Path) -> None:
    source, options = "tests.integration.parts.named_source:NamedSource", {"names": NAMES}
    jobs = write_job(tmp_path, "near", source, options, spark={"master": "local[1]", "partitions": 1}).parent
    far = {"master": "spark://127.0.0.1:9", "partitions": 1}
    write_job(tmp_path, "far", source, options, spark=far, schedule={"interval_s": 3600})
    command = ["schedule", "serve", str(jobs), "--json", "--poll", "0.2"]
    with RunProcess(command, tmp_path / "out", tmp_path / "err") as run:
        until(run, lambda: count(run, "near", "committed") > 1 and count(run, "far", "failed") > 0)
        (text,) = [item["text"] for item in events(run) if item["event"] == "failed"]
        assert strike(run, "driver", signal.SIGTERM, random.Random(1))
        assert run.wait(120) == 130, run.stderr.read_text()[-3000:]
    assert "SPARK_UNAVAILABLE: Spark's master does not accept connections [master=spark://127.0.0.1:9" in text
    assert "To do: start the cluster, or correct spark.master" in text

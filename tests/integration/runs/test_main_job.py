"""The main job by its command line, on real Spark and a real Kafka protocol, killed and audited."""

from __future__ import annotations

import json
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from distcommit import Job
from distcommit.app.demo.killed_run import CommitWatcher, RunProcess
from tests.integration.parts.held_source import HELD
from tests.jobs.kafka_job import PACKAGE_ROOT, KafkaJob, kafka_job
from tests.jobs.victims import Role, strike

LOCAL_CLUSTER = ("--set", "spark.master=local-cluster[2,1,1024]", "--set", "spark.partitions=8")


@pytest.mark.slow
def test_commit_steps_run_in_all_executors_and_never_in_the_driver(tmp_path: Path) -> None:
    """System calls are traced: the driver's Python and JVM rename or link nothing below the output root but run
    markers."""
    if shutil.which("strace") is None:
        pytest.skip("strace is not installed")
    with kafka_job(tmp_path, {f"t{n:02d}": 2 for n in range(40)}, commit={"buckets": 32}) as job:
        job.produce(4, days=3)
        Job.from_file(job.path).open_store(create=True)  # keeps the file system probes out of the trace
        done = subprocess.run(
            [
                *("strace", "-ff", "-qq", "-e", "trace=rename,renameat,renameat2,link,linkat"),
                *("-o", str(tmp_path / "trace")),  # a file for each thread
                *(sys.executable, "-m", "distcommit", "run", str(job.path), "--json", *LOCAL_CLUSTER),
            ],
            capture_output=True,
            text=True,
            timeout=280,
            cwd=PACKAGE_ROOT,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-3000:]
        result = json.loads(done.stdout.strip().splitlines()[-1])
        job.assert_exact()
    commits: dict[int, int] = {}
    moved = re.compile(
        rf'(?:rename|link)\w*\(.*"{re.escape(str(tmp_path))}/output/(?!\.distcommit/)[^"]*".*= 0$', re.MULTILINE
    )
    for trace in tmp_path.glob("trace.*"):
        if calls := len(moved.findall(trace.read_text(errors="replace"))):
            commits[int(trace.suffix[1:])] = calls
    workers = {entry["pid"] for entry in result["commits"]}
    assert sum(commits.values()) == result["totals"]["files_published"] == 40 * 3
    assert commits.keys() <= workers, "something other than a Python worker touched the output"
    by_executor: dict[int, int] = {}
    for entry in result["commits"]:
        by_executor[entry["daemon_pid"]] = by_executor.get(entry["daemon_pid"], 0) + entry["steps"]
    assert len(by_executor) == 2
    assert min(by_executor.values()) >= 0.3 * sum(by_executor.values()), by_executor


@pytest.mark.slow
def test_datasets_are_committed_while_others_are_ingested(tmp_path: Path) -> None:
    """With one of 100 datasets held, the other 99 are published before the run ends."""
    release = tmp_path / "release"
    (tmp_path / "job.yaml").write_text(
        f"""
job: held
source: {{type: python, class: "tests.integration.parts.held_source:HeldSource", options: {{release: "{release}"}}}}
paths: {{store: store, staging: staging, output: output}}
spark: {{master: "local[2,4]"}}
"""
    )
    job = Job.from_file(tmp_path / "job.yaml")
    arguments = ["run", str(tmp_path / "job.yaml"), "--json"]
    with RunProcess(arguments, tmp_path / "out", tmp_path / "err") as run:
        deadline_s = time.monotonic() + 120
        published: set[str] = set()
        while len(published) < 99 and time.monotonic() < deadline_s and not run.has_ended:
            if (tmp_path / "store" / "store.json").exists():
                published = {row.dataset for row in job.status().datasets if row.done_epoch}
            run.wait(0.2)
        assert len(published) == 99, (tmp_path / "err").read_text()[-3000:]
        assert HELD not in published
        assert not run.has_ended
        release.touch()
        assert run.wait(120) == 0
    audit = job.audit(deep=True)
    assert audit.exact
    assert audit.datasets == 100


def _begun(job: KafkaJob, run: RunProcess, watcher: CommitWatcher) -> None:
    while not watcher.run_has_begun():
        assert run.wait(0.05) is None, run.stderr.read_text()[-3000:]


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    "points",
    [range(1, 3), pytest.param(range(20), marks=pytest.mark.long)],
    ids=["two of three", "twenty"],
)
def test_driver_killed_at_many_points_is_exact_after_the_next_run(tmp_path: Path, points: range) -> None:
    """SIGKILL to the driver's Python, to its JVM, or to the whole run, at points spread over the run.

    Each time the next run ends with everything published once. Of three points, the first (the whole run is killed)
    is left to the tests of other file systems and sinks, and to the demo.
    """
    with kafka_job(tmp_path, {f"t{n:02d}": 2 for n in range(24)}, commit={"min_interval_ms": 0}) as job:
        job.produce(2, days=2)
        watcher = CommitWatcher(Job.from_file(job.path).open_store(create=True))
        with job.start() as run:
            _begun(job, run, watcher)
            began_s = time.monotonic()
            assert run.wait(240) == 0
            usual_s = time.monotonic() - began_s
        for point in points:
            job.produce(2, days=2)
            watcher = CommitWatcher(Job.from_file(job.path).open_store(create=False))
            with job.start() as run:
                _begun(job, run, watcher)
                run.wait(usual_s * point / points.stop)
                role: Role = ("all", "driver", "jvm")[point % 3]
                strike(run, role, signal.SIGKILL, random.Random(point))
                assert run.wait(60) is not None, "the run outlives its driver"
            job.run()
            job.assert_exact()


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("victim", ["executor", "worker"])
def test_executor_killed_while_it_commits_leaves_the_run_exact(tmp_path: Path, victim: Role) -> None:
    """The run itself finishes exactly; Python workers that outlive their executor are harmless."""
    with kafka_job(tmp_path, {f"t{n:02d}": 4 for n in range(60)}, commit={"min_interval_ms": 0}) as job:
        job.produce(3, days=3)
        watcher = CommitWatcher(Job.from_file(job.path).open_store(create=True))
        with job.start(*LOCAL_CLUSTER) as run:
            _begun(job, run, watcher)
            while not watcher.pending():
                assert run.wait(0.001) is None, "the run ended before a commit was seen"
            assert strike(run, victim, signal.SIGKILL, random.Random(1))
            assert run.wait(240) == 0, run.stderr.read_text()[-3000:]
        job.assert_exact()


@pytest.mark.long
@pytest.mark.slow
def test_run_ends_on_one_slot(tmp_path: Path) -> None:
    with kafka_job(tmp_path, {"a": 2, "b": 1}, spark={"master": "local[1]"}) as job:
        job.produce(10, days=2)
        result = job.run()
        assert result["totals"]["datasets_published"] == 2
        job.assert_exact()


_MEASURE = """
import json, sys, tracemalloc
from distcommit import Job
job = Job.from_file(sys.argv[1])
tracemalloc.start()
result = job.run()
peak = tracemalloc.get_traced_memory()[1]
print(json.dumps({"peak": peak, "published": result.totals.datasets_published, "files": result.totals.files_published}))
"""


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "many", [2000, pytest.param(5000, marks=pytest.mark.long)], ids=["two_thousand", "five_thousand"]
)
def test_driver_memory_does_not_grow_with_thousands_of_datasets(tmp_path: Path, many: int) -> None:
    """The driver's Python memory grows by at most 300 bytes for each dataset from 500 on, listing included."""
    peaks: dict[int, int] = {}
    for datasets in (500, many):
        folder = tmp_path / str(datasets)
        folder.mkdir()
        topics = {f"t{n:05d}": 1 for n in range(datasets)}
        source = {"topics": [], "topic_patterns": ["t.*"]}
        with kafka_job(folder, topics, source=source, commit={"buckets": 64}, spark={"master": "local[2]"}) as job:
            job.produce(4, days=4)
            done = subprocess.run(
                [sys.executable, "-c", _MEASURE, str(job.path)],
                capture_output=True,
                text=True,
                timeout=600,
                check=False,
            )
            assert done.returncode == 0, done.stderr[-3000:]
            measured = json.loads(done.stdout.strip().splitlines()[-1])
            assert (measured["published"], measured["files"]) == (datasets, 4 * datasets)
            audit = job.audit(deep=False)
            assert audit.exact
            assert audit.records == 4 * datasets
        peaks[datasets] = measured["peak"]
    assert peaks[many] - peaks[500] <= 300 * (many - 500), peaks

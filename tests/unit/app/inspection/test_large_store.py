"""Inspection of a store with many datasets: a small one by default, and 50,000 datasets with a memory limit as a slow
test."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec import structs

from distcommit.app.jobs.job import Job
from distcommit.app.jobs.stored_job import StoredJob
from distcommit.core.support.io_batching import run_alone
from distcommit.fs.local_disk.local_file_system import LocalFileSystem
from tests.jobs.large_store import make_large_store

MB = 1024 * 1024
# The peak memory of a forked process includes that of its parent, so a small process and not pytest starts the command.
REPORT_MEMORY = """
import os, subprocess, sys
process = subprocess.Popen(sys.argv[1:])
_, status, used = os.wait4(process.pid, 0)
print(used.ru_maxrss * 1024, file=sys.stderr)
sys.exit(os.waitstatus_to_exitcode(status))
"""


def test_status_of_a_store_with_many_datasets_is_complete(tmp_path: Path) -> None:
    job = Job.from_file(make_large_store(tmp_path / "job", 400))
    status = job.status()
    assert status.counts == {"idle": 392, "pending": 4, "quarantined": 4}
    assert [problem.datasets for problem in status.problems] == [4, 4, 4, 0]
    assert job.datasets().matching == 400


def reads_of(job: StoredJob, inspect: Callable[[StoredJob], object], monkeypatch: pytest.MonkeyPatch) -> int:
    """Return how many files an inspection reads."""
    paths, real = list[str](), LocalFileSystem.read

    def read(fs: LocalFileSystem, path: str) -> bytes:
        paths.append(path)
        return real(fs, path)

    with monkeypatch.context() as patch:
        patch.setattr(LocalFileSystem, "read", read)
        inspect(job)
    return len(paths)


@pytest.mark.thorough
@pytest.mark.parametrize("inspect", [StoredJob.status, StoredJob.datasets, StoredJob.runs])
def test_number_of_reads_depends_on_the_buckets_and_not_on_the_datasets(
    inspect: Callable[[StoredJob], object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads = []
    for datasets in (500, 1000):  # enough that no bucket is empty
        job = StoredJob.from_file(make_large_store(tmp_path / f"{datasets}", datasets))
        store = job.open_store(create=False)
        for bucket in range(store.buckets):
            run_alone(store.bucket_log(bucket, 1).checkpoint(at_least=1))
        reads.append(reads_of(job, inspect, monkeypatch))
    assert reads[0] == reads[1] < 2 * store.buckets + 24


def test_status_without_idle_datasets_differs_only_in_the_omitted_rows(tmp_path: Path) -> None:
    job = StoredJob.from_file(make_large_store(tmp_path / "job", 400))
    all_of_them, busy = job.status(), job.status(idle=False)
    plain = [row for row in all_of_them.datasets if row.status == "idle" and not row.reason]
    assert (len(plain), len(all_of_them.datasets)) == (388, 400)
    assert busy == structs.replace(all_of_them, datasets=[row for row in all_of_them.datasets if row not in plain])


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [
        ["status"],
        *(pytest.param(words, marks=pytest.mark.long) for words in (["status", "--json"], ["dataset list"], ["runs"])),
    ],
)
def test_inspection_of_fifty_thousand_datasets_uses_less_than_300_mb(words: list[str], tmp_path: Path) -> None:
    job_file = make_large_store(tmp_path / "job", 50_000)
    command = [sys.executable, "-m", "distcommit", *words[0].split(), str(job_file), *words[1:]]
    process = subprocess.run(
        [sys.executable, "-c", REPORT_MEMORY, *command], check=False, capture_output=True, text=True
    )
    assert process.returncode == 0, process.stderr
    assert int(process.stderr.splitlines()[-1]) < 300 * MB
    if words == ["status", "--json"]:
        assert sum(json.loads(process.stdout)["counts"].values()) == 50_000

"""What is looked at of a store of many datasets: a small one by default, 50,000 with its memory as a slow test."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec import structs

from distcommit.app.job import Job
from distcommit.app.stored_job import StoredJob
from distcommit.core.support.io_batching import run_alone
from distcommit.fs.posix_calls.local import LocalFileSystem
from tests.jobs.large_store import make_large_store

MB = 1024 * 1024
# A process counts the memory of the one that it was forked from as its own peak, so the command is started by a small
# one and not by pytest.
TELLING_MEMORY = """
import os, subprocess, sys
process = subprocess.Popen(sys.argv[1:])
_, status, used = os.wait4(process.pid, 0)
print(used.ru_maxrss * 1024, file=sys.stderr)
sys.exit(os.waitstatus_to_exitcode(status))
"""


def test_a_store_of_many_is_told_as_it_is(tmp_path: Path) -> None:
    job = Job.from_file(make_large_store(tmp_path / "job", 400))
    status = job.status()
    assert status.counts == {"idle": 392, "pending": 4, "quarantined": 4}
    assert [trouble.datasets for trouble in status.troubles] == [4, 4, 4, 0]
    assert job.datasets().matching == 400


def reads_of(job: StoredJob, look: Callable[[StoredJob], object], monkeypatch: pytest.MonkeyPatch) -> int:
    """How many files a look reads."""
    found, real = list[str](), LocalFileSystem.read

    def read(fs: LocalFileSystem, path: str) -> bytes:
        found.append(path)
        return real(fs, path)

    with monkeypatch.context() as patch:
        patch.setattr(LocalFileSystem, "read", read)
        look(job)
    return len(found)


@pytest.mark.parametrize("look", [StoredJob.status, StoredJob.datasets, StoredJob.runs])
def test_how_much_is_read_depends_on_the_buckets_and_not_on_the_datasets(
    look: Callable[[StoredJob], object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = []
    for datasets in (500, 1000):  # so many that no bucket is empty
        job = StoredJob.from_file(make_large_store(tmp_path / f"{datasets}", datasets))
        store = job.open_store(create=False)
        for bucket in range(store.buckets):
            run_alone(store.bucket_log(bucket, 1).checkpoint_batched(at_least=1))
        found.append(reads_of(job, look, monkeypatch))
    assert found[0] == found[1] < 2 * store.buckets + 24


def test_what_is_only_counted_is_the_same_as_what_is_listed(tmp_path: Path) -> None:
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
def test_fifty_thousand_datasets_are_looked_at_in_300_mb(words: list[str], tmp_path: Path) -> None:
    job_file = make_large_store(tmp_path / "job", 50_000)
    command = [sys.executable, "-m", "distcommit", *words[0].split(), str(job_file), *words[1:]]
    told = subprocess.run([sys.executable, "-c", TELLING_MEMORY, *command], check=False, capture_output=True, text=True)
    assert told.returncode == 0, told.stderr
    assert int(told.stderr.splitlines()[-1]) < 300 * MB
    if words == ["status", "--json"]:
        assert sum(json.loads(told.stdout)["counts"].values()) == 50_000

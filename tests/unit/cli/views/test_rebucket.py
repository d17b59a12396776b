"""Output, requirements and refusals of `distcommit store rebucket`."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console, RenderableType

from distcommit.app.migration.rebucket import RebucketResult
from distcommit.cli.views.migration_views import rebucket_view
from distcommit.core.records.log_records import DatasetStatus
from distcommit.engine.system_clock import SystemClock
from distcommit.fs.local_disk.local_file_system import LocalFileSystem
from distcommit.fs.local_disk.posix_calls import RealPosixCalls
from distcommit.stores.logs.rebucket_logs import Move, rebucket
from distcommit.stores.operator import operator_actions
from distcommit.stores.state.job_lock import JobLock
from distcommit.stores.state.job_store import JobStore
from tests.unit.cli.test_cli import JOB, invoke, job_file, last_json, store

__all__ = ["job_file", "store"]


def accept_all(store: JobStore) -> None:
    """Accept every open sequence."""
    operator_actions.quarantine(store, "waiting", "person")
    for urn in ("waiting", "stuck"):
        operator_actions.accept(store, urn, "person")


def text_of(view: RenderableType) -> str:
    console = Console(width=200)
    with console.capture() as shown:
        console.print(view)
    return shown.get()


def test_rebucket_with_open_sequences_is_refused_and_changes_nothing(store: JobStore, job_file: Path) -> None:
    result = invoke("store", "rebucket", job_file, "--buckets", 9)
    assert result.exit_code == 3
    assert "found stuck (quarantined), waiting (pending)" in result.stderr
    assert "nothing was changed" in result.stderr
    assert store.job_log().refresh().fence_epoch == 1


def test_rebucketed_job_continues_and_its_file_must_not_name_another_number_of_buckets(
    store: JobStore, job_file: Path
) -> None:
    accept_all(store)
    result = invoke("store", "rebucket", job_file, "--buckets", 9, "--json")
    assert result.exit_code == 0, result.stderr
    assert "start Spark" not in result.stderr
    assert [line.split()[-1] for line in result.stderr.splitlines()] == ["look", "fence", "logs", "logs", "switch"]
    shown = last_json(result)
    assert (shown["buckets_before"], shown["buckets"], shown["generation"], shown["datasets"]) == (4, 9, 1, 3)
    assert shown["job_file"] == "set commit.buckets to 9 (it says 4), or leave it out"
    refused = invoke("status", job_file)
    assert refused.exit_code == 2
    assert "expected commit.buckets: 4; found 9 buckets" in refused.stderr
    assert "distcommit store rebucket JOB.yaml --buckets 4" in refused.stderr
    job_file.write_text(JOB.replace("buckets: 4, ", ""))
    shown = last_json(invoke("status", job_file, "--json"))
    assert (shown["buckets"], shown["generation"], shown["moving_to"]) == (9, 1, 0)
    assert {row["dataset"]: row["status"] for row in shown["datasets"]} == dict.fromkeys(
        ("idle", "stuck", "waiting"), DatasetStatus.IDLE.value
    )
    again = invoke("store", "rebucket", job_file, "--buckets", 9)
    assert again.exit_code == 0
    assert "nothing to do" in again.stdout
    ended = invoke("store", "log", job_file, "--json")
    assert [line["record"] for line in json.loads(ended.stdout)["lines"]][-5:] == [
        "Fence",
        "Rebucket",
        "Generation",
        "Cut",
        "Checkpoint",
    ]


def test_invalid_number_of_buckets_is_refused(store: JobStore, job_file: Path) -> None:
    for wrong in ("0", "65537", "many"):
        assert invoke("store", "rebucket", job_file, "--buckets", wrong).exit_code == 2


def test_rebucket_without_a_number_keeps_the_number_of_buckets(store: JobStore, job_file: Path) -> None:
    accept_all(store)
    result = invoke("store", "rebucket", job_file, "--json")
    assert (result.exit_code, last_json(result)["epoch"], last_json(result)["buckets"]) == (0, 0, 4)


def test_rebucket_is_refused_while_a_run_is_alive(store: JobStore, job_file: Path) -> None:
    accept_all(store)
    with JobLock(store.fs, store.roots.store, "alive", 30, SystemClock()):
        result = invoke("store", "rebucket", job_file, "--buckets", 9)
    assert result.exit_code == 3
    assert "another run of this job is alive" in result.stderr
    assert store.job_log().refresh().under_way is None


class Killed(BaseException):
    """A simulated kill of the process."""


class Dying(RealPosixCalls):
    """System calls of a process that dies just before it ends the second log."""

    def __init__(self) -> None:
        super().__init__()
        self._puts = 0

    def rename_noreplace(self, source: str, target: str) -> None:
        self._puts += "/log/bucket=00001/" in target
        if self._puts == 2:  # the first put is the fence
            raise Killed
        super().rename_noreplace(source, target)


def test_status_shows_an_interrupted_rebucket_with_the_command_that_completes_it(
    store: JobStore, job_file: Path
) -> None:
    assert "a move to" not in invoke("status", job_file).stdout
    accept_all(store)
    with pytest.raises(Killed):
        rebucket(replace(store, fs=LocalFileSystem(Dying())), Move(9), "dies", lambda step: None)
    assert [store.bucket_log(bucket).refresh().moved_to for bucket in range(4)] == [1, 0, 0, 0]
    document = json.loads(invoke("status", job_file, "--json").stdout)
    assert document["moving_to"] == 9
    shown = " ".join(invoke("status", job_file).stdout.split())
    assert "a move to 9 buckets: `distcommit store rebucket JOB.yaml --buckets 9` finishes it; no run" in shown
    assert f"distcommit store rebucket --buckets=9 {job_file}" in shown
    finished = invoke("store", "rebucket", job_file, "--buckets", 9)
    assert finished.exit_code == 0, finished.stderr
    assert "this finished an interrupted command" in finished.stdout
    job_file.write_text(JOB.replace("buckets: 4, ", ""))
    assert "a move to" not in invoke("status", job_file).stdout


def test_rebucket_view_shows_the_resumed_command_and_the_remaining_work() -> None:
    result = RebucketResult(
        "planes", 4, 9, 1, epoch=3, datasets=3, is_resumed=True, old_logs="/s/log", job_file="say 9"
    )
    shown = text_of(rebucket_view(result))
    for text in (
        "this finished an interrupted command",
        "4 before, 9 now (generation 1)",
        "3 moved",
        "/s/log",
        "say 9",
    ):
        assert text in shown

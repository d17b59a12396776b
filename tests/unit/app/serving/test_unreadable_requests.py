"""Jobs of a service whose store can't be read for a while, or has a damaged record."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest

from distcommit import Job
from distcommit.app.admin.service_requests import ServiceRequest
from distcommit.app.serving import served_job
from distcommit.app.serving.served_job import Ended, Message, Outcome, ScheduleCheck, ServedJob
from distcommit.core.interfaces.file_system import FileSystem
from distcommit.protocol.paths.store import BEGUN, record_name
from distcommit.stores.history.run_records import (
    BEGINNING_VERSION,
    RunBeginning,
    RunFacts,
    put_beginning,
    record_path,
    recorded_epochs,
)
from distcommit.stores.operator.schedule_requests import read_requests
from tests.unit.app.serving.test_service import Runs, Serving, write


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "jobs"
    path.mkdir()
    return path


LONG_AGO_MS = 1_672_531_200_000
"""The first day of 2023: the firing of `DAILY` in 2024 came later."""


def put_run(job: Job, epoch: int, began_ms: int) -> None:
    store, facts = job.open_store(create=True), RunFacts(host="here")
    put_beginning(store, RunBeginning(BEGINNING_VERSION, "a", f"run-{epoch}", epoch, "run", "me", began_ms, facts))


def fail_reads(monkeypatch: pytest.MonkeyPatch, failing: threading.Event) -> None:
    """Let reads of the store fail while `failing` is set."""

    def failing_read(read: Callable[[FileSystem, str], Any]) -> Callable[[FileSystem, str], Any]:
        def fails(fs: FileSystem, root: str) -> Any:
            if failing.is_set():
                raise TimeoutError("the storage does not respond")
            return read(fs, root)

        return fails

    for read in (read_requests, recorded_epochs):
        monkeypatch.setattr(served_job, read.__name__, failing_read(read))


def test_damaged_record_of_the_newest_run_does_not_hide_the_pause_of_a_job(folder: Path) -> None:
    job, inbox, runs = Job.from_file(write(folder, "a")), SimpleQueue[Message](), Runs()
    put_run(job, 3, LONG_AGO_MS)
    put_run(job, 4, LONG_AGO_MS + 1)
    store = job.open_store(create=False)
    Path(record_path(store.roots.store, record_name(4, BEGUN))).write_bytes(b"torn")
    job.request_service(ServiceRequest.PAUSE)
    served = ServedJob("a.yaml", job, runs, inbox, 60)
    check = inbox.get(timeout=60)
    assert isinstance(check, ScheduleCheck)
    assert (check.problem, check.requests.paused is not None, check.began_ms) == ("", True, LONG_AGO_MS)
    served.run(is_triggered=False)
    ended = inbox.get(timeout=60)
    assert isinstance(ended, Ended)
    assert (ended.outcome, runs.done) == (Outcome.PAUSED, [])
    served.leave()


@pytest.mark.parametrize("is_triggered", [False, True])
def test_job_does_not_run_if_its_pause_cannot_be_read(
    folder: Path, monkeypatch: pytest.MonkeyPatch, is_triggered: bool
) -> None:
    job, inbox, runs, failing = Job.from_file(write(folder, "a")), SimpleQueue[Message](), Runs(), threading.Event()
    job.open_store(create=True)
    job.request_service(ServiceRequest.PAUSE)
    failing.set()
    fail_reads(monkeypatch, failing)
    served = ServedJob("a.yaml", job, runs, inbox, 60)
    served.run(is_triggered=is_triggered)
    messages: list[Message] = []
    while not messages or not isinstance(messages[-1], Ended):
        messages.append(inbox.get(timeout=60))
    ended = messages[-1]
    assert isinstance(ended, Ended)
    assert (ended.outcome, runs.done) == (Outcome.FAILED, [])
    assert "the storage does not respond" in ended.text
    served.leave()


def test_firing_missed_before_a_start_during_an_outage_is_made_up_for_once(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, failing = Job.from_file(write(folder, "a")), threading.Event()
    put_run(job, 3, LONG_AGO_MS)
    failing.set()
    fail_reads(monkeypatch, failing)
    serving = Serving(folder)
    serving.until("a.yaml", "unreadable")
    serving.take_steps()
    assert not serving.runs.done
    failing.clear()
    serving.until("a.yaml", "committed")
    serving.take_steps()
    assert serving.runs.done == ["a"]


def test_run_that_begins_after_an_outage_makes_up_for_missed_firings(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The requests can be read again when the run begins, before the service has received a check."""
    job, failing = Job.from_file(write(folder, "a", schedule={"interval_s": 3_600})), threading.Event()
    put_run(job, 3, LONG_AGO_MS)
    failing.set()
    fail_reads(monkeypatch, failing)
    checked = served_job.ServedJob._check_requests

    def recovers(served: ServedJob) -> ScheduleCheck:
        check = checked(served)
        failing.clear()
        return check

    monkeypatch.setattr(served_job.ServedJob, "_check_requests", recovers)
    serving = Serving(folder)
    serving.until("a.yaml", "committed")
    serving.take_steps()
    assert serving.runs.done == ["a"]

"""A run in a process of its own, whatever becomes of the process."""

from __future__ import annotations

import logging
import os
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from distcommit import Job
from distcommit.app.serving import run_process, service
from distcommit.app.serving.run_process import run_in_process
from distcommit.core.errors import DistcommitError, LockHeldError, ProcessLostError, TransientError
from distcommit.engine.run_events import NullObserver
from distcommit.engine.system_clock import SystemClock
from distcommit.spark import session
from distcommit.spark.session_settings import SparkSettings
from distcommit.stores.state.job_lock import JobLock
from tests.unit.app.serving.acting_source import ACT

UNREACHABLE = "spark://127.0.0.1:9"


def write(folder: Path, **changes: Any) -> Job:
    job = {
        "job": "alone",
        "source": {"type": "python", "class": "tests.unit.app.serving.acting_source:ActingSource"},
        "paths": {name: str(folder / name) for name in ("store", "staging", "output")},
        "spark": {"master": UNREACHABLE},
    }
    path = folder / "job.yaml"
    path.write_text(yaml.safe_dump(job | changes))
    return Job.from_file(path)


def error_of(job: Job, act: str = "") -> DistcommitError:
    with pytest.raises(DistcommitError) as caught:
        run_in_process(job, NullObserver(), {**os.environ, ACT: act})
    return caught.value


def test_error_of_the_run_arrives_with_its_type_and_the_job(tmp_path: Path) -> None:
    job = write(tmp_path, spark={"master": "yarn"})  # not checked before the lock
    store = job.open_store(create=True)
    with JobLock(store.fs, store.roots.store, "another-run", 60, SystemClock()):
        error = error_of(job)
    assert isinstance(error, LockHeldError)
    assert error.ids["job"] == "alone"


def test_error_of_a_custom_class_arrives_as_text_with_its_remedy(tmp_path: Path) -> None:
    error = error_of(write(tmp_path), "raise")
    assert "what went wrong" in str(error)
    assert "start the server" in str(error)


def test_overrides_are_not_on_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commands = list[list[str]]()

    def popen(command: list[str], **settings: Any) -> subprocess.Popen[bytes]:
        commands.append(command)
        return started(command, **settings)

    started = subprocess.Popen
    job = Job.from_file(write(tmp_path).path or "", ["spark.conf.spark.hidden=word"])
    monkeypatch.setattr(subprocess, "Popen", popen)
    error_of(job, "die")
    assert commands
    assert "hidden" not in str(commands)


def test_run_whose_job_file_names_another_store_is_not_started(tmp_path: Path) -> None:
    job = write(tmp_path)
    write(tmp_path, paths={name: str(tmp_path / f"{name}-2") for name in ("store", "staging", "output")})
    assert "names other paths" in str(error_of(job))


@pytest.mark.parametrize(("act", "code"), [("die", "-9"), ("exit", "")])
def test_death_of_the_process_is_an_error_of_the_run(act: str, code: str, tmp_path: Path) -> None:
    error = error_of(write(tmp_path), act)
    if act == "exit":
        assert "SystemExit" in str(error)
        return
    assert isinstance(error, ProcessLostError)
    assert {name: error.ids[name] for name in ("job", "master", "exit_code")} == {
        "job": "alone",
        "master": UNREACHABLE,
        "exit_code": code,
    }


def test_process_that_begins_no_run_is_ended_after_the_time_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_process, "_START_LIMIT_S", 3.0)
    began_s = time.monotonic()
    error = error_of(write(tmp_path), "hang")
    assert isinstance(error, TransientError)
    assert error.text.startswith(f"Spark did not start within 3 s [job=alone, master={UNREACHABLE}]. To do: check that")
    assert time.monotonic() - began_s < 30


def test_log_records_of_the_process_are_logged_and_prints_do_not_disturb_messages(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    job = write(tmp_path, spark={"master": "yarn"})  # not checked before the lock
    store = job.open_store(create=True)
    with JobLock(store.fs, store.roots.store, "another-run", 60, SystemClock()), caplog.at_level(logging.WARNING):
        assert isinstance(error_of(job, "log"), LockHeldError)
    assert "a warning of the process: ValueError: why" in [record.getMessage() for record in caplog.records]


def opened_masters(monkeypatch: pytest.MonkeyPatch, error: Exception | None = None) -> list[str]:
    """Replace the start of Spark; return the list of masters for which a session is opened."""
    masters = list[str]()

    def open_session(settings: SparkSettings, _: str) -> str:
        masters.append(settings.master)
        if error is not None:
            raise error
        return f"session of {settings.conf['spark.scheduler.mode']}"

    monkeypatch.setattr(session, "open_session", open_session)
    return masters


def test_session_of_the_service_has_the_settings_of_most_jobs_and_prefers_local_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    far, near = SparkSettings(master=UNREACHABLE), SparkSettings(master="local[1]")
    masters = opened_masters(monkeypatch)
    shared, spark = service._open_shared([far, near], "jobs")
    assert (shared, str(spark)) == (near, "session of FAIR")
    assert service._open_shared([far, near, far.model_copy(update={"partitions": 7})], "jobs")[0] == far
    remote = SparkSettings(remote="sc://127.0.0.1:9")
    assert service._open_shared([remote, remote, near], "jobs")[0] == near
    assert service._open_shared([remote], "jobs") == (remote, None)
    assert masters == ["local[1]", UNREACHABLE, "local[1]"]


def test_session_that_cannot_be_opened_ends_the_service_only_if_all_jobs_need_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    far, near = SparkSettings(master=UNREACHABLE), SparkSettings(master="local[1]")
    opened_masters(monkeypatch, TransientError("Spark does not start", id="SPARK_UNAVAILABLE"))
    assert service._open_shared([far, far, near], "jobs") == (far, None)
    with pytest.raises(TransientError):
        service._open_shared([far, far], "jobs")

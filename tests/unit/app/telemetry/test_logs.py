"""The log file has the traceback of the error that ends a run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from distcommit.app.telemetry.logs import logged
from distcommit.core.errors import SinkUnavailableError
from distcommit.core.redaction import redact
from distcommit.engine.run_events import RunBegan


def test_error_that_ends_a_run_is_logged_with_its_traceback_and_without_secrets(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    redact(["password-of-the-log"])

    def run() -> None:
        with logged(str(path)) as log:
            log.observe(RunBegan("r7", 7, "orders", "run", "", 0))
            raise SinkUnavailableError("the target is gone", found="user u, password password-of-the-log")

    with pytest.raises(SinkUnavailableError):
        run()
    *_, last = map(json.loads, path.read_text().splitlines())
    assert (last["level"], last["job"], last["run"], last["epoch"]) == ("ERROR", "orders", "r7", 7)
    assert last["text"].startswith("the run ends with an error: SINK_UNAVAILABLE: the target is gone")
    assert last["trace"].startswith("Traceback (most recent call last):")
    assert "test_logs.py" in last["trace"]
    assert "password-of-the-log" not in path.read_text()


def test_log_of_a_run_without_an_error_has_no_traceback(tmp_path: Path) -> None:
    with logged(str(tmp_path / "log.jsonl")):
        pass
    assert "trace" not in (tmp_path / "log.jsonl").read_text()

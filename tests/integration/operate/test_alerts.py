"""Alerts for killed and failed runs, sent to a program, a web server and a mail server."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
import yaml

from distcommit.app.demo.killed_run import RunProcess
from tests.unit.app.running.test_run_alerts import mail_server, script, web_server

SIZES = {"good": 5, "bad": 5}


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_killed_and_failed_runs_are_reported_by_every_alert_hook(tmp_path: Path) -> None:
    (tmp_path / "notes").mkdir()
    (tmp_path / "broken").write_text("bad\n")
    hook = script(tmp_path, f"cat > {tmp_path}/told")
    with web_server() as (url, posted), mail_server() as (port, mails):
        options = {"sizes": SIZES, "broken": str(tmp_path / "broken"), "notes": str(tmp_path / "notes")}
        job = {
            "job": "alerting",
            "source": {
                "type": "python",
                "class": "tests.integration.parts.failing_source:FailingSource",
                "options": options,
            },
            "paths": {name: name for name in ("store", "staging", "output")},
            "commit": {"buckets": 2},
            "task": {"attempts": 1},
            "lock": {"enabled": False},
            "alerts": {
                "after_failed_runs": 2,
                "commands": [{"command": list(hook.command)}, {"command": ["/no/such/program"]}],
                "webhooks": [{"url": url}],
                "emails": [{"host": "127.0.0.1", "port": port, "sender": "job@x.org", "recipients": ["ann@x.org"]}],
            },
            "spark": {"master": "local[1,4]"},
        }
        path = tmp_path / "job.yaml"
        path.write_text(yaml.safe_dump(job))
        with RunProcess(["run", str(path), "--json"], tmp_path / "first.out", tmp_path / "first.err") as first:
            deadline_s = time.monotonic() + 240
            # leaving the block kills the whole run
            while not list(tmp_path.glob("store/runs/*-begun.json")) and time.monotonic() < deadline_s:
                assert first.wait(0.02) is None, first.stderr.read_text()[-3000:]
        assert (posted, mails, (tmp_path / "told").exists()) == ([], [], False)
        with RunProcess(["run", str(path), "--json"], tmp_path / "last.out", tmp_path / "last.err") as last:
            assert last.wait(240) == 1, last.stderr.read_text()[-3000:]
    alert = json.loads((tmp_path / "told").read_text())
    assert (alert["trigger"], alert["failed_in_a_row"], alert["status"]) == ("failed runs", 2, "FAILED")
    assert [body for _, _, body in posted] == [alert]
    assert [mail.rcpt_tos for mail in mails] == [["ann@x.org"]]
    assert "could not be sent by command program 2" in last.stderr.read_text()

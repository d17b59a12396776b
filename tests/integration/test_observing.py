"""A service that is scraped as it runs jobs, and a run by itself that leaves its metrics."""

from __future__ import annotations

import socket
import urllib.request
from pathlib import Path

from distcommit import Job
from distcommit.app.demo.kill import RunProcess
from tests.integration.test_serve import NAMES, RECORDS, count, until, write_job
from tests.unit.app.test_metrics import Series, series

SOURCE = "tests.integration.named_source:NamedSource"


def free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return int(listening.getsockname()[1])


def scrape(port: int) -> Series:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        return series(answer.read().decode())


def test_a_service_is_scraped_and_its_runs_leave_files(tmp_path: Path) -> None:
    files = {name: tmp_path / f"{name}.prom" for name in ("first", "second")}
    for name, path in files.items():
        jobs = write_job(tmp_path, name, SOURCE, {"names": NAMES}, observing={"metrics_file": str(path)}).parent
    port = free_port()
    command = ["serve", str(jobs), "--json", "--look", "0.2", "--metrics", str(port)]
    with RunProcess(command, tmp_path / "out", tmp_path / "err") as run:
        until(run, lambda: all(count(run, name, "committed") > 1 for name in files))
        found = scrape(port)
        busy = RunProcess(command, tmp_path / "busy.out", tmp_path / "busy.err")
        with busy:
            assert busy.wait(120) == 2, "another service has the port"
            assert "metrics can't be served there" in busy.stderr.read_text()
    for name, path in files.items():
        assert found["records_published_total", (name,)] == RECORDS * len(NAMES)
        assert found["runs_total", (name, "succeeded")] >= 2
        assert found["service_events_total", (f"{name}.yaml", "committed")] >= 2
        assert series(path.read_text())["last_run_outcome", (name, "succeeded")] == 1
        assert Job.from_file(jobs / f"{name}.yaml").audit(deep=True).exact

"""A service that is scraped while it runs jobs, and a single run that exports its metrics, its trace and its
lineage."""

from __future__ import annotations

import gzip
import json
import socket
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from pyspark.sql import SparkSession

from distcommit import Job
from distcommit.app.demo.killed_run import RunProcess
from tests.integration.runs.test_serve import NAMES, RECORDS, count, until, write_job
from tests.unit.app.telemetry.test_metrics import Series, series

SOURCE = "tests.integration.parts.named_source:NamedSource"


def free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return int(listening.getsockname()[1])


def scrape(port: int) -> Series:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        return series(answer.read().decode())


def test_service_is_scraped_and_its_runs_export_files(tmp_path: Path) -> None:
    files = {name: tmp_path / f"{name}.prom" for name in ("first", "second")}
    for name, path in files.items():
        jobs = write_job(tmp_path, name, SOURCE, {"names": NAMES}, telemetry={"metrics_file": str(path)}).parent
    port = free_port()
    command = ["schedule", "serve", str(jobs), "--json", "--poll", "0.2", "--metrics", str(port)]
    with RunProcess(command, tmp_path / "out", tmp_path / "err") as run:
        until(run, lambda: all(count(run, name, "committed") > 1 for name in files))
        metrics = scrape(port)
        busy = RunProcess(command, tmp_path / "busy.out", tmp_path / "busy.err")
        with busy:
            assert busy.wait(120) == 2, "another service has the port"
            assert "metrics can't be served at this address" in busy.stderr.read_text()
    for name, path in files.items():
        assert metrics["records_published_total", (name,)] == RECORDS * len(NAMES)
        assert metrics["runs_total", (name, "succeeded")] >= 2
        assert metrics["service_events_total", ("committed", f"{name}.yaml")] >= 2
        assert series(path.read_text())["last_run_outcome", (name, "succeeded")] == 1
        assert Job.from_file(jobs / f"{name}.yaml").audit(deep=True).exact


@contextmanager
def post_receiver(status: int = 200) -> Iterator[tuple[str, list[tuple[str, bytes]]]]:
    """Serve a web server; yield its URL and the list of posted paths and bodies."""
    posted: list[tuple[str, bytes]] = []

    class Taking(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            posted.append((self.path, gzip.decompress(body) if self.headers["Content-Encoding"] == "gzip" else body))
            self.send_response(status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Taking) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", posted
        finally:
            server.shutdown()
            thread.join()


def spans_of(body: bytes) -> list[Any]:
    request = ExportTraceServiceRequest.FromString(body)
    return [span for resource in request.resource_spans for scope in resource.scope_spans for span in scope.spans]


def test_run_exports_a_trace_lineage_and_a_log(tmp_path: Path, spark: SparkSession) -> None:
    with post_receiver() as (url, posted):
        asked = {"traces_url": f"{url}/v1/traces", "lineage_url": url, "log_file": str(tmp_path / "log.json")}
        path = write_job(tmp_path, "orders", SOURCE, {"names": NAMES}, telemetry=asked)
        result = Job.from_file(path, session=spark).run()
    assert result.succeeded
    (body,) = (body for to, body in posted if to == "/v1/traces")
    spans = spans_of(body)
    by_id = {span.span_id: span for span in spans}
    inside = {span.name: by_id[span.parent_span_id].name for span in spans if span.parent_span_id}
    assert {name: inside[name] for name in ("recover", "plan", "ingest", "drain")} == dict.fromkeys(
        ("recover", "plan", "ingest", "drain"), "run"
    )
    assert [span.name for span in spans if not span.parent_span_id] == ["run"]
    assert inside["task ingest 0"] == "ingest"
    assert inside["read"].startswith("task ingest")
    assert "commit" in inside
    assert sum(span.name == "read" for span in spans) == len(NAMES)
    assert all(span.start_time_unix_nano <= span.end_time_unix_nano for span in spans)
    assert len({span.trace_id for span in spans}) == 1
    began, ended = (json.loads(body) for to, body in posted if to == "/api/v1/lineage")
    assert (began["eventType"], ended["eventType"]) == ("START", "COMPLETE")
    assert began["run"]["runId"] == ended["run"]["runId"]
    assert ended["job"] == {"namespace": "distcommit", "name": "orders", "facets": {}}
    assert [item["name"] for item in ended["inputs"]] == NAMES
    outputs = {item["name"]: item["outputFacets"]["outputStatistics"]["rowCount"] for item in ended["outputs"]}
    assert outputs == {str(tmp_path / "orders" / "output" / name): RECORDS for name in NAMES}
    lines = [json.loads(line) for line in (tmp_path / "log.json").read_text().splitlines()]
    assert {(line["job"], line["run"], line["epoch"]) for line in lines if "run" in line} == {
        ("orders", result.run_id, result.epoch)
    }
    assert lines[-1]["outcome"] == "succeeded"


def test_unreachable_telemetry_targets_change_nothing(
    tmp_path: Path, spark: SparkSession, caplog: pytest.LogCaptureFixture
) -> None:
    with post_receiver(status=400) as (url, posted):
        asked = {"traces_url": f"{url}/v1/traces", "lineage_url": url, "metrics_file": str(tmp_path / "no" / "a.prom")}
        path = write_job(tmp_path, "orders", SOURCE, {"names": NAMES[:2]}, telemetry=asked)
        assert Job.from_file(path, session=spark).run().succeeded
    assert len(posted) == 3
    assert "lineage can't be sent" in caplog.text
    assert "the run's metrics can't be written" in caplog.text
    assert Job.from_file(path).audit(deep=True).exact


def test_failed_run_is_exported_and_lineage_goes_to_files(tmp_path: Path, spark: SparkSession) -> None:
    events, log = tmp_path / "events.json", tmp_path / "log.json"
    (tmp_path / "broken").write_text("bad\n")
    options = {"sizes": {"bad": 5, "good": 1}, "broken": str(tmp_path / "broken"), "notes": str(tmp_path)}
    asked = {"lineage_file": str(events), "lineage_namespace": "shop", "log_file": str(log)}
    source = "tests.integration.parts.failing_source:FailingSource"
    result = Job.from_file(
        write_job(tmp_path, "orders", source, options, telemetry=asked, task={"attempts": 1}), session=spark
    ).run()
    assert not result.succeeded
    ended = json.loads(events.read_text().splitlines()[-1])
    assert (ended["eventType"], ended["job"]["namespace"]) == ("COMPLETE", "shop")
    assert "incomplete" in ended["run"]["facets"]["errorMessage"]["message"]
    assert [item["name"] for item in ended["inputs"]] == ["good"]
    assert json.loads(log.read_text().splitlines()[-1])["outcome"] == "incomplete"

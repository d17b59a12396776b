"""`distcommit ui` serves the report pages read-only on loopback, under loopback host names only."""

from __future__ import annotations

import http.client
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from distcommit.app.job import Job
from distcommit.cli.web.ui_server import UiServer, is_loopback
from distcommit.core.errors import ConfigurationError
from tests.jobs.reported_run import EPOCH, HOSTILE, make_reported_job
from tests.unit.cli.test_cli import JOB, invoke
from tests.unit.cli.web.test_report import DANGEROUS, TAGS, Seen


@pytest.fixture(scope="module")
def job_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_reported_job(tmp_path_factory.mktemp("served"), 20)


@pytest.fixture(scope="module")
def server(job_file: Path) -> Iterator[UiServer]:
    with UiServer(Job.from_file(job_file)) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def ask(
    server: UiServer, path: str, method: str = "GET", host: str | None = None, body: bytes | None = None
) -> tuple[int, http.client.HTTPMessage, str]:
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=60)
    try:
        headers = {} if host is None else {"Host": host}
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        return answer.status, answer.headers, answer.read().decode()
    finally:
        connection.close()


def files_of(job_file: Path) -> dict[str, tuple[int, int, int]]:
    return {
        str(path): (status.st_size, status.st_mtime_ns, status.st_ino)
        for path in job_file.parent.rglob("*")
        if (status := path.stat())
    }


def test_server_shows_the_list_of_runs_and_each_run(server: UiServer) -> None:
    status, headers, page = ask(server, "/")
    assert status == 200
    assert f'<a href="/runs/{EPOCH}">' in page
    status, headers, page = ask(server, f"/runs/{EPOCH}?x=1")
    assert status == 200
    assert "shop-3.orders-0010" in page
    assert headers["Content-Type"] == "text/html; charset=utf-8"
    assert "data-every-s" not in page, "the page of an ended run must not refresh"


def test_hostile_names_are_only_text_in_served_pages(server: UiServer) -> None:
    for path in ("/", f"/runs/{EPOCH}", "/runs/99", "/%3Cscript%3Ealert(1)%3C/script%3E"):
        _, headers, page = ask(server, path)
        parsed = Seen(page)
        assert parsed.tags <= TAGS
        assert len(parsed.inline["script"]) == 1
        assert not [name for name in parsed.attributes if name.startswith("on")]
        assert not DANGEROUS & set(page)
        policy = headers["Content-Security-Policy"]
        for part in ("default-src 'none'", "frame-ancestors 'none'", "connect-src 'self'", "form-action 'none'"):
            assert part in policy
        assert "unsafe" not in policy
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Referrer-Policy"] == "no-referrer"
        assert headers["Cross-Origin-Resource-Policy"] == "same-origin"
    assert HOSTILE[0] in "".join(Seen(ask(server, "/")[2]).texts)


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:80",
        "127.0.0.1.evil.example",
        "localhost.evil.example",
        "0.0.0.0",
        "",
        "[::1",
        "a@localhost",
    ],
)
def test_request_with_another_host_name_is_refused(server: UiServer, host: str) -> None:
    status, _, page = ask(server, f"/runs/{EPOCH}", host=host)
    assert status == 421
    assert "shop-" not in page


def test_request_with_a_loopback_host_name_and_any_port_is_answered(server: UiServer) -> None:
    for host in ("localhost", "LOCALHOST:9000", "127.0.0.1", f"127.0.0.1:{server.server_port}", "[::1]:80"):
        assert is_loopback(host), host
        assert ask(server, "/", host=host)[0] == 200
    assert not is_loopback("::1")
    assert server.server_address[0] == "127.0.0.1"


def test_request_without_a_host_or_with_two_hosts_is_refused(server: UiServer) -> None:
    for lines in ("", "Host: localhost\r\nHost: evil.example\r\n"):
        with socket.create_connection(("127.0.0.1", server.server_port), timeout=60) as client:
            client.sendall(f"GET / HTTP/1.1\r\n{lines}Connection: close\r\n\r\n".encode())
            assert client.makefile("rb").readline().split()[1] == b"421"


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"])
def test_methods_other_than_get_and_head_are_refused(server: UiServer, job_file: Path, method: str) -> None:
    before = files_of(job_file)
    status, headers, _ = ask(server, f"/runs/{EPOCH}", method, body=b"x=1" if method == "POST" else None)
    assert (status, headers["Allow"]) == (405, "GET, HEAD")
    assert files_of(job_file) == before


def test_served_pages_change_no_file(server: UiServer, job_file: Path) -> None:
    before = files_of(job_file)
    for path in ("/", f"/runs/{EPOCH}", "/runs/99", "/nothing"):
        ask(server, path)
    assert files_of(job_file) == before


def test_unknown_page_or_run_is_404(server: UiServer) -> None:
    status, _, page = ask(server, "/runs/99")
    assert status == 404
    assert "the newest epoch is 1" in page
    for path in ("/runs/-1", "/runs/1/..", "/etc/passwd", "/runs/" + "9" * 40, "//evil.example/", "/static/../page.js"):
        assert ask(server, path)[0] == 404, path
    status, headers, body = ask(server, "/", "HEAD")
    assert (status, body) == (200, "")
    assert int(headers["Content-Length"]) > 500


def test_server_continues_after_the_store_was_temporarily_unreadable(tmp_path: Path) -> None:
    job_file = make_reported_job(tmp_path / "job", 3)
    with UiServer(Job.from_file(job_file)) as server:
        (tmp_path / "job" / "store").rename(tmp_path / "away")
        assert server.page_at("/").status == 404
        (tmp_path / "away").rename(tmp_path / "job" / "store")
        assert server.page_at(f"/runs/{EPOCH}").status == 200


def test_port_in_use_raises_configuration_error(server: UiServer, job_file: Path) -> None:
    with pytest.raises(ConfigurationError, match="use another --port"):
        UiServer(Job.from_file(job_file), server.server_port)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("started", "ending"),
    [
        ("--default-signal=INT", signal.SIGINT),
        ("--ignore-signal=INT", signal.SIGTERM),
    ],  # scripts start background jobs with SIGINT ignored
)
def test_ui_command_prints_its_url_and_ends_on_a_signal(job_file: Path, started: str, ending: int) -> None:
    command = ["env", started, sys.executable, "-m", "distcommit", "ui", str(job_file), "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        url = process.stdout.readline().split('"')[3]
        connection = http.client.HTTPConnection(url.split("/")[2], timeout=60)
        connection.request("GET", "/")
        assert connection.getresponse().status == 200
        connection.close()
        os.kill(process.pid, ending)
        try:
            assert process.wait(60) == 0
        finally:
            process.kill()


def test_ui_command_of_a_job_without_a_store_ends_with_exit_code_2(tmp_path: Path) -> None:
    job_file = tmp_path / "job.yaml"
    job_file.write_text(JOB)
    result = invoke("ui", job_file)
    assert result.exit_code == 2

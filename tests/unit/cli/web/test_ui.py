"""`distcommit ui` serves the report pages read-only on loopback, under loopback host names only."""

from __future__ import annotations

import http.client
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import pytest
from msgspec import structs

from distcommit.app.inspection.problems.job_problem_kinds import RUN_DIED
from distcommit.app.jobs.stored_job import StoredJob
from distcommit.cli.web.background_reads import BackgroundReads
from distcommit.cli.web.job_summaries import JobState, ServedJobs
from distcommit.cli.web.ui_server import UiServer, is_loopback
from distcommit.core.errors import ConfigurationError
from distcommit.core.interfaces.source import Lag
from distcommit.core.records.log_records import DatasetState
from distcommit.stores.history.run_records import put_beginning
from tests.golden import samples
from tests.integration.parts.held_source import HeldSource
from tests.jobs.reported_run import EPOCH, HOSTILE, HOSTILE_FILE, make_job_folder, make_reported_job
from tests.unit.cli.test_cli import JOB, invoke
from tests.unit.cli.web.test_report import DANGEROUS, TAGS, Seen

JOB_PAGE = "/jobs/job.yaml"
RUN = f"{JOB_PAGE}/runs/{EPOCH}"


@pytest.fixture(scope="module")
def job_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_reported_job(tmp_path_factory.mktemp("served"), 20)


@pytest.fixture(scope="module")
def server(job_file: Path) -> Iterator[UiServer]:
    with UiServer(ServedJobs(job_file)) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
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


def test_server_of_a_job_shows_the_job_its_datasets_its_runs_and_each_run(server: UiServer) -> None:
    for path in ("/", JOB_PAGE, f"{JOB_PAGE}/runs"):
        status, headers, page = ask(server, path)
        assert status == 200, path
        assert f'<a href="{RUN}">' in page, path
    assert "shop-3.orders-0010" in ask(server, f"{JOB_PAGE}/datasets/1")[2]
    assert "All jobs" not in ask(server, "/")[2]
    status, headers, page = ask(server, f"{RUN}?x=1")
    assert status == 200
    assert "shop-3.orders-0010" in page
    assert headers["Content-Type"] == "text/html; charset=utf-8"
    assert "data-every-s" not in page, "the page of an ended run must not refresh"


def test_hostile_names_are_only_text_in_served_pages(server: UiServer) -> None:
    for path in ("/", f"{JOB_PAGE}/datasets", RUN, f"{JOB_PAGE}/runs/99", "/%3Cscript%3Ealert(1)%3C/script%3E"):
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
    status, _, page = ask(server, f"{RUN}", host=host)
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
    status, headers, _ = ask(server, f"{RUN}", method, body=b"x=1" if method == "POST" else None)
    assert (status, headers["Allow"]) == (405, "GET, HEAD")
    assert files_of(job_file) == before


def test_served_pages_change_no_file(server: UiServer, job_file: Path) -> None:
    before = files_of(job_file)
    for path in ("/", RUN, f"{JOB_PAGE}/runs", f"{JOB_PAGE}/datasets/1", f"{JOB_PAGE}/runs/99", "/nothing"):
        ask(server, path)
    assert files_of(job_file) == before


def test_unknown_page_or_run_is_404(server: UiServer) -> None:
    status, _, page = ask(server, f"{JOB_PAGE}/runs/99")
    assert status == 404
    assert "the newest epoch is 1" in page
    below = ("/runs/-1", "/runs/1/..", "/runs/" + "9" * 40, "/datasets/0", "/datasets/2", "/other")
    escapes = (
        "/etc/passwd",
        "//evil.example/",
        "/static/../page.js",
        "/runs/1",
        "/jobs/",
        "/jobs/..",
        "/jobs/%2e%2e/x",
    )
    files = (
        "/jobs/%2Fetc%2Fpasswd",
        "/jobs/../job.yaml",
        "/jobs/store",
        "/jobs/%ff",
        "/jobs/job.yaml%00",
        "/jobs/" + "a" * 900,
    )
    for path in (*(JOB_PAGE + part for part in below), *escapes, *files):
        assert ask(server, path)[0] == 404, path
    status, headers, body = ask(server, "/", "HEAD")
    assert (status, body) == (200, "")
    assert int(headers["Content-Length"]) > 500


def test_server_continues_after_the_store_was_temporarily_unreadable(tmp_path: Path) -> None:
    job_file = make_reported_job(tmp_path / "job", 3)
    with UiServer(ServedJobs(job_file)) as server:
        (tmp_path / "job" / "store").rename(tmp_path / "away")
        assert server.page_at("/").status == 404
        (tmp_path / "away").rename(tmp_path / "job" / "store")
        assert server.page_at(f"{RUN}").status == 200


def test_port_in_use_raises_configuration_error(server: UiServer, job_file: Path) -> None:
    with pytest.raises(ConfigurationError, match="use another --port"):
        UiServer(ServedJobs(job_file), server.server_port)


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


def test_folder_page_has_a_row_for_each_job_and_shows_errors_of_broken_ones(tmp_path: Path) -> None:
    folder = make_job_folder(tmp_path / "jobs")
    with UiServer(ServedJobs(folder)) as server:
        status, page = server.page_at("/")
        assert status == 200
        parsed = Seen(page)
        assert parsed.tags <= TAGS
        assert not DANGEROUS & set(page)
        rows = [" ".join(Seen(row).texts) for row in page.partition("<tbody>")[2].split("<tr>")[1:]]
        words = ("damaged #1?.yml", "invalid.yaml", HOSTILE_FILE, "ended.yaml", "killed.yaml", "new.yaml")
        states = ("UNREADABLE", "UNREADABLE", "ERROR", "ERROR", "ERROR", "NEVER RUN")
        more = (
            "STORE_MARKER_CORRUPT",
            "JOB_FILE_INVALID",
            "FAILED",
            "900",
            "The driver of the last run died",
            "run the job",
        )
        assert len(rows) == len(words)
        for row, *parts in zip(rows, words, states, more, strict=True):
            for part in parts:
                assert part in row, (part, row)
        assert ".hidden.yaml" not in page
        for link in parsed.attributes["href"]:
            if link.startswith("/jobs/"):
                linked = server.page_at(link)
                assert linked.status in (200, 404, 503), link
                assert Seen(linked.text).tags <= TAGS, link
        (folder / "killed.yaml").unlink()
        assert server.page_at("/jobs/killed.yaml").status == 404
        (folder / "more.yaml").write_text((folder / "ended.yaml").read_text())
        assert server.page_at("/jobs/more.yaml").status == 200


def test_job_page_shows_problems_with_cause_and_action_and_rejected_records(tmp_path: Path) -> None:
    with UiServer(ServedJobs(make_job_folder(tmp_path / "jobs"))) as server:
        text = " ".join(" ".join(Seen(server.page_at("/jobs/killed.yaml").text).texts).split())
        for part in (
            RUN_DIED.title,
            RUN_DIED.cause,
            RUN_DIED.impact,
            RUN_DIED.action,
            "distcommit run",
            "48 idle, 9 pending",
        ):
            assert part in text, part
        text = " ".join(" ".join(Seen(server.page_at("/jobs/ended.yaml").text).texts).split())
        assert "The last run rejected 900 records" in text
        assert "ended/output/_rejected" in text
        assert "and 34 more datasets" in text
        assert "All 57 datasets" in text


def test_page_of_a_killed_run_says_that_it_died_and_what_the_next_run_does(tmp_path: Path) -> None:
    folder = make_job_folder(tmp_path / "jobs")
    with UiServer(ServedJobs(folder)) as server:
        text = " ".join(" ".join(Seen(server.page_at("/jobs/killed.yaml/runs/1").text).texts).split())
        assert "KILLED" in text
        assert "The driver of this run is dead. Process 4711 on host was killed" in text
        assert "9 datasets have sealed commits that are not published. The next run publishes them." in text
        assert f"No run has begun since. Start the next one: distcommit run {folder}/killed.yaml" in text
        assert "KILLED" not in server.page_at("/jobs/ended.yaml/runs/1").text


def test_page_of_a_killed_run_links_to_the_run_after_it(tmp_path: Path) -> None:
    job_file = make_reported_job(tmp_path / "job", 20, ended=False)
    store = StoredJob.from_file(job_file).open_store(create=False)
    put_beginning(store, structs.replace(samples.RUN_BEGINNING, epoch=2, run_id="r2"))
    with UiServer(ServedJobs(job_file)) as server:
        page = server.page_at(f"{JOB_PAGE}/runs/1").text
    assert f'<a href="{JOB_PAGE}/runs/2">Run 2</a> began after it' in page
    assert "No run has begun since" not in page


def test_unreachable_source_makes_only_the_lag_unknown(tmp_path: Path) -> None:
    jobs = ServedJobs(make_reported_job(tmp_path / "job", 20), asks_lag=True)
    with UiServer(jobs) as server:
        page = server.page_at("/")
    assert page.status == 200
    assert "The lag of datasets is unknown" in page.text
    assert "shop-3.orders-0010" in page.text


class LateSource(HeldSource):
    """Source whose datasets are 0 to n - 1 seconds behind, in the order of their names."""

    def lags(self, states: Mapping[str, DatasetState]) -> Iterable[Lag]:
        return [Lag(urn, 10 + number, float(number)) for number, urn in enumerate(sorted(states))]


def test_lag_of_each_dataset_is_shown_largest_first(tmp_path: Path) -> None:
    job_file = make_reported_job(tmp_path / "job", 20)
    late = 'source: {type: python, class: "tests.unit.cli.web.test_ui:LateSource", options: {release: ""}}'
    job_file.write_text(re.sub("source: .*", late, job_file.read_text()))
    with UiServer(ServedJobs(job_file, asks_lag=True)) as server:
        page = server.page_at(f"{JOB_PAGE}/datasets/1").text
        job_page = server.page_at(JOB_PAGE).text
    shown = [int(text) for text in re.findall(r'data-name="lag, s">(\d+)<', page)]
    assert shown == [*reversed(range(19))]
    assert "361 <small>records</small> 18 <small>s</small>" in job_page, "the sum, and the largest age"


def test_job_whose_storage_hangs_does_not_delay_the_rows_of_others() -> None:
    release = threading.Event()

    def read(name: str) -> str:
        if name == "hangs":
            release.wait(60)
        return name.upper()

    reads = BackgroundReads(read)
    try:
        readings = reads.newest(["a", "hangs", "b"], wait_s=0.2)
        assert [readings[name].value for name in ("a", "hangs", "b")] == ["A", None, "B"]
        assert readings["hangs"].waited_s >= 0.2
    finally:
        release.set()
    assert reads.newest(["hangs"], wait_s=60)["hangs"].value == "HANGS"


def test_value_that_is_young_enough_is_not_read_again() -> None:
    count = iter(range(100))
    reads = BackgroundReads(lambda name: next(count))
    assert reads.newest(["a"], wait_s=60)["a"].value == 0
    assert reads.newest(["a"], wait_s=60, max_age_s=1000)["a"].value == 0
    assert reads.newest(["a"], wait_s=60)["a"].value == 1


def test_job_whose_store_does_not_answer_is_a_row_with_an_error(tmp_path: Path) -> None:
    folder = make_job_folder(tmp_path / "jobs")
    marker = folder / "data" / "damaged" / "store" / "store.json"
    marker.unlink()
    os.mkfifo(marker)  # reading it blocks until a writer opens it
    jobs = ServedJobs(folder)
    hanging, ended = jobs.summaries(["damaged #1?.yml", "ended.yaml"], wait_s=2)
    marker.write_text("")
    assert (hanging.state, hanging.error) == (JobState.UNREADABLE, "its storage has not answered for 2 s")
    assert ended.status is not None


def test_ui_of_a_folder_without_job_files_ends_with_exit_code_2(tmp_path: Path) -> None:
    result = invoke("ui", tmp_path)
    assert result.exit_code == 2
    assert "the folder has no job file" in result.stderr

"""The HTTP server of the pages of jobs and runs, read-only and on loopback.

It has no authentication: its users are on this machine or have a tunnel to it. It answers only requests for a loopback
host name, which prevents DNS rebinding by foreign pages.
"""

from __future__ import annotations

import logging
import os
import re
import threading
import time
from collections import defaultdict
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple
from urllib.parse import unquote_to_bytes

from distcommit.cli.web.html_pages import message_page, policy, report_page
from distcommit.cli.web.job_pages import datasets_page, job_page, jobs_page, runs_page
from distcommit.cli.web.job_summaries import WAIT_S, ServedJobs
from distcommit.core.errors import ConfigurationError, DistcommitError, printable

logger = logging.getLogger(__name__)

LOOPBACK = "127.0.0.1"
_NAMES = {LOOPBACK, "localhost", "[::1]"}
_JOB_PAGE = re.compile(r"/jobs/([^/]{1,800})(?:/(runs|datasets)(?:/([0-9]{1,18}))?)?")
_KEPT_S = 1.0


class _Page(NamedTuple):
    status: HTTPStatus
    text: str


class UiServer(ThreadingHTTPServer):
    """The HTTP server of the pages.

    Paths: `/` has all jobs, or the job if only one file is served. `/jobs/<file>` has one job, with the pages
    `datasets/<number>`, `runs` and `runs/<epoch>` below it.

    Args:
        jobs: the jobs.
        port: port on loopback; 0 picks a free one.

    Raises:
        ConfigurationError: if the port is not available.
    """

    daemon_threads = True

    def __init__(self, jobs: ServedJobs, port: int = 0) -> None:
        self._jobs = jobs
        self._one_at_a_time: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)
        self._newest: tuple[str, float, _Page] | None = None
        try:
            super().__init__((LOOPBACK, port), _Handler)
        except (OSError, OverflowError) as error:
            raise ConfigurationError(
                "the port is not available",
                id="ARGUMENT_INVALID",
                port=port,
                found=str(error),
                todo="use another --port, or leave it out to pick a free one",
            ) from error

    @property
    def url(self) -> str:
        return f"http://{LOOPBACK}:{self.server_port}/"

    def page_at(self, path: str) -> _Page:
        """Return the page of a path. The last page is reused for a second. The pages of one job are rendered one after
        the other, so that hanging storage blocks only the pages of its job.
        """
        match = _JOB_PAGE.fullmatch(path)
        if path != "/" and match is None:
            return _no_such_page()
        name = os.fsdecode(unquote_to_bytes(match[1])) if match else ""
        if not name and not self._jobs.is_folder:
            name = self._jobs.path.name
        try:
            if name and name not in self._jobs.files():
                return _no_such_page()
        except ConfigurationError as error:
            return _Page(HTTPStatus.NOT_FOUND, message_page("Nothing to show", str(error)))
        lock = self._one_at_a_time[name]
        if not lock.acquire(timeout=WAIT_S):
            text = f"The storage of the job has not answered for {WAIT_S:g} s."
            return _Page(HTTPStatus.SERVICE_UNAVAILABLE, message_page("No answer", text))
        try:
            newest = self._newest
            if newest is not None and newest[0] == path and time.monotonic() < newest[1] + _KEPT_S:
                return newest[2]
            page = self._rendered(name, match[2] or "" if match else "", match[3] if match else None)
            self._newest = path, time.monotonic(), page
            return page
        finally:
            lock.release()

    def _rendered(self, name: str, part: str, number: str | None) -> _Page:
        try:
            return _Page(HTTPStatus.OK, self._page(name, part, number))
        except ConfigurationError as error:
            return _Page(HTTPStatus.NOT_FOUND, message_page("Nothing to show", str(error)))
        except (DistcommitError, OSError) as error:
            logger.warning("a page can't be rendered: %s", error, extra={"job_file": name, "page": part})
            return _Page(HTTPStatus.SERVICE_UNAVAILABLE, message_page("Unavailable", str(error)))

    def _page(self, name: str, part: str, number: str | None) -> str:
        if not name:
            return jobs_page(self._jobs)
        job = self._jobs.open(name)
        match part, number:
            case "runs", str():
                return report_page(job.report(int(number)), name=name, served=True)
            case "runs", None:
                return runs_page(name, job.runs())
            case "datasets", _:
                return datasets_page(self._jobs, name, job, int(number or 1))
        return job_page(self._jobs, name, job)


def _no_such_page() -> _Page:
    text = "The pages are /, /jobs/FILE, /jobs/FILE/datasets/PAGE, /jobs/FILE/runs and /jobs/FILE/runs/EPOCH."
    return _Page(HTTPStatus.NOT_FOUND, message_page("No such page", text))


class _Handler(BaseHTTPRequestHandler):
    server: UiServer
    protocol_version = "HTTP/1.1"
    timeout = 30
    server_version, sys_version = "distcommit", ""

    def do_GET(self) -> None:
        hosts = self.headers.get_all("Host") or []
        if len(hosts) != 1 or not is_loopback(hosts[0]):
            text = f"The host name must be one of {', '.join(sorted(_NAMES))}."
            self._answer(_Page(HTTPStatus.MISDIRECTED_REQUEST, message_page("Wrong host name", text)))
            return
        try:
            page = self.server.page_at(self.path.partition("?")[0])
        except Exception:
            logger.exception("a page could not be rendered", extra={"path": printable(self.path)})
            page = _Page(HTTPStatus.INTERNAL_SERVER_ERROR, message_page("Internal error", "See the log for the cause."))
        self._answer(page)

    do_HEAD = do_GET  # noqa: N815 - as http.server calls it

    def _refuse(self) -> None:
        self.close_connection = True  # the body is not read
        page = _Page(HTTPStatus.METHOD_NOT_ALLOWED, message_page("Read-only", "Only GET and HEAD are allowed."))
        self._answer(page, {"Allow": "GET, HEAD"})

    do_POST = do_PUT = do_PATCH = do_DELETE = do_OPTIONS = do_TRACE = do_CONNECT = _refuse  # noqa: N815

    def _answer(self, page: _Page, more: dict[str, str] | None = None) -> None:
        body = page.text.encode()
        self.send_response(page.status)
        headers = {
            "Content-Type": "text/html; charset=utf-8",
            "Content-Length": str(len(body)),
            "Content-Security-Policy": policy(served=True),
            "X-Content-Type-Options": "nosniff",
            "Referrer-Policy": "no-referrer",
            "Cross-Origin-Resource-Policy": "same-origin",
            "Cross-Origin-Opener-Policy": "same-origin",
            "X-Frame-Options": "DENY",
            "Cache-Control": "no-store",
        }
        for name, value in (headers | (more or {})).items():
            self.send_header(name, value)
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        logger.info("%s", printable(format % args))


def is_loopback(host: str) -> bool:
    """Return whether a Host header names a loopback host. Any port is accepted, because a tunnel may have another port
    than the server.
    """
    name, _, port = (
        host.strip().lower().rpartition(":") if re.search(r":\d*$", host) else (host.strip().lower(), "", "")
    )
    return name in _NAMES and (not port or port.isdecimal())

"""The server of the pages of runs, read-only and on loopback.

It has no passwords: its users are on this machine or have a tunnel to it. It answers only to names of loopback, which
prevents DNS rebinding: a foreign page can't read it through a user's browser.
"""

from __future__ import annotations

import logging
import re
import threading
import time
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple

from distcommit.app.stored_job import StoredJob
from distcommit.cli.web.report_page import message_page, policy, report_page, runs_page
from distcommit.core.errors import ConfigurationError, DistcommitError, printable

logger = logging.getLogger(__name__)

LOOPBACK = "127.0.0.1"
_NAMES = {LOOPBACK, "localhost", "[::1]"}
_RUN = re.compile(r"/runs/([0-9]{1,18})")
_KEPT_S = 1.0


class _Page(NamedTuple):
    status: HTTPStatus
    text: str


class UiServer(ThreadingHTTPServer):
    """Serves `/`, all recorded runs, and `/runs/<epoch>`, one run.

    Args:
        job: the job whose runs are served.
        port: port on loopback; 0 picks a free one.

    Raises:
        ConfigurationError: if the port is not available.
    """

    daemon_threads = True

    def __init__(self, job: StoredJob, port: int = 0) -> None:
        self._job = job
        self._one_at_a_time = threading.Lock()
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
        """Address of the pages."""
        return f"http://{LOOPBACK}:{self.server_port}/"

    def page_at(self, path: str) -> _Page:
        """Return the page of a path; the page of the previous request is reused for a second."""
        with self._one_at_a_time:
            if self._newest is not None and self._newest[0] == path and time.monotonic() < self._newest[1] + _KEPT_S:
                return self._newest[2]
            page = self._rendered(path)
            self._newest = path, time.monotonic(), page
            return page

    def _rendered(self, path: str) -> _Page:
        run = _RUN.fullmatch(path)
        if path != "/" and run is None:
            return _Page(HTTPStatus.NOT_FOUND, message_page("No such page", "The pages are / and /runs/EPOCH."))
        try:
            if run is not None:
                return _Page(HTTPStatus.OK, report_page(self._job.report(int(run[1])), served=True))
            return _Page(HTTPStatus.OK, runs_page(self._job.runs()))
        except ConfigurationError as error:
            return _Page(HTTPStatus.NOT_FOUND, message_page("Nothing to show", str(error)))
        except (DistcommitError, OSError) as error:
            logger.warning("a page can't be rendered: %s", error, extra={"path": path})
            return _Page(HTTPStatus.SERVICE_UNAVAILABLE, message_page("Unavailable", str(error)))


class _Handler(BaseHTTPRequestHandler):
    """Answers GET and HEAD only."""

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
    """Return whether a Host header names loopback. Any port is accepted, as that of a tunnel may differ."""
    name, _, port = (
        host.strip().lower().rpartition(":") if re.search(r":\d*$", host) else (host.strip().lower(), "", "")
    )
    return name in _NAMES and (not port or port.isdecimal())

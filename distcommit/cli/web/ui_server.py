"""The pages of a job's runs, served read-only on loopback.

A server for people who are on this machine already, or have a tunnel to it: it has no passwords and changes nothing. It
answers only to names of loopback, so that somebody else's page, whose name was made to lead here, can't read it with a
person's browser.
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
    """Serves `/`, the runs that are kept, and `/runs/<epoch>`, each of them.

    Args:
        job: whose.
        port: on loopback; 0: any that is free.

    Raises:
        ConfigurationError: if the port can't be had.
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
                "the pages can't be served on this port",
                port=port,
                found=str(error),
                todo="name another one with --port, or none: then any that is free is taken",
            ) from error

    @property
    def url(self) -> str:
        """Where it answers."""
        return f"http://{LOOPBACK}:{self.server_port}/"

    def page_at(self, path: str) -> _Page:
        """The page of a path, made anew unless the one before was the same, a moment ago."""
        with self._one_at_a_time:
            if self._newest is not None and self._newest[0] == path and time.monotonic() < self._newest[1] + _KEPT_S:
                return self._newest[2]
            page = self._made(path)
            self._newest = path, time.monotonic(), page
            return page

    def _made(self, path: str) -> _Page:
        run = _RUN.fullmatch(path)
        if path != "/" and run is None:
            return _Page(HTTPStatus.NOT_FOUND, message_page("No such page", "There are / and /runs/EPOCH."))
        try:
            if run is not None:
                return _Page(HTTPStatus.OK, report_page(self._job.report(int(run[1])), served=True))
            return _Page(HTTPStatus.OK, runs_page(self._job.runs()))
        except ConfigurationError as error:
            return _Page(HTTPStatus.NOT_FOUND, message_page("Nothing to show", str(error)))
        except (DistcommitError, OSError) as error:
            logger.warning("a page can't be made: %s", error, extra={"path": path})
            return _Page(HTTPStatus.SERVICE_UNAVAILABLE, message_page("It can't be read now", str(error)))


class _Handler(BaseHTTPRequestHandler):
    """Answers GET and HEAD, and nothing else."""

    server: UiServer
    protocol_version = "HTTP/1.1"
    timeout = 30
    server_version, sys_version = "distcommit", ""

    def do_GET(self) -> None:
        hosts = self.headers.get_all("Host") or []
        if len(hosts) != 1 or not is_loopback(hosts[0]):
            text = f"It answers to {', '.join(sorted(_NAMES))} alone."
            self._answer(_Page(HTTPStatus.MISDIRECTED_REQUEST, message_page("Not for this name", text)))
            return
        try:
            page = self.server.page_at(self.path.partition("?")[0])
        except Exception:
            logger.exception("a page could not be made", extra={"path": printable(self.path)})
            page = _Page(HTTPStatus.INTERNAL_SERVER_ERROR, message_page("It could not be made", "The log says why."))
        self._answer(page)

    do_HEAD = do_GET  # noqa: N815 - as http.server calls it

    def _refuse(self) -> None:
        self.close_connection = True  # whatever comes with it is not read
        page = _Page(HTTPStatus.METHOD_NOT_ALLOWED, message_page("Read-only", "There are GET and HEAD."))
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
    """Whether a request's Host is a name of this machine's loopback, with whatever port: a tunnel's may be another."""
    name, _, port = (
        host.strip().lower().rpartition(":") if re.search(r":\d*$", host) else (host.strip().lower(), "", "")
    )
    return name in _NAMES and (not port or port.isdecimal())

"""Delivery of alerts to hooks. Each hook has its own time limit, and a failed hook does not change the run."""

from __future__ import annotations

import logging
import os
import signal
import smtplib
import ssl
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from contextlib import suppress
from email.message import EmailMessage
from http.client import HTTPMessage, InvalidURL
from typing import IO, assert_never

import msgspec

from distcommit.app.job_file.sections.alert_settings import CommandHook, EmailHook, WebHook
from distcommit.core.errors import error_text, printable
from distcommit.fs.secret_files import with_secret_files

logger = logging.getLogger(__name__)

Hook = CommandHook | WebHook | EmailHook
_TEXT = 300


class Alert(msgspec.Struct, frozen=True):
    """The JSON document that a hook receives.

    Attributes:
        job: name of the job.
        trigger: condition that caused the alert: `failed runs`, `quarantine` or `records lost`.
        text: finding in one line.
        epoch: epoch of the run; 0 if it had none.
        run_id: id of the run; empty if it had no epoch.
        status: status of the run, as in `distcommit runs`.
        reason: why the run has its status; empty if the status explains itself.
        failed_in_a_row: number of newest runs that failed without a success between them.
        quarantined: first datasets that the run quarantined.
        quarantined_count: number of all datasets that the run quarantined.
        host: host name of the driver.
        store: path or URL of the store of the job.
        commands: shell commands that show more.
        id: id of the problem, as in `distcommit status`.
        severity: severity of the problem.
        title: name of the kind of problem, in at most eight words.
        impact: effect on the job and its readers.
        action: the remedy.
    """

    job: str
    trigger: str
    text: str
    epoch: int
    run_id: str
    status: str
    reason: str
    failed_in_a_row: int
    quarantined: list[str]
    quarantined_count: int
    host: str
    store: str
    commands: list[str]
    id: str = ""
    severity: str = ""
    title: str = ""
    impact: str = ""
    action: str = ""


def send_alert(hooks: Sequence[Hook], alert: Alert) -> dict[str, str]:
    """Send an alert to all hooks concurrently. Each hook has at most its own time limit.

    Returns:
        the failures by hook, without secrets. Failures are also logged.
    """
    failures: dict[str, str] = {}
    threads: list[tuple[str, threading.Thread, float]] = []

    def one(name: str, hook: Hook) -> None:
        try:
            _send(hook, alert)
        except Exception as error:  # noqa: BLE001 - whatever it is, the run and other hooks go on
            failures[name] = printable(error_text(error, _TEXT))

    begun_s = time.monotonic()
    for number, hook in enumerate(hooks, 1):
        name = f"{_name_of(hook)} {number}"
        thread = threading.Thread(target=one, args=(name, hook), name=f"alert-{number}", daemon=True)
        thread.start()
        threads.append((name, thread, hook.timeout_s))
    for name, thread, timeout_s in threads:
        thread.join(max(0, begun_s + timeout_s + 1 - time.monotonic()))
        if thread.is_alive():
            failures[name] = f"it has not ended after {timeout_s:g} s"
    for name, failure in failures.items():
        logger.warning("an alert could not be sent by %s: %s", name, failure, extra={"trigger": alert.trigger})
    return dict(failures)


def _name_of(hook: Hook) -> str:
    match hook:
        case CommandHook():
            return f"command {os.path.basename(hook.command[0])}"
        case WebHook():
            return "web hook"
        case EmailHook():
            return f"e-mail by {hook.host}"
        case _:
            assert_never(hook)


def _send(hook: Hook, alert: Alert) -> None:
    match hook:
        case CommandHook():
            _run(hook, msgspec.json.encode(alert))
        case WebHook():
            _post(hook, msgspec.json.encode(alert))
        case EmailHook():
            _mail(hook, alert)
        case _:
            assert_never(hook)


def _run(hook: CommandHook, data: bytes) -> None:
    """Run the program. If it exceeds its time limit, kill it with its child processes."""
    with subprocess.Popen(
        hook.command,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        start_new_session=True,
    ) as process:
        try:
            _, content = process.communicate(data, hook.timeout_s)
        except subprocess.TimeoutExpired as error:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            raise TimeoutError(f"it took more than {hook.timeout_s:g} s, and was killed") from error
    if process.returncode:
        last = (content.decode(errors="replace").strip().splitlines() or [""])[-1]
        raise ChildProcessError(f"exit code {process.returncode}: {last}")


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A handler that does not follow redirects, so that the alert is not sent to another server."""

    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage, newurl: str
    ) -> None:
        return None


def _post(hook: WebHook, data: bytes) -> None:
    headers = {name: with_secret_files(value) for name, value in hook.headers.items()}
    url, kind = with_secret_files(hook.url), {"Content-Type": "application/json"}
    try:
        request = urllib.request.Request(url, data, {**kind, **headers}, method="POST")
        with urllib.request.build_opener(_NoRedirect).open(request, timeout=hook.timeout_s):
            pass  # any status but 2xx is an error, which it raises
    except urllib.error.HTTPError as error:
        error.close()
        raise ConnectionError(f"the server answers {error.code}") from error
    except (InvalidURL, ValueError) as error:  # whose texts quote it, and it may be secret
        raise ValueError("its URL or a header is invalid") from error


def _mail(hook: EmailHook, alert: Alert) -> None:
    message = EmailMessage()
    message["Subject"] = printable(f"distcommit {alert.job}: {alert.trigger}")[:_TEXT]
    message["From"], message["To"] = hook.sender, ", ".join(hook.recipients)
    lines = [f"{alert.id}: {alert.title}", alert.text, f"impact: {alert.impact}", f"action: {alert.action}", ""]
    lines += [f"run: {alert.run_id}, epoch {alert.epoch}: {alert.status}", f"reason: {alert.reason}"]
    lines += [f"quarantined: {name}" for name in alert.quarantined]
    lines += ["", f"store: {alert.store}", f"driver: {alert.host}", "", *alert.commands]
    message.set_content("\n".join(map(printable, lines)))
    with _mail_server(hook) as server:
        if hook.username:
            server.login(hook.username, with_secret_files(hook.password))
        server.send_message(message)


def _mail_server(hook: EmailHook) -> smtplib.SMTP:
    """Connect to the mail server, over TLS if the hook requires it.

    The server's certificate is verified against this machine's certificates or `SSL_CERT_FILE`; smtplib alone does not
    verify it.
    """
    if hook.tls == "tls":
        return smtplib.SMTP_SSL(hook.host, hook.port, timeout=hook.timeout_s, context=ssl.create_default_context())
    server = smtplib.SMTP(hook.host, hook.port, timeout=hook.timeout_s)
    if hook.tls == "starttls":
        try:
            server.starttls(context=ssl.create_default_context())
        except BaseException:
            server.close()
            raise
    return server

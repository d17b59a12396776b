"""Alerts are sent once, to real programs and servers, within their time limit, and never break a run."""

from __future__ import annotations

import json
import os
import socket
import ssl
import stat
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from email import message_from_bytes, policy
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from aiosmtpd.controller import Controller
from aiosmtpd.smtp import SMTP, Envelope, Session
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from distcommit.app.job_file.job_folders import JobFolders
from distcommit.app.job_file.load_job_file import parse_config
from distcommit.app.job_file.sections.alert_settings import CommandHook, EmailHook, WebHook
from distcommit.app.running.alert_delivery import Alert, send_alert
from distcommit.app.running.run_alerts import alerting, alerts_of
from distcommit.core.errors import ConfigurationError, SourceUnavailableError
from distcommit.engine.driver.run import run
from distcommit.engine.driver.run_recorder import recorded_run
from distcommit.testing.fakes.model_source import ModelDataset, ModelSource
from tests.simulation.world import ROOTS
from tests.unit.engine.committing.situations import WORLD
from tests.unit.engine.driver.machines import (
    STAGING,
    Machine,
    OddSource,
    QuickClock,
    dies,
    launch,
    source,
    with_folders,
)

HOSTILE = "b\r\nBcc: all@example.org\x1b[31m"
ALERT = Alert(
    job="planes",
    trigger="quarantine",
    text="a dataset is quarantined",
    epoch=7,
    run_id="run-7",
    status="FAILED",
    reason=HOSTILE,
    failed_in_a_row=2,
    quarantined=[HOSTILE],
    quarantined_count=1,
    host="host",
    store="/store",
    commands=["distcommit status job.yaml"],
)


def script(folder: Path, body: str) -> CommandHook:
    file = folder / "hook.sh"
    file.write_text(f"#!/bin/sh\n{body}\n")
    file.chmod(file.stat().st_mode | stat.S_IXUSR)
    return CommandHook(command=(str(file),), timeout_s=20)


@contextmanager
def web_server(status: int = 200, held: threading.Event | None = None) -> Iterator[tuple[str, list[Any]]]:
    got: list[Any] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            got.append((self.path, dict(self.headers), json.loads(body)))
            if held is not None:
                held.wait(30)
            self.send_response(status)
            self.send_header("Location", "/elsewhere")
            self.end_headers()

        do_GET = do_POST  # noqa: N815 - the server's own name

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/hook", got
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class Mails:
    def __init__(self) -> None:
        self.got: list[Envelope] = []

    async def handle_DATA(self, server: SMTP, session: Session, envelope: Envelope) -> str:  # noqa: N802
        self.got.append(envelope)
        return "250 OK"


@contextmanager
def mail_server(**tls: Any) -> Iterator[tuple[int, list[Envelope]]]:
    mails = Mails()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = int(free.getsockname()[1])
    controller = Controller(mails, hostname="127.0.0.1", port=port, **tls)
    controller.start()
    try:
        yield port, mails.got
    finally:
        controller.stop()


def own_certificate(folder: Path) -> Path:
    """Write a self-signed certificate for localhost with its key, and return the path."""
    key, name = generate_private_key(SECP256R1()), x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now, day = datetime.now(UTC), timedelta(days=1)
    certificate = x509.CertificateBuilder(name, name, key.public_key(), 1, now - day, now + day)
    certificate = certificate.add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
    path = folder / "own.pem"
    path.write_bytes(
        key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        + certificate.sign(key, SHA256()).public_bytes(Encoding.PEM)
    )
    return path


class TestHooks:
    def test_command_hook_receives_the_alert_on_standard_input_only(self, tmp_path: Path) -> None:
        hook = script(tmp_path, f'cat > {tmp_path}/alert; echo "$@" > {tmp_path}/arguments')
        assert send_alert([hook], ALERT) == {}
        assert json.loads((tmp_path / "alert").read_text())["quarantined"] == [HOSTILE]
        assert (tmp_path / "arguments").read_text() == "\n"

    def test_failed_command_hook_is_reported_with_its_error_output(self, tmp_path: Path) -> None:
        hook = script(tmp_path, "echo first >&2; printf 'no \\033[31mroute\\n' >&2; exit 3")
        (error,) = send_alert([hook], ALERT).values()
        assert error == "ChildProcessError: exit code 3: no \\x1b[31mroute"
        (missing,) = send_alert([CommandHook(command=("/no/such/program",))], ALERT).values()
        assert "No such file" in missing

    def test_hanging_command_hook_is_killed_with_its_child_processes(self, tmp_path: Path) -> None:
        hook = script(tmp_path, f"sleep 600 & echo $! > {tmp_path}/child; wait").model_copy(update={"timeout_s": 1.0})
        (error,) = send_alert([hook], ALERT).values()
        assert "more than 1 s, and was killed" in error
        child, deadline_s = int((tmp_path / "child").read_text()), time.monotonic() + 60
        while Path(f"/proc/{child}/stat").exists() and time.monotonic() < deadline_s:
            if Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                break
            time.sleep(0.02)  # wait until the other process has ended
        else:
            with pytest.raises(ProcessLookupError):
                os.kill(child, 0)

    def test_web_hook_receives_the_alert_as_a_post_request(self, tmp_path: Path) -> None:
        (tmp_path / "secret").write_text("s3cret\n")
        with web_server() as (url, got):
            hook = WebHook(url=url, headers={"Authorization": f"Bearer ${{file:{tmp_path}/secret}}"})
            assert send_alert([hook], ALERT) == {}
        ((path, headers, body),) = got
        assert (path, headers["Authorization"], headers["Content-Type"]) == (
            "/hook",
            "Bearer s3cret",
            "application/json",
        )
        assert (body["job"], body["reason"]) == ("planes", HOSTILE)

    @pytest.mark.parametrize("status", [302, 404, 500])
    def test_web_hook_with_an_error_or_redirect_is_reported_and_not_followed(self, status: int) -> None:
        with web_server(status) as (url, got):
            (error,) = send_alert([WebHook(url=f"{url}/s3cret")], ALERT).values()
        assert (len(got), error) == (1, f"ConnectionError: the server answers {status}")

    def test_unavailable_web_hooks_are_reported_and_do_not_delay_other_hooks(self, tmp_path: Path) -> None:
        released = threading.Event()
        with web_server(held=released) as (url, _):
            down, hung = WebHook(url="http://127.0.0.1:1/s3cret"), WebHook(url=url, timeout_s=1)
            errors = send_alert([down, hung, script(tmp_path, "true")], ALERT)
            released.set()
        assert sorted(errors) == ["web hook 1", "web hook 2"]
        assert "refused" in errors["web hook 1"]
        assert "timed out" in errors["web hook 2"] or "not ready" in errors["web hook 2"]
        assert "s3cret" not in str(errors)

    def test_email_is_sent_and_a_hostile_name_adds_no_header(self) -> None:
        with mail_server() as (port, got):
            hook = EmailHook(host="127.0.0.1", port=port, sender="job@example.org", recipients=("a@b.org", "c@b.org"))
            assert send_alert([hook], ALERT) == {}
        (mail,) = got
        message = message_from_bytes(mail.content or b"", policy=policy.default)  # type: ignore[arg-type]
        assert mail.rcpt_tos == ["a@b.org", "c@b.org"]
        assert (message["Subject"], message["Bcc"]) == ("distcommit planes: quarantine", None)
        text = message.get_content()
        assert "quarantined: b\\r\\nBcc: all@example.org\\x1b[31m" in text
        assert "distcommit status job.yaml" in text

    @pytest.mark.parametrize(("tls", "of_server"), [("starttls", "tls_context"), ("tls", "ssl_context")])
    def test_mail_server_with_an_untrusted_certificate_receives_no_mail(
        self, tls: str, of_server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        certificate, context = own_certificate(tmp_path), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        with mail_server(**{of_server: context}) as (port, got):
            hook = EmailHook.model_validate(
                {"host": "localhost", "port": port, "tls": tls, "sender": "a@b.org", "recipients": ["a@b.org"]}
            )
            (error,) = send_alert([hook], ALERT).values()
            assert "CERTIFICATE_VERIFY_FAILED" in error
            assert got == []
            monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
            assert send_alert([hook], ALERT) == {}
        assert len(got) == 1

    def test_unreachable_mail_server_is_reported(self) -> None:
        hook = EmailHook(host="127.0.0.1", port=1, sender="job@example.org", recipients=("a@b.org",))
        (error,) = send_alert([hook], ALERT).values()
        assert "refused" in error


def folders(tmp_path: Path, **alerts: object) -> JobFolders:
    tree = {
        "job": "job",
        "source": {"type": "kafka", "brokers": "b:1", "topics": ["x"]},
        "paths": {"store": "s", "staging": "t", "output": "o"},
        "alerts": {"commands": [{"command": [str(tmp_path / "hook.sh")]}], **alerts},
    }
    return JobFolders(parse_config(tree, tmp_path / "job.yaml"), tmp_path / "job.yaml")


class Runs:
    """Runs on a simulated machine, with the alerts of each."""

    def __init__(self, tmp_path: Path, **alerts: object) -> None:
        self.machine, self.folders, self.store = Machine(), folders(tmp_path, **alerts), None

    def alerts_for(self, run_id: str) -> list[tuple[str, int]]:
        alerts = alerts_of(self.folders, WORLD.store(self.machine), run_id, QuickClock())
        return [(alert.trigger, alert.failed_in_a_row) for alert in alerts]

    def fails(self) -> list[tuple[str, int]]:
        def planning() -> Iterator[object]:
            raise ValueError("no route to the source")

        settings = WORLD.begin(self.machine, OddSource({}, planning=planning))
        with suppress(SourceUnavailableError), recorded_run(settings, "run", "ann") as recorder:
            run(launch, settings, observer=recorder)
        return self.alerts_for(settings.run_id)

    def succeeds(self) -> list[tuple[str, int]]:
        settings = WORLD.begin(self.machine, source())
        with recorded_run(settings, "run", "ann") as recorder:
            run(launch, settings, observer=recorder)
        return self.alerts_for(settings.run_id)

    def interrupted(self) -> list[tuple[str, int]]:
        settings = WORLD.begin(self.machine, source())
        with suppress(KeyboardInterrupt), recorded_run(settings, "run", "ann"):
            raise KeyboardInterrupt
        return self.alerts_for(settings.run_id)

    def dies(self) -> None:
        settings = WORLD.begin(self.machine, source(a=3))
        self.machine.faults.append(dies("rename", "/output/a"))
        with suppress(BaseException), recorded_run(settings, "run", "ann"):
            run(launch, settings)
        self.machine.restart()


class TestWhen:
    def test_alert_for_failed_runs_in_a_row_is_sent_once(self, tmp_path: Path) -> None:
        runs = Runs(tmp_path, after_failed_runs=2)
        assert [runs.fails(), runs.fails(), runs.fails()] == [[], [("failed runs", 2)], []]
        assert runs.succeeds() == []
        assert [runs.fails(), runs.interrupted(), runs.fails()] == [[], [], [("failed runs", 2)]]

    def test_killed_runs_count_as_failed_and_the_next_failed_run_sends_the_alert(self, tmp_path: Path) -> None:
        runs = Runs(tmp_path, after_failed_runs=2)
        runs.dies()
        runs.dies()
        assert runs.fails() == [("failed runs", 3)], "killed runs cannot send alerts"
        assert runs.fails() == []

    def test_no_alert_for_failed_runs_is_sent_unless_configured(self, tmp_path: Path) -> None:
        runs = Runs(tmp_path, on_quarantine=True)
        assert [runs.fails(), runs.fails()] == [[], []]

    def test_records_lost_at_the_source_are_reported_once_for_each_run(self, tmp_path: Path) -> None:
        def lost(runs: Runs, **expired: int) -> list[tuple[str, int]]:
            topic = ModelDataset({"0": 9}, expired=dict(expired)) if expired else ModelDataset({"0": 3})
            settings = WORLD.begin(runs.machine, ModelSource({"a": topic}))
            with recorded_run(settings, "run", "ann") as recorder:
                run(launch, settings, observer=recorder)
            return runs.alerts_for(settings.run_id)

        for alerts, expected in (({"on_loss": True}, [("records lost", 0)]), ({"on_quarantine": True}, [])):
            runs = Runs(tmp_path, **alerts)
            assert lost(runs) == []
            assert lost(runs, **{"0": 7}) == expected

    def test_alert_for_a_quarantine_names_the_dataset_and_the_commands_to_inspect_it(self, tmp_path: Path) -> None:
        runs = Runs(tmp_path, on_quarantine=True)
        runs.machine = machine = with_folders(Machine(), "b")
        machine.faults.append(dies("rename", "/output/b/", nth=2))
        with suppress(BaseException):
            run(launch, WORLD.begin(machine, source(b=[2, 1])))
        machine.restart()
        for path in machine.paths(STAGING):
            machine.remove(path)
        settings = WORLD.begin(machine, source(b=[2, 1]))
        with recorded_run(settings, "run", "ann") as recorder:
            run(launch, settings, observer=recorder)
        (alert,) = alerts_of(runs.folders, WORLD.store(machine), settings.run_id, QuickClock())
        assert (alert.trigger, alert.quarantined, alert.quarantined_count) == ("quarantine", ["b"], 1)
        assert alert.commands == [
            f"distcommit runs {tmp_path}/job.yaml {settings.epoch}",
            f"distcommit status {tmp_path}/job.yaml",
        ]
        changed = JobFolders(runs.folders.config, runs.folders.path, ("job=x y",))
        (alert,) = alerts_of(changed, WORLD.store(machine), settings.run_id, QuickClock())
        assert alert.commands[1] == f"distcommit status --set 'job=x y' {tmp_path}/job.yaml", (
            "commands must repeat the overrides"
        )
        assert runs.succeeds() == [], "an unchanged quarantine must not send a second alert"

    def test_alert_that_cannot_be_sent_does_not_break_the_run(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        runs = Runs(tmp_path, after_failed_runs=1)
        store = WORLD.store(runs.machine)
        settings = WORLD.begin(runs.machine, source())
        with (
            pytest.raises(RuntimeError, match="broken"),
            alerting(runs.folders, store, settings.run_id, QuickClock()),
            recorded_run(settings, "run", "ann"),
        ):
            raise RuntimeError("broken")
        assert "an alert could not be sent by command hook.sh 1" in caplog.text
        unreadable = replace(store, roots=replace(ROOTS, store="/nowhere"))
        with alerting(runs.folders, unreadable, "none", QuickClock()):
            pass


@pytest.mark.parametrize(
    ("alerts", "message"),
    [
        ({"after_failed_runs": 1}, "alerts must have a hook"),
        ({"commands": [{"command": ["x"]}]}, "alerts must have a reason"),
        ({"on_quarantine": True, "webhooks": [{"url": "ftp://x"}]}, "must begin with http"),
        ({"on_quarantine": True, "webhooks": [{"urll": "http://x"}]}, "did you mean 'url'?"),
        ({"after_failed_runs": 1000, "commands": [{"command": ["x"]}]}, "retention.runs"),
        (
            {"on_quarantine": True, "emails": [{"host": "h", "sender": "a@b", "recipients": ["c@d"], "password": "x"}]},
            "tls must be starttls or tls with a password",
        ),
    ],
)
def test_alert_settings_without_hook_or_occasion_and_invalid_hooks_are_refused(
    alerts: dict[str, object], message: str, tmp_path: Path
) -> None:
    tree = {
        "job": "job",
        "source": {"type": "kafka", "brokers": "b:1", "topics": ["x"]},
        "paths": {"store": "s", "staging": "t", "output": "o"},
        "alerts": alerts,
    }
    with pytest.raises(ConfigurationError, match=message.replace("?", r"\?")):
        parse_config(tree, tmp_path / "job.yaml")

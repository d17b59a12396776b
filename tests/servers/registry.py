"""Apicurio Registry, which implements the API of Confluent's schema registry, with its schemas in memory."""

from __future__ import annotations

import base64
import contextlib
import http.server
import ssl
import tempfile
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.servers.java import java_command, keytool
from tests.servers.process import Server, ServerProcess, free_ports

_MAIN = "io.quarkus.runner.GeneratedMain"
_PASSWORD = "changeit"


class RegistryServer(Server):
    """One registry, which may be killed and started again, and is then empty.

    Args:
        port: its port; None for any.
    """

    def __init__(self, port: int | None = None) -> None:
        super().__init__()
        self._port = port or free_ports(1)[0]

    @property
    def url(self) -> str:
        """Return the address of Confluent's API."""
        return f"http://127.0.0.1:{self._port}/apis/ccompat/v7"

    def _start(self, stack: contextlib.ExitStack) -> None:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="registry-")))
        settings = {"QUARKUS_HTTP_HOST": "127.0.0.1", "QUARKUS_HTTP_PORT": str(self._port)}
        command = java_command("registry", _MAIN)
        server = stack.enter_context(ServerProcess("Apicurio Registry", command, folder / "log", settings))
        server.wait_until(self._answers)

    def _answers(self) -> bool:
        with urllib.request.urlopen(f"{self.url}/subjects", timeout=5) as answer:
            return bool(answer.status == 200)


class GuardedRegistry:
    """A registry behind TLS and Basic authentication.

    Attributes:
        url: the address of Confluent's API.
        ca_file: the certificate that clients must trust, in PEM.
        asked: the requested paths, in order.
    """

    user, password = "reader", "correct-horse:battery"

    def __init__(self, url: str, ca_file: Path, asked: list[str]) -> None:
        self.url, self.ca_file, self.asked = url, ca_file, asked

    @property
    def credentials(self) -> str:
        """Return the value of `basic.auth.user.info`."""
        return f"{self.user}:{self.password}"


@contextlib.contextmanager
def guarded(server: RegistryServer, folder: Path) -> Iterator[GuardedRegistry]:
    """Serve the registry behind TLS and Basic authentication."""
    store, pem, asked = folder / "keys.p12", folder / "ca.pem", list[str]()
    named = ["-keystore", str(store), "-storepass", _PASSWORD, "-alias", "registry"]
    keytool(
        "-genkeypair", *named, "-dname", "CN=registry", "-ext", "san=ip:127.0.0.1", "-ext", "bc:c", "-keyalg", "RSA"
    )
    keytool("-exportcert", *named, "-rfc", "-file", str(pem))
    listener = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _handler(server.url, asked))
    listener.socket = _context(store).wrap_socket(listener.socket, server_side=True)
    thread = threading.Thread(target=listener.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield GuardedRegistry(f"https://127.0.0.1:{listener.server_port}", pem, asked)
    finally:
        listener.shutdown()
        thread.join()
        listener.server_close()


def _context(store: Path) -> ssl.SSLContext:
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, pkcs12

    key, certificate, _ = pkcs12.load_key_and_certificates(store.read_bytes(), _PASSWORD.encode())
    assert key is not None
    assert certificate is not None
    both = store.with_suffix(".pem")
    both.write_bytes(
        key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()) + certificate.public_bytes(Encoding.PEM)
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(both)
    return context


def _handler(url: str, asked: list[str]) -> type[http.server.BaseHTTPRequestHandler]:
    expected = "Basic " + base64.b64encode(f"{GuardedRegistry.user}:{GuardedRegistry.password}".encode()).decode()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.headers["Authorization"] != expected:
                self._answer(401, b'{"error_code": 401, "message": "Unauthorized"}')
                return
            asked.append(self.path)
            try:
                with urllib.request.urlopen(url + self.path, timeout=10) as answer:
                    self._answer(answer.status, answer.read())
            except urllib.error.HTTPError as error:
                with error:
                    self._answer(error.code, error.read())

        def _answer(self, status: int, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    return Handler

"""Nessie as an Iceberg REST catalog that changes several tables atomically by one call."""

from __future__ import annotations

import contextlib
import tempfile
import urllib.request
from pathlib import Path

from tests.servers.java import java_command
from tests.servers.process import Server, ServerProcess, free_ports
from tests.servers.s3 import S3Server

_MAIN = "io.quarkus.runner.GeneratedMain"


class NessieServer(Server):
    """One catalog without credentials.

    It writes tables' metadata to an S3 server of its own. Clients that have tables' files elsewhere (`properties`) need
    no access to it.

    Attributes:
        forbidden: a name prefix of tables that may be created and read, but not changed; empty for none. It applies
            from the next start on.
    """

    def __init__(self, forbidden: str = "") -> None:
        super().__init__()
        self.forbidden = forbidden
        self._process: ServerProcess | None = None

    @property
    def url(self) -> str:
        """Return the clients' `uri`."""
        return f"http://127.0.0.1:{self.port}/iceberg"

    def kill(self) -> None:
        """Kill it by SIGKILL; answered writes are durable."""
        if self._process is not None:
            self._process.kill()
        self._process = None

    def start(self) -> None:
        """Start it again, on its port and its data."""
        settings = self._folder / "nessie.properties"
        settings.write_text("".join(f"{key}={value}\n" for key, value in self._properties().items()))
        command = java_command("nessie", _MAIN, heap_mb=768, least=21)
        environment = {"SMALLRYE_CONFIG_LOCATIONS": str(settings)}
        self._process = ServerProcess("Nessie", command, self._folder / "log", environment)
        self._process.wait_until(self._answers)

    def _start(self, stack: contextlib.ExitStack) -> None:
        self._folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="nessie-")))
        self._s3 = stack.enter_context(S3Server())
        self._bucket = self._s3.make_bucket()
        self.port, self._management_port = free_ports(2)
        stack.callback(self.kill)
        self.start()

    def _properties(self) -> dict[str, object]:
        s3 = "nessie.catalog.service.s3.default-options"
        properties: dict[str, object] = {
            "quarkus.http.host": "127.0.0.1",
            "quarkus.http.port": self.port,
            "quarkus.http.access-log.enabled": "false",
            "quarkus.management.host": "127.0.0.1",
            "quarkus.management.port": self._management_port,
            "quarkus.log.level": "WARN",
            "nessie.version.store.type": "ROCKSDB",
            "nessie.version.store.persist.rocks.database-path": self._folder / "rocks",
            "nessie.catalog.default-warehouse": "warehouse",
            "nessie.catalog.warehouses.warehouse.location": f"s3://{self._bucket}/",
            f"{s3}.endpoint": self._s3.endpoint_url,
            f"{s3}.path-style-access": "true",
            f"{s3}.region": "us-east-1",
            f"{s3}.request-signing-enabled": "false",
            f"{s3}.access-key": "urn:nessie-secret:quarkus:s3",
            "s3.name": "any",
            "s3.secret": "any-secret",
        }
        if self.forbidden:
            rule = f"!(op == 'UPDATE_ENTITY' && path.contains('.{self.forbidden}'))"
            properties["nessie.server.authorization.rules.but-some"] = rule
            properties["nessie.server.authorization.enabled"] = "true"
        return properties

    def _answers(self) -> bool:
        with urllib.request.urlopen(f"{self.url}/v1/config", timeout=5) as answer:
            return bool(answer.status == 200)

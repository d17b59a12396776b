"""Iceberg's own REST catalog, with its tables' pointers in SQLite and their files in a temporary folder."""

from __future__ import annotations

import contextlib
import tempfile
import urllib.request
from pathlib import Path

from tests.servers.java import java_command
from tests.servers.process import Server, ServerProcess, free_ports

_MAIN = "org.apache.iceberg.rest.RESTCatalogServer"


class IcebergRestServer(Server):
    """One catalog without credentials.

    Args:
        folder: an empty folder for the catalog and its warehouse, which stays; by default a temporary one.
    """

    def __init__(self, folder: Path | None = None) -> None:
        super().__init__()
        self._given = folder

    @property
    def url(self) -> str:
        """Return the clients' `uri`."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def pointers(self) -> Path:
        """Return the SQLite database whose `iceberg_tables` has the location of each table's metadata."""
        return self._folder / "catalog.db"

    def _start(self, stack: contextlib.ExitStack) -> None:
        folder = self._given or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="iceberg-rest-")))
        self._folder = folder
        self.port = free_ports(1)[0]
        settings = {
            "CATALOG_REST_PORT": str(self.port),
            "CATALOG_CATALOG__IMPL": "org.apache.iceberg.jdbc.JdbcCatalog",
            "CATALOG_URI": f"jdbc:sqlite:{folder}/catalog.db",
            "CATALOG_WAREHOUSE": f"file://{folder}/warehouse",
        }
        server = stack.enter_context(
            ServerProcess("Iceberg's REST catalog", java_command("iceberg_rest", _MAIN), folder / "log", settings)
        )
        server.wait_until(self._answers)

    def _answers(self) -> bool:
        with urllib.request.urlopen(f"{self.url}/v1/config", timeout=5) as answer:
            return bool(answer.status == 200)

"""A server of lists of records over HTTP, in a process: see `rest_app`."""

from __future__ import annotations

import contextlib
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import requests

from tests.servers.process import Server, ServerProcess, free_ports


def wait_for_end_of_second(at: datetime) -> None:
    """Wait until the second of that time is over; until then no source reads its records."""
    while (left_s := at.timestamp() // 1 + 1 - datetime.now(UTC).timestamp()) > 0:
        time.sleep(left_s)


class RestServer(Server):
    """Server of the tests' lists, which a kill deletes."""

    @property
    def url(self) -> str:
        """Return its address."""
        return f"http://127.0.0.1:{self.port}"

    def put(self, name: str, **of: Any) -> None:
        """Create a list, or replace it."""
        requests.put(f"{self.url}/lists/{name}", json=of, timeout=20).raise_for_status()

    def asked(self, name: str) -> list[dict[str, Any]]:
        """Return the requests for a list since it was created."""
        list_requests: list[dict[str, Any]] = requests.get(f"{self.url}/lists/{name}/asked", timeout=20).json()
        return list_requests

    def _start(self, stack: contextlib.ExitStack) -> None:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="rest-")))
        self.port = free_ports(1)[0]
        command = [sys.executable, str(Path(__file__).with_name("rest_app.py")), str(self.port)]
        process = stack.enter_context(ServerProcess("the REST server", command, folder / "log"))
        process.wait_until(lambda: requests.get(self.url, timeout=5).ok)

"""A server of Azure Blob Storage: Azurite, which keeps its files on the local disk.

It comes by npm, once per machine and version, into the cache folder.
"""

from __future__ import annotations

import base64
import contextlib
import email.utils
import fcntl
import functools
import hmac
import shutil
import subprocess
import tempfile
import urllib.error
import urllib.request
import uuid
from pathlib import Path

from tests.servers.java import cache_folder
from tests.servers.process import Server, ServerProcess, ServerUnavailableError, free_ports

_VERSION = "3.37.0"
_ACCOUNT = "devstoreaccount1"
_KEY = base64.b64encode(b"the key of this server's account").decode()


class AzureServer(Server):
    """Server with one storage account; tests create the containers."""

    @property
    def port(self) -> int:
        """Return the server's port."""
        return self._port

    @property
    def environment(self) -> dict[str, str]:
        """Return the environment variables for a client."""
        return {
            "AZURE_STORAGE_ACCOUNT_NAME": _ACCOUNT,
            "AZURE_STORAGE_ACCOUNT_KEY": _KEY,
            "AZURE_STORAGE_ENDPOINT": self.endpoint_at(self._port),
        }

    def endpoint_at(self, port: int) -> str:
        """Return the account's address if the server, or a proxy to it, listens on this port."""
        return f"http://127.0.0.1:{port}/{_ACCOUNT}"

    def make_container(self) -> str:
        """Create a container, and return its name."""
        name = f"container-{uuid.uuid4().hex[:16]}"
        headers = f"x-ms-date:{email.utils.formatdate(usegmt=True)}\nx-ms-version:2021-08-06"
        signed = "PUT" + "\n" * 12 + f"{headers}\n/{_ACCOUNT}/{_ACCOUNT}/{name}\nrestype:container"
        signature = base64.b64encode(hmac.digest(base64.b64decode(_KEY), signed.encode(), "sha256")).decode()
        request = urllib.request.Request(
            f"{self.endpoint_at(self._port)}/{name}?restype=container",
            method="PUT",
            headers=dict(line.split(":", 1) for line in headers.split("\n"))
            | {"Authorization": f"SharedKey {_ACCOUNT}:{signature}"},
        )
        with urllib.request.urlopen(request, timeout=20):
            return name

    def _start(self, stack: contextlib.ExitStack) -> None:
        node = shutil.which("node")
        if node is None:
            raise ServerUnavailableError("Azurite needs node, which is not on PATH (Debian: apt-get install nodejs)")
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="azure-", ignore_cleanup_errors=True)))
        self._port = free_ports(1)[0]
        main = _installed() / "node_modules/azurite/dist/src/blob/main.js"
        options = ["--silent", "--disableTelemetry", "--skipApiVersionCheck", "--blobPort", str(self._port)]
        command = [node, str(main), *options, "--location", str(folder)]
        process = stack.enter_context(
            ServerProcess("Azurite", command, folder / "log", env={"AZURITE_ACCOUNTS": f"{_ACCOUNT}:{_KEY}"})
        )
        process.wait_until(self._answers)

    def _answers(self) -> bool:
        try:
            urllib.request.urlopen(self.endpoint_at(self._port), timeout=5).close()
        except urllib.error.HTTPError:
            return True
        return True


@functools.cache
def _installed() -> Path:
    """Return the folder with the server; the first call on a machine installs it with npm."""
    folder = cache_folder() / f"azurite-{_VERSION}"
    if folder.is_dir():
        return folder
    npm = shutil.which("npm")
    if npm is None:
        raise ServerUnavailableError("Azurite comes by npm, which is not on PATH (Debian: apt-get install npm)")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (
        open(folder.parent / ".npm-lock", "w", encoding="utf-8") as lock,
        tempfile.TemporaryDirectory(dir=folder.parent, prefix=".new-") as new,
    ):
        fcntl.flock(lock, fcntl.LOCK_EX)
        if folder.is_dir():
            return folder
        command = [npm, "install", "--no-audit", "--no-fund", "--ignore-scripts", "--prefix", f"{new}/azurite"]
        Path(new, "azurite").mkdir()
        done = subprocess.run([*command, f"azurite@{_VERSION}"], capture_output=True, text=True, check=False)
        if done.returncode:
            raise ServerUnavailableError(f"npm can't get Azurite: {(done.stdout + done.stderr).strip()[:1000]}")
        Path(new, "azurite").rename(folder)
    return folder

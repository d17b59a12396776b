"""An in-memory S3 server, moto's, with conditional PUTs. It is a mock without any durability."""

from __future__ import annotations

import contextlib
import sys
import tempfile
import urllib.request
import uuid
from pathlib import Path

from distcommit.core.support.install_command import install_command
from tests.servers.process import Server, ServerProcess, ServerUnavailableError, free_ports


class S3Server(Server):
    """S3 server that accepts any credentials; tests create the buckets."""

    @property
    def endpoint_url(self) -> str:
        """Return the server's address."""
        return f"http://127.0.0.1:{self._port}"

    @property
    def environment(self) -> dict[str, str]:
        """Return the environment variables for a client."""
        return {
            "AWS_ENDPOINT_URL": self.endpoint_url,
            "AWS_REGION": "us-east-1",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": "any",
            "AWS_SECRET_ACCESS_KEY": "any-secret",
        }

    def make_bucket(self) -> str:
        """Create a bucket, and return its name."""
        name = f"bucket-{uuid.uuid4().hex[:16]}"
        with urllib.request.urlopen(urllib.request.Request(f"{self.endpoint_url}/{name}", method="PUT"), timeout=20):
            return name

    def _start(self, stack: contextlib.ExitStack) -> None:
        try:
            import moto.server  # noqa: F401
        except ImportError as error:
            raise ServerUnavailableError(f"the S3 server needs moto ({error}); run: {install_command('dev')}") from None
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="s3-")))
        self._port = free_ports(1)[0]
        command = [sys.executable, str(Path(__file__).with_name("moto_s3.py")), str(self._port)]
        process = stack.enter_context(ServerProcess("the S3 server", command, folder / "log"))
        process.wait_until(self._answers)

    def _answers(self) -> bool:
        with urllib.request.urlopen(f"{self.endpoint_url}/moto-api/", timeout=5) as answer:
            return bool(answer.status == 200)

"""Server processes that end with the process that started them, even if it is killed."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

# The shell leads the group and waits for the end of its standard input, when the starter closes it or dies.
_LEADER = '{ "$@" </dev/null; kill -KILL 0; } & read -r _; kill -KILL 0'


class ServerUnavailableError(Exception):
    """A server is unavailable on this machine; the message names the missing part in one line."""


class ServerProcess:
    """One command with all its child processes in a process group; its output goes to `log`.

    Args:
        name: for messages.
        command: the program and its arguments.
        log: file that takes the output.
        env: variables to set, besides those of this process.
    """

    def __init__(self, name: str, command: Sequence[str], log: Path, env: Mapping[str, str] | None = None) -> None:
        self.name, self.log = name, log
        with log.open("ab") as out:
            self._process = subprocess.Popen(
                ["/bin/sh", "-c", _LEADER, name, *command],
                stdin=subprocess.PIPE,
                stdout=out,
                stderr=out,
                env={**os.environ, **(env or {})},
                start_new_session=True,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()

    def wait_until(self, ready: Callable[[], bool], timeout_s: float = 90) -> None:
        """Wait until `ready` returns true, checked 20 times a second; an exception counts as false.

        Raises:
            ServerUnavailableError: if the process ends or the time is over, with the end of its log.
        """
        deadline_s = time.monotonic() + timeout_s
        last = "not asked"
        while time.monotonic() < deadline_s:
            try:
                if ready():
                    return
                last = "not ready"
            except Exception as error:  # noqa: BLE001 - each client has its own errors for not yet
                last = f"{type(error).__name__}: {error}"
            if self._process.poll() is not None:
                raise ServerUnavailableError(f"{self.name} ended while it started: {self._end_of_log()}")
            time.sleep(0.05)
        self.kill()
        raise ServerUnavailableError(
            f"{self.name} was not ready within {timeout_s:.0f} s ({last}): {self._end_of_log()}"
        )

    @property
    def session_id(self) -> int:
        """Return the session of all its processes."""
        return self._process.pid

    def kill(self) -> None:
        """Kill all processes of the group by SIGKILL, as a power cut would, and wait for the group's leader."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        if self._process.stdin is not None:
            self._process.stdin.close()

    def _end_of_log(self) -> str:
        text = self.log.read_text(encoding="utf-8", errors="replace").strip()
        return "\n".join(text.splitlines()[-15:]) or "its log is empty"


class Server(ABC):
    """Server processes that run while the `with` block lasts."""

    def __init__(self) -> None:
        self._stack = contextlib.ExitStack()

    @abstractmethod
    def _start(self, stack: contextlib.ExitStack) -> None:
        """Start the server, and return when it is usable. The stack ends with the server, or if this fails."""

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack:
            self._start(stack)
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()


def free_ports(count: int) -> list[int]:
    """Return ports of 127.0.0.1 without a listener."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]

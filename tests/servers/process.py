"""Server processes that end with the process that started them, however that one ends."""

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

# The shell leads the group and waits for the end of its standard input, which comes when the starter closes it or dies.
_LEADER = '{ "$@" </dev/null; kill -KILL 0; } & read -r _; kill -KILL 0'


class ServerUnavailableError(Exception):
    """A server can't be had on this machine: what is missing, in one line."""


class ServerProcess:
    """One command with all that it starts, in a process group of its own; its output goes to `log`.

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
        """Returns when `ready` says so. It is asked 20 times a second; until then an exception means no.

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
        """The session that all of its processes are in."""
        return self._process.pid

    def kill(self) -> None:
        """SIGKILL to all processes of the group, as a power cut would; returns when the group's leader is gone."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        if self._process.stdin is not None:
            self._process.stdin.close()

    def _end_of_log(self) -> str:
        text = self.log.read_text(encoding="utf-8", errors="replace").strip()
        return "\n".join(text.splitlines()[-15:]) or "its log is empty"


class Server(ABC):
    """Processes that are there while the `with` block lasts."""

    def __init__(self) -> None:
        self._stack = contextlib.ExitStack()

    @abstractmethod
    def _start(self, stack: contextlib.ExitStack) -> None:
        """Starts it, and returns when it can be used. What is on the stack ends with it, or if this fails."""

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
    """Ports of 127.0.0.1 that nobody listens on now."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]

"""A TCP proxy that loses answers: the server does what it is asked, and the client does not hear of it."""

from __future__ import annotations

import contextlib
import re
import socket
import threading
from types import TracebackType
from typing import Self


class LossyProxy:
    """Passes bytes on, in both directions, between clients and a port of 127.0.0.1.

    Args:
        port: the server's.
        at: where clients connect to; 0 for any port.
    """

    def __init__(self, port: int, at: int = 0) -> None:
        self._server_port = port
        self._lose_after: re.Pattern[bytes] | None = None
        self._unless: re.Pattern[bytes] | None = None
        self._found = threading.Event()
        self._losses = threading.Semaphore(0)
        self._listener = socket.create_server(("127.0.0.1", at))
        self._open: set[socket.socket] = {self._listener}

    @property
    def port(self) -> int:
        """Where clients connect to."""
        return int(self._listener.getsockname()[1])

    def lose_answer_to(self, request: bytes, unless: bytes | None = None) -> None:
        """The next request that this regular expression is found in reaches the server and gets no answer: the client's
        connection is cut when the server says something. What else waits for an answer there gets none either.

        Args:
            request: what to look for in a request.
            unless: where this is found in what the server says, that is passed on, and the next request is waited for:
                the server did not do what it was asked.
        """
        self._unless = None if unless is None else re.compile(unless, re.DOTALL)
        self._lose_after = re.compile(request, re.DOTALL)
        self._found.clear()

    def wait_for_loss(self, timeout_s: float = 20) -> bool:
        """Whether an answer was lost since the last call, or is by then."""
        return self._losses.acquire(timeout=timeout_s)

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for each in list(self._open):
            self._cut(each)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                try:
                    server = socket.create_connection(("127.0.0.1", self._server_port))
                except OSError:  # nobody is there just now
                    client.close()
                    continue
                self._open |= {client, server}
                losing = threading.Event()
                threading.Thread(target=self._requests, args=(client, server, losing), daemon=True).start()
                threading.Thread(target=self._answers, args=(client, server, losing), daemon=True).start()

    def _requests(self, client: socket.socket, server: socket.socket, losing: threading.Event) -> None:
        with contextlib.suppress(OSError):
            while data := client.recv(1 << 16):
                if not self._found.is_set() and self._lose_after is not None and self._lose_after.search(data):
                    self._found.set()
                    losing.set()
                server.sendall(data)
        if not losing.is_set():  # else the server might not read what it was sent
            self._cut(server)

    def _answers(self, client: socket.socket, server: socket.socket, losing: threading.Event) -> None:
        with contextlib.suppress(OSError):
            while data := server.recv(1 << 16):
                if losing.is_set() and self._unless is not None and self._unless.search(data):
                    losing.clear()
                    self._found.clear()
                if not losing.is_set():
                    client.sendall(data)
                elif client in self._open:
                    self._cut(client)
                    self._losses.release()
        self._cut(client)
        self._cut(server)

    def _cut(self, connection: socket.socket) -> None:
        self._open.discard(connection)
        with contextlib.suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)
        connection.close()

"""A TCP proxy that loses answers: the server executes a request, and the client does not receive the answer."""

from __future__ import annotations

import contextlib
import re
import socket
import threading
from types import TracebackType
from typing import Self


class LossyProxy:
    """Proxy between clients and a port of 127.0.0.1, in both directions.

    Args:
        port: the server's port.
        at: the port for clients; 0 for any.
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
        """Return the port for clients."""
        return int(self._listener.getsockname()[1])

    def lose_answer_to(self, request: bytes, unless: bytes | None = None) -> None:
        """Lose the answer to the next request that matches: when the server answers, the client's connection is cut.

        Other open requests on that connection get no answer either.

        Args:
            request: a regular expression for the request.
            unless: a regular expression for answers that are passed on, because the server did not execute the request;
                the proxy then waits for the next request.
        """
        self._unless = None if unless is None else re.compile(unless, re.DOTALL)
        self._lose_after = re.compile(request, re.DOTALL)
        self._found.clear()

    def wait_for_loss(self, timeout_s: float = 20) -> bool:
        """Return whether an answer was lost since the last call, or is lost by then."""
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
                except OSError:  # the server is not running just now
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
        if not losing.is_set():  # otherwise the server might not read the request
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

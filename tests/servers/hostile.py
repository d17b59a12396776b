"""A socket server with hostile answers: byte by byte, endless, or compressed repeatedly."""

from __future__ import annotations

import contextlib
import gzip
import socket
import threading
import time
from collections.abc import Callable, Iterator

Answering = Callable[[socket.socket, threading.Event], None]
_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"


def slow_body(connection: socket.socket, ended: threading.Event) -> None:
    """Send a byte each 20 ms of an endless body."""
    connection.sendall(_HEAD + b"Content-Length: 100000\r\n\r\n")
    _drip(connection, b" ", ended)


def slow_head(connection: socket.socket, ended: threading.Event) -> None:
    """Send a byte each 20 ms of an endless header."""
    connection.sendall(_HEAD + b"X-Slow: ")
    _drip(connection, b"x", ended)


def endless_body(connection: socket.socket, ended: threading.Event) -> None:
    """Send an endless body."""
    connection.sendall(_HEAD + b"\r\n")
    while not ended.is_set():
        connection.sendall(b" " * 65536)


def bomb(connection: socket.socket, ended: threading.Event) -> None:
    """Send 260 MiB of blanks, compressed to about 1 MB."""
    _send_whole(connection, b"gzip", gzip.compress(b" " * (260 << 20), 1))


def small_bomb(connection: socket.socket, ended: threading.Event) -> None:
    """Send 17 MiB of blanks, compressed."""
    _send_whole(connection, b"gzip", gzip.compress(b" " * (17 << 20), 1))


def nested_bomb(connection: socket.socket, ended: threading.Event) -> None:
    """Send blanks, compressed twice."""
    _send_whole(connection, b"gzip, gzip", gzip.compress(gzip.compress(b" " * (1 << 20), 1)))


def redirect(connection: socket.socket, ended: threading.Event) -> None:
    """Redirect to another server."""
    connection.sendall(b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n")


@contextlib.contextmanager
def hostile(answering: Answering) -> Iterator[str]:
    """Serve this answer to every request; yield the URL."""
    ended = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=_serve, args=(listening, answering, ended), daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            ended.set()
            with contextlib.suppress(OSError):
                listening.shutdown(socket.SHUT_RDWR)


def _serve(listening: socket.socket, answering: Answering, ended: threading.Event) -> None:
    while not ended.is_set():
        try:
            connection, _ = listening.accept()
        except OSError:
            return
        threading.Thread(target=_answer, args=(connection, answering, ended), daemon=True).start()


def _answer(connection: socket.socket, answering: Answering, ended: threading.Event) -> None:
    with connection, contextlib.suppress(OSError):
        connection.recv(65536)
        answering(connection, ended)


def _drip(connection: socket.socket, byte: bytes, ended: threading.Event) -> None:
    while not ended.is_set():
        connection.sendall(byte)
        time.sleep(0.02)


def _send_whole(connection: socket.socket, encoding: bytes, body: bytes) -> None:
    head = b"Content-Encoding: %s\r\nContent-Length: %d\r\n\r\n" % (encoding, len(body))
    connection.sendall(_HEAD + head + body)

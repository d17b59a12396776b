"""Slow metadata operations, as on a remote file system.

A separate process makes each operation wait, which uses no processor. The caller sends a byte that names the kind of
operation, and continues when a byte comes back. So arms in Python and in the JVM wait for the same server, which counts
each one's operations, and how many are concurrent.
"""

from __future__ import annotations

import multiprocessing
import select
import socket
import tempfile
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection
from typing import Protocol, Self

from benchmarks.workloads.calls import ObservedCalls
from distcommit.fs.local_disk.local_file_system import LocalFileSystem

KINDS = ("create", "open", "stat", "list", "mkdir", "rename", "unlink", "rmdir", "sync")
"""Metadata operations; their place is the byte that names them. The JVM's `DelayingFileSystem` has the same list."""
_KIND_OF = {
    **{"open_new": "create", "read_file": "open", "lstat": "stat", "realpath": "stat", "scandir": "list"},
    **{"mkdir": "mkdir", "rmdir": "rmdir", "unlink": "unlink", "link": "rename", "rename": "rename"},
    **{"fsync": "sync", "fsync_folder": "sync", "syncfs": "sync"},
}
_BYTES = {kind: bytes([place]) for place, kind in enumerate(KINDS)}
_TAKE = "take"

Wait = Callable[[str], None]
"""Receives the kind of an operation right before it; returns when it may be done."""

_BUCKETS_AT_ONCE = 4


class Latency(Protocol):
    """Place at which operations wait, or none."""

    @property
    def wait(self) -> Wait | None:
        """Return the function to call before each operation, in any process; None if there is no latency."""
        ...

    @property
    def address(self) -> str:
        """Return the server's socket; empty if there is none."""
        ...

    def take(self) -> dict[str, float]:
        """Return the waits since the last call: operations in all and by kind, the most at a time, and the mean wait
        in milliseconds."""
        ...


class NoLatency:
    """No latency: operations have their local duration."""

    wait: Wait | None = None
    address = ""

    def take(self) -> dict[str, float]:
        return {}


class LatencyServer:
    """The server process; it ends with the block. `delay_s` is the wait of each operation."""

    def __init__(self, delay_s: float) -> None:
        self._delay_s = delay_s
        self._folder = tempfile.TemporaryDirectory(prefix="latency-")
        self.address = f"{self._folder.name}/socket"
        self.wait: Wait | None = partial(wait_at, self.address)

    def __enter__(self) -> Self:
        context = multiprocessing.get_context("spawn")
        self._pipe, far = context.Pipe()
        self._process = context.Process(target=_serve, args=(self.address, self._delay_s, far), daemon=True)
        self._process.start()
        far.close()
        self._pipe.recv()
        return self

    def __exit__(self, *_: object) -> None:
        self._pipe.close()
        self._process.join()
        self._folder.cleanup()

    def take(self) -> dict[str, float]:
        self._pipe.send(_TAKE)
        counts: dict[str, float] = self._pipe.recv()
        return counts


@contextmanager
def counting(latency: Latency) -> Iterator[dict[str, float]]:
    """Yield the waits of the block, as `take` returns them, filled in at the end."""
    counted: dict[str, float] = {}
    latency.take()
    yield counted
    counted |= latency.take()


@dataclass
class DelayingCalls(ObservedCalls):
    """The kernel's calls; those on metadata, and those that make something durable, wait first."""

    address: str = ""

    def observe(self, kind: str) -> None:
        if kind in _KIND_OF:
            wait_at(self.address, _KIND_OF[kind])


def far_file_system(latency: Latency, threads: int) -> LocalFileSystem:
    """Return the product's local file system on calls that wait at that server, for tasks with that many concurrent
    calls."""
    calls = DelayingCalls(address=latency.address)
    return LocalFileSystem(calls, parallel_calls=threads, parallel_buckets=min(_BUCKETS_AT_ONCE, threads))


_idle: dict[str, deque[socket.socket]] = {}


def wait_at(address: str, kind: str) -> None:
    """Return a function that waits at that server, for any number of threads; each has a connection to itself
    meanwhile."""
    idle = _idle.setdefault(address, deque())
    try:
        connection = idle.pop()
    except IndexError:
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(address)
    connection.send(_BYTES[kind])
    if not connection.recv(1):
        raise ConnectionError(f"the latency server at {address} has gone")
    idle.append(connection)


def _serve(address: str, delay_s: float, pipe: Connection) -> None:
    """Answer each byte after the delay, until the pipe is closed.

    All delays are equal, so answers are due in the order of arrival. It uses `select`, which can wait for less than a
    millisecond.
    """
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(address)
    listener.listen(512)
    sources: list[socket.socket | Connection] = [listener, pipe]
    waiting: deque[tuple[float, socket.socket]] = deque()
    seen = _Seen()
    pipe.send(True)
    while True:
        timeout = max(0.0, waiting[0][0] + delay_s - time.monotonic()) if waiting else None
        ready = select.select(sources, (), (), timeout)[0]
        now = time.monotonic()
        for source in ready:
            if source is listener:
                sources.append(listener.accept()[0])
            elif source is pipe:
                try:
                    pipe.recv()
                except EOFError:
                    return
                pipe.send(seen.taken())
                seen = _Seen()
            elif isinstance(source, socket.socket):
                if byte := _read(source):
                    seen.counts[KINDS[byte[0]]] += 1
                    waiting.append((now, source))
                else:
                    sources.remove(source)
                    source.close()
        seen.most = max(seen.most, len(waiting))
        now = time.monotonic()
        while waiting and waiting[0][0] + delay_s <= now:
            came, source = waiting.popleft()
            seen.waited_s += now - came
            with suppress(OSError):  # its process is dead
                source.send(b"\0")


def _read(source: socket.socket) -> bytes:
    try:
        return source.recv(1)
    except OSError:
        return b""


class _Seen:
    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.most = 0
        self.waited_s = 0.0

    def taken(self) -> dict[str, float]:
        total = self.counts.total()
        counts = {"operations": float(total), "most_at_a_time": float(self.most)}
        counts["mean_wait_ms"] = self.waited_s / total * 1000 if total else 0.0
        return counts | {f"operations_{kind}": float(count) for kind, count in sorted(self.counts.items())}

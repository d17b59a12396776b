"""Connections to database servers that a process keeps between commits.

After any error a committer closes its connection, so that a transaction with an unknown outcome is never continued.
"""

from __future__ import annotations

import atexit
import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from distcommit.core.errors import TransientError
from distcommit.fs.database_tls import Tls
from distcommit.sinks.base.target_connections import Connection

_MAX_IDLE = 2
"""Most idle connections that a pool keeps: as many as a committer of prepared transactions uses."""
IDLE_S = 30
"""Seconds without use until a connection is closed; servers and firewalls wait longer."""
OLDEST_S = 600
"""Age in seconds at which a connection is not used again, so that a new address or certificate takes effect."""
WAIT_S = 10


class Client(NamedTuple):
    """The functions of a client library that a pool needs.

    Attributes:
        connect: opens a connection from URL, password and TLS setting.
        check: raises an exception if the server does not answer.
        reset: restores a session's first state, without an open transaction, or raises an exception.
    """

    connect: Callable[[str, str, Tls], Connection]
    check: Callable[[Any], object]
    reset: Callable[[Any], object]


@dataclass(frozen=True, slots=True)
class Address:
    """The settings that identify a pool.

    Attributes:
        client: functions of the client library.
        url: the database's URL, without the password.
        tls: the setting `tls`.
        limit: the most connections that a process may lease at a time.
    """

    client: Client
    url: str
    tls: Tls
    limit: int


@dataclass(frozen=True, slots=True, eq=False)
class _IdleConnection:
    connection: Connection
    password: str = field(repr=False)
    opened_s: float
    idle_since_s: float


@dataclass(slots=True, eq=False)
class Lease:
    """A connection that one committer uses until `release` or `close`; later calls of these do nothing.

    Attributes:
        is_new: whether the connection was opened for this lease.
    """

    _connection: Any
    is_new: bool
    _pool: _Pool
    _password: str = field(repr=False)
    _opened_s: float
    _process: int = field(default_factory=os.getpid)
    _is_ended: bool = False

    @property
    def connection(self) -> Any:
        """The client's connection; raises RuntimeError after the end of the lease."""
        if self._is_ended:
            raise RuntimeError("a committer uses a connection that it has released or closed")
        return self._connection

    def release(self) -> None:
        """Reset the connection and return it to the pool; close it if that fails."""
        if self._is_ended:
            return
        try:
            self._pool.address.client.reset(self._connection)
        except Exception:  # noqa: BLE001 - of any client: the connection is not used again
            self.close()
        else:
            self._is_ended = True
            self._pool.take_back(_IdleConnection(self._connection, self._password, self._opened_s, time.monotonic()))

    def close(self) -> None:
        """Close the connection, so that the server rolls back."""
        if not self._is_ended:
            self._is_ended = True
            self._pool.discard(self._connection)

    def __del__(self) -> None:
        if self._process == os.getpid():  # a forked process would end its parent's session
            self.close()


class _Pool:
    def __init__(self, address: Address) -> None:
        self.address = address
        self._slots = threading.BoundedSemaphore(address.limit)
        self._lock = threading.Lock()
        self._idle: list[_IdleConnection] = []
        self._timer: threading.Timer | None = None

    def lease(self, password: str) -> Lease:
        if not self._slots.acquire(timeout=WAIT_S):
            raise TransientError(
                "this process has as many open connections to the database as sink.max_connections allows",
                id="TARGET_UNAVAILABLE",
                url=self.address.url,
                expected=f"one of {self.address.limit} to be closed within {WAIT_S} s",
                found="all in use",
                todo="raise sink.max_connections; nothing was lost",
            )
        try:
            kept = self._usable(password)
            if kept is not None:
                return Lease(kept.connection, False, self, password, kept.opened_s)
            connection = self.address.client.connect(self.address.url, password, self.address.tls)
            return Lease(connection, True, self, password, time.monotonic())
        except BaseException:
            self._slots.release()
            raise

    def take_back(self, kept: _IdleConnection) -> None:
        with self._lock:
            is_kept = len(self._idle) < _MAX_IDLE and self._closes_in_time()
            if is_kept:
                self._idle.append(kept)
        if not is_kept:
            _close(kept.connection)
        self._slots.release()

    def discard(self, connection: Connection) -> None:
        _close(connection)
        self._slots.release()

    def close_idle(self, idle_s: float = 0) -> None:
        now_s = time.monotonic()
        with self._lock:
            closed = [kept for kept in self._idle if kept.idle_since_s + idle_s <= now_s]
            self._idle = [kept for kept in self._idle if kept not in closed]
        for kept in closed:
            _close(kept.connection)

    def _usable(self, password: str) -> _IdleConnection | None:
        while True:
            with self._lock:
                if not self._idle:
                    return None
                kept = self._idle.pop()
            now_s = time.monotonic()
            is_young = now_s < min(kept.idle_since_s + IDLE_S, kept.opened_s + OLDEST_S)
            if is_young and kept.password == password and self._answers(kept.connection):
                return kept
            _close(kept.connection)

    def _answers(self, connection: Connection) -> bool:
        try:
            self.address.client.check(connection)
        except Exception:  # noqa: BLE001 - of any client
            return False
        return True

    def _closes_in_time(self) -> bool:
        if self._timer is None:
            timer = threading.Timer(IDLE_S, self._close_in_time)
            timer.daemon = True
            try:
                timer.start()
            except RuntimeError:
                return False
            self._timer = timer
        return True

    def _close_in_time(self) -> None:
        self.close_idle(IDLE_S)
        with self._lock:
            self._timer = None
            is_timed = not self._idle or self._closes_in_time()
        if not is_timed:
            self.close_idle()


_pools: dict[tuple[Address, int], _Pool] = {}
"""Pools by address and process: a forked process must not use its parent's connections."""


def lease(address: Address, password: str) -> Lease:
    """Lease a connection of this process and password.

    Raises:
        TransientError: if `address.limit` connections are leased, and none of them is returned within ten seconds.
        Exception: the client's error if it can't connect.
    """
    return _pools.setdefault((address, os.getpid()), _Pool(address)).lease(password)


@atexit.register
def close_idle_connections() -> None:
    for (_, process), pool in list(_pools.items()):
        if process == os.getpid():
            pool.close_idle()


def _close(connection: Connection) -> None:
    with suppress(Exception):  # of any client: the connection may be closed already
        connection.close()

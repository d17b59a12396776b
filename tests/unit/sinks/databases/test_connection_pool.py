"""The pool of connections to database servers, with a client of this test."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator

import pytest

from distcommit.core.errors import TransientError
from distcommit.fs.database_tls import Tls
from distcommit.sinks.databases import connection_pool
from distcommit.sinks.databases.connection_pool import Address, Client, Lease, close_idle_connections

PASSWORD = "old s3cret"


class Broken(Exception):  # noqa: N818 - a client's error
    """The client's error."""


class FakeConnection:
    def __init__(self, password: str) -> None:
        self.password = password
        self.is_open, self.answers, self.resets, self.checks = True, True, 0, 0

    def close(self) -> None:
        if not self.is_open:
            raise Broken("closed already")
        self.is_open = False


class FakeServer:
    """All connections of a client, and whether the server accepts new ones."""

    def __init__(self) -> None:
        self.connections: list[FakeConnection] = []
        self.is_up = True
        self.client = Client(self._connect, self._check, self._reset)

    def _connect(self, url: str, password: str, tls: Tls) -> FakeConnection:
        if not self.is_up:
            raise Broken("no server")
        self.connections.append(FakeConnection(password))
        return self.connections[-1]

    def _check(self, connection: FakeConnection) -> None:
        connection.checks += 1
        if not connection.answers:
            raise Broken("the server has closed the connection")

    def _reset(self, connection: FakeConnection) -> None:
        connection.resets += 1
        if not connection.answers:
            raise Broken("a transaction is open")

    def lease(self, limit: int = 3, password: str = PASSWORD) -> Lease:
        return connection_pool.lease(Address(self.client, "fake://u@h/d", "verify", limit), password)

    @property
    def open(self) -> list[FakeConnection]:
        return [connection for connection in self.connections if connection.is_open]


@pytest.fixture
def server() -> Iterator[FakeServer]:
    yield FakeServer()
    close_idle_connections()


def test_released_connection_is_reset_and_checked_before_its_next_use(server: FakeServer) -> None:
    first = server.lease()
    connection = first.connection
    first.release()
    assert (connection.resets, connection.checks) == (1, 0)
    second = server.lease()
    assert second.connection is connection
    assert (first.is_new, second.is_new, connection.checks) == (True, False, 1)
    second.close()


def test_connection_has_one_holder_and_an_ended_lease_does_not_reach_it(server: FakeServer) -> None:
    zombie = server.lease()
    other = server.lease()
    assert zombie.connection is not other.connection
    zombie.release()
    holder = server.lease()
    with pytest.raises(RuntimeError, match="released or closed"):
        _ = zombie.connection
    zombie.close()
    zombie.release()
    assert holder.connection.is_open
    assert server.lease().connection is not holder.connection, "the holder still has it"


def test_connection_is_closed_after_an_error_and_when_its_reset_fails(server: FakeServer) -> None:
    for end in (Lease.close, Lease.release):
        leased = server.lease()
        connection, leased.connection.answers = leased.connection, False
        end(leased)
        assert not connection.is_open
        assert server.lease().connection is not connection


def test_forgotten_lease_is_closed_and_frees_its_place(server: FakeServer) -> None:
    for _ in range(10):
        server.lease(limit=2)
    assert server.open == []


def test_server_restarted_while_connections_are_idle_is_not_noticed(server: FakeServer) -> None:
    leases = [server.lease(), server.lease()]
    for each in leases:
        each.release()
    for connection in server.connections:
        connection.answers = False
    assert server.lease().is_new
    assert not any(connection.is_open for connection in server.connections[:2])


def test_error_of_an_unavailable_server_is_raised_and_frees_its_place(server: FakeServer) -> None:
    server.is_up = False
    for _ in range(5):
        with pytest.raises(Broken):
            server.lease()
    server.is_up = True
    leases = [server.lease() for _ in range(3)]
    assert len({id(each.connection) for each in leases}) == 3


def test_limit_is_a_transient_error_after_a_wait_and_names_the_setting(
    server: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection_pool, "WAIT_S", 0.05)
    leases = [server.lease() for _ in range(3)]
    with pytest.raises(TransientError, match=r"sink\.max_connections") as error:
        server.lease()
    assert PASSWORD not in f"{error.value}{leases[0]!r}"
    leases.pop().release()
    assert not server.lease().is_new
    assert len(server.connections) == 3


def test_waiting_committer_gets_the_connection_that_another_thread_releases(server: FakeServer) -> None:
    leased = server.lease(limit=1)
    threading.Timer(0.05, leased.release).start()
    assert not server.lease(limit=1).is_new


def test_changed_password_gets_a_new_connection_and_closes_the_old_one(server: FakeServer) -> None:
    server.lease().release()
    leased = server.lease(password="new")
    assert leased.connection.password == "new"
    assert server.open == [leased.connection]


@pytest.mark.parametrize("limit", ["IDLE_S", "OLDEST_S"])
def test_old_or_long_idle_connection_is_not_used(
    server: FakeServer, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    leased = server.lease()
    monkeypatch.setattr(connection_pool, limit, 0.01)
    monkeypatch.setattr(threading.Timer, "start", lambda timer: None)
    leased.release()
    time.sleep(0.02)
    assert server.lease().is_new
    assert len(server.open) <= 1


def test_idle_connections_are_closed_in_time_and_no_more_than_two_are_kept(
    server: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection_pool, "IDLE_S", 0.05)
    for each in [server.lease() for _ in range(3)]:
        each.release()
    assert len(server.open) == 2
    deadline_s = time.monotonic() + 10
    while server.open:
        assert time.monotonic() < deadline_s
        time.sleep(0.01)


def test_forked_process_does_not_use_its_parents_connection(server: FakeServer) -> None:
    server.lease().release()
    child = os.fork()
    if not child:
        os._exit(0 if server.lease().is_new else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert not server.lease().is_new


def test_forked_process_does_not_end_a_session_that_its_parent_leases(server: FakeServer) -> None:
    leased = server.lease()
    connection = leased.connection
    child = os.fork()
    if not child:
        leased.__del__()
        os._exit(0 if connection.is_open else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    leased.close()
    assert not connection.is_open


def test_without_threads_a_released_connection_is_closed_and_its_place_is_free(
    server: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(timer: threading.Timer) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(connection_pool, "WAIT_S", 0.05)
    monkeypatch.setattr(threading.Timer, "start", refused)
    for _ in range(3):
        server.lease(limit=1).release()
    assert server.open == []


def test_kept_password_is_not_shown() -> None:
    kept = connection_pool._IdleConnection(FakeConnection(""), PASSWORD, 0, 0)
    assert PASSWORD not in repr(kept)

"""Why the PostgreSQL sink commits without two-phase commit: what `tpc_*` of psycopg leave unsaid, each as it is."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager

import psycopg
import pytest

from tests.servers.postgresql import PostgresServer


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    """One that lets transactions be prepared."""
    with PostgresServer() as server:
        with server.connect() as connection:
            connection.execute("ALTER SYSTEM SET max_prepared_transactions = 8")
        server.restart()
        yield server


@contextmanager
def connected(server: PostgresServer) -> Iterator[psycopg.Connection]:
    """One that has transactions of its own."""
    with closing(server.connect()) as connection:  # by itself it commits where a block ends, which is refused
        connection.autocommit = False
        yield connection


@pytest.fixture
def table(server: PostgresServer) -> Iterator[None]:
    """An empty table, and nothing prepared."""
    with server.connect() as connection:
        connection.execute("CREATE TABLE rows (id int)")
    yield
    with connected(server) as connection:
        for xid in connection.tpc_recover():
            connection.tpc_rollback(xid)
    with server.connect() as connection:
        connection.execute("DROP TABLE rows")


def prepared(server: PostgresServer, name: str, row: int) -> None:
    """What a writer would leave: a prepared transaction with a row."""
    with connected(server) as connection:
        connection.tpc_begin(name)
        connection.execute("INSERT INTO rows VALUES (%s)", (row,))
        connection.tpc_prepare()


def in_doubt(server: PostgresServer) -> set[str]:
    with server.connect() as connection:
        return {str(xid.gtrid) for xid in connection.tpc_recover()}


def rows(server: PostgresServer) -> list[int]:
    with connected(server) as connection:
        return [number for (number,) in connection.execute("SELECT id FROM rows ORDER BY id")]


@pytest.mark.usefixtures("table")
def test_a_failed_transaction_is_prepared_without_a_word_and_is_not_there(server: PostgresServer) -> None:
    with connected(server) as connection:
        connection.tpc_begin("mine")
        with pytest.raises(psycopg.errors.DivisionByZero):
            connection.execute("SELECT 1 / 0")
        connection.tpc_prepare()  # raises nothing
    assert in_doubt(server) == set()


@pytest.mark.usefixtures("table")
def test_rolling_back_after_a_name_was_taken_rolls_back_the_other_ones(server: PostgresServer) -> None:
    prepared(server, "same", 1)
    with connected(server) as connection:
        connection.tpc_begin("same")
        connection.execute("INSERT INTO rows VALUES (2)")
        with pytest.raises(psycopg.errors.DuplicateObject):
            connection.tpc_prepare()
        assert in_doubt(server) == {"same"}
        connection.tpc_rollback()  # as one does after an error
    assert in_doubt(server) == set(), "what the first one had prepared is gone"
    assert rows(server) == []


@pytest.mark.usefixtures("table")
def test_one_that_is_not_in_doubt_may_be_committed_or_rolled_back(server: PostgresServer) -> None:
    for name, row in (("committed", 1), ("rolled back", 2)):
        prepared(server, name, row)
    with connected(server) as connection:
        connection.tpc_commit("committed")
        connection.tpc_rollback("rolled back")
    assert in_doubt(server) == set()
    for name in ("committed", "rolled back"):
        with connected(server) as connection, pytest.raises(psycopg.errors.UndefinedObject):
            connection.tpc_commit(name)
    assert rows(server) == [1], "only what it has written tells"


@pytest.mark.usefixtures("table")
def test_what_a_killed_writer_has_prepared_stays_and_keeps_its_locks(server: PostgresServer) -> None:
    prepared(server, "killed", 1)
    server.restart()
    assert in_doubt(server) == {"killed"}
    with connected(server) as connection:
        connection.execute("SET lock_timeout = '100ms'")
        with pytest.raises(psycopg.errors.LockNotAvailable):
            connection.execute("ALTER TABLE rows ADD COLUMN more int")


@pytest.mark.usefixtures("table")
def test_two_of_one_dataset_are_not_atomic(server: PostgresServer) -> None:
    for name, row in (("first work unit", 1), ("second work unit", 2)):
        prepared(server, name, row)
    with connected(server) as connection:
        connection.tpc_commit("first work unit")
    assert rows(server) == [1], "a reader sees half of it, for as long as nobody comes back"


def test_a_server_as_it_is_set_up_prepares_nothing(postgres_server: PostgresServer) -> None:
    with connected(postgres_server) as connection:
        connection.tpc_begin("mine")
        connection.execute("SELECT 1")
        with pytest.raises(psycopg.NotSupportedError, match="prepared transactions are disabled"):
            connection.tpc_prepare()

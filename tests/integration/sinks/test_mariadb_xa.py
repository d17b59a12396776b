"""XA at a MariaDB server: what the sink guarantees, and how the server behaves by itself."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pymysql
import pytest
from pymysql.cursors import Cursor

from distcommit.core.interfaces.committer import Committed, RetryLater
from distcommit.sinks.mariadb import xa
from distcommit.sinks.mariadb.sink import MariadbSink
from tests.integration.sinks.test_mariadb_sink import Target
from tests.servers.mariadb import MariadbServer, prepared_at, roll_back
from tests.unit.sinks.databases.commit_steps import numbers
from tests.unit.sinks.databases.two_phase_cases import SHARED, PreparingTarget, TwoPhaseCases


class PreparingMariadb(PreparingTarget, Target):
    """Target with a database of its own."""

    commit_sent, prepare_sent = rb"\x03XA COMMIT", rb"\x03XA PREPARE"
    modules = (*SHARED, xa.__file__)
    preloaded = ("distcommit.sinks.mariadb.xa",)
    apart = 8

    def sink(self, **settings: Any) -> MariadbSink:
        return self.plain(two_phase=True, **settings)

    def plain(self, **settings: Any) -> MariadbSink:
        return Target.sink(self, **settings)

    def prepared(self) -> list[str]:
        return ["|".join(item) for item in prepared_at(self.server)]

    def end(self, name: str, *, commit: bool) -> None:
        begin, end = name.split("|")
        if commit:
            self.sql(f"XA COMMIT '{begin}', '{end}'")
        else:
            roll_back(self.server, begin, end)


@pytest.fixture
def target(mariadb_server: MariadbServer, tmp_path: Path) -> Iterator[PreparingMariadb]:
    own_target = PreparingMariadb(mariadb_server, tmp_path)
    yield own_target
    for name in own_target.prepared():
        own_target.end(name, commit=False)
    own_target.sql(f"DROP DATABASE {own_target.database}")


class TestXa(TwoPhaseCases):
    """Run the tests that all databases share."""


def test_prepared_transaction_belongs_to_its_session_until_that_ends(target: PreparingMariadb) -> None:
    target.sql("CREATE TABLE a (n bigint)")
    with target.server.connect(target.database) as connection, connection.cursor() as cursor:
        for statement in ("XA START 'its'", "INSERT INTO a VALUES (1)", "XA END 'its'", "XA PREPARE 'its'"):
            cursor.execute(statement)
        with pytest.raises(pymysql.err.MySQLError, match="RMFAIL"):
            cursor.execute("BEGIN")
        with pytest.raises(pymysql.err.MySQLError, match="XAER_NOTA"):
            target.sql("XA COMMIT 'its'")
        assert prepared_at(target.server) == [("its", "")], "contrary to the error"
        assert target.rows("a") == []
    roll_back(target.server, "its", "")


def test_writer_that_does_not_end_is_reported_and_committed_after_its_end(
    target: PreparingMariadb, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(xa, "tries", lambda: range(3))
    sink = target.sink()
    held: list[pymysql.Connection[Cursor]] = []

    def hold(connection: pymysql.Connection[Cursor]) -> None:
        held.append(connection)

    with monkeypatch.context() as patched:  # the network dropped the client's side of the connection, not the server's
        patched.setattr(pymysql.Connection, "close", hold)
        request = target.prepare(sink, "a", 1)
    (outcome,) = target.commit(sink, request)
    assert isinstance(outcome, RetryLater)
    assert "does not end" in outcome.reason
    assert target.rows("a") == []
    for connection in held:
        with suppress(pymysql.err.Error):  # it was closed twice
            connection.close()
    monkeypatch.undo()
    assert target.commit(sink, request) == [Committed()]
    assert target.rows("a") == [(1,), (2,), (3,)]


def test_table_cannot_be_dropped_while_a_transaction_is_prepared_for_it(target: PreparingMariadb) -> None:
    sink = target.sink()
    request = target.prepare(sink, "a", 1)
    for statement in ("DROP TABLE a", "TRUNCATE TABLE a", "ALTER TABLE a ADD COLUMN m int"):
        with pytest.raises(pymysql.err.MySQLError, match="Lock wait timeout"):
            target.sql("SET lock_wait_timeout = 1, innodb_lock_wait_timeout = 1", statement)
    assert target.commit(sink, request) == [Committed()]
    assert target.rows("a") == [(1,), (2,), (3,)]


def test_killed_server_with_a_binary_log_leaves_nothing_else(tmp_path: Path) -> None:
    with MariadbServer("--log-bin=bin", "--server-id=1", "--sync-binlog=1", "--binlog-format=ROW") as server:
        target = PreparingMariadb(server, tmp_path)
        sink = target.sink()
        assert target.sql("SELECT @@log_bin") == [(1,)]
        request, lost = target.of_units(sink, "a", 1, numbers(1), numbers(2)), target.prepare(sink, "a", 1, numbers(3))
        server.restart()
        assert len(target.prepared()) == 3
        assert target.commit(sink, request) == [Committed()]
        server.restart()
        assert target.rows("a") == [(1,), (2,)]
        target.abort(sink, *lost.attempts)
        assert target.prepared() == []


def test_tags_are_refused_because_deletion_by_tag_waits_for_prepared_transactions(target: PreparingMariadb) -> None:
    with pytest.raises(ValueError, match="tags must not be true with two_phase"):
        target.sink(tags=True)
    target.sql("CREATE TABLE a (n bigint)", "INSERT INTO a VALUES (0)")
    request = target.prepare(target.sink(), "a", 1)
    with pytest.raises(pymysql.err.MySQLError, match="Lock wait timeout"):
        target.sql("SET innodb_lock_wait_timeout = 1", "DELETE FROM a WHERE n = 0")
    assert target.commit(target.sink(), request) == [Committed()]

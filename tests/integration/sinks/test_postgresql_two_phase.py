"""Two-phase commit at a PostgreSQL server: what the sink guarantees, and what psycopg's `tpc_*` leave unreported."""

from __future__ import annotations

import contextlib
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

from distcommit.core.errors import ConfigurationError, TransientError
from distcommit.core.interfaces.committer import Committed
from distcommit.sinks.postgresql import two_phase
from distcommit.sinks.postgresql.sink import PostgresqlSink
from tests.integration.sinks.test_postgresql_sink import Target
from tests.servers.postgresql import PostgresServer
from tests.unit.sinks.databases.commit_steps import numbers, refused
from tests.unit.sinks.databases.two_phase_cases import SHARED, PreparingTarget, TwoPhaseCases

ROOT = Path(__file__).parents[3]
COMMANDS = (("sql", "SELECT gid"), ("bash", "python -c"))


@pytest.fixture
def server(preparing_server: PostgresServer) -> PostgresServer:
    """Return a server that lets transactions be prepared."""
    return preparing_server


@contextmanager
def connected(server: PostgresServer) -> Iterator[psycopg.Connection]:
    """Connect without autocommit."""
    with closing(server.connect()) as connection:  # by itself it commits where a block ends, which is refused
        connection.autocommit = False
        yield connection


@pytest.fixture
def table(server: PostgresServer) -> Iterator[None]:
    """Create an empty table with nothing prepared."""
    with server.connect() as connection:
        connection.execute("CREATE TABLE rows (id int)")
    yield
    with connected(server) as connection:
        for xid in connection.tpc_recover():
            connection.tpc_rollback(xid)
    with server.connect() as connection:
        connection.execute("DROP TABLE rows")


def prepared(server: PostgresServer, name: str, row: int) -> None:
    """Prepare a transaction with a row, as a writer would."""
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
def test_failed_transaction_is_prepared_silently_and_does_not_exist(server: PostgresServer) -> None:
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
        connection.tpc_rollback()  # as is usual after an error
    assert in_doubt(server) == set(), "the first prepared transaction is gone"
    assert rows(server) == []


@pytest.mark.usefixtures("table")
def test_transaction_that_is_not_in_doubt_may_be_committed_or_rolled_back(server: PostgresServer) -> None:
    for name, row in (("committed", 1), ("rolled back", 2)):
        prepared(server, name, row)
    with connected(server) as connection:
        connection.tpc_commit("committed")
        connection.tpc_rollback("rolled back")
    assert in_doubt(server) == set()
    for name in ("committed", "rolled back"):
        with connected(server) as connection, pytest.raises(psycopg.errors.UndefinedObject):
            connection.tpc_commit(name)
    assert rows(server) == [1], "only its rows show the outcome"


@pytest.mark.usefixtures("table")
def test_prepared_transaction_of_a_killed_writer_stays_and_keeps_its_locks(server: PostgresServer) -> None:
    prepared(server, "killed", 1)
    server.restart()
    assert in_doubt(server) == {"killed"}
    with connected(server) as connection:
        connection.execute("SET lock_timeout = '100ms'")
        with pytest.raises(psycopg.errors.LockNotAvailable):
            connection.execute("ALTER TABLE rows ADD COLUMN more int")


@pytest.mark.usefixtures("table")
def test_two_prepared_transactions_of_a_dataset_are_not_atomic(server: PostgresServer) -> None:
    for name, row in (("first work unit", 1), ("second work unit", 2)):
        prepared(server, name, row)
    with connected(server) as connection:
        connection.tpc_commit("first work unit")
    assert rows(server) == [1], "a reader sees half of it until recovery"


def test_server_with_default_settings_prepares_nothing(postgres_server: PostgresServer) -> None:
    with connected(postgres_server) as connection:
        connection.tpc_begin("mine")
        connection.execute("SELECT 1")
        with pytest.raises(psycopg.NotSupportedError, match="prepared transactions are disabled"):
            connection.tpc_prepare()


class PreparingPostgresql(PreparingTarget, Target):
    """Target with a schema of its own."""

    commit_sent, prepare_sent = rb"COMMIT PREPARED", rb"PREPARE TRANSACTION"
    modules = (*SHARED, two_phase.__file__)
    preloaded = ("distcommit.sinks.postgresql.two_phase",)

    def sink(self, **settings: Any) -> PostgresqlSink:
        return self.plain(two_phase=True, **settings)

    def plain(self, **settings: Any) -> PostgresqlSink:
        return Target.sink(self, **settings)

    def prepared(self) -> list[str]:
        return [gid for (gid,) in self.sql("SELECT gid FROM pg_prepared_xacts")]

    def end(self, name: str, *, commit: bool) -> None:
        self.sql(f"{'COMMIT' if commit else 'ROLLBACK'} PREPARED '{name}'")


@pytest.fixture
def target(preparing_server: PostgresServer, tmp_path: Path) -> Iterator[PreparingPostgresql]:
    own_target = PreparingPostgresql(preparing_server, tmp_path)
    yield own_target
    for name in own_target.prepared():
        own_target.end(name, commit=False)
    own_target.sql(f"DROP SCHEMA {own_target.schema} CASCADE")


class TestTwoPhase(TwoPhaseCases):
    """Run the tests that all databases share."""


def test_table_cannot_be_dropped_while_a_transaction_is_prepared_for_it(target: PreparingPostgresql) -> None:
    sink = target.sink()
    request = target.prepare(sink, "a", 1)
    with pytest.raises(psycopg.errors.LockNotAvailable):
        target.sql("SET lock_timeout = '100ms'", "DROP TABLE a")
    assert target.commit(sink, request) == [Committed()]


def test_partly_visible_commit_is_revoked_by_its_tags(target: PreparingPostgresql) -> None:
    sink = target.sink(tags=True)
    assert target.commit(sink, target.prepare(sink, "a", 1, numbers(0))) == [Committed()]
    request = target.of_units(sink, "a", 2, numbers(1), numbers(2))
    target.end(target.name_of(request), commit=True)
    target.withdraw(sink, request)
    assert target.prepared() == []
    assert target.rows("a") == [(0,)]
    refused(target.commit(sink, request)[0], "was taken back")
    whole = target.of_units(sink, "a", 3, numbers(3), numbers(4))
    assert target.commit(sink, whole) == [Committed()]
    target.withdraw(sink, whole)
    assert target.rows("a") == [(0,)]
    assert {what for what, _ in target.sql("SELECT what, epoch FROM distcommit_prepared")} == {"newest"}


def test_failed_transaction_is_not_taken_for_prepared(
    target: PreparingPostgresql, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(two_phase.TwoPhasePostgresql, "_write", _fail_silently)
    with pytest.raises(TransientError, match="rolled the transaction back instead of preparing it"):
        target.prepare(target.sink(), "a", 1)
    assert target.prepared() == []


def _fail_silently(committer: two_phase.TwoPhasePostgresql, *_: object) -> None:
    with contextlib.suppress(psycopg.errors.DivisionByZero):
        committer._connection.execute("SELECT 1 / 0")


def test_a_server_that_prepares_nothing_is_refused_before_a_record_is_read(
    postgres_server: PostgresServer, tmp_path: Path
) -> None:
    target = PreparingPostgresql(postgres_server, tmp_path)
    with pytest.raises(ConfigurationError, match="max_prepared_transactions"):
        target.writer(target.sink(), 1, "attempt")
    with pytest.raises(ConfigurationError, match="max_prepared_transactions"):
        target.sink().check_connection()
    target.sql(f"DROP SCHEMA {target.schema} CASCADE")


def test_server_at_its_limit_of_prepared_transactions_reports_it(tmp_path: Path) -> None:
    with PostgresServer("max_prepared_transactions=1") as server:
        target = PreparingPostgresql(server, tmp_path)
        sink = target.sink()
        first = target.prepare(sink, "a", 1)
        with pytest.raises(TransientError, match="as many transactions as it can"):
            target.prepare(sink, "b", 1)
        assert len(target.prepared()) == 1
        assert target.commit(sink, first) == [Committed()]
        assert target.commit(sink, target.prepare(sink, "b", 1)) == [Committed()]


def test_page_finds_the_dataset_and_epoch_of_a_prepared_transaction(target: PreparingPostgresql) -> None:
    """The two commands of the section "Old prepared transactions"."""
    page = (ROOT / "conf" / "docs" / "connectors" / "sink-postgresql-two-phase.md").read_text(encoding="utf-8")
    ((query,), (command,)) = (
        re.findall(rf"```{kind}\n +({text}.*?)\n +```", page, re.DOTALL) for kind, text in COMMANDS
    )
    sink = target.sink()
    target.prepare(sink, "orders", 7, numbers(1))
    words = [sys.executable, *shlex.split(command.replace("STORE", "store"))[1:]]
    key = subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()
    with target.server.connect() as connection:
        ((name, found_key, epoch, _),) = connection.execute(query).fetchall()
    assert [name] == target.prepared()
    assert (found_key, epoch) == (key, 7)

"""The PostgreSQL sink fulfills the sink contract, on a real server."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any, ClassVar

import pytest
from psycopg import sql

from distcommit.core.interfaces.committer import CommitRequest
from distcommit.sinks.base.committer_sink import CommitterSink
from distcommit.sinks.databases import ledger_table_committer
from distcommit.sinks.databases.two_phase_commit import prepared_transactions, two_phase_proofs
from distcommit.sinks.postgresql.sink import PostgresqlSink
from distcommit.testing.contracts import LaterEpochs, SinkContract
from tests.servers.postgresql import PostgresServer


class OnPostgresql(SinkContract, LaterEpochs):
    """A schema for each place."""

    settings: ClassVar[dict[str, Any]]
    committer_bases = [ledger_table_committer.__file__, two_phase_proofs.__file__]

    @pytest.fixture(autouse=True)
    def _has_server(self, postgres_server: PostgresServer) -> None:
        self.server = postgres_server

    def make_sink(self, folder: Path) -> CommitterSink:
        schema = _schema_of(folder)
        with self.server.connect() as connection:
            connection.execute(sql.SQL("CREATE SCHEMA IF NOT EXISTS {}").format(sql.Identifier(schema)))
        section = {"type": "postgresql", "url": self.server.url, "password": self.server.password, "schema": schema}
        return PostgresqlSink.model_validate({**section, **self.settings})

    def lose(self, folder: Path, request: CommitRequest) -> bool:
        (folder / "staging" / request.infos[-1]["files"][-1][0]).unlink()
        return True

    def cut_off(self, folder: Path) -> bool:
        with self.server.connect() as connection:
            ledger = sql.Identifier(_schema_of(folder), "distcommit_ledger")
            connection.execute(sql.SQL("DROP TABLE {}").format(ledger))
            connection.execute(sql.SQL("CREATE VIEW {} AS SELECT 1 AS epoch").format(ledger))
        return True

    def tables(self, place: Path) -> list[str]:
        asked = "SELECT tablename FROM pg_tables WHERE schemaname = %s AND tablename NOT LIKE 'distcommit%%'"
        with self.server.connect() as connection:
            return [name for (name,) in connection.execute(asked, (_schema_of(place),))]

    def offsets(self, place: Path, table: str) -> list[tuple[Any, ...]]:
        with self.server.connect() as connection:
            asked = sql.SQL('SELECT "offset", * FROM {}').format(sql.Identifier(_schema_of(place), table))
            return connection.execute(asked).fetchall()


class TestATableForEach(OnPostgresql):
    settings: ClassVar = {}

    def observe(self, folder: Path) -> Sequence[tuple[str, int]]:
        return [(table, row[0]) for table in self.tables(folder) for row in self.offsets(folder, table)]

    def test_commit_killed_at_any_line_is_committed_by_the_next(self, tmp_path: Path) -> None:
        """Kill at every fifth line; a slow test kills at each."""
        self.kill_before_lines(tmp_path, apart=5)

    @pytest.mark.slow
    @pytest.mark.timeout(1800)
    def test_commit_killed_at_each_line_is_committed_by_the_next(self, tmp_path: Path) -> None:
        self.kill_before_lines(tmp_path)


class TestTwoPhase(TestATableForEach):
    """A server that prepares transactions."""

    settings: ClassVar = {"two_phase": True}

    @pytest.fixture(autouse=True)
    def _has_server(self, preparing_server: PostgresServer) -> Iterator[None]:
        self.server = preparing_server
        yield
        for gid in self.prepared():
            self.roll_back(gid)

    def prepared(self) -> list[str]:
        with self.server.connect() as connection:
            return [gid for (gid,) in connection.execute("SELECT gid FROM pg_prepared_xacts").fetchall()]

    def roll_back(self, gid: str) -> None:
        with self.server.connect() as connection:
            connection.execute(sql.SQL("ROLLBACK PREPARED {}").format(sql.Literal(gid)))

    def in_doubt(self, place: Path) -> int:
        return len(self.prepared())

    def lose(self, folder: Path, request: CommitRequest) -> bool:
        attempt = request.infos[-1]["attempt"]
        (gid,) = [gid for gid in self.prepared() if gid.endswith(attempt)]
        self.roll_back(gid)
        return True

    def test_commit_killed_at_any_line_is_committed_by_the_next(self, tmp_path: Path) -> None:
        """Kill at some lines of this sink and of the code shared by all databases; all run in the long profile."""
        self.kill_before_lines(tmp_path / "own", apart=4)
        self.kill_before_lines(tmp_path / "shared", apart=4, module=prepared_transactions.__file__)
        assert self.prepared() == []

    @pytest.mark.slow
    @pytest.mark.long
    @pytest.mark.timeout(1800)
    def test_commit_killed_at_each_line_is_committed_by_the_next(self, tmp_path: Path) -> None:
        self.kill_before_lines(tmp_path / "own")
        self.kill_before_lines(tmp_path / "shared", module=prepared_transactions.__file__)
        assert self.prepared() == []


@pytest.mark.slow
@pytest.mark.long
class TestTwoPhaseWithTags(TestTwoPhase):
    settings: ClassVar = {"two_phase": True, "table": "rows", "tags": True}

    def test_commit_killed_at_any_line_is_committed_by_the_next(self, tmp_path: Path) -> None:
        """Disabled: the lines are the same as in the base class and take a minute."""

    def test_commit_killed_at_each_line_is_committed_by_the_next(self, tmp_path: Path) -> None:
        """Disabled: the lines are the same as in the base class."""

    def observe(self, folder: Path) -> Sequence[tuple[str, int]]:
        return tagged_rows(self, folder)


class TestUpsert(TestATableForEach):
    settings: ClassVar = {"mode": "upsert", "keys": ["offset"]}

    def test_commit_killed_at_any_line_is_committed_by_the_next(self, tmp_path: Path) -> None:
        """Disabled: the lines are the same as in the base class and take a minute."""

    def test_commit_killed_at_each_line_is_committed_by_the_next(self, tmp_path: Path) -> None:
        """Disabled: the lines are the same as in the base class."""


class TestOneTableWithTags(OnPostgresql):
    settings: ClassVar = {"table": "rows", "tags": True}

    def test_commit_killed_at_any_line_is_committed_by_the_next(self, tmp_path: Path) -> None:
        """Disabled: the lines are the same as in the base class and take a minute."""

    def observe(self, folder: Path) -> Sequence[tuple[str, int]]:
        return tagged_rows(self, folder)


def tagged_rows(target: OnPostgresql, place: Path) -> list[tuple[str, int]]:
    """Return the rows of the shared table, by the tags in the ledger."""
    if not target.tables(place):
        return []
    joined = sql.SQL('SELECT dataset, "offset" FROM {} JOIN {} ON tag = _distcommit_of')
    names = (sql.Identifier(_schema_of(place), name) for name in ("rows", "distcommit_ledger"))
    with target.server.connect() as connection:
        return connection.execute(joined.format(*names)).fetchall()


def _schema_of(place: Path) -> str:
    return f"s{sha256(str(place).encode()).hexdigest()[:20]}"

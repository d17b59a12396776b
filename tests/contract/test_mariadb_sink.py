"""The MariaDB sink fulfills the sink contract, on a real server."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any, ClassVar

import pymysql
import pytest
from pymysql.cursors import Cursor

from distcommit.core.interfaces.committer import CommitRequest
from distcommit.sinks.base.committer_sink import CommitterSink
from distcommit.sinks.databases import ledger_table_committer
from distcommit.sinks.databases.two_phase_commit import prepared_transactions, two_phase_proofs
from distcommit.sinks.mariadb.sink import MariadbSink
from distcommit.testing.contracts import LaterEpochs, SinkContract
from tests.servers.mariadb import MariadbServer, prepared_at, roll_back


class OnMariadb(SinkContract, LaterEpochs):
    """A database for each place."""

    settings: ClassVar[dict[str, Any]]
    preloaded = ["distcommit.sinks.mariadb.committer"]
    committer_bases = [ledger_table_committer.__file__, two_phase_proofs.__file__]

    @pytest.fixture(autouse=True)
    def _has_server(self, mariadb_server: MariadbServer) -> None:
        self.server, self.made = mariadb_server, set[str]()

    def make_sink(self, folder: Path) -> CommitterSink:
        database = _database_of(folder)
        if database not in self.made:
            with self.server.connect() as connection, connection.cursor() as cursor:
                cursor.execute(f"CREATE DATABASE IF NOT EXISTS {database}")
            self.made.add(database)
        url = self.server.url.replace("/shop", f"/{database}")
        section = {"type": "mariadb", "url": url, "password": self.server.password}
        return MariadbSink.model_validate({**section, **self.settings})

    def opened(self, place: Path) -> pymysql.Connection[Cursor]:
        return self.server.connect(_database_of(place))

    def lose(self, folder: Path, request: CommitRequest) -> bool:
        (folder / "staging" / request.infos[-1]["files"][-1][0]).unlink()
        return True

    def cut_off(self, folder: Path) -> bool:
        with self.opened(folder) as connection, connection.cursor() as cursor:
            cursor.execute("DROP TABLE distcommit_ledger")
            cursor.execute("CREATE VIEW distcommit_ledger AS SELECT 1 AS epoch")
        return True


class TestATableForEach(OnMariadb):
    settings: ClassVar = {}

    def test_commit_killed_at_any_line_is_committed_by_the_next(self, tmp_path: Path) -> None:
        """Kill at some lines; all two hundred run in the long profile."""
        self.kill_before_lines(tmp_path, apart=8)

    @pytest.mark.slow
    @pytest.mark.long
    @pytest.mark.timeout(1800)
    def test_commit_killed_at_each_line_is_committed_by_the_next(self, tmp_path: Path) -> None:
        self.kill_before_lines(tmp_path)

    def observe(self, folder: Path) -> Sequence[tuple[str, int]]:
        rows: list[tuple[str, int]] = []
        with self.opened(folder) as connection, connection.cursor() as cursor:
            cursor.execute("SHOW TABLES")
            for table in {name for (name,) in cursor.fetchall()} - {"distcommit_ledger", "distcommit_prepared"}:
                cursor.execute(f"SELECT `offset` FROM `{table}`")
                rows += [(table, offset) for (offset,) in cursor.fetchall()]
        return rows


class TestXa(TestATableForEach):
    settings: ClassVar = {"two_phase": True}
    preloaded = ["distcommit.sinks.mariadb.xa"]

    @pytest.fixture(autouse=True)
    def _leaves_nothing(self, _has_server: None) -> Iterator[None]:
        yield
        for begin, end in prepared_at(self.server):
            roll_back(self.server, begin, end)

    def in_doubt(self, place: Path) -> int:
        return len(prepared_at(self.server))

    def lose(self, folder: Path, request: CommitRequest) -> bool:
        attempt = request.infos[-1]["attempt"]
        ((begin, end),) = [name for name in prepared_at(self.server) if name[1].endswith(attempt)]
        roll_back(self.server, begin, end)
        return True

    def test_commit_killed_at_any_line_is_committed_by_the_next(self, tmp_path: Path) -> None:
        """Kill at some lines of this sink and of the code shared by all databases; all run in the long profile."""
        self.kill_before_lines(tmp_path / "own", apart=4)
        self.kill_before_lines(tmp_path / "shared", apart=4, module=prepared_transactions.__file__)
        assert prepared_at(self.server) == []

    @pytest.mark.slow
    @pytest.mark.long
    @pytest.mark.timeout(1800)
    def test_commit_killed_at_each_line_is_committed_by_the_next(self, tmp_path: Path) -> None:
        self.kill_before_lines(tmp_path / "own")
        self.kill_before_lines(tmp_path / "shared", module=prepared_transactions.__file__)
        assert prepared_at(self.server) == []


class TestUpsert(TestATableForEach):
    settings: ClassVar = {"mode": "upsert", "keys": ["offset"]}

    def test_commit_killed_at_any_line_is_committed_by_the_next(self, tmp_path: Path) -> None:
        """Disabled: the lines are the same as in the base class and take a minute."""


class TestOneTableWithTags(OnMariadb):
    settings: ClassVar = {"table": "rows", "tags": True}

    def test_commit_killed_at_any_line_is_committed_by_the_next(self, tmp_path: Path) -> None:
        """Disabled: the lines are the same as in the base class and take a minute."""

    def observe(self, folder: Path) -> Sequence[tuple[str, int]]:
        return tagged_rows(self, folder)


def tagged_rows(target: OnMariadb, place: Path) -> list[tuple[str, int]]:
    """Return the rows of the shared table, by the tags in the ledger."""
    with target.opened(place) as connection, connection.cursor() as cursor:
        cursor.execute("SHOW TABLES LIKE 'rows'")
        if not cursor.fetchall():
            return []
        cursor.execute("SELECT dataset, `offset` FROM `rows` JOIN distcommit_ledger ON tag = _distcommit_of")
        return [*cursor.fetchall()]


def _database_of(place: Path) -> str:
    return f"s{sha256(str(place).encode()).hexdigest()[:20]}"

"""The SQLite sink fulfills the sink contract."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

import pytest

from distcommit.core.interfaces.committer import CommitRequest
from distcommit.sinks.base.committer_sink import CommitterSink
from distcommit.sinks.databases import ledger_table_committer
from distcommit.sinks.sqlite.sink import SqliteSink
from distcommit.testing.contracts import LaterEpochs, SinkContract


class OnSqlite(SinkContract, LaterEpochs):
    """A file for each place."""

    settings: ClassVar[dict[str, Any]]
    preloaded = ["distcommit.sinks.sqlite.committer"]
    committer_bases = [ledger_table_committer.__file__]

    def make_sink(self, folder: Path) -> CommitterSink:
        return SqliteSink.model_validate({"type": "sqlite", "path": str(folder / "rows.db"), **self.settings})

    def lose(self, folder: Path, request: CommitRequest) -> bool:
        (folder / "staging" / request.infos[-1]["files"][-1][0]).unlink()
        return True

    def cut_off(self, folder: Path) -> bool:
        with opened(folder) as file:
            file.execute("DROP TABLE distcommit_ledger")
            file.execute("CREATE VIEW distcommit_ledger AS SELECT 1 AS epoch")
        return True


class TestATableForEach(OnSqlite):
    settings: ClassVar = {}

    def observe(self, folder: Path) -> Sequence[tuple[str, int]]:
        asked = "SELECT name FROM sqlite_master WHERE type = 'table' AND name <> 'distcommit_ledger'"
        with opened(folder) as file:
            tables = [name for (name,) in file.execute(asked)]
            return [(table, offset) for table in tables for (offset,) in file.execute(f'SELECT offset FROM "{table}"')]


class TestUpsert(TestATableForEach):
    settings: ClassVar = {"mode": "upsert", "keys": ["offset"]}

    def test_commit_killed_at_any_line_is_committed_by_the_next(self, tmp_path: Path) -> None:
        """Disabled: the lines are the same as in the base class."""


class TestOneTableWithTags(OnSqlite):
    settings: ClassVar = {"table": "rows", "tags": True}

    def test_commit_killed_at_any_line_is_committed_by_the_next(self, tmp_path: Path) -> None:
        """Disabled: the lines are the same as in the base class."""

    def observe(self, folder: Path) -> Sequence[tuple[str, int]]:
        with opened(folder) as file:
            if not file.execute("SELECT count(*) FROM sqlite_master WHERE name = 'rows'").fetchone()[0]:
                return []
            asked = "SELECT dataset, offset FROM rows JOIN distcommit_ledger ON tag = _distcommit_of"
            return file.execute(asked).fetchall()


@contextmanager
def opened(place: Path) -> Iterator[sqlite3.Connection]:
    """Open the file as another program does."""
    file = sqlite3.connect(place / "rows.db")
    try:
        with file:
            yield file
    finally:
        file.close()


def test_relative_path_is_rejected_because_executors_would_resolve_it_differently() -> None:
    with pytest.raises(ValueError, match="absolute path"):
        SqliteSink.model_validate({"type": "sqlite", "path": "rows.db"})

"""An example sink, to learn from and for tests: rows in an SQLite file, beside a ledger.

    sink: {type: python, class: "distcommit.testing.fakes.sqlite_sink:SqliteSink", options: {path: /data/rows.db}}

Writers stage JSON lines in their attempt's folder, which the engine syncs and sweeps. The ledger has one row for each
store, dataset and branch. It changes in the transaction that adds the rows, and is never pruned.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import ClassVar

import msgspec
import pyarrow as pa

from distcommit.core.interfaces.committer import (
    CommitOutcome,
    CommitRequest,
    Committed,
    CommitterContext,
    FailedForGood,
    RetryLater,
    SinkCommitter,
)
from distcommit.core.interfaces.file_system import StagedWriter
from distcommit.core.interfaces.ledger import LedgerRow
from distcommit.core.interfaces.sink import (
    Abilities,
    AttemptIdentity,
    Origin,
    Origins,
    Prepared,
    SinkWriter,
    StagingArea,
)
from distcommit.core.support.decoding import from_json
from distcommit.sinks.base import idempotent_commit
from distcommit.sinks.base.committer_sink import CommitterSink
from distcommit.sinks.base.offset_coverage import CoveringWriter, covered_in

_LOCK_TIMEOUT_S = 30
_TABLES = (
    "CREATE TABLE IF NOT EXISTS records (store TEXT, dataset TEXT, branch TEXT, epoch INT, columns TEXT)",
    "CREATE TABLE IF NOT EXISTS ledger (store TEXT, dataset TEXT, branch TEXT, row TEXT,"
    " PRIMARY KEY (store, dataset, branch))",
)


@dataclass(frozen=True, slots=True)
class SqliteSink(CommitterSink):
    """A sink that writes rows to the table `records` of an SQLite database.

    Attributes:
        path: absolute path of the database, which all executors can open.
    """

    name: ClassVar[str] = "sqlite"
    abilities: ClassVar[Abilities] = Abilities(audit=True)
    path: str

    def open_writer(self, attempt: AttemptIdentity, area: StagingArea, origin: Origin) -> SinkWriter:
        return SqliteWriter(area, origin)

    def open_committer(self, context: CommitterContext) -> SinkCommitter:
        return SqliteCommitter(self.path, context)


class SqliteWriter(CoveringWriter):
    """A writer that appends each row as a line to one staged file."""

    def __init__(self, area: StagingArea, origin: Origin) -> None:
        super().__init__(origin)
        self._area = area
        self._file: StagedWriter | None = None

    def write(self, batch: pa.RecordBatch, origins: Origins | None = None) -> None:
        if self._file is None:
            self._file = self._area.fs.create(f"{self._area.folder}/rows.jsonl")
        self._file.write(b"".join(msgspec.json.encode(row) + b"\n" for row in batch.to_pylist()))
        self._covering.add(batch, origins)

    def prepare_commit(self) -> Prepared:
        if self._file is None:
            return Prepared(holes=self._covering.holes_left)
        self._file.close_file(sync=False)
        return Prepared([{"path": f"{self._area.prefix}/rows.jsonl", "covered": self._covering.covered()}])

    def abort(self) -> None:
        if self._file is not None:
            self._file.close_file(sync=False)


class SqliteCommitter(SinkCommitter):
    """A committer with one transaction for each request, which checks and updates the ledger."""

    def __init__(self, path: str, context: CommitterContext) -> None:
        self._context = context
        self._db = sqlite3.connect(path, timeout=_LOCK_TIMEOUT_S, isolation_level=None)
        with self._transaction():
            for table in _TABLES:
                self._db.execute(table)

    def commit(self, requests: Sequence[CommitRequest]) -> Sequence[CommitOutcome]:
        return [self._commit(request) for request in requests]

    def withdraw(self, requests: Sequence[CommitRequest]) -> None:
        with self._transaction():
            for request in requests:
                row = idempotent_commit.taken_back(self._row(request), request, covered_in(request.infos))
                self._db.execute(
                    "DELETE FROM records WHERE (store, dataset, branch, epoch) = (?, ?, ?, ?)",
                    (*self._key(request), request.epoch),
                )
                self._put(request, row)

    def allow(self, requests: Sequence[CommitRequest]) -> None:
        with self._transaction():
            for request in requests:
                row = idempotent_commit.allowed_again(self._row(request), request)
                if row is not None:
                    self._put(request, row)

    def ledger(self) -> Iterator[LedgerRow]:
        rows = self._db.execute("SELECT row FROM ledger WHERE store = ?", (self._context.store_id,))
        return (from_json(row, LedgerRow) for (row,) in rows)

    def visible_rows(self, dataset_urn: str, branch: str) -> int | None:
        count = "SELECT count(*) FROM records WHERE (store, dataset, branch) = (?, ?, ?)"
        rows: int = self._db.execute(count, (self._context.store_id, dataset_urn, branch)).fetchone()[0]
        return rows

    def probe(self) -> None:
        with self._transaction():  # needs the database's lock and journal
            self._db.execute("UPDATE ledger SET row = row WHERE dataset = ''")

    def close(self) -> None:
        self._db.close()

    def _commit(self, request: CommitRequest) -> CommitOutcome:
        try:
            with self._transaction():
                row = self._row(request)
                answer = idempotent_commit.answered(row, request)
                if answer is not None:
                    return answer
                self._load(request)
                self._put(request, idempotent_commit.committed(row, request, covered_in(request.infos)))
        except FileNotFoundError as error:
            return FailedForGood(f"staged rows are gone: {error.filename}")
        except sqlite3.OperationalError as error:  # locked for long, or the disk is full
            return RetryLater(str(error))
        return Committed()

    def _key(self, request: CommitRequest) -> tuple[str, str, str]:
        return self._context.store_id, request.dataset_urn, request.branch

    def _row(self, request: CommitRequest) -> LedgerRow | None:
        location = "SELECT row FROM ledger WHERE (store, dataset, branch) = (?, ?, ?)"
        stored = self._db.execute(location, self._key(request)).fetchone()
        return from_json(stored[0], LedgerRow) if stored else None

    def _load(self, request: CommitRequest) -> None:
        for info in request.infos:
            lines = self._context.fs.read(f"{self._context.staging_root}/{info['path']}").splitlines()
            rows = [(*self._key(request), request.epoch, line.decode()) for line in lines]
            self._db.executemany("INSERT INTO records VALUES (?, ?, ?, ?, ?)", rows)

    def _put(self, request: CommitRequest, row: LedgerRow) -> None:
        text = msgspec.json.encode(row).decode()
        self._db.execute("INSERT OR REPLACE INTO ledger VALUES (?, ?, ?, ?)", (*self._key(request), text))

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """Open a transaction, exclusive over all processes, that commits durably or rolls back on an exception."""
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self._db.execute("ROLLBACK")
            raise
        self._db.execute("COMMIT")

"""A sink as a user writes it, to learn from and to test with: rows in an SQLite file, beside a ledger.

    sink: {type: python, class: "distcommit.testing.models.sqlite_sink:SqliteSink", options: {path: /data/rows.db}}

Writers stage JSON lines in their attempt's own folder, so that the engine syncs and sweeps them. The ledger has one row
for each dataset with its newest epoch; it changes in the transaction that adds the rows, and is never pruned.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO, ClassVar

import msgspec
import pyarrow as pa

from distcommit.model.committer import (
    AlreadyCommitted,
    CommitOutcome,
    CommitRequest,
    Committed,
    CommitterContext,
    FailedForGood,
    RetryLater,
    SinkCommitter,
)
from distcommit.model.errors import ConflictError
from distcommit.model.sink import AttemptIdentity, Origin, Origins, Prepared, SinkWriter, StagingArea
from distcommit.sinks.committer_sink import CommitterSink

_LOCK_TIMEOUT_S = 30


@dataclass(frozen=True, slots=True)
class SqliteSink(CommitterSink):
    """Rows go to the table `records` of the database at `path`, an absolute path that all executors see."""

    name: ClassVar[str] = "sqlite"
    path: str

    def open_writer(self, attempt: AttemptIdentity, area: StagingArea, origin: Origin) -> SinkWriter:
        return SqliteWriter(f"{area.folder}/rows.jsonl")

    def open_committer(self, context: CommitterContext) -> SinkCommitter:
        return SqliteCommitter(self.path)


class SqliteWriter(SinkWriter):
    """Appends rows to one staged file, a line each."""

    def __init__(self, path: str) -> None:
        self._path, self._rows = path, 0
        self._file: IO[bytes] | None = None

    def write(self, batch: pa.RecordBatch, origins: Origins | None = None) -> None:
        if self._file is None:
            self._file = open(self._path, "xb")  # noqa: SIM115 - open until the attempt ends
        for row in batch.to_pylist():
            self._file.write(msgspec.json.encode(row) + b"\n")
        self._rows += batch.num_rows

    def prepare_commit(self) -> Prepared:
        if self._file is None:
            return Prepared()
        self._file.close()
        return Prepared([{"path": self._path, "rows": self._rows}])

    def abort(self) -> None:
        if self._file is not None:
            self._file.close()


class SqliteCommitter(SinkCommitter):
    """Commits each request in a transaction of its own, which checks and moves the ledger."""

    def __init__(self, path: str) -> None:
        self._db = sqlite3.connect(path, timeout=_LOCK_TIMEOUT_S, isolation_level=None)
        with self._transaction():
            self._db.execute("CREATE TABLE IF NOT EXISTS records (dataset TEXT, epoch INT, columns TEXT)")
            self._db.execute("CREATE TABLE IF NOT EXISTS ledger (dataset TEXT PRIMARY KEY, epoch INT, revoked BOOL)")

    def commit(self, requests: Sequence[CommitRequest]) -> Sequence[CommitOutcome]:
        return [self._commit(request) for request in requests]

    def abort(self, requests: Sequence[CommitRequest]) -> None:
        with self._transaction():
            for request in requests:
                epoch, _ = self._newest(request.dataset_urn)
                if epoch > request.epoch:
                    raise ConflictError("a later epoch is committed", dataset=request.dataset_urn, epoch=request.epoch)
                self._db.execute(
                    "DELETE FROM records WHERE dataset = ? AND epoch = ?", (request.dataset_urn, request.epoch)
                )
                self._record(request, revoked=True)

    def probe(self) -> None:
        with self._transaction():  # which needs the database's lock and its log
            self._db.execute("UPDATE ledger SET epoch = epoch WHERE dataset = '' AND epoch < 0")

    def close(self) -> None:
        self._db.close()

    def _commit(self, request: CommitRequest) -> CommitOutcome:
        try:
            with self._transaction():
                epoch, revoked = self._newest(request.dataset_urn)
                if epoch == request.epoch and revoked:
                    return FailedForGood("it was taken back")
                if epoch >= request.epoch:
                    return AlreadyCommitted()
                self._load(request)
                self._record(request, revoked=False)
        except FileNotFoundError as error:
            return FailedForGood(f"staged rows are gone: {error.filename}")
        except sqlite3.OperationalError as error:  # locked for long, or the disk is full
            return RetryLater(str(error))
        return Committed()

    def _newest(self, dataset: str) -> tuple[int, bool]:
        """The newest epoch that the ledger knows of the dataset, and whether it was taken back."""
        found = self._db.execute("SELECT epoch, revoked FROM ledger WHERE dataset = ?", (dataset,)).fetchone()
        return found or (0, False)

    def _load(self, request: CommitRequest) -> None:
        for info in request.infos:
            with open(info["path"], "rb") as lines:
                rows = [msgspec.json.decode(line, type=msgspec.Raw) for line in lines]
            self._db.executemany(
                "INSERT INTO records VALUES (?, ?, ?)",
                [(request.dataset_urn, request.epoch, bytes(row).decode()) for row in rows],
            )

    def _record(self, request: CommitRequest, *, revoked: bool) -> None:
        self._db.execute(
            "INSERT OR REPLACE INTO ledger VALUES (?, ?, ?)", (request.dataset_urn, request.epoch, revoked)
        )

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """One at a time over all processes; durable when the block ends, undone if it raises."""
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self._db.execute("ROLLBACK")
            raise
        self._db.execute("COMMIT")

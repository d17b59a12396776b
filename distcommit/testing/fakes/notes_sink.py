"""A minimal sink as a template for custom sinks: JSON lines in an SQLite file, beside a ledger."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any, ClassVar

import msgspec

from distcommit import AggregatedCommitter, CommitterSink, LedgerRow, Prepared, RecordWriter, RefusedError, ledgers
from distcommit.core.interfaces.committer import CommitOutcome, CommitRequest, Committed, CommitterContext
from distcommit.core.interfaces.sink import AttemptIdentity, Origin, StagingArea
from distcommit.core.support.decoding import from_json


class NotesSink(CommitterSink):
    name: ClassVar[str] = "notes"  # stored with every commit

    def __init__(self, path: str) -> None:
        self.path = path  # a file that all executors can open

    def open_writer(self, attempt: AttemptIdentity, area: StagingArea, origin: Origin) -> NotesWriter:
        return NotesWriter(area)

    def open_committer(self, context: CommitterContext) -> NotesCommitter:
        return NotesCommitter(self.path, context)


class NotesWriter(RecordWriter):
    """A writer, run on an executor. It stages the records, invisible to readers, and returns the staged path."""

    def __init__(self, area: StagingArea) -> None:
        self.area, self.file = area, area.fs.create(f"{area.folder}/notes")

    def write_record(self, record: dict[str, Any]) -> None:
        self.file.write(msgspec.json.encode(record) + b"\n")

    def prepare_commit(self) -> Prepared:
        written = self.file.close_file(sync=False).size_bytes
        return Prepared([f"{self.area.prefix}/notes"] if written else [])

    def abort(self) -> None:
        self.file.close_file(sync=False)


class NotesCommitter(AggregatedCommitter[Sequence[CommitRequest]]):
    """A committer, run on an executor, perhaps beside others with the same requests. It writes rows and their proof in
    one transaction."""

    def __init__(self, path: str, context: CommitterContext) -> None:
        self.context, self.db = context, sqlite3.connect(path, timeout=30, isolation_level=None)
        key = "(store TEXT, dataset TEXT, branch TEXT"
        self.db.execute(f"CREATE TABLE IF NOT EXISTS notes {key}, note TEXT)")
        self.db.execute(f"CREATE TABLE IF NOT EXISTS ledger {key}, row TEXT, PRIMARY KEY (store, dataset, branch))")

    def combine(self, requests: Sequence[CommitRequest]) -> Sequence[CommitRequest]:
        return requests

    def commit_aggregated(self, aggregated: Sequence[CommitRequest]) -> Sequence[CommitOutcome]:
        with self.db:  # all or nothing
            self.db.execute("BEGIN IMMEDIATE")
            return [self.put(request) for request in aggregated]

    def put(self, request: CommitRequest) -> CommitOutcome:
        key = self.context.store_id, request.dataset_urn, request.branch
        stored = self.db.execute("SELECT row FROM ledger WHERE (store, dataset, branch) = (?, ?, ?)", key).fetchone()
        row = from_json(stored[0], LedgerRow) if stored else None
        outcome = ledgers.answered(row, request)
        if outcome is not None:
            return outcome
        for path in request.infos:
            self.db.executemany("INSERT INTO notes VALUES (?, ?, ?, ?)", [(*key, note) for note in self.staged(path)])
        row = ledgers.committed(row, request, ())
        self.db.execute("INSERT OR REPLACE INTO ledger VALUES (?, ?, ?, ?)", (*key, msgspec.json.encode(row)))
        return Committed()

    def staged(self, path: str) -> list[str]:
        try:
            return self.context.fs.read(f"{self.context.staging_root}/{path}").decode().splitlines()
        except FileNotFoundError as error:
            raise RefusedError(f"staged notes are gone: {path}") from error

    def probe(self) -> None:
        self.db.execute("UPDATE ledger SET row = row WHERE dataset = ''")

    def close(self) -> None:
        self.db.close()

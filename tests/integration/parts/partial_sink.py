"""The example sink, with a committer that may commit one row for each call and changes the infos accordingly."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

from distcommit.core.interfaces.committer import (
    CommitOutcome,
    CommitRequest,
    Committed,
    CommitterContext,
    FailedForGood,
    RetryLater,
    SinkCommitter,
)
from distcommit.core.interfaces.sink import AttemptIdentity, Origin, Prepared, SinkWriter, StagingArea
from distcommit.sinks.base import idempotent_commit
from distcommit.sinks.base.offset_coverage import covered_in
from distcommit.testing.fakes.sqlite_sink import SqliteCommitter, SqliteSink, SqliteWriter

IN_PARTS = "in_parts"
AFTER_PART = "after_part"
AFTER_RECORD = "after_record"
REACHED = "reached"
REQUESTS = "requests.jsonl"


@dataclass(frozen=True, slots=True)
class PartialSink(SqliteSink):
    """Sink of rows in a database, with one commit info for each row.

    Files in `folder`, which the test creates, control the committer. IN_PARTS: it commits one row for each call. It
    then creates REACHED and waits as long as there is AFTER_PART or, once a request has changed infos, AFTER_RECORD.
    REQUESTS has a line for each request: dataset, and which infos are marked as done.
    """

    name: ClassVar[str] = "partial"
    folder: str

    def open_writer(self, attempt: AttemptIdentity, area: StagingArea, origin: Origin) -> SinkWriter:
        return _PartialWriter(area, origin)

    def open_committer(self, context: CommitterContext) -> SinkCommitter:
        return PartialCommitter(self, context)


class _PartialWriter(SqliteWriter):
    def prepare_commit(self) -> Prepared:
        prepared = super().prepare_commit()
        if not prepared.infos:
            return prepared
        (info,) = prepared.infos
        path = f"{self._area.folder}/rows.jsonl"
        lines = len(self._area.fs.read(path).splitlines())
        covered = [info["covered"], *[None] * (lines - 1)]
        return Prepared([{**info, "line": n, "covered": part, "is_done": False} for n, part in enumerate(covered)])


class PartialCommitter(SqliteCommitter):
    """Commits each row in a transaction with a proof of its own. The last one is also that of the ledger."""

    def __init__(self, sink: PartialSink, context: CommitterContext) -> None:
        super().__init__(sink.path, context)
        self._folder = Path(sink.folder)
        self._db.execute(
            "CREATE TABLE IF NOT EXISTS parts (store TEXT, dataset TEXT, branch TEXT, epoch INT, part TEXT,"
            " PRIMARY KEY (store, dataset, branch, epoch, part))"
        )

    def commit(self, requests: Sequence[CommitRequest]) -> Sequence[CommitOutcome]:
        marks = [[request.dataset_urn, [info["is_done"] for info in request.infos]] for request in requests]
        with (self._folder / REQUESTS).open("a") as file:
            file.write("".join(json.dumps(one) + "\n" for one in marks))
        if any(any(done) for _, done in marks):
            self._wait_while(AFTER_RECORD)
        outcomes = super().commit(requests)
        if any(isinstance(outcome, RetryLater) for outcome in outcomes):
            self._wait_while(AFTER_PART)
        return outcomes

    def withdraw(self, requests: Sequence[CommitRequest]) -> None:
        covered = [tuple(info for info in request.infos if info["covered"] is not None) for request in requests]
        super().withdraw([replace(request, infos=infos) for request, infos in zip(requests, covered, strict=True)])
        for request in requests:
            self._db.execute(
                "DELETE FROM parts WHERE (store, dataset, branch, epoch) = (?, ?, ?, ?)",
                (*self._key(request), request.epoch),
            )

    def _commit(self, request: CommitRequest) -> CommitOutcome:
        infos: list[dict[str, Any]] = [dict(info) for info in request.infos]
        in_parts = (self._folder / IN_PARTS).exists()
        try:
            while True:
                remaining = [info for info in infos if not info["is_done"]]
                with self._transaction():
                    row = self._row(request)
                    answer = idempotent_commit.answered(row, request)
                    if answer is not None:
                        return answer
                    is_new = [self._load_part(request, info) for info in remaining[: 1 if in_parts else None]]
                    if not in_parts or len(remaining) <= 1:
                        covered = covered_in(info for info in infos if info["covered"] is not None)
                        self._put(request, idempotent_commit.committed(row, request, covered))
                        return Committed()
                remaining[0]["is_done"] = True
                if any(is_new):
                    return RetryLater("rows remain", infos)
        except FileNotFoundError as error:
            return FailedForGood(f"staged rows are gone: {error.filename}")

    def _load_part(self, request: CommitRequest, info: dict[str, Any]) -> bool:
        """Add a row unless it was added before. Return whether it was added."""
        part = f"{info['path']}:{info['line']}"
        added = self._db.execute(
            "INSERT OR IGNORE INTO parts VALUES (?, ?, ?, ?, ?)", (*self._key(request), request.epoch, part)
        )
        if added.rowcount:
            line = self._context.fs.read(f"{self._context.staging_root}/{info['path']}").splitlines()[info["line"]]
            row = (*self._key(request), request.epoch, line.decode())
            self._db.execute("INSERT INTO records VALUES (?, ?, ?, ?, ?)", row)
        return bool(added.rowcount)

    def _wait_while(self, name: str) -> None:
        if (self._folder / name).exists():
            (self._folder / REACHED).touch()
        while (self._folder / name).exists():
            time.sleep(0.05)  # the test, another process, deletes that file

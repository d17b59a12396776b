"""The steps of a job with a sink of database tables: attempts stage rows, committers commit and roll back."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import pyarrow as pa

from distcommit.core.interfaces.committer import (
    CommitOutcome,
    CommitRequest,
    CommitterContext,
    FailedForGood,
    releasing,
)
from distcommit.core.interfaces.sink import AttemptIdentity, Origin, StagingArea
from distcommit.core.work_units import MAIN_BRANCH
from distcommit.fs.local_disk.local_file_system import LocalFileSystem
from distcommit.sinks.databases.table_sink import TableSink


class Committing:
    """Requests and committers of one store, whose rows are staged in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.context = CommitterContext(LocalFileSystem(), str(folder), str(folder / "output"), "store")

    def prepare(
        self,
        sink: TableSink,
        urn: str,
        epoch: int,
        *batches: pa.RecordBatch,
        bases: tuple[int, ...] = (),
        origin: Origin | None = None,
        branch: str = MAIN_BRANCH,
    ) -> CommitRequest:
        """Return a request of one attempt that wrote these batches, by default numbers in a column `n`."""
        attempt = uuid.uuid4().hex
        (self.folder / attempt).mkdir()
        area = StagingArea(LocalFileSystem(), str(self.folder / attempt), attempt, str(self.folder / "output"))
        identity = AttemptIdentity(f"{self.folder}/{epoch}", epoch, urn, "unit", attempt, branch, store_id="store")
        writer = sink.open_writer(identity, area, origin or Origin())
        for batch in batches or (numbers(1, 2, 3),):
            writer.write(batch)
        infos = tuple(writer.prepare_commit().infos)
        return CommitRequest(urn, epoch, infos, branch, bases=bases, attempts=(attempt,))

    def commit(self, sink: TableSink, *requests: CommitRequest) -> list[CommitOutcome]:
        """Return the outcomes of a commit by a new committer, which may have the connection of an earlier one."""
        with releasing(sink.open_committer(self.context)) as committer:
            return list(committer.commit(requests))

    def commit_atomically(self, sink: TableSink, *requests: CommitRequest) -> list[CommitOutcome]:
        """Return the outcomes of an atomic commit by a new committer."""
        with releasing(sink.open_committer(self.context)) as committer:
            return list(committer.commit_atomically(requests))

    def withdraw(self, sink: TableSink, *requests: CommitRequest) -> None:
        """Roll back by a new committer."""
        with releasing(sink.open_committer(self.context)) as committer:
            committer.withdraw(requests)


def numbers(*values: int | None, name: str = "n") -> pa.RecordBatch:
    return pa.record_batch([pa.array(values, pa.int64())], names=[name])


def refused(outcome: Any, *texts: str) -> None:
    """Require that the outcome is final and its reason contains these texts."""
    assert isinstance(outcome, FailedForGood), outcome
    for text in texts:
        assert text in outcome.reason, outcome.reason

"""The example sink, with a committer that stops half-way through a batch until a file appears."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from distcommit.core.interfaces.committer import CommitOutcome, CommitRequest, CommitterContext, SinkCommitter
from distcommit.testing.fakes.sqlite_sink import SqliteCommitter, SqliteSink


@dataclass(frozen=True, slots=True)
class HeldSink(SqliteSink):
    """Sink that blocks in the middle of a commit batch.

    `half_way`: a file that is created when half of a batch is committed. `release`: the file that the committer
    waits for. Ten datasets form a commit group.
    """

    grouped_by: ClassVar[str] = "dataset-N"

    half_way: str
    release: str

    def commit_group(self, dataset_urn: str) -> str:
        return dataset_urn[:-1]

    def open_committer(self, context: CommitterContext) -> SinkCommitter:
        return HeldCommitter(self, context)


class HeldCommitter(SqliteCommitter):
    def __init__(self, sink: HeldSink, context: CommitterContext) -> None:
        super().__init__(sink.path, context)
        self.sink = sink

    def commit(self, requests: Sequence[CommitRequest]) -> Sequence[CommitOutcome]:
        half = len(requests) // 2
        first = super().commit(requests[:half])
        if half:
            Path(self.sink.half_way).touch()
            while not Path(self.sink.release).exists():
                time.sleep(0.05)  # the test, another process, creates that file
        return [*first, *super().commit(requests[half:])]

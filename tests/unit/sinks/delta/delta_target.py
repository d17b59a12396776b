"""Delta tables in a folder, and a job's operations on them."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable

from distcommit.core.interfaces.committer import CommitOutcome, CommitRequest, CommitterContext
from distcommit.core.interfaces.sink import AttemptIdentity, Origin, StagingArea
from distcommit.fs.local_disk.local_file_system import LocalFileSystem
from distcommit.sinks.delta.committer import DeltaCommitter
from distcommit.sinks.delta.sink import DeltaSink

FS = LocalFileSystem(durable=False)


@dataclass
class Target:
    """A location of tables in an empty folder."""

    folder: Path
    fs: LocalFileSystem = FS

    @property
    def location(self) -> Path:
        return self.folder / "tables"

    def sink(self, **settings: Any) -> DeltaSink:
        self.location.mkdir(exist_ok=True)
        return DeltaSink.model_validate({"type": "delta", "location": str(self.location), **settings})

    def prepare(
        self, sink: DeltaSink, urn: str, epoch: int, rows: pa.Table, bases: tuple[int, ...] = (), attempt: str = ""
    ) -> CommitRequest:
        attempt = attempt or uuid.uuid4().hex
        (self.folder / "staging" / attempt).mkdir(parents=True)
        identity = AttemptIdentity(f"run-{epoch}", epoch, urn, "unit", attempt)
        area = StagingArea(self.fs, f"{self.folder}/staging/{attempt}", attempt, f"{self.folder}/output")
        writer = sink.open_writer(identity, area, Origin())
        for batch in rows.to_batches():
            writer.write(batch)
        return CommitRequest(urn, epoch, tuple(writer.prepare_commit().infos), bases=bases, attempts=(attempt,))

    def committer(self, sink: DeltaSink) -> DeltaCommitter:
        context = CommitterContext(self.fs, f"{self.folder}/staging", f"{self.folder}/output", "store-1")
        committer = sink.open_committer(context)
        assert isinstance(committer, DeltaCommitter)
        return committer

    def commit(self, sink: DeltaSink, *requests: CommitRequest) -> list[CommitOutcome]:
        return list(self.committer(sink).commit(requests))

    def table(self, name: str) -> DeltaTable:
        return DeltaTable(self.location / name)

    def rows(self, name: str) -> list[Any]:
        return sorted(self.table(name).to_pyarrow_table()["id"].to_pylist())

    def ledgers(self) -> list[Path]:
        return sorted((self.folder / "output" / ".distcommit" / "ledgers").glob("*"))

    def data(self, name: str) -> list[str]:
        return sorted(path.name for path in (self.location / name).glob("*.parquet"))


def ids(*numbers: int, **more: Any) -> pa.Table:
    return pa.table({"id": pa.array(numbers, pa.int64()), **more})

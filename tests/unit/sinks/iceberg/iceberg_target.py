"""A warehouse and its catalog in a folder, and a job's operations on its tables."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyiceberg.catalog import load_catalog
from pyiceberg.table import Table

from distcommit.core.interfaces.committer import CommitOutcome, CommitRequest, CommitterContext
from distcommit.core.interfaces.sink import AttemptIdentity, Origin, StagingArea
from distcommit.fs.local_disk.local_file_system import LocalFileSystem
from distcommit.sinks.iceberg.committer import IcebergCommitter
from distcommit.sinks.iceberg.sink import IcebergSink

FS = LocalFileSystem(durable=False)


@dataclass
class Target:
    """A warehouse and its catalog in an empty folder."""

    folder: Path

    @property
    def catalog(self) -> dict[str, str]:
        return {"uri": f"sqlite:///{self.folder}/catalog.db", "warehouse": f"file://{self.folder}/warehouse"}

    def sink(self, **settings: Any) -> IcebergSink:
        catalog = {"type": "sql", **self.catalog}
        return IcebergSink.model_validate({"type": "iceberg", "catalog": catalog, "namespace": "n", **settings})

    def prepare(
        self, sink: IcebergSink, urn: str, epoch: int, rows: pa.Table, bases: tuple[int, ...] = (), attempt: str = ""
    ) -> CommitRequest:
        attempt = attempt or uuid.uuid4().hex
        (self.folder / "staging" / attempt).mkdir(parents=True)
        identity = AttemptIdentity(f"run-{epoch}", epoch, urn, "unit", attempt)
        area = StagingArea(FS, f"{self.folder}/staging/{attempt}", attempt, f"{self.folder}/output")
        writer = sink.open_writer(identity, area, Origin())
        for batch in rows.to_batches():
            writer.write(batch)
        return CommitRequest(urn, epoch, tuple(writer.prepare_commit().infos), bases=bases, attempts=(attempt,))

    def committer(self, sink: IcebergSink) -> IcebergCommitter:
        context = CommitterContext(FS, f"{self.folder}/staging", f"{self.folder}/output", "store-1")
        committer = sink.open_committer(context)
        assert isinstance(committer, IcebergCommitter)
        return committer

    def commit(self, sink: IcebergSink, *requests: CommitRequest) -> list[CommitOutcome]:
        return list(self.committer(sink).commit(requests))

    def table(self, name: str) -> Table:
        with load_catalog("default", type="sql", **self.catalog) as catalog:
            return catalog.load_table(("n", name))

    @contextmanager
    def open_table(self, name: str) -> Iterator[Table]:
        """Open the table to alter it."""
        with load_catalog("default", type="sql", **self.catalog) as catalog:
            yield catalog.load_table(("n", name))

    def rows(self, name: str) -> list[Any]:
        return sorted(self.table(name).scan().to_arrow()["id"].to_pylist())

    def data(self, name: str) -> set[str]:
        return {path.name for path in (self.folder / "warehouse" / "n" / name / "data").iterdir()}

    def ledgers(self) -> list[Path]:
        return sorted((self.folder / "output" / ".distcommit" / "ledgers").glob("*"))


def ids(*numbers: int, **more: Any) -> pa.Table:
    return pa.table({"id": pa.array(numbers, pa.int64()), **more})

"""The same data added to Iceberg tables by the sink, and by pyiceberg's own append."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import requests
from pyiceberg.catalog import Catalog, load_catalog
from sqlalchemy import Engine, event

from distcommit.core.interfaces.committer import CommitRequest, Committed, CommitterContext
from distcommit.core.interfaces.sink import AttemptIdentity, Origin, StagingArea
from distcommit.fs.local_disk.local_file_system import LocalFileSystem
from distcommit.sinks.iceberg.sink import IcebergSink
from tests.servers.nessie import NessieServer

NAMESPACE = "bench"


class IcebergPlace:
    """A warehouse and a SQLite catalog, in a folder of their own."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        self.folder = folder
        self.settings = {
            "type": "sql",
            "uri": f"sqlite:///{folder}/catalog.db",
            "warehouse": f"file://{folder}/warehouse",
        }
        self.properties: dict[str, str] = {}

    def client(self) -> Catalog:
        """Return the catalog, by pyiceberg alone."""
        return load_catalog("default", **self.settings)

    def sink(self) -> IcebergSink:
        """Return the sink, with a table for each dataset."""
        tables = {"catalog": self.settings, "namespace": NAMESPACE, "properties": self.properties}
        return IcebergSink.model_validate({"type": "iceberg", **tables})

    def make(self, sink: IcebergSink, datasets: list[str], schema: pa.Schema) -> float:
        """Return the seconds of creating their tables, as at the beginning of a task that writes to them in its
        first run."""
        began = time.perf_counter()
        sink.announce(datasets, schema, "run-1")
        return time.perf_counter() - began

    @contextmanager
    def asked_for_nothing(self, calls: list[str]) -> Iterator[None]:
        """Raise RuntimeError if the catalog gets a request in the block."""
        before = len(calls)
        yield
        if len(calls) > before:
            raise RuntimeError(f"the catalog was asked for {len(calls) - before} things, first {calls[before]}")

    def prepare(self, sink: IcebergSink, dataset: str, epoch: int, batches: list[pa.RecordBatch]) -> CommitRequest:
        """Return a writer's prepared commit of these records."""
        fs, attempt = LocalFileSystem(durable=False), uuid.uuid4().hex
        (self.folder / "staging" / attempt).mkdir(parents=True)
        area = StagingArea(fs, f"{self.folder}/staging/{attempt}", attempt, str(self.folder))
        identity = AttemptIdentity(f"run-{epoch}", epoch, dataset, "unit", attempt)
        writer = sink.open_writer(identity, area, Origin())
        for batch in batches:
            writer.write(batch)
        return CommitRequest(dataset, epoch, tuple(writer.prepare_commit().infos))

    def commit(self, sink: IcebergSink, requests: list[CommitRequest]) -> float:
        """Return the seconds of their commit by one call."""
        fs = LocalFileSystem(durable=False)
        began = time.perf_counter()
        committer = sink.open_committer(CommitterContext(fs, f"{self.folder}/staging", str(self.folder), "bench"))
        outcomes = committer.commit(requests)
        seconds = time.perf_counter() - began
        if set(outcomes) != {Committed()}:
            raise RuntimeError(f"not committed: {outcomes[:3]}")
        return seconds


class RestPlace(IcebergPlace):
    """A warehouse with a REST catalog. Tables' files are in the folder, except the catalog's own."""

    def __init__(self, folder: Path, server: NessieServer) -> None:
        super().__init__(folder)
        self.settings = {"type": "rest", "uri": server.url}
        self.properties = dict.fromkeys(("write.data.path", "write.metadata.path"), f"file://{folder}/tables")


@contextmanager
def delayed_requests(seconds: float) -> Iterator[list[str]]:
    """Delay each request to a REST catalog by that time; yield the list of requests."""
    calls, sending = list[str](), requests.Session.send

    def send(self: requests.Session, request: requests.PreparedRequest, **settings: Any) -> requests.Response:
        calls.append(f"{request.method} {request.url}")
        time.sleep(seconds)
        return sending(self, request, **settings)

    with patch.object(requests.Session, "send", send):
        yield calls


@contextmanager
def delayed(seconds: float) -> Iterator[list[str]]:
    """Delay each statement and each commit of any database by that time; yield the list of them."""
    calls: list[str] = []

    def before_statement(*arguments: object) -> None:
        calls.append(str(arguments[2]))
        time.sleep(seconds)

    def before_commit(_: object) -> None:
        calls.append("COMMIT")
        time.sleep(seconds)

    event.listen(Engine, "before_cursor_execute", before_statement)
    event.listen(Engine, "commit", before_commit)
    try:
        yield calls
    finally:
        event.remove(Engine, "before_cursor_execute", before_statement)
        event.remove(Engine, "commit", before_commit)

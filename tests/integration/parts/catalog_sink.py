"""The example sink, with a catalog of the schemas that its writers receive before their first record."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa

from distcommit.core.interfaces.sink import AttemptIdentity, Origin, Origins, SinkWriter, StagingArea
from distcommit.testing.fakes.sqlite_sink import SqliteSink, SqliteWriter


@dataclass(frozen=True, slots=True)
class CatalogSink(SqliteSink):
    def open_writer(self, attempt: AttemptIdentity, area: StagingArea, origin: Origin) -> SinkWriter:
        columns = None if origin.schema is None else ", ".join(f"{field.name} {field.type}" for field in origin.schema)
        with closing(sqlite3.connect(f"{self.path}.catalog", timeout=30, isolation_level=None)) as db:
            db.execute("CREATE TABLE IF NOT EXISTS catalog (epoch INT, dataset TEXT, columns TEXT)")
            db.execute("INSERT INTO catalog VALUES (?, ?, ?)", (attempt.epoch, attempt.dataset_urn, columns))
        return CatalogWriter(area, origin)


@dataclass(frozen=True, slots=True)
class SecondCatalogSink(CatalogSink):
    """A sink for another branch: commits of branches are stored under different names."""

    name: ClassVar[str] = "sqlite-second"


class CatalogWriter(SqliteWriter):
    """Fails if records have another schema than the one received before."""

    def __init__(self, area: StagingArea, origin: Origin) -> None:
        super().__init__(area, origin)
        self._schema = origin.schema

    def write(self, batch: pa.RecordBatch, origins: Origins | None = None) -> None:
        if self._schema is not None and not batch.schema.equals(self._schema):
            raise ValueError(f"expected {self._schema}, found {batch.schema}")
        super().write(batch, origins)

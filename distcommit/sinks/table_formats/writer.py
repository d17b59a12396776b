"""Base classes of writers of data files, which belong to a table once they are committed."""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, Protocol, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from distcommit.core.interfaces.sink import (
    AttemptIdentity,
    Origin,
    Origins,
    Prepared,
    StagingArea,
)
from distcommit.schemas.coercion import SchemaCoercion
from distcommit.sinks.base.file_names import data_file_name
from distcommit.sinks.base.offset_coverage import CoveringWriter
from distcommit.sinks.base.target_connections import Connection
from distcommit.sinks.table_formats.data_file_sink import DataFileSink
from distcommit.sinks.table_formats.data_files import leave_note, sync_locations

_WAITING_BYTES = 64 << 20
_OPEN_FILES = 32

PartitionT = TypeVar("PartitionT")
TableT = TypeVar("TableT")
FilesT = TypeVar("FilesT", bound="DataFiles[Any]")


class Stream(Connection, Protocol):
    def tell(self) -> int:
        """Return the number of bytes written."""


@dataclass(slots=True)
class OpenFile(Generic[PartitionT]):
    """A data file that is being written.

    Attributes:
        path: path of the file, as the table's metadata names it.
        partition: partition of all its rows.
        stream: output, which counts the bytes.
        writer: Parquet writer on the stream.
        rows: number of rows written so far.
        row_groups: number of row groups written so far.
    """

    path: str
    partition: PartitionT
    stream: Stream
    writer: pq.ParquetWriter
    rows: int = 0
    row_groups: int = 0


class DataFiles(ABC, Generic[PartitionT]):
    """Data files of one schema of a table. At most 32 are open, one for each partition.

    Args:
        sink: settings with the sink's name and the size at which files are closed.
        schema_id: id of the table's schema that the files have.
        attempt: the attempt, which the file names contain.
        area: the attempt's staging folder, for notes with the files' locations.
        begun: number of data files that the attempt has created before.
        options: options of the Parquet writer.
    """

    def __init__(
        self,
        sink: DataFileSink,
        schema_id: str | int,
        attempt: AttemptIdentity,
        area: StagingArea,
        begun: int,
        **options: Any,
    ) -> None:
        self.schema_id, self.begun = schema_id, begun
        self._sink_name, self._target_bytes = sink.name, sink.target_file_bytes
        self._attempt, self._area, self._options = attempt, area, options
        self._open: dict[Hashable, OpenFile[PartitionT]] = {}
        self._finished: list[dict[str, Any]] = []
        self._paths: list[str] = []

    @abstractmethod
    def split(self, rows: pa.Table) -> Iterator[tuple[Hashable, PartitionT, pa.Table]]:
        """Yield each partition's key, value and rows."""

    @abstractmethod
    def path_of(self, name: str, partition: PartitionT) -> str: ...

    @abstractmethod
    def create(self, path: str) -> Stream: ...

    @abstractmethod
    def remove(self, path: str) -> None: ...

    @abstractmethod
    def described(self, file: OpenFile[PartitionT], size_bytes: int) -> dict[str, Any]:
        """Return a finished file's entry for the commit info."""

    def note(self) -> tuple[str, ...]:
        return ()

    def write(self, rows: pa.Table) -> None:
        for key, partition, part in self.split(rows):
            file = self._open.pop(key, None) or self._begin(partition, part.schema)
            self._open[key] = file  # the file that was written to last comes last
            file.writer.write_table(_as_in_file(part, file.writer.schema), row_group_size=part.num_rows)
            file.rows += part.num_rows
            file.row_groups += 1
            if file.stream.tell() >= self._target_bytes:
                self._finish(self._open.pop(key))
            elif len(self._open) > _OPEN_FILES:
                self._finish(self._open.pop(next(iter(self._open))))

    def close(self) -> list[dict[str, Any]]:
        while self._open:
            self._finish(self._open.popitem()[1])
        return self._finished

    def delete(self) -> None:
        """Close and delete all files, ignoring errors: `abort` deletes them later."""
        for file in self._open.values():
            _close_quietly(file.writer, file.stream)
        for path in self._paths:
            with contextlib.suppress(Exception):
                self.remove(path)

    def _begin(self, partition: PartitionT, schema: pa.Schema) -> OpenFile[PartitionT]:
        name = data_file_name(self._attempt.epoch, self._attempt.attempt, self.begun)
        self.begun += 1
        path = self.path_of(name, partition)
        leave_note(self._area, self._sink_name, name, path, *self.note())
        self._paths.append(path)
        stream = self.create(path)
        try:
            return OpenFile(path, partition, stream, pq.ParquetWriter(stream, schema, **self._options))
        except BaseException:
            _close_quietly(stream)
            raise

    def _finish(self, file: OpenFile[PartitionT]) -> None:
        with contextlib.closing(file.stream):
            file.writer.close()
            size_bytes = file.stream.tell()
        self._finished.append(self.described(file, size_bytes))


class DataFileWriter(CoveringWriter, Generic[TableT, FilesT]):
    """Writer that buffers up to 64 MiB of rows, and writes a row group for each partition."""

    groups_schemas: ClassVar[bool] = True

    def __init__(self, attempt: AttemptIdentity, area: StagingArea, origin: Origin) -> None:
        super().__init__(origin)
        self._attempt, self._area = attempt, area
        self._schema: pa.Schema | None = None
        self._files: FilesT | None = None
        self._coercion: SchemaCoercion | None = None
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_bytes = 0
        self._older: list[FilesT] = []

    @abstractmethod
    def table_for(self, schema: pa.Schema) -> TableT:
        """Return the table, after creating or widening it if these records require it. Raises ConfigurationError if
        that is not allowed, or they do not fit."""

    @abstractmethod
    def schema_id(self, table: TableT) -> str | int: ...

    @abstractmethod
    def new_files(self, table: TableT, begun: int) -> FilesT:
        """Return files of the table's present schema; `begun` counts the attempt's earlier ones."""

    @abstractmethod
    def coercion(self, files: FilesT, schema: pa.Schema) -> SchemaCoercion: ...

    @abstractmethod
    def table_info(self, files: FilesT) -> tuple[dict[str, Any], str]:
        """Return the commit info's entries for the table, and the location of its data files."""

    def write(self, batch: pa.RecordBatch, origins: Origins | None = None) -> None:
        """Take records. Raises ConfigurationError if the table can't take the records or may not be created, and
        SourceError if a row has no source offset."""
        if not batch.num_rows:
            return
        self._covering.add(batch, origins)
        if self._schema is None or not batch.schema.equals(self._schema):
            self._flush()
            self._coercion = self._adapt(batch.schema)
            self._schema = batch.schema
        assert self._coercion is not None
        rows = self._coercion.coerce(batch)
        self._waiting.append(rows)
        self._waiting_bytes += rows.nbytes
        if self._waiting_bytes >= _WAITING_BYTES:
            self._flush()

    def prepare_commit(self) -> Prepared:
        self._flush()
        written = [file for files in self._all() for file in files.close()]
        if not self._covering.rows:
            return Prepared(holes=self._covering.holes_left)
        assert self._files is not None
        table, location = self.table_info(self._files)
        sync_locations(self._area.fs, [location])
        return Prepared([{**table, "files": written, "covered": self._covering.covered()}])

    def abort(self) -> None:
        for files in self._all():
            files.delete()

    def _adapt(self, schema: pa.Schema) -> SchemaCoercion:
        table, files = self.table_for(schema), self._files
        if files is None or files.schema_id != self.schema_id(table):
            if files is not None:
                self._older.append(files)
            files = self._files = self.new_files(table, files.begun if files is not None else 0)
        return self.coercion(files, schema)

    def _all(self) -> list[FilesT]:
        return [*self._older, *([self._files] if self._files is not None else [])]

    def _flush(self) -> None:
        if not self._waiting:
            return
        assert self._files is not None
        rows = pa.Table.from_batches(self._waiting)
        self._waiting, self._waiting_bytes = [], 0
        self._files.write(rows)


def _as_in_file(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    return rows if rows.schema.equals(schema) else rows.cast(schema)


def _close_quietly(*opened: Connection) -> None:
    for connection in opened:
        with contextlib.suppress(Exception):
            connection.close()

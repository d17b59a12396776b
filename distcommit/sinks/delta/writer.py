"""The writer: data files in the table's own folder, which no version of the table knows until they are committed."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable

from distcommit.core.errors import ConfigurationError
from distcommit.core.interfaces.sink import AttemptIdentity, Origin, StagingArea
from distcommit.sinks.base.target_files import data_file_name
from distcommit.sinks.delta.altered import partition_types
from distcommit.sinks.delta.data_files import partition_text
from distcommit.sinks.delta.locations import opened
from distcommit.sinks.delta.making import table_for
from distcommit.sinks.delta.schemas import columns_of, schema_id
from distcommit.sinks.delta.settings import DeltaSettings
from distcommit.sinks.delta.tables import DeltaTables, table_id
from distcommit.sinks.table_formats.data_files import DataFileWriter, TableFiles, leave_note, let_go, like_those_before
from distcommit.sinks.table_formats.schema_coercion import Fitting

_OPEN_FILES = 32
_ROW = "_row"


class DeltaWriter(DataFileWriter):
    """Data files in the table's own folder, with the columns that it had when they were begun."""

    def __init__(self, sink: DeltaSettings, attempt: AttemptIdentity, area: StagingArea, origin: Origin) -> None:
        super().__init__(attempt, area, origin)
        self._sink, self._name = sink, sink.table_of(attempt.dataset_urn)
        self._newest: DeltaFiles | None = None

    def _adapted(self, schema: pa.Schema) -> tuple[TableFiles, Fitting]:
        table = table_for(self._sink, self._name, schema)
        files = self._newest
        if files is None or files.schema_id != schema_id(table):
            if files is not None:
                self._closed.append(files)
            begun = files.begun if files is not None else 0
            files = DeltaFiles(self._sink, self._name, table, self._attempt, self._area, begun)
            self._newest = files
        return files, Fitting(files.columns, schema)

    def _table(self) -> tuple[dict[str, Any], str]:
        assert self._newest is not None
        files = self._newest
        partitions = {"partition_by": files.partition_by, "partition_types": files.partition_types}
        return {"table": self._name, "id": files.id, **partitions}, DeltaTables(self._sink.location).uri(self._name)


@dataclass(slots=True)
class _OpenFile:
    path: str
    partition: dict[str, str | None]
    stream: pa.NativeFile
    writer: pq.ParquetWriter
    rows: int = 0


class DeltaFiles:
    """Data files of one schema of a table, one open for each partition. All lie in the table's folder itself: which
    partition a file is of, the log says.

    Args:
        sink: where tables are, and how large files get.
        name: the table's.
        table: as it was when writing began.
        attempt: goes into their names.
        area: where a note of each is left before it is begun, by which it is found should the attempt die.
        begun: how many files the attempt has begun before.
    """

    def __init__(
        self,
        sink: DeltaSettings,
        name: str,
        table: DeltaTable,
        attempt: AttemptIdentity,
        area: StagingArea,
        begun: int,
    ) -> None:
        self.begun, self.id, self.schema_id = begun, table_id(table), schema_id(table)
        self.columns = columns_of(table)
        self.partition_by, self.partition_types = list(table.metadata().partition_columns), partition_types(table)
        self._target_bytes, self._name, self._place = sink.target_file_bytes, name, opened(sink.location)
        self._sink_name = sink.name
        self._attempt, self._area = attempt, area
        self._open: dict[tuple[str | None, ...], _OpenFile] = {}
        self._closed: list[dict[str, Any]] = []
        self._paths: list[str] = []

    def write(self, rows: pa.Table) -> None:
        """Writes rows as one row group for each partition."""
        for partition, part in self._split(rows):
            key = tuple(partition.values())
            file = self._open.pop(key, None) or self._begin(partition, part.schema)
            self._open[key] = file  # the one written to last comes last
            file.writer.write_table(like_those_before(part, file.writer.schema), row_group_size=part.num_rows)
            file.rows += part.num_rows
            if file.stream.tell() >= self._target_bytes:
                self._finish(self._open.pop(key))
            elif len(self._open) > _OPEN_FILES:
                self._finish(self._open.pop(next(iter(self._open))))

    def close(self) -> None:
        """Finishes all files."""
        while self._open:
            self._finish(self._open.popitem()[1])

    def plain(self) -> list[dict[str, Any]]:
        """The finished files as plain data."""
        return self._closed

    def delete(self) -> None:
        """Closes and deletes all files."""
        for file in self._open.values():
            let_go(file.writer, file.stream)
        for path in self._paths:
            with contextlib.suppress(OSError):  # what is left is taken as what died leaves
                self._place.delete(path)

    def _split(self, rows: pa.Table) -> Iterator[tuple[dict[str, str | None], pa.Table]]:
        if not self.partition_by:
            yield {}, rows
            return
        numbered = rows.select(self.partition_by).append_column(_ROW, pa.array(range(rows.num_rows), pa.int64()))
        rest = rows.drop_columns(self.partition_by)
        for group in numbered.group_by(self.partition_by).aggregate([(_ROW, "list")]).to_batches():
            for index in range(group.num_rows):
                partition = {name: self._text(name, group.column(name)[index].as_py()) for name in self.partition_by}
                yield partition, rest.take(group.column(f"{_ROW}_list")[index].values)

    def _text(self, column: str, value: Any) -> str | None:
        try:
            return partition_text(value)
        except ValueError as error:
            raise ConfigurationError(
                "a value can't be that of a partition: Delta reads it as null",
                table=self._name,
                column=column,
                found=str(error),
                todo="reject such records with a row checker, or partition by another column",
            ) from error

    def _begin(self, partition: dict[str, str | None], schema: pa.Schema) -> _OpenFile:
        name = data_file_name(self._attempt.epoch, self._attempt.attempt, self.begun)
        self.begun += 1
        path = f"{self._name}/{name}"
        leave_note(self._area, self._sink_name, name, path)
        self._paths.append(path)
        stream = self._place.create(path)
        try:
            return _OpenFile(path, partition, stream, pq.ParquetWriter(stream, schema, store_decimal_as_integer=True))
        except BaseException:
            let_go(stream)
            raise

    def _finish(self, file: _OpenFile) -> None:
        with contextlib.closing(file.stream):
            file.writer.close()
            size = file.stream.tell()
        self._closed.append(
            {
                "path": file.path,
                "schema": self.schema_id,
                "bytes": size,
                "rows": file.rows,
                "partition": file.partition,
                "made_ms": int(time.time() * 1000),
            }
        )

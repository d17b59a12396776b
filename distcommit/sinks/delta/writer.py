"""Writer of data files, which belong to a Delta table once they are committed."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable

from distcommit.core.errors import ConfigurationError
from distcommit.core.interfaces.sink import AttemptIdentity, Origin, StagingArea
from distcommit.schemas.coercion import SchemaCoercion
from distcommit.sinks.delta.altered_tables import partition_types
from distcommit.sinks.delta.data_files import partition_text
from distcommit.sinks.delta.locations import opened
from distcommit.sinks.delta.schemas import columns_of, schema_id
from distcommit.sinks.delta.settings import DeltaSettings
from distcommit.sinks.delta.table_creation import table_for
from distcommit.sinks.delta.tables import DeltaTables, table_id
from distcommit.sinks.table_formats.writer import DataFiles, DataFileWriter, OpenFile

_ROW = "_row"
Partition = dict[str, str | None]


class DeltaWriter(DataFileWriter[DeltaTable, "DeltaFiles"]):
    def __init__(self, sink: DeltaSettings, attempt: AttemptIdentity, area: StagingArea, origin: Origin) -> None:
        super().__init__(attempt, area, origin)
        self._sink, self._name = sink, sink.table_of(attempt.dataset_urn)

    def table_for(self, schema: pa.Schema) -> DeltaTable:
        return table_for(self._sink, self._name, schema)

    def schema_id(self, table: DeltaTable) -> str:
        return schema_id(table)

    def new_files(self, table: DeltaTable, begun: int) -> DeltaFiles:
        return DeltaFiles(self._sink, self._name, table, self._attempt, self._area, begun)

    def coercion(self, files: DeltaFiles, schema: pa.Schema) -> SchemaCoercion:
        return SchemaCoercion(files.columns, schema)

    def table_info(self, files: DeltaFiles) -> tuple[dict[str, Any], str]:
        partitions = {"partition_by": files.partition_by, "partition_types": files.partition_types}
        return {"table": self._name, "id": files.id, **partitions}, DeltaTables(self._sink.location).uri(self._name)


class DeltaFiles(DataFiles[Partition]):
    """Data files of all partitions directly in the table's folder."""

    def __init__(
        self,
        sink: DeltaSettings,
        name: str,
        table: DeltaTable,
        attempt: AttemptIdentity,
        area: StagingArea,
        begun: int,
    ) -> None:
        super().__init__(sink, schema_id(table), attempt, area, begun, store_decimal_as_integer=True)
        self.id, self.columns = table_id(table), columns_of(table)
        self.partition_by, self.partition_types = list(table.metadata().partition_columns), partition_types(table)
        self._name, self._location = name, opened(sink.location)

    def split(self, rows: pa.Table) -> Iterator[tuple[tuple[str | None, ...], Partition, pa.Table]]:
        if not self.partition_by:
            yield (), {}, rows
            return
        numbered = rows.select(self.partition_by).append_column(_ROW, pa.array(range(rows.num_rows), pa.int64()))
        remainder = rows.drop_columns(self.partition_by)
        for group in numbered.group_by(self.partition_by).aggregate([(_ROW, "list")]).to_batches():
            for index in range(group.num_rows):
                partition = {name: self._text(name, group.column(name)[index].as_py()) for name in self.partition_by}
                yield tuple(partition.values()), partition, remainder.take(group.column(f"{_ROW}_list")[index].values)

    def path_of(self, name: str, partition: Partition) -> str:
        return f"{self._name}/{name}"

    def create(self, path: str) -> pa.NativeFile:
        return self._location.create(path)

    def remove(self, path: str) -> None:
        self._location.delete(path)

    def described(self, file: OpenFile[Partition], size_bytes: int) -> dict[str, Any]:
        return {
            "path": file.path,
            "schema": self.schema_id,
            "bytes": size_bytes,
            "rows": file.rows,
            "partition": file.partition,
            "made_ms": int(time.time() * 1000),
        }

    def _text(self, column: str, value: Any) -> str | None:
        try:
            return partition_text(value)
        except ValueError as error:
            raise ConfigurationError(
                "a value can't be a partition value, because Delta reads it as null",
                id="RECORDS_NOT_STORABLE",
                table=self._name,
                column=column,
                found=str(error),
                todo="reject such records with a row checker, or partition by another column",
            ) from error

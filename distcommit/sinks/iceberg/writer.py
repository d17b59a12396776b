"""Writer of data files, which belong to an Iceberg table once a snapshot has them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyiceberg.io import OutputStream
from pyiceberg.io.pyarrow import (
    _determine_partitions,
    _get_parquet_writer_kwargs,
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    parquet_path_to_id_mapping,
    schema_to_pyarrow,
)
from pyiceberg.partitioning import PartitionKey
from pyiceberg.schema import Schema, sanitize_column_names
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.typedef import Record

from distcommit.core.interfaces.sink import AttemptIdentity, Origin, StagingArea
from distcommit.schemas.coercion import SchemaCoercion
from distcommit.sinks.iceberg.catalog.open_catalogs import cached_tables
from distcommit.sinks.iceberg.data_files import data_folder, plain_file
from distcommit.sinks.iceberg.orphaned_files import note_of
from distcommit.sinks.iceberg.settings import IcebergSettings
from distcommit.sinks.iceberg.table_creation import table_for
from distcommit.sinks.table_formats.writer import DataFiles, DataFileWriter, OpenFile

_MOST_NAME_BYTES = 240


class IcebergWriter(DataFileWriter[Table, "IcebergFiles"]):
    def __init__(self, sink: IcebergSettings, attempt: AttemptIdentity, area: StagingArea, origin: Origin) -> None:
        super().__init__(attempt, area, origin)
        self._sink, self._name = sink, sink.table_of(attempt.dataset_urn)

    def table_for(self, schema: pa.Schema) -> Table:
        cache = cached_tables(self._sink.catalog, self._name[:-1], self._attempt.run_id)
        return table_for(self._sink, self._name, schema, cache)

    def schema_id(self, table: Table) -> int:
        return table.metadata.current_schema_id

    def new_files(self, table: Table, begun: int) -> IcebergFiles:
        return IcebergFiles(table, self._sink, self._attempt, self._area, begun)

    def coercion(self, files: IcebergFiles, schema: pa.Schema) -> SchemaCoercion:
        return SchemaCoercion(schema_to_pyarrow(files.file_schema, include_field_ids=True), files.names_in(schema))

    def table_info(self, files: IcebergFiles) -> tuple[dict[str, Any], str]:
        table = files.table
        return {"table": list(self._name), "uuid": str(table.metadata.table_uuid)}, data_folder(table)


class IcebergFiles(DataFiles[PartitionKey | None]):
    """Data files of the table's schema and partition spec at creation of this object."""

    def __init__(
        self, table: Table, sink: IcebergSettings, attempt: AttemptIdentity, area: StagingArea, begun: int
    ) -> None:
        properties = table.metadata.properties
        options = {**_get_parquet_writer_kwargs(properties), "store_decimal_as_integer": True}
        super().__init__(sink, table.metadata.current_schema_id, attempt, area, begun, **options)
        self.table = table
        self.file_schema: Schema = sanitize_column_names(table.schema())
        self._statistics = compute_statistics_plan(self.file_schema, properties)
        self._columns = parquet_path_to_id_mapping(self.file_schema)
        self._sorted_by = _sort_keys(table)

    def names_in(self, schema: pa.Schema) -> pa.Schema:
        """Return the schema with the names that columns have in files."""
        names = dict(zip(self.table.schema().column_names, self.file_schema.column_names, strict=True))
        return pa.schema([field.with_name(names.get(field.name, field.name)) for field in schema])

    def split(self, rows: pa.Table) -> Iterator[tuple[str, PartitionKey | None, pa.Table]]:
        if self._sorted_by:
            rows = rows.sort_by(self._sorted_by)
        metadata = self.table.metadata
        if metadata.spec().is_unpartitioned():
            yield "", None, rows
            return
        for part in _determine_partitions(metadata.spec(), self.file_schema, rows):
            yield part.partition_key.to_path(), part.partition_key, part.arrow_table_partition

    def note(self) -> tuple[str, ...]:
        return note_of(self.table)

    def path_of(self, name: str, partition: PartitionKey | None) -> str:
        folders = partition if partition is not None and _can_be_folders(partition) else None
        return self.table.location_provider().new_data_location(name, folders)

    def create(self, path: str) -> OutputStream:
        return self.table.io.new_output(path).create()

    def remove(self, path: str) -> None:
        self.table.io.delete(path)

    def described(self, file: OpenFile[PartitionKey | None], size_bytes: int) -> dict[str, Any]:
        statistics = data_file_statistics_from_parquet_metadata(
            file.writer.writer.metadata, self._statistics, self._columns
        )
        metadata = self.table.metadata
        is_sorted = self._sorted_by and file.row_groups == 1
        return plain_file(
            file.path,
            size_bytes,
            file.partition.partition if file.partition is not None else Record(),
            metadata.default_sort_order_id if is_sorted else None,
            statistics.to_serialized_dict(),
            metadata.spec(),
            metadata.schema(),
        )


def _can_be_folders(partition: PartitionKey) -> bool:
    return all(len(part.encode()) <= _MOST_NAME_BYTES for part in partition.to_path().split("/"))


def _sort_keys(table: Table) -> list[tuple[str, str]]:
    keys: list[tuple[str, str]] = []
    schema = table.schema()
    for field in table.sort_order().fields:
        name = schema.find_column_name(field.source_id)
        if not isinstance(field.transform, IdentityTransform) or name is None or "." in name:
            return []
        keys.append((name, "ascending" if field.direction.value == "asc" else "descending"))
    return keys

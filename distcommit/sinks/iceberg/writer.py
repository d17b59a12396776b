"""The writer: data files in the table's own folder, which no version of the table knows until they are committed."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io import OutputStream
from pyiceberg.io.pyarrow import (
    _determine_partitions,
    _get_parquet_writer_kwargs,
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    parquet_path_to_id_mapping,
    schema_to_pyarrow,
)
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.partitioning import PartitionKey
from pyiceberg.schema import Schema, sanitize_column_names
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.typedef import Record

from distcommit.core.interfaces.sink import AttemptIdentity, Origin, StagingArea
from distcommit.sinks.base.target_files import data_file_name
from distcommit.sinks.iceberg.data_files import data_folder, plain_file
from distcommit.sinks.iceberg.leftovers import note_of
from distcommit.sinks.iceberg.making import table_for
from distcommit.sinks.iceberg.opening import known_tables
from distcommit.sinks.iceberg.settings import IcebergSettings
from distcommit.sinks.table_formats.data_files import DataFileWriter, TableFiles, leave_note, let_go, like_those_before
from distcommit.sinks.table_formats.schema_coercion import Fitting

_OPEN_FILES = 32
_MOST_NAME_BYTES = 240


class IcebergWriter(DataFileWriter):
    """Data files in the table's own folder, of the partition spec and sort order that it had when they were begun."""

    def __init__(self, sink: IcebergSettings, attempt: AttemptIdentity, area: StagingArea, origin: Origin) -> None:
        super().__init__(attempt, area, origin)
        self._sink, self._name = sink, sink.table_of(attempt.dataset_urn)
        self._newest: IcebergFiles | None = None

    def _adapted(self, schema: pa.Schema) -> tuple[TableFiles, Fitting]:
        known = known_tables(self._sink.catalog, self._name[:-1], self._attempt.run_id)
        table = table_for(self._sink, self._name, schema, known)
        files = self._newest
        if files is None or files.table.metadata.current_schema_id != table.metadata.current_schema_id:
            if files is not None:
                self._closed.append(files)
            begun = files.begun if files is not None else 0
            files = IcebergFiles(table, self._sink, self._attempt, self._area, begun)
            self._newest = files
        targets = schema_to_pyarrow(files.file_schema, include_field_ids=True)
        return files, Fitting(targets, files.names_in(schema))

    def _table(self) -> tuple[dict[str, Any], str]:
        assert self._newest is not None
        table = self._newest.table
        return {"table": list(self._name), "uuid": str(table.metadata.table_uuid)}, data_folder(table)


@dataclass(slots=True)
class _OpenFile:
    path: str
    partition: PartitionKey | None
    stream: OutputStream
    writer: pq.ParquetWriter
    row_groups: int = 0


class IcebergFiles:
    """Data files of one schema and partition spec of a table, one open for each partition.

    Args:
        table: the table as it was when writing began.
        sink: whose it is, and how large files get.
        attempt: goes into their names.
        area: where a note of each is left before it is begun, by which it is found should the attempt die.
        begun: how many files the attempt has begun before.
    """

    def __init__(
        self, table: Table, sink: IcebergSettings, attempt: AttemptIdentity, area: StagingArea, begun: int
    ) -> None:
        self.table, self.begun = table, begun
        self.file_schema: Schema = sanitize_column_names(table.schema())
        self._attempt, self._area = attempt, area
        self._target_bytes, self._sink_name = sink.target_file_bytes, sink.name
        self._open: dict[str, _OpenFile] = {}
        self._closed: list[DataFile] = []
        self._paths: list[str] = []
        properties = table.metadata.properties
        self._options = {**_get_parquet_writer_kwargs(properties), "store_decimal_as_integer": True}
        self._statistics = compute_statistics_plan(self.file_schema, properties)
        self._columns = parquet_path_to_id_mapping(self.file_schema)
        self._sorted_by = _sort_keys(table)

    def names_in(self, schema: pa.Schema) -> pa.Schema:
        """The schema of batches with the names that columns have in files."""
        names = dict(zip(self.table.schema().column_names, self.file_schema.column_names, strict=True))
        return pa.schema([field.with_name(names.get(field.name, field.name)) for field in schema])

    def write(self, rows: pa.Table) -> None:
        """Writes rows as one row group for each partition."""
        if self._sorted_by:
            rows = rows.sort_by(self._sorted_by)
        for key, partition, part in self._split(rows):
            file = self._open.pop(key, None) or self._begin(partition, part.schema)
            self._open[key] = file  # the one written to last comes last
            file.writer.write_table(like_those_before(part, file.writer.schema), row_group_size=part.num_rows)
            file.row_groups += 1
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
        metadata = self.table.metadata
        return [plain_file(file, metadata.spec(), metadata.schema()) for file in self._closed]

    def delete(self) -> None:
        """Closes and deletes all files."""
        for file in self._open.values():
            let_go(file.writer, file.stream)
        for path in self._paths:
            with contextlib.suppress(Exception):  # removing orphan files takes it
                self.table.io.delete(path)

    def _split(self, rows: pa.Table) -> Iterator[tuple[str, PartitionKey | None, pa.Table]]:
        metadata = self.table.metadata
        if metadata.spec().is_unpartitioned():
            yield "", None, rows
            return
        for part in _determine_partitions(metadata.spec(), self.file_schema, rows):
            yield part.partition_key.to_path(), part.partition_key, part.arrow_table_partition

    def _begin(self, partition: PartitionKey | None, schema: pa.Schema) -> _OpenFile:
        name = data_file_name(self._attempt.epoch, self._attempt.attempt, self.begun)
        self.begun += 1
        names = partition if partition is not None and _can_be_folders(partition) else None
        path = self.table.location_provider().new_data_location(name, names)
        leave_note(self._area, self._sink_name, name, path, *note_of(self.table))
        self._paths.append(path)
        stream = self.table.io.new_output(path).create()
        try:
            return _OpenFile(path, partition, stream, pq.ParquetWriter(stream, schema, **self._options))
        except BaseException:
            let_go(stream)
            raise

    def _finish(self, file: _OpenFile) -> None:
        with contextlib.closing(file.stream):
            file.writer.close()
            size = file.stream.tell()
        statistics = data_file_statistics_from_parquet_metadata(
            file.writer.writer.metadata, self._statistics, self._columns
        )
        whole_is_sorted = self._sorted_by and file.row_groups == 1
        made = DataFile.from_args(
            content=DataFileContent.DATA,
            file_path=file.path,
            file_format=FileFormat.PARQUET,
            partition=file.partition.partition if file.partition is not None else Record(),
            file_size_in_bytes=size,
            sort_order_id=self.table.metadata.default_sort_order_id if whole_is_sorted else None,
            equality_ids=None,
            key_metadata=None,
            **statistics.to_serialized_dict(),
        )
        made.spec_id = self.table.metadata.default_spec_id
        self._closed.append(made)


def _can_be_folders(partition: PartitionKey) -> bool:
    """Return whether folders can be named after a partition's values. Readers do not go by these names."""
    return all(len(part.encode()) <= _MOST_NAME_BYTES for part in partition.to_path().split("/"))


def _sort_keys(table: Table) -> list[tuple[str, str]]:
    """How rows are sorted: by the columns of the table's sort order, as far as it sorts by columns themselves."""
    keys: list[tuple[str, str]] = []
    schema = table.schema()
    for field in table.sort_order().fields:
        name = schema.find_column_name(field.source_id)
        if not isinstance(field.transform, IdentityTransform) or name is None or "." in name:
            return []
        keys.append((name, "ascending" if field.direction.value == "asc" else "descending"))
    return keys

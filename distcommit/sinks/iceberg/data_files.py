"""Data files in commit infos and in manifests."""

from __future__ import annotations

from typing import Any, cast

import msgspec
from pyiceberg.conversions import from_bytes, to_bytes
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table, TableProperties
from pyiceberg.typedef import Record
from pyiceberg.types import PrimitiveType

from distcommit.core.support.decoding import from_msgpack

_STATISTICS = (
    "column_sizes",
    "value_counts",
    "null_value_counts",
    "nan_value_counts",
    "lower_bounds",
    "upper_bounds",
)


def data_folder(table: Table) -> str:
    return table.metadata.properties.get(TableProperties.WRITE_DATA_PATH, table.location())


def folders_of(table: Table) -> tuple[str, str]:
    return data_folder(table), table.metadata.properties.get(TableProperties.WRITE_METADATA_PATH, table.location())


def plain_file(
    path: str,
    size_bytes: int,
    partition: Record,
    sort_order: int | None,
    statistics: dict[str, Any],
    spec: PartitionSpec,
    schema: Schema,
) -> dict[str, Any]:
    """Return a data file's entry for a commit info, with packed statistics."""
    values = zip(_types(spec, schema), partition._data, strict=True)
    return {
        "path": path,
        "bytes": size_bytes,
        "rows": statistics["record_count"],
        "schema": schema.schema_id,
        "spec": spec.spec_id,
        "partition": [None if value is None else to_bytes(kind, value) for kind, value in values],
        "sort_order": sort_order,
        "splits": list(statistics["split_offsets"] or ()),
        "statistics": msgspec.msgpack.encode({name: statistics[name] for name in _STATISTICS}),
    }


def data_file(info: dict[str, Any], spec: PartitionSpec, schema: Schema) -> DataFile:
    """Return the manifest's data file for an entry of `plain_file`, which was written with `spec` and `schema`."""
    types = _types(spec, schema)
    values = [
        None if value is None else from_bytes(kind, value) for kind, value in zip(types, info["partition"], strict=True)
    ]
    decoded = from_msgpack(info["statistics"], dict[str, dict[int, Any]])
    statistics: dict[str, Any] = dict(decoded)
    file = DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=info["path"],
        file_format=FileFormat.PARQUET,
        partition=Record(*values),
        record_count=info["rows"],
        file_size_in_bytes=info["bytes"],
        split_offsets=info["splits"] or None,
        sort_order_id=info["sort_order"],
        key_metadata=None,
        equality_ids=None,
        **statistics,
    )
    file.spec_id = spec.spec_id
    return file


def _types(spec: PartitionSpec, schema: Schema) -> list[PrimitiveType]:
    return [cast(PrimitiveType, field.field_type) for field in spec.partition_type(schema).fields]

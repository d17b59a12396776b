"""Detection of Delta tables that were altered after data files were written.

Delta reads data files by the names of columns. Added columns that may be null are accepted. So is a column that was
dropped and added again with the same type.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable

from distcommit.schemas.table_field_comparison import not_readable_from_files
from distcommit.sinks.delta.locations import Location
from distcommit.sinks.delta.schemas import columns_of, inner_fields, plain_type, schema_id


def partition_types(table: DeltaTable) -> list[str]:
    columns = columns_of(table)
    return [str(columns.field(name).type) for name in table.metadata().partition_columns]


def alterations(table: DeltaTable, location: Location, infos: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Yield changes of a table that would hide values of these data files from readers."""
    now = schema_id(table)
    partitions = table.metadata().partition_columns
    for info in infos:
        if info["partition_by"] != partitions:
            yield f"it is partitioned by {partitions}, and the files by {info['partition_by']}"
            continue
        now_types, file_types = partition_types(table), info["partition_types"]
        if file_types != now_types:
            yield f"its partition columns {partitions} are {now_types}, and those of the files were {file_types}"
        columns = pa.struct([field for field in columns_of(table) if field.name not in partitions])
        for written in {file["schema"]: file["path"] for file in info["files"] if file["schema"] != now}.values():
            yield from not_readable_from_files(columns, pa.struct(location.columns_of(written)), inner_fields, _is_same)


def _is_same(have: pa.DataType, written: pa.DataType) -> bool:
    return plain_type(have) == plain_type(written)

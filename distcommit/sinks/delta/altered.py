"""Tables that were altered between writing data files and committing them.

Delta reads a data file by the names of its columns, in the types and partitions that the table has now. Columns that
were added and may be null are accepted; so is a column that was dropped and added again, in the same type.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable

from distcommit.core.interfaces.committer import CommitRequest, FailedForGood
from distcommit.sinks.delta.locations import Location
from distcommit.sinks.delta.schemas import columns_of, plain_type, schema_id
from distcommit.sinks.table_formats.table_changes import was_altered


def partition_types(table: DeltaTable) -> list[str]:
    """Return the types of the columns that a table is partitioned by, which no data file has."""
    columns = columns_of(table)
    return [str(columns.field(name).type) for name in table.metadata().partition_columns]


def altered(table: DeltaTable, name: str, location: Location, request: CommitRequest) -> FailedForGood | None:
    """Refuse data files if the present table would not show all of their values."""
    problems = list(dict.fromkeys(each for info in request.infos for each in _problems(table, location, info)))
    return was_altered(name, problems) if problems else None


def _problems(table: DeltaTable, location: Location, info: dict[str, Any]) -> Iterator[str]:
    now = schema_id(table)
    partitions = table.metadata().partition_columns
    if info["partition_by"] != partitions:
        yield f"it is partitioned by {partitions}, and the files by {info['partition_by']}"
        return
    if info["partition_types"] != (types := partition_types(table)):
        yield f"its partition columns {partitions} are {types}, and those of the files were {info['partition_types']}"
    columns = pa.schema([field for field in columns_of(table) if field.name not in partitions])
    for written in {file["schema"]: file["path"] for file in info["files"] if file["schema"] != now}.values():
        yield from _struct_misfits(columns, location.columns_of(written), "")


def _struct_misfits(have: pa.Schema | pa.StructType, written: pa.Schema | pa.StructType, path: str) -> Iterator[str]:
    now, then = ({field.name: field for field in fields} for fields in (have, written))
    for field in then.values():
        yield from _field_misfits(now.get(field.name), field, path)
    for field in now.values():
        if field.name not in then and not field.nullable:
            yield f"column {_name(path, field)} was added and requires a value"


def _field_misfits(have: pa.Field | None, written: pa.Field, path: str) -> Iterator[str]:
    name = _name(path, written)
    if have is None:
        yield f"column {name} was dropped"
        return
    if written.nullable and not have.nullable:
        yield f"column {name} requires a value now"
    match have.type, written.type:
        case pa.StructType(), pa.StructType():
            yield from _struct_misfits(have.type, written.type, name)
        case pa.ListType(), pa.ListType():
            yield from _field_misfits(have.type.value_field.with_name("element"), _element(written), name)
        case pa.MapType(), pa.MapType():
            yield from _field_misfits(have.type.key_field, written.type.key_field, name)
            yield from _field_misfits(have.type.item_field, written.type.item_field, name)
        case _ if plain_type(have.type) != plain_type(written.type):
            yield f"column {name} is {have.type}, and the files have {written.type}"


def _element(of: pa.Field) -> pa.Field:
    return of.type.value_field.with_name("element")


def _name(path: str, field: pa.Field) -> str:
    return f"{path}.{field.name}" if path else field.name

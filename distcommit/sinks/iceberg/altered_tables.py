"""Detection of Iceberg tables that were altered after data files were written.

Iceberg reads data files by column ids. A column that was dropped and added again has another id, so readers would get
NULL.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import IcebergType

from distcommit.schemas.table_field_comparison import not_readable_from_files
from distcommit.sinks.iceberg.schemas import FORMAT_VERSION, holds, inner_fields


def schema_of(table: Table, schema_id: int) -> Schema | None:
    return next((schema for schema in table.metadata.schemas if schema.schema_id == schema_id), None)


def alterations(table: Table, files: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Yield changes of a table that would hide values of these data files from readers."""
    metadata = table.metadata
    if metadata.format_version > FORMAT_VERSION:
        yield f"its format version is {metadata.format_version}, and at most {FORMAT_VERSION} can be written"
    for spec in sorted({file["spec"] for file in files} - metadata.specs().keys()):
        yield f"its partition spec {spec}, which the files were written by, was removed"
    for schema_id in {file["schema"] for file in files} - {metadata.current_schema_id}:
        written = schema_of(table, schema_id)
        if written is None:
            yield f"its schema {schema_id}, which the files were written by, was removed"
        else:
            now: IcebergType = table.schema().as_struct()
            yield from not_readable_from_files(now, written.as_struct(), inner_fields, holds)

"""Tables that were altered between writing data files and committing them.

Iceberg reads a data file by the ids of its columns. A column that was dropped and added again has another id, so that
readers find NULL in place of each staged value. So the table's present schema is compared with the one that the files
were written by. Columns that were renamed, widened, or added without a value keep all staged values and are accepted.
"""

from __future__ import annotations

from collections.abc import Iterator

from pyiceberg.exceptions import ResolveError
from pyiceberg.schema import Schema, promote
from pyiceberg.table import Table
from pyiceberg.types import IcebergType, ListType, MapType, NestedField, StructType

from distcommit.core.interfaces.committer import CommitRequest, FailedForGood
from distcommit.sinks.iceberg.schemas import FORMAT_VERSION
from distcommit.sinks.table_formats.table_changes import was_altered


def schema_of(table: Table, schema_id: int) -> Schema | None:
    """Return the table's schema with that id; None if it was removed from the metadata."""
    return next((schema for schema in table.metadata.schemas if schema.schema_id == schema_id), None)


def altered(table: Table, request: CommitRequest) -> FailedForGood | None:
    """Refuse data files if the present table would not show all of their values."""
    problems = list(dict.fromkeys(_problems(table, request)))
    return was_altered(".".join(table.name()), problems) if problems else None


def _problems(table: Table, request: CommitRequest) -> Iterator[str]:
    metadata = table.metadata
    if metadata.format_version > FORMAT_VERSION:
        yield f"its format version is {metadata.format_version}, and at most {FORMAT_VERSION} can be written"
    files = [file for info in request.infos for file in info["files"]]
    for spec in sorted({file["spec"] for file in files} - metadata.specs().keys()):
        yield f"its partition spec {spec}, which the files were written by, was removed"
    for schema_id in {file["schema"] for file in files} - {metadata.current_schema_id}:
        written = schema_of(table, schema_id)
        if written is None:
            yield f"its schema {schema_id}, which the files were written by, was removed"
        else:
            yield from _struct_misfits(table.schema().as_struct(), written.as_struct(), "")


def _misfits(have: IcebergType, written: IcebergType, path: str) -> Iterator[str]:
    match have, written:
        case StructType(), StructType():
            yield from _struct_misfits(have, written, path)
        case ListType(), ListType():
            yield from _field_misfits(have.element_field, written.element_field, path)
        case MapType(), MapType():
            yield from _field_misfits(have.key_field, written.key_field, path)
            yield from _field_misfits(have.value_field, written.value_field, path)
        case _ if str(have) != str(written):
            try:
                promote(written, have)
            except ResolveError:
                yield f"column {path} is {have}, and the files have {written}"


def _struct_misfits(have: StructType, written: StructType, path: str) -> Iterator[str]:
    now, then = ({field.field_id: field for field in struct.fields} for struct in (have, written))
    for field_id, field in then.items():
        yield from _field_misfits(now.get(field_id), field, path)
    for field_id, field in now.items():
        if field_id not in then and field.required and field.initial_default is None:
            yield f"column {_name(path, field)} was added and requires a value"


def _field_misfits(have: NestedField | None, written: NestedField, path: str) -> Iterator[str]:
    name = _name(path, written)
    if have is None or have.field_id != written.field_id:
        yield f"column {name} (id {written.field_id}) was dropped"
        return
    if have.required and not written.required:
        yield f"column {name} requires a value now"
    yield from _misfits(have.field_type, written.field_type, name)


def _name(path: str, field: NestedField) -> str:
    return f"{path}.{field.name}" if path else field.name

"""Creation of Delta tables, and addition of columns."""

from __future__ import annotations

import pyarrow as pa
from deltalake import DeltaTable, Schema
from deltalake.exceptions import CommitFailedError, DeltaError, SchemaMismatchError

from distcommit.core.errors import ConfigurationError, TransientError
from distcommit.schemas.column_names import check_distinct
from distcommit.sinks.base.retries import tries
from distcommit.sinks.delta.schemas import check_writable, columns_of, lacking, storable
from distcommit.sinks.delta.settings import DeltaSettings
from distcommit.sinks.delta.tables import DeltaTables
from distcommit.sinks.table_formats.table_refusals import ALWAYS_CHANGED, misfit

_TRIES = 20
_NO_COLUMN = "no column "
_PARTITIONS = (pa.types.is_string, pa.types.is_integer, pa.types.is_date32, pa.types.is_boolean)
"""Types of partition columns: each of their values has exactly one text."""


def table_for(sink: DeltaSettings, name: str, schema: pa.Schema) -> DeltaTable:
    """Return the table, after creating it or adding columns if these records require it. Raises ConfigurationError if
    that is not allowed or the records do not fit, and TransientError if other writers change it during 20 tries."""
    required, tables = storable(schema), DeltaTables(sink.location)
    for _ in tries(_TRIES):
        table = tables.load(name)
        if table is None:
            _create(sink, tables, name, required)
            continue
        check_writable(table, name)
        have = columns_of(table)
        problems = list(lacking(have, required))
        if not problems:
            _check_partitions(have, table.metadata().partition_columns)
            return table
        _widen(sink, table, name, required, problems)
    raise TransientError(ALWAYS_CHANGED, id="TABLE_CHANGED_CONCURRENTLY", table=name)


def _create(sink: DeltaSettings, tables: DeltaTables, name: str, required: pa.Schema) -> None:
    path = tables.uri(name)
    if not sink.create:
        raise ConfigurationError(
            "the table does not exist", id="TABLE_UNUSABLE", path=path, todo="create it, or set sink.create to true"
        )
    _check_partitions(required, sink.partition_by)
    try:
        DeltaTable.create(
            path,
            Schema.from_arrow(required),
            mode="ignore",
            partition_by=list(sink.partition_by),
            configuration=dict(sink.properties),
            storage_options=tables.location.options,
        )
    except CommitFailedError:
        return
    except DeltaError as error:
        if DeltaTable.is_deltatable(path, tables.location.options):
            return
        raise ConfigurationError(
            "the Delta table can't be created", id="TABLE_UNUSABLE", path=path, found=str(error)
        ) from error


def _widen(sink: DeltaSettings, table: DeltaTable, name: str, required: pa.Schema, problems: list[str]) -> None:
    new = [field for field in required if f"{_NO_COLUMN}{field.name}" in problems]
    if sink.evolve == "none":
        raise _misfit(table, name, problems, "alter the table, or set sink.evolve to add_columns")
    if len(new) < len(problems):
        raise _misfit(table, name, problems, "alter the table, or convert the column before the sink")
    check_distinct([*(field.name for field in table.schema().fields), *(field.name for field in new)], "Delta")
    try:
        table.alter.add_columns(Schema.from_arrow(pa.schema(new)).fields)
    except CommitFailedError:
        return
    except (DeltaError, SchemaMismatchError) as error:
        raise _misfit(table, name, [*problems, str(error)], "alter the table with another client") from error


def _misfit(table: DeltaTable, name: str, problems: list[str], todo: str) -> ConfigurationError:
    return misfit(name, ", ".join(f"{field.name} {field.type}" for field in columns_of(table)), problems, todo)


def _check_partitions(schema: pa.Schema, columns: tuple[str, ...] | list[str]) -> None:
    for column in columns:
        index = schema.get_field_index(column)
        if index < 0 or not any(is_one(schema.field(index).type) for is_one in _PARTITIONS):
            raise ConfigurationError(
                "tables can't be partitioned by this column",
                id="PARTITIONING_INVALID",
                column=column,
                expected="one of the records' columns, of text, whole numbers, dates or booleans",
                found=str(schema.field(index).type) if index >= 0 else ", ".join(schema.names),
            )
    if columns and len(columns) >= len(schema):
        raise ConfigurationError(
            "a table must have a column that it is not partitioned by",
            id="PARTITIONING_INVALID",
            found=", ".join(columns),
        )

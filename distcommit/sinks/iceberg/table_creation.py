"""Creation and widening of Iceberg tables."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

import pyarrow as pa
from pyiceberg.exceptions import ValidationError
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema, assign_fresh_schema_ids
from pyiceberg.table import Table, TableProperties
from pyiceberg.table.sorting import SortField, SortOrder
from pyiceberg.table.update import AssertTableUUID
from pyiceberg.transforms import parse_transform
from pyiceberg.types import StructType

from distcommit.core.errors import ConfigurationError, TransientError
from distcommit.sinks.base.retries import tries
from distcommit.sinks.iceberg.catalog.open_catalogs import opened
from distcommit.sinks.iceberg.catalog.tables import Change, Identifier, NewTable, TableCache, Tables
from distcommit.sinks.iceberg.schemas import FORMAT_VERSION, check_names, lacking, required_struct, storable
from distcommit.sinks.iceberg.settings import IcebergSettings, term_of
from distcommit.sinks.table_formats.table_refusals import ALWAYS_CHANGED, misfit

_TRIES = 20


def table_for(sink: IcebergSettings, name: Identifier, schema: pa.Schema, cache: TableCache) -> Table:
    """Return the table, after creating or widening it if these records require it. Raises ConfigurationError if that is
    not allowed or the records do not fit, and TransientError if other writers change it during 20 tries."""
    requested, tables = required_struct(schema), opened(sink.catalog)
    table = cache.get(name)
    if table is None and not sink.create:
        table = tables.load([name]).get(name)  # another writer may have created it since
    for _ in tries(_TRIES):
        if table is None:
            table = _created(sink, tables, name, requested)
        if table is not None:
            problems = list(lacking(table.schema().as_struct(), requested))
            if not problems:
                _check(table)
                cache.put(name, table)
                return table
            tables.commit([_widened(sink, table, schema, problems)], lambda: None)
        table = tables.load([name]).get(name)  # another writer may have created or changed it
    raise TransientError(ALWAYS_CHANGED, id="TABLE_CHANGED_CONCURRENTLY", table=".".join(name))


def prepare_tables(sink: IcebergSettings, names: Sequence[Identifier], schema: pa.Schema, cache: TableCache) -> None:
    """Create or widen tables at once, as far as the settings allow. `table_for` raises the errors of unfit tables.
    After an exception the outcome is unknown."""
    requested, tables = required_struct(schema), opened(sink.catalog)
    tables_by_name = cache.read(names)
    if sink.create and (missing := [name for name in names if name not in tables_by_name]):
        created = tables.create([_new(sink, name, requested) for name in missing])
        for name, table in created.items():
            if isinstance(table, Table):
                cache.put(name, table)
    narrow: list[Change] = []
    for table in tables_by_name.values() if sink.evolve != "none" else ():
        if isinstance(table, Table) and (problems := list(lacking(table.schema().as_struct(), requested))):
            with suppress(ConfigurationError):
                narrow.append(_widened(sink, table, schema, problems))
    if narrow:
        tables.commit(narrow, lambda: None)
        for name, table in tables.read([change.table.name() for change in narrow]).items():
            if isinstance(table, Table):
                cache.put(name, table)


def _created(sink: IcebergSettings, tables: Tables, name: Identifier, requested: StructType) -> Table | None:
    if not sink.create:
        raise ConfigurationError(
            "the table does not exist",
            id="TABLE_UNUSABLE",
            table=".".join(name),
            todo="create it, or set sink.create to true",
        )
    table = tables.create([_new(sink, name, requested)]).get(name)
    if isinstance(table, Exception):
        raise table
    return table


def _new(sink: IcebergSettings, name: Identifier, requested: StructType) -> NewTable:
    schema = assign_fresh_schema_ids(Schema(*requested.fields))
    defaults = {
        TableProperties.FORMAT_VERSION: str(FORMAT_VERSION),
        TableProperties.METADATA_DELETE_AFTER_COMMIT_ENABLED: "true",  # each metadata file names all snapshots
    }
    spec, order = _partition_spec(sink, schema), _sort_order(sink, schema)
    return NewTable(name, schema, spec, order, {**defaults, **sink.properties})


def _widened(sink: IcebergSettings, table: Table, schema: pa.Schema, problems: list[str]) -> Change:
    if sink.evolve == "none":
        raise _misfit(table, problems, "alter the table, or set sink.evolve to add_columns")
    try:
        update = table.update_schema().union_by_name(storable(schema))
        check_names(update._apply().as_arrow())
        updates, requirements = update._commit()
    except (ValueError, TypeError, ValidationError) as error:
        raise _misfit(
            table, [*problems, str(error)], "alter the table, or convert the column before the sink"
        ) from error
    return Change(table, updates, (*requirements, AssertTableUUID(uuid=table.metadata.table_uuid)))


def _misfit(table: Table, problems: list[str], todo: str) -> ConfigurationError:
    return misfit(".".join(table.name()), str(table.schema().as_struct()), problems, todo)


def _check(table: Table) -> None:
    if table.metadata.format_version > FORMAT_VERSION:
        raise ConfigurationError(
            "the table's format version is too new to be written",
            id="TABLE_UNUSABLE",
            table=".".join(table.name()),
            expected=f"at most {FORMAT_VERSION}",
            found=str(table.metadata.format_version),
        )


def _partition_spec(sink: IcebergSettings, schema: Schema) -> PartitionSpec:
    fields = []
    for number, term in enumerate(sink.partition_by):
        column, transform = term_of(term)
        parsed = parse_transform(transform)
        name = column if transform == "identity" else f"{column}_{transform.partition('[')[0]}"
        fields.append(PartitionField(_column(schema, column), 1000 + number, parsed, name))
    return PartitionSpec(*fields)


def _sort_order(sink: IcebergSettings, schema: Schema) -> SortOrder:
    fields = []
    for term in sink.sort_by:
        column, transform = term_of(term)
        fields.append(SortField(source_id=_column(schema, column), transform=parse_transform(transform)))
    return SortOrder(*fields) if fields else SortOrder(order_id=0)


def _column(schema: Schema, name: str) -> int:
    field_id = schema._name_to_id.get(name)
    if field_id is None:
        raise ConfigurationError(
            "a column to partition or sort by is missing",
            id="PARTITIONING_INVALID",
            column=name,
            expected="one of the records' columns",
            found=", ".join(schema.column_names),
        )
    return field_id

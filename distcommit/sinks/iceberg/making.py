"""Making tables, and widening them, as the sink's policy has it."""

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
from distcommit.sinks.iceberg.catalogs import Change, Identifier, KnownTables, NewTable, Tables
from distcommit.sinks.iceberg.opening import opened
from distcommit.sinks.iceberg.schemas import FORMAT_VERSION, check_names, lacking, storable, wanted_struct
from distcommit.sinks.iceberg.settings import IcebergSettings, term_of

_TRIES = 20


def table_for(sink: IcebergSettings, name: Identifier, schema: pa.Schema, known: KnownTables) -> Table:
    """The table, such that it takes records of this schema.

    Raises:
        ConfigurationError: if there is none and none is to be made, or the schema does not fit.
        TransientError: if others change it again and again.
    """
    wanted, tables = wanted_struct(schema), opened(sink.catalog)
    table = known.get(name)
    if table is None and not sink.create:
        table = tables.load([name]).get(name)  # as others may have made it since it was looked up
    for _ in tries(_TRIES):
        if table is None:
            table = _made(sink, tables, name, wanted)
        problems = list(lacking(table.schema().as_struct(), wanted)) if table is not None else ["there is no table"]
        if table is not None and not problems:
            _check(table)
            known.put(name, table)
            return table
        if table is not None:
            tables.commit([_widened(sink, table, schema, problems)], lambda: None)
        table = tables.load([name]).get(name)  # as others may have made, or changed it meanwhile
    raise TransientError("others change the table again and again", table=".".join(name))


def make_ready(sink: IcebergSettings, names: Sequence[Identifier], schema: pa.Schema, known: KnownTables) -> None:
    """Makes those of the tables that are missing, and widens those that are too narrow, all at once, as far as the
    sink's policy has it. What is left, and why, `table_for` finds, of each by itself.

    Raises:
        Exception: it is not known what became of them.
    """
    wanted, tables = wanted_struct(schema), opened(sink.catalog)
    found = known.read(names)
    if sink.create and (missing := [name for name in names if name not in found]):
        made = tables.create([_new(sink, name, wanted) for name in missing])
        for name, table in made.items():
            if isinstance(table, Table):
                known.put(name, table)
    narrow: list[Change] = []
    for table in found.values() if sink.evolve != "none" else ():
        if isinstance(table, Table) and (problems := list(lacking(table.schema().as_struct(), wanted))):
            with suppress(ConfigurationError):
                narrow.append(_widened(sink, table, schema, problems))
    if narrow:
        tables.commit(narrow, lambda: None)
        for name, table in tables.read([change.table.name() for change in narrow]).items():
            if isinstance(table, Table):
                known.put(name, table)


def _made(sink: IcebergSettings, tables: Tables, name: Identifier, wanted: StructType) -> Table | None:
    """A new table; None if somebody else was first."""
    if not sink.create:
        raise ConfigurationError(
            "there is no such table", table=".".join(name), todo="make it, or set sink.create to true"
        )
    made = tables.create([_new(sink, name, wanted)]).get(name)
    if isinstance(made, Exception):
        raise made
    return made


def _new(sink: IcebergSettings, name: Identifier, wanted: StructType) -> NewTable:
    schema = assign_fresh_schema_ids(Schema(*wanted.fields))
    defaults = {
        TableProperties.FORMAT_VERSION: str(FORMAT_VERSION),
        TableProperties.METADATA_DELETE_AFTER_COMMIT_ENABLED: "true",  # each version names all snapshots
    }
    spec, order = _partition_spec(sink, schema), _sort_order(sink, schema)
    return NewTable(name, schema, spec, order, {**defaults, **sink.properties})


def _widened(sink: IcebergSettings, table: Table, schema: pa.Schema, problems: list[str]) -> Change:
    """What adds columns, and widens types, of the table as it was loaded."""
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
    return ConfigurationError(
        "records do not fit into the table",
        table=".".join(table.name()),
        expected=str(table.schema().as_struct())[:500],
        found="; ".join(problems[:5]),
        todo=todo,
    )


def _check(table: Table) -> None:
    if table.metadata.format_version > FORMAT_VERSION:
        raise ConfigurationError(
            "the table's format version is not one that is written here",
            table=".".join(table.name()),
            expected=f"at most {FORMAT_VERSION}",
            found=str(table.metadata.format_version),
        )


def _partition_spec(sink: IcebergSettings, schema: Schema) -> PartitionSpec:
    fields = []
    for number, term in enumerate(sink.partition_by):
        column, transform = term_of(term)
        made = parse_transform(transform)
        name = column if transform == "identity" else f"{column}_{transform.partition('[')[0]}"
        fields.append(PartitionField(_column(schema, column), 1000 + number, made, name))
    return PartitionSpec(*fields)


def _sort_order(sink: IcebergSettings, schema: Schema) -> SortOrder:
    fields = []
    for term in sink.sort_by:
        column, transform = term_of(term)
        fields.append(SortField(source_id=_column(schema, column), transform=parse_transform(transform)))
    return SortOrder(*fields) if fields else SortOrder(order_id=0)


def _column(schema: Schema, name: str) -> int:
    found = schema._name_to_id.get(name)
    if found is None:
        raise ConfigurationError(
            "a column to partition or sort by is missing",
            column=name,
            expected="one of the records' columns",
            found=", ".join(schema.column_names),
        )
    return found

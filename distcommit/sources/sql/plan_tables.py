"""Planner of all tables and queries on one connection; a table's problem does not affect the others."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Protocol

from msgspec import structs

from distcommit.core.errors import SourceError, TransientError
from distcommit.core.interfaces.source import DatasetProblem, Planned, SkippedDataset, SourceState
from distcommit.core.interfaces.source_table import Extract, with_extract
from distcommit.core.records.deferred_records import DeferredRecords
from distcommit.core.work_units import DatasetPlan
from distcommit.sources.missing_dataset_check import require_listed
from distcommit.sources.plan_error import PlanError
from distcommit.sources.plan_snapshot import plan_snapshot
from distcommit.sources.sql.database_connections import Database
from distcommit.sources.sql.missed_update_warnings import missed_update_warnings
from distcommit.sources.sql.plan_table import missing_values_warning, plan_table
from distcommit.sources.sql.query_columns import query_columns
from distcommit.sources.sql.select_statements import full_table_of, table_of
from distcommit.sources.sql.table_reflection import Reflected, reflect, reflect_table, table_names
from distcommit.sources.sql.table_selection import Tables

logger = logging.getLogger(__name__)

__all__ = ["PlanRules", "describe_tables", "plan_tables"]

_CHUNK = 256
_OR_SELECT = ", or grant this user SELECT on them"


class PlanRules(Protocol):
    @property
    def selection(self) -> Tables:
        """Tables and queries of the job, with their rules."""

    def extract_of(self, dataset_urn: str) -> Extract:
        """Return the extract of a dataset."""

    @property
    def start(self) -> str:
        """`earliest` or `latest` for new tables."""

    @property
    def records_per_work_unit(self) -> int:
        """Approximate rows of a work unit."""

    @property
    def records_per_dataset(self) -> int:
        """Approximate rows of a table per run; 0 for all."""


def plan_tables(
    database: Database, rules: PlanRules, predicate: Callable[[str], bool], states: SourceState
) -> Iterator[Planned]:
    """Yield plans, problems and counts of remaining rows of the selected tables.

    Raises:
        TransientError: if server or connection fails.
        SourceError: if the tables can't be listed.
    """
    select = rules.selection
    with database.reading() as connection:
        names = set(select.names).union(table_names(connection, select.schema) if select.patterns else ())
    tables, queries = {name for name in names if select.has_table(name)}, set(select.queries)
    remaining = iter(sorted(name for name in tables | queries if predicate(name)))
    while chunk := list(islice(remaining, _CHUNK)):
        reflected = _reflected(database, [name for name in chunk if name not in queries], select.schema)
        for name in chunk:
            try:
                if name in tables and name in queries:
                    raise _of_one_name(name)
                yield from _plan_one(database, rules, name, reflected.get(name), states)
            except PlanError as error:
                yield DatasetProblem(name, str(error), error.remedy)
            except SourceError as error:
                yield DatasetProblem(name, str(error))
            except TransientError as error:
                _require_server(database)
                yield DatasetProblem(name, str(error))


def describe_tables(database: Database, select: Tables, table_type: str) -> str:
    """Return the number of selected tables, and warnings about the first `_CHUNK` tables. Closes the database.

    Raises:
        SourceError: if a listed table is missing.
        TransientError: if server or connection fails.
    """
    try:
        with database.reading() as connection:
            names = {*table_names(connection, select.schema)}
            others = [name for name in select.names if name not in names and select.has_table(name)]
            names |= reflect(connection, others, select.schema).keys() if others else set()  # views
            dialect = connection.dialect.name
        selected = sorted(name for name in names if select.has_table(name))
        reflected = _reflected(database, selected[:_CHUNK], select.schema)
    finally:
        database.close()
    missing = sorted(name for name in others if name not in names)
    count = len(selected) + len(select.queries)
    require_listed("tables", missing, names, id="SOURCE_TABLE_MISSING", selected=count, todo=_OR_SELECT)
    counted = f"{len(selected):,} of {len(names):,} tables selected, {len(select.queries):,} queries"
    return "\n".join([counted, *missed_update_warnings(reflected, select, table_type, dialect)])


def _plan_one(
    database: Database,
    rules: PlanRules,
    name: str,
    table_description: Reflected | None,
    states: SourceState,
) -> Iterator[Planned]:
    select, state = rules.selection, states.get(name)
    requested = select.rules_of(name)
    untold, notes = "", list[str]()
    with database.reading(name) as connection:
        if requested.query is not None:
            reflected = query_columns(connection, name, requested)
        else:
            reflected = table_description or reflect_table(connection, name, select.schema)
        reflected = reflected.with_keys(name, requested.keys)
        location = (reflected, requested, connection.dialect.name, select.schema)
        planned: DatasetPlan | None
        deferred: DeferredRecords | None = None
        if not requested.watermark:
            planned = plan_snapshot(name, state, connection.scalars(full_table_of(name, *location).count()).one())
        else:
            table = table_of(name, *location)
            untold = missing_values_warning(connection, table)
            planned, deferred = plan_table(
                connection,
                table,
                state,
                states.to_read_again(name),
                from_latest=rules.start == "latest",
                limit=rules.records_per_dataset,
                rows_per_unit=rules.records_per_work_unit,
                note=notes.append,
            )
    for text in notes:
        logger.warning("table %s: %s", name, text)
        yield SkippedDataset(name, text, "note on late rows")
    if untold:
        yield DatasetProblem(name, untold)
    if deferred is not None:
        yield deferred
    if planned is not None:
        extract = rules.extract_of(name)
        keys = rules.selection.rules_of(name).keys or extract.keys or reflected.keys
        if keys:
            extract = structs.replace(extract, keys=keys)
            units = tuple(with_extract(unit, extract) for unit in planned.work_units)
            planned = structs.replace(planned, work_units=units)
        yield planned


def _of_one_name(name: str) -> SourceError:
    return SourceError(
        "a table and a query have one name, and would be one dataset",
        id="SOURCE_SETTINGS_INVALID",
        dataset=name,
        expected="different names",
        found=f"source.queries.{name}, and a table that source.table_patterns matches",
        todo="add the table to source.exclude, or rename the query",
    )


def _reflected(database: Database, names: Sequence[str], schema: str | None) -> dict[str, Reflected]:
    """Describe tables together; none if the database rejects that, because each is then described by itself."""
    try:
        with database.reading() as connection:
            return reflect(connection, names, schema)
    except SourceError:
        return {}


def _require_server(database: Database) -> None:
    with database.reading() as connection:
        connection.exec_driver_sql("SELECT 1")

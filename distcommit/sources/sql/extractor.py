"""Extractor of tables and queries."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from itertools import pairwise
from typing import Any

import pyarrow as pa
import sqlalchemy as sa

from distcommit.core.errors import SourceError
from distcommit.core.interfaces.source import Extraction, Extractor
from distcommit.core.interfaces.source_table import extract_of
from distcommit.core.watermark import Position, Watermark
from distcommit.core.work_units import WorkUnit
from distcommit.sources.sql.arrow_columns import CONVERSION_ERRORS
from distcommit.sources.sql.database_connections import Database
from distcommit.sources.sql.query_columns import query_columns
from distcommit.sources.sql.select_statements import FullTable, Table, full_table_of, table_of
from distcommit.sources.sql.table_reflection import Reflected, reflect_columns
from distcommit.sources.sql.table_selection import Tables
from distcommit.sources.watermark_column import PARTITION, OrderedRows, position_of

__all__ = ["SqlExtractor"]


class SqlExtractor(Extractor):
    """Extractor of one task attempt with one connection.

    Args:
        database: the database, connected at the first work unit.
        batch_rows: rows of a batch; more if more rows have one watermark value.
    """

    def __init__(self, database: Database, tables: Tables, batch_rows: int) -> None:
        self._database, self._tables, self._batch_rows = database, tables, batch_rows
        self._reading = ExitStack()

    def extract(self, unit: WorkUnit) -> Extraction:
        """Start reading a work unit. An earlier extraction is closed."""
        self._reading.close()
        is_complete = not self._tables.rules_of(unit.dataset_urn).watermark
        return WholeExtraction(self, unit) if is_complete else SqlExtraction(self, unit)

    def close(self) -> None:
        self._reading.close()
        self._database.close()

    def rows(self, unit: WorkUnit) -> Iterator[tuple[Table, Sequence[sa.Row[Any]]]]:
        """Stream a work unit's rows in one transaction."""
        urn, name = unit.dataset_urn, PARTITION
        with self._reading:
            connection = self._reading.enter_context(self._database.reading(urn))
            reflected = self._reflected(connection, urn)
            table = table_of(urn, reflected, self._tables.rules_of(urn), connection.dialect.name, self._tables.schema)
            query = table.rows(unit.low.positions[name], unit.expected_high.positions[name])
            for rows in self._rows(connection, query):
                yield table, rows

    def all_rows(self, urn: str) -> Iterator[tuple[FullTable, Sequence[sa.Row[Any]]]]:
        with self._reading:
            connection = self._reading.enter_context(self._database.reading(urn))
            reflected = self._reflected(connection, urn)
            rules = self._tables.rules_of(urn)
            table = full_table_of(urn, reflected, rules, connection.dialect.name, self._tables.schema)
            for rows in self._rows(connection, table.rows()):
                yield table, rows

    def _reflected(self, connection: sa.Connection, urn: str) -> Reflected:
        rules = self._tables.rules_of(urn)
        if rules.query is not None:
            return query_columns(connection, urn, rules).with_keys(urn, rules.keys)
        return reflect_columns(connection, urn, self._tables.schema).with_keys(urn, rules.keys)

    def _rows(self, connection: sa.Connection, query: sa.Select[Any]) -> Iterator[Sequence[sa.Row[Any]]]:
        result = connection.execution_options(yield_per=self._batch_rows).execute(query)
        self._reading.callback(result.close)  # closed before the connection, also if reading ends early
        yield from result.partitions()


class SqlExtraction(Extraction):
    """The rows of a range. Rows with one value are in one batch, so that reading can stop after any batch."""

    def __init__(self, extractor: SqlExtractor, unit: WorkUnit) -> None:
        self._extractor, self._unit = extractor, unit
        self._reached = unit.low
        self._bytes = 0
        self._table: Table

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        low, high = self._unit.low.positions[PARTITION], self._unit.expected_high.positions[PARTITION]
        pending: OrderedRows[Sequence[Any]] = OrderedRows(low, high, self._refused)
        before: list[Position] = []
        for table, rows in self._extractor.rows(self._unit):
            self._table = table
            positions = self._positions(table, rows)
            self._require_keys([*before, *positions])
            before = positions[-1:]
            pending.add(rows, positions)
            if complete := pending.pop_below(positions[0]):
                yield self._batch(complete, positions[0])
        if remainder := pending.pop_below(high):
            yield self._batch(remainder, high)
        self._reached = self._unit.expected_high

    def actual_high(self) -> Watermark:
        return self._reached

    def bytes_read(self) -> int:
        return self._bytes

    def _batch(self, rows: Sequence[Sequence[Any]], reached: Position) -> pa.RecordBatch:
        batch = _batch_of(self._table, rows, self._unit)
        self._reached = self._reached.advanced({PARTITION: reached})
        self._bytes += batch.nbytes
        return batch

    def _positions(self, table: Table, rows: Sequence[Sequence[Any]]) -> list[Position]:
        positions = list[Position]()
        for row in rows:
            try:
                positions.append(position_of(table.kind, row[-1]))
            except ValueError as error:
                raise table.position_error(error, _row_name(table, row, self._unit)) from error
        return positions

    def _require_keys(self, positions: Sequence[Position]) -> None:
        twice = (one for one, other in pairwise(positions) if one == other)
        if self._table.is_unique and (value := next(twice, None)) is not None:
            raise SourceError(
                "several rows have one value in the column that is declared as their key",
                id="SOURCE_SETTINGS_INVALID",
                table=self._table.name,
                column=self._table.rules.watermark,
                expected="one row of each value",
                found=f"several of {value!r:.60}",
                todo=f"correct source.overrides.{self._table.name}.keys; nothing of it is published",
            )

    def _refused(self, least: Position, result: Position) -> SourceError:
        return SourceError(
            "the database returned rows in another order than that of their watermark column",
            id="SOURCE_ORDER_WRONG",
            table=self._table.name,
            column=self._table.rules.watermark,
            expected=f"a value from {least!r:.60} on, below {self._unit.expected_high.positions[PARTITION]!r:.60}",
            found=f"{result!r:.60}",
            todo="check the column's collation, its index and the driver; nothing of it is published",
        )


class WholeExtraction(Extraction):
    """A table's rows, from one moment if possible, without positions between them."""

    def __init__(self, extractor: SqlExtractor, unit: WorkUnit) -> None:
        self._extractor, self._unit = extractor, unit
        self._is_whole = False
        self._bytes = 0

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        for table, rows in self._extractor.all_rows(self._unit.dataset_urn):
            batch = _batch_of(table, rows, self._unit)
            self._bytes += batch.nbytes
            yield batch
        self._is_whole = True

    def actual_high(self) -> Watermark:
        """Return the end; raises SourceError if not all rows were read."""
        if not self._is_whole:
            raise SourceError(
                "a table was not read to its end",
                id="SOURCE_READ_INCOMPLETE",
                table=self._unit.dataset_urn,
                expected="all of its rows, because there are no positions between them",
                todo="run again",
            )
        return self._unit.expected_high

    def bytes_read(self) -> int:
        return self._bytes


def _batch_of(table: Table | FullTable, rows: Sequence[Sequence[Any]], unit: WorkUnit) -> pa.RecordBatch:
    columns = table.columns
    values = list(zip(*rows, strict=True))[: len(columns)]
    arrays = list[pa.Array]()
    for column, of_column in zip(columns, values, strict=True):
        try:
            arrays.append(column.array(of_column))
        except CONVERSION_ERRORS as error:
            index, reason = column.first_unreadable(of_column) or (None, str(error))
            value = "" if index is None else f"{of_column[index]!r:.60}"
            reason = reason if index is None else reason.replace(repr(of_column[index]), value)
            raise SourceError(
                "a value does not fit its column",
                id="SOURCE_VALUE_UNREADABLE",
                table=table.name,
                column=column.name,
                row="unknown" if index is None else _row_name(table, rows[index], unit),
                expected=str(column.type),
                found=f"{reason:.200}" if value in reason else f"{value}: {reason:.200}",
                todo=f"correct the value, or leave the column out by source.overrides.{table.name}.columns",
            ) from error
    return pa.record_batch(arrays, schema=pa.schema([(column.name, column.type) for column in columns]))


def _row_name(table: Table | FullTable, row: Sequence[Any], unit: WorkUnit) -> str:
    extract = extract_of(unit, None)
    names = [column.name for column in table.columns]
    keys = extract.keys if extract is not None else ()
    values = {key: row[names.index(key)] for key in keys if key in names} if {*keys} <= {*names} else {}
    if isinstance(table, Table):
        values.setdefault(table.rules.watermark, row[-1])
    return ", ".join(f"{name}={value!r:.60}" for name, value in values.items()) or "without a key"

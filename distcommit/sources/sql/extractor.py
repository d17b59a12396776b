"""Reads ranges of tables: one query each, in the order of the watermark column, as a stream."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import Any

import pyarrow as pa
import sqlalchemy as sa

from distcommit.model.errors import SourceError
from distcommit.model.source import Extraction, Extractor
from distcommit.model.watermark import Position, Watermark
from distcommit.model.work import WorkUnit
from distcommit.sources.sql.database import Database
from distcommit.sources.sql.rules import Tables
from distcommit.sources.sql.tables import Table, reflect_columns, table_of
from distcommit.sources.watermark_column import PARTITION, InOrder

__all__ = ["SqlExtractor"]


class SqlExtractor(Extractor):
    """Reads the work units of one task attempt on one connection, which is kept between them.

    Args:
        database: what is connected to, with the first work unit.
        tables: the rules of each table.
        batch_rows: how many rows a batch has, but for a group of more rows of the same value.
    """

    def __init__(self, database: Database, tables: Tables, batch_rows: int) -> None:
        self._database, self._tables, self._batch_rows = database, tables, batch_rows
        self._reading = ExitStack()

    def extract(self, unit: WorkUnit) -> Extraction:
        """Starts reading; an extraction before it that was not read to its end reads no further."""
        self._reading.close()
        return SqlExtraction(self, unit)

    def close(self) -> None:
        self._reading.close()
        self._database.close()

    def rows(self, unit: WorkUnit) -> Iterator[tuple[Table, Sequence[sa.Row[Any]]]]:
        """The rows of a work unit as they come, in one transaction."""
        urn, name = unit.dataset_urn, PARTITION
        with self._reading:
            connection = self._reading.enter_context(self._database.reading(urn))
            found = reflect_columns(connection, urn, self._tables.schema)
            table = table_of(urn, found, self._tables.rules_of(urn), connection.dialect.name, self._tables.schema)
            query = table.rows(unit.low.positions[name], unit.expected_high.positions[name])
            result = connection.execution_options(yield_per=self._batch_rows).execute(query)
            self._reading.callback(result.close)  # before the connection, also if reading ends early
            for rows in result.partitions():
                yield table, rows


class SqlExtraction(Extraction):
    """One range of a table. Rows of the same value are in one batch, so that reading can end after each of them."""

    def __init__(self, extractor: SqlExtractor, unit: WorkUnit) -> None:
        self._extractor, self._unit = extractor, unit
        self._reached = unit.low
        self._bytes = 0
        self._table: Table

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        low, high = self._unit.low.positions[PARTITION], self._unit.expected_high.positions[PARTITION]
        held: InOrder[Sequence[Any]] = InOrder(low, high, self._refused)
        for table, came in self._extractor.rows(self._unit):
            self._table = table
            positions = [table.position(row[-1]) for row in came]
            held.add(came, positions)
            if whole := held.take_below(positions[0]):
                yield self._batch(whole, positions[0])
        if rest := held.take_below(high):
            yield self._batch(rest, high)
        self._reached = self._unit.expected_high

    def actual_high(self) -> Watermark:
        return self._reached

    def bytes_read(self) -> int:
        return self._bytes

    def _batch(self, rows: Sequence[Sequence[Any]], reached: Position) -> pa.RecordBatch:
        columns, of_table = list(zip(*rows, strict=True)), self._table.columns
        arrays = [column.array(values) for column, values in zip(of_table, columns[:-1], strict=True)]
        batch = pa.record_batch(arrays, schema=pa.schema([(column.name, column.type) for column in of_table]))
        self._reached = self._reached.advanced({PARTITION: reached})
        self._bytes += batch.nbytes
        return batch

    def _refused(self, least: Position, found: Position) -> SourceError:
        return SourceError(
            "the database gave rows in another order than that of their watermark column",
            table=self._table.name,
            column=self._table.rules.watermark,
            expected=f"a value from {least!r} on, below {self._unit.expected_high.positions[PARTITION]!r}",
            found=repr(found),
            todo="see to the column's collation, its index and the driver; nothing of it is published",
        )

"""Filter and computed columns by expressions of SQL."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property
from importlib.util import find_spec
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field, model_validator

from distcommit.constructs.by_halves import Made, by_halves
from distcommit.constructs.conditions.sql_expressions import SqlExpressions
from distcommit.constructs.schemas.columns import Columns, replaced, unique_names
from distcommit.constructs.settings import ConverterSettings
from distcommit.core.interfaces.constructs import Converted


class Sql(ConverterSettings, frozen=True, extra="forbid", ignored_types=(cached_property,)):
    """Keeps the records for which `where` is true, and computes `columns` for them: expressions of DuckDB's SQL.

    Expressions see the columns of the records that come in, and one record at a time: no subqueries, aggregates or
    window functions, no files and no network. A record for which one fails, such as by a number out of range, is turned
    away with the reason; `TRY(expression)` makes null of that. Null is not true.

    Attributes:
        where: which records stay; empty: all. The others are filtered.
        columns: `{NAME: EXPRESSION}`; where there is a column of that name its values are replaced, else it is added.
    """

    type: Literal["sql"]
    where: str = ""
    columns: dict[str, str] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _are_expressions(self) -> Sql:
        if not self.where and not self.columns:
            raise ValueError("where or columns is needed")
        if find_spec("duckdb"):  # who only looks at a job needs no engine
            self._expressions.close()
        return self

    @cached_property
    def _expressions(self) -> SqlExpressions:
        return SqlExpressions(self.where, self.columns)

    def __getstate__(self) -> dict[Any, Any]:
        state = super().__getstate__()
        return {**state, "__dict__": {k: v for k, v in state["__dict__"].items() if k != "_expressions"}}

    def convert_columns(self, columns: Columns) -> Columns:
        unique_names(columns, "sql")
        for field in self._expressions.computed(columns):
            columns = replaced(columns, field.name, field.type, nullable=field.nullable)
        return columns.with_known(columns.known)

    def convert(self, batch: pa.RecordBatch) -> Iterator[Converted]:
        import duckdb  # noqa: PLC0415 - an extra of its own

        schema = self.made_of(batch.schema)

        def make(part: pa.RecordBatch) -> Made:
            rows, computed = self._expressions.evaluate(part)
            of_name = dict(zip(self.columns, computed, strict=True))
            given = part if len(rows) == part.num_rows else part.take(rows)
            columns = [of_name[name] if name in of_name else given.column(name) for name in schema.names]
            return pa.RecordBatch.from_arrays(columns, schema=schema), rows

        try:
            records, rows = make(batch)
            yield Converted(records, rows)
        except duckdb.Error:
            yield self._one_by_one(batch, make, schema)

    def _one_by_one(
        self, batch: pa.RecordBatch, make: Callable[[pa.RecordBatch], Made], schema: pa.Schema
    ) -> Converted:
        """The same where an expression has failed for some record: first for those for which it surely does not."""
        import duckdb  # noqa: PLC0415 - an extra of its own

        rows = pa.array(range(batch.num_rows), pa.int64())
        try:
            suspects = self._expressions.suspects(batch)
        except duckdb.Error:  # such as an expression that TRY does not take
            suspects = rows
        fine = rows.filter(pc.invert(pc.is_in(rows, suspects)))
        order = pa.concat_arrays([fine, suspects])
        found = by_halves(batch.take(order), make, schema, duckdb.Error, _reason, len(fine))
        of = order.take(found.rows)
        again = pc.sort_indices(of)
        rejected = {order[row].as_py(): why for row, why in found.rejected.items()}
        return Converted(found.records.take(again), of.take(again), rejected)

    def close(self) -> None:
        if "_expressions" in self.__dict__:
            self._expressions.close()


def _reason(error: Exception, row: int) -> str:
    return str(error).partition("\n")[0][:500]

"""The converter `sql`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property
from importlib.util import find_spec
from typing import ClassVar, Literal

import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field

from distcommit.constructs.bad_record_bisection import ConvertedPart, convert_or_bisect
from distcommit.constructs.construct_settings import ConverterSettings
from distcommit.constructs.expressions.duckdb_expressions import SqlExpressions
from distcommit.core.interfaces.constructs import Converted
from distcommit.core.support.settings_model import SettingError, errors_of, rule
from distcommit.core.work_units import WorkUnit
from distcommit.schemas.known_columns import Columns, check_unique_names, with_column_type


class Sql(ConverterSettings, ignored_types=(cached_property,)):
    """Converter that keeps the records for which `where` is true, and computes columns, by DuckDB's SQL expressions.

    An expression uses the input columns of one record: no subqueries, aggregates, window functions, files or network. A
    record is rejected if an expression fails for it, such as by a number out of range. `TRY(expression)` gives null
    instead. Null is not true. For comparisons with literals, the converter `filter` is faster.

    Attributes:
        where: the condition of the records that stay; the others are filtered. Empty: all stay.
        columns: `{NAME: EXPRESSION}`. The result replaces the column of that name, or is added.
    """

    process_local: ClassVar[frozenset[str]] = frozenset({"_expressions"})

    type: Literal["sql"]
    where: str = ""
    columns: dict[str, str] = Field(default_factory=dict)

    @rule
    def _has_valid_expressions(self) -> Iterator[SettingError]:
        if not self.where and not self.columns:
            yield SettingError("must have where, columns, or both")
        elif find_spec("duckdb"):  # commands that only inspect a job need no engine
            yield from errors_of(self._close_expressions)

    def _close_expressions(self) -> None:
        self._expressions.close()

    @cached_property
    def _expressions(self) -> SqlExpressions:
        return SqlExpressions(self.where, self.columns)

    def convert_columns(self, columns: Columns) -> Columns:
        check_unique_names(columns, "sql")
        for field in self._expressions.computed(columns):
            columns = with_column_type(columns, field.name, field.type, nullable=field.nullable)
        return columns.with_fields(columns.fields)

    def convert(self, output_schema: pa.Schema | None, batch: pa.RecordBatch, unit: WorkUnit) -> Iterator[Converted]:
        import duckdb  # noqa: PLC0415 - an extra of its own

        assert output_schema is not None

        def make(part: pa.RecordBatch) -> ConvertedPart:
            rows, computed = self._expressions.evaluate(part)
            of_name = dict(zip(self.columns, computed, strict=True))
            supplied = part if len(rows) == part.num_rows else part.take(rows)
            columns = [of_name[name] if name in of_name else supplied.column(name) for name in output_schema.names]
            return pa.RecordBatch.from_arrays(columns, schema=output_schema), rows

        try:
            records, rows = make(batch)
            yield Converted(records, rows)
        except duckdb.Error:
            yield self._one_by_one(batch, make, output_schema)

    def _one_by_one(
        self, batch: pa.RecordBatch, make: Callable[[pa.RecordBatch], ConvertedPart], schema: pa.Schema
    ) -> Converted:
        import duckdb  # noqa: PLC0415 - an extra of its own

        rows = pa.array(range(batch.num_rows), pa.int64())
        try:
            suspects = self._expressions.suspects(batch)
        except duckdb.Error:  # such as an expression that TRY does not accept
            suspects = rows
        safe = rows.filter(pc.invert(pc.is_in(rows, suspects)))
        order = pa.concat_arrays([safe, suspects])
        result = convert_or_bisect(batch.take(order), make, schema, duckdb.Error, _reason, len(safe))
        result_rows = order.take(result.rows)
        in_order = pc.sort_indices(result_rows)
        rejected = {order[row].as_py(): reason for row, reason in result.rejected.items()}
        return Converted(result.records.take(in_order), result_rows.take(in_order), rejected)

    def close(self) -> None:
        if "_expressions" in self.__dict__:
            self._expressions.close()


def _reason(error: Exception, row: int) -> str:
    return str(error).partition("\n")[0][:500]

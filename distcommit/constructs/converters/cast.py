"""Columns as other types."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import pyarrow as pa
from pydantic import Field

from distcommit.constructs.by_halves import Made, by_halves
from distcommit.constructs.column_types import ColumnType, arrow_type
from distcommit.constructs.columns import field_of, replaced
from distcommit.constructs.json_records import reason
from distcommit.constructs.settings import ConstructSettings
from distcommit.model.constructs import Converted, Converter
from distcommit.model.errors import ConfigurationError


class Cast(ConstructSettings, Converter, frozen=True, extra="forbid"):
    """Casts columns to other types, where they stand: `columns: {name: type}`, types as in `constructs.column_types`.

    A value that the other type does not hold exactly turns its record away: text that is no number or no date, numbers
    out of range, decimals with more digits, fractions as whole numbers, timestamps within a day as dates. Text that
    becomes a timestamp names its zone. Of floating-point numbers as decimals the digits beyond are rounded.
    """

    type: Literal["cast"]
    columns: dict[str, ColumnType] = Field(min_length=1)

    def convert_schema(self, schema: pa.Schema) -> pa.Schema:
        for name, written in self.columns.items():
            kind = arrow_type(written)
            field = field_of(schema, name, "cast")
            try:
                pa.nulls(0, field.type).cast(kind)
            except (pa.ArrowException, TypeError) as error:
                raise ConfigurationError(
                    "a column can't be cast to this type",
                    construct="cast",
                    column=name,
                    expected=str(kind),
                    found=f"{field.type} ({error})",
                    todo="correct the type, or cast to another one in between",
                ) from error
            schema = replaced(schema, name, kind)
        return schema

    def convert(self, batch: pa.RecordBatch) -> Iterator[Converted]:
        schema = self.convert_schema(batch.schema)

        def cast(part: pa.RecordBatch) -> Made:
            columns = [column.cast(f.type) for column, f in zip(part.columns, schema, strict=True)]
            return pa.RecordBatch.from_arrays(columns, schema=schema), None

        def why(error: Exception, row: int) -> str:
            return reason(error, {name: batch.column(name)[row].as_py() for name in self.columns})

        yield by_halves(batch, cast, schema, pa.ArrowException, why)


SETTINGS = Cast

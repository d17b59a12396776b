"""Columns as other types."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field, field_validator

from distcommit.constructs.by_halves import Made, by_halves
from distcommit.constructs.column_types import ColumnType, arrow_type
from distcommit.constructs.columns import UNKNOWN, Columns, field_of, replaced
from distcommit.constructs.json_records import reason
from distcommit.constructs.settings import ConverterSettings
from distcommit.model.constructs import Converted
from distcommit.model.errors import ConfigurationError

_PLAIN = r"^[+-]?\d{0,38}(\.\d{0,38})?$"
"""Text that Arrow can be given as a decimal: of `1e-999999999` the process dies (26.0)."""


class Cast(ConverterSettings, frozen=True, extra="forbid"):
    """Casts columns to other types, where they stand: `columns: {NAME: TYPE}`.

    A value that the other type does not hold turns its record away: text that is no number or no date, numbers out of
    range, decimals with more digits, fractions as whole numbers. Text that becomes a timestamp names its zone, and text
    that becomes a decimal has no exponent. Of floating-point numbers as decimals the digits beyond are rounded; of
    timestamps as dates the day in their zone stays.
    """

    type: Literal["cast"]
    columns: dict[str, ColumnType] = Field(min_length=1)

    @field_validator("columns")
    @classmethod
    def _are_scalars(cls, columns: dict[str, object]) -> dict[str, object]:
        for name, written in columns.items():
            if pa.types.is_nested(arrow_type(written)):
                raise ValueError(f"{name!r}: to a list, a struct or a map nothing is cast")
        return columns

    def convert_columns(self, columns: Columns) -> Columns:
        for name, written in self.columns.items():
            kind = arrow_type(written)
            field = field_of(columns, name, "cast")
            try:
                pa.nulls(0, field.type if field.type != UNKNOWN else pa.null()).cast(kind)
            except (pa.ArrowException, TypeError) as error:
                raise ConfigurationError(
                    "a column can't be cast to this type",
                    construct="cast",
                    column=name,
                    expected=str(kind),
                    found=f"{field.type} ({error})",
                    todo="correct the type, or cast to another one in between",
                ) from error
            columns = replaced(columns, name, kind)
        return columns

    def convert(self, batch: pa.RecordBatch) -> Iterator[Converted]:
        schema = self.made_of(batch.schema)

        def cast(part: pa.RecordBatch) -> Made:
            columns = [_cast(column, f.type) for column, f in zip(part.columns, schema, strict=True)]
            return pa.RecordBatch.from_arrays(columns, schema=schema), None

        def why(error: Exception, row: int) -> str:
            return reason(error, {name: batch.column(name)[row].as_py() for name in self.columns})

        yield by_halves(batch, cast, schema, pa.ArrowException, why)


def _cast(column: pa.Array, kind: pa.DataType) -> pa.Array:
    if column.type == kind:
        return column
    t = column.type
    if pa.types.is_decimal(kind) and not (pa.types.is_integer(t) or pa.types.is_floating(t) or pa.types.is_decimal(t)):
        column = column.cast(pa.string())
        if not pc.all(pc.match_substring_regex(column, _PLAIN), min_count=0).as_py():
            raise pa.ArrowInvalid(f"not a number without exponent, of {kind}")
    return column.cast(kind)


SETTINGS = Cast

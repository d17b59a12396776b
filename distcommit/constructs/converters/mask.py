"""Values that nobody is to see."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field

from distcommit.constructs.columns import Columns, field_of, replaced
from distcommit.constructs.settings import ConverterSettings
from distcommit.core.interfaces.constructs import Converted


class Mask(ConverterSettings, frozen=True, extra="forbid"):
    """Puts `****` in place of each text of these columns, whatever its length; null stays null.

    Columns of other types become null. What a record was is elsewhere still, such as in the column that it was decoded
    of: drop that.

    Attributes:
        columns: which ones.
        keep_last: so many characters of a text stay behind it, if it has more than twice as many.
    """

    type: Literal["mask"]
    columns: tuple[str, ...] = Field(min_length=1)
    keep_last: int = Field(default=0, ge=0)

    def convert_columns(self, columns: Columns) -> Columns:
        for name in self.columns:
            field = field_of(columns, name, "mask", _is_text if self.keep_last else _is_any, "string, with keep_last")
            columns = replaced(columns, name, field.type, nullable=field.nullable or not _is_text(field.type))
        return columns

    def convert(self, batch: pa.RecordBatch) -> Iterator[Converted]:
        schema = self.made_of(batch.schema)
        given = zip(schema.names, batch.columns, strict=True)
        columns = [self._masked(column) if name in self.columns else column for name, column in given]
        yield Converted(pa.RecordBatch.from_arrays(columns, schema=schema))

    def _masked(self, column: pa.Array) -> pa.Array:
        if not _is_text(column.type):
            return pa.nulls(len(column), column.type)
        shown = pa.scalar("", column.type)
        if self.keep_last:
            is_long = pc.greater(pc.utf8_length(column), 2 * self.keep_last)
            shown = pc.if_else(is_long, pc.utf8_slice_codeunits(column, -self.keep_last), "")
        masked = pc.binary_join_element_wise(pa.scalar("****", column.type), shown, pa.scalar("", column.type))
        return pc.if_else(pc.is_null(column), pa.scalar(None, column.type), masked)


def _is_any(kind: pa.DataType) -> bool:
    return True


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


SETTINGS = Mask

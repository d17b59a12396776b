"""One record for each item of a list."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from distcommit.constructs.columns import UNKNOWN, Columns, field_of, replaced
from distcommit.constructs.settings import ConverterSettings
from distcommit.core.interfaces.constructs import Converted


class Explode(ConverterSettings, frozen=True, extra="forbid"):
    """Makes one record of each item of a list, which stands where the list stood, beside the other columns.

    Of an empty list nothing becomes: its record is filtered. A null list stays one record with a null item, so that a
    tombstone is not lost.
    """

    makes_several: ClassVar[bool] = True

    type: Literal["explode"]
    column: str

    def convert_columns(self, columns: Columns) -> Columns:
        field = field_of(columns, self.column, "explode", _is_list, "a list")
        if field.type == UNKNOWN:
            return replaced(columns, self.column, UNKNOWN)
        nullable = field.nullable or field.type.value_field.nullable
        return replaced(columns, self.column, field.type.value_type, nullable=nullable)

    def convert(self, batch: pa.RecordBatch) -> Iterator[Converted]:
        schema = self.made_of(batch.schema)
        index = batch.schema.get_field_index(self.column)
        lists = batch.column(index)
        items = pc.list_flatten(lists)  # without those that a null list may cover
        of_each = pc.fill_null(pc.list_value_length(lists), 1).to_numpy()
        rows = pa.array(np.repeat(np.arange(len(lists)), of_each))
        if lists.null_count:
            has_item = np.repeat(lists.is_valid().to_numpy(zero_copy_only=False), of_each)
            items = items.take(pa.array(np.cumsum(has_item) - 1, mask=~has_item))
        columns = [items if other == index else column.take(rows) for other, column in enumerate(batch.columns)]
        yield Converted(pa.RecordBatch.from_arrays(columns, schema=schema), rows)


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind))


SETTINGS = Explode

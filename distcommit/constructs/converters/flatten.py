"""Structs to columns."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import pyarrow as pa

from distcommit.constructs.columns import UNKNOWN, Columns, field_of, unique_names
from distcommit.constructs.settings import ConverterSettings
from distcommit.core.interfaces.constructs import Converted


class Flatten(ConverterSettings, frozen=True, extra="forbid"):
    """Puts in place of each column that is a struct its fields, and theirs, as columns `struct.field`.

    Of a null struct all of them are null. Structs within lists and maps stay.

    Attributes:
        columns: which ones; none named: all.
        delimiter: what stands between names.
    """

    type: Literal["flatten"]
    columns: tuple[str, ...] = ()
    delimiter: str = "."

    def convert_columns(self, columns: Columns) -> Columns:
        asked = [field_of(columns, name, "flatten", pa.types.is_struct, "a struct") for name in self.columns]
        flat = [f for f in [*asked, *columns.known] if f.type == UNKNOWN and f.name in (self.columns or (f.name,))]
        given = [f for f in columns.known if f not in flat]
        fields = [f for field in given for f, _ in self._flat(field, pa.nulls(0, field.type), field.name)]
        if flat or (columns.others and not self.columns):  # names that only the records can tell
            columns = Columns()
        return unique_names(columns.with_known(fields, self.columns), "flatten")

    def convert(self, batch: pa.RecordBatch) -> Iterator[Converted]:
        schema = self.made_of(batch.schema)
        given = zip(batch.schema, batch.columns, strict=True)
        columns = [array for field, column in given for _, array in self._flat(field, column, field.name)]
        yield Converted(pa.RecordBatch.from_arrays(columns, schema=schema))

    def _flat(self, field: pa.Field, array: pa.Array, column: str) -> Iterator[tuple[pa.Field, pa.Array]]:
        if not pa.types.is_struct(field.type) or (self.columns and column not in self.columns):
            yield field, array
            return
        for below, values in zip(field.type, array.flatten(), strict=True):
            name = f"{field.name}{self.delimiter}{below.name}"
            flat = pa.field(name, below.type, field.nullable or below.nullable)
            yield from self._flat(flat, values, column)


SETTINGS = Flatten

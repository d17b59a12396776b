"""Converters of nested columns."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from distcommit.constructs.construct_settings import ConverterSettings
from distcommit.core.interfaces.constructs import Converted
from distcommit.core.work_units import WorkUnit
from distcommit.schemas.known_columns import UNKNOWN, Columns, check_unique_names, find_column, with_column_type
from distcommit.schemas.storable_types import is_list


class Flatten(ConverterSettings):
    """Converter that replaces each struct column by its fields, at all levels, as columns `struct.field`.

    If a struct is null, all of its fields are null. Structs within lists and maps stay.

    Attributes:
        columns: the struct columns. Empty: all.
        delimiter: the text between names.
    """

    type: Literal["flatten"]
    columns: tuple[str, ...] = ()
    delimiter: str = "."

    def convert_columns(self, columns: Columns) -> Columns:
        named = [find_column(columns, name, "flatten", pa.types.is_struct, "a struct") for name in self.columns]
        untyped = [f for f in [*named, *columns.fields] if f.type == UNKNOWN and f.name in (self.columns or (f.name,))]
        typed = [f for f in columns.fields if f not in untyped]
        fields = [f for field in typed for f, _ in self._flat(field, pa.nulls(0, field.type), field.name)]
        if untyped or (
            columns.may_have_others and not self.columns
        ):  # only the records have the names of the new columns
            columns = Columns()
        return check_unique_names(columns.with_fields(fields, self.columns), "flatten")

    def convert(self, output_schema: pa.Schema | None, batch: pa.RecordBatch, unit: WorkUnit) -> Iterator[Converted]:
        supplied = zip(batch.schema, batch.columns, strict=True)
        columns = [array for field, column in supplied for _, array in self._flat(field, column, field.name)]
        yield Converted(pa.RecordBatch.from_arrays(columns, schema=output_schema))

    def _flat(self, field: pa.Field, array: pa.Array, column: str) -> Iterator[tuple[pa.Field, pa.Array]]:
        if not pa.types.is_struct(field.type) or (self.columns and column not in self.columns):
            yield field, array
            return
        for below, values in zip(field.type, array.flatten(), strict=True):
            name = f"{field.name}{self.delimiter}{below.name}"
            flat = pa.field(name, below.type, field.nullable or below.nullable)
            yield from self._flat(flat, values, column)


class Explode(ConverterSettings):
    """Converter that makes one record of each item of a list, beside the record's other columns.

    A record with an empty list is filtered. A record with a null list stays one record, with a null item, so that a
    tombstone is not lost.

    Attributes:
        column: the list column, which becomes the column of items.
    """

    makes_several: ClassVar[bool] = True

    type: Literal["explode"]
    column: str

    def convert_columns(self, columns: Columns) -> Columns:
        field = find_column(columns, self.column, "explode", is_list, "a list")
        if field.type == UNKNOWN:
            return with_column_type(columns, self.column, UNKNOWN)
        nullable = field.nullable or field.type.value_field.nullable
        return with_column_type(columns, self.column, field.type.value_type, nullable=nullable)

    def convert(self, output_schema: pa.Schema | None, batch: pa.RecordBatch, unit: WorkUnit) -> Iterator[Converted]:
        index = batch.schema.get_field_index(self.column)
        lists = batch.column(index)
        items = pc.list_flatten(lists)  # without values that a null list covers
        records_of_row = pc.fill_null(pc.list_value_length(lists), 1).to_numpy()
        rows = pa.array(np.repeat(np.arange(len(lists)), records_of_row))
        if lists.null_count:
            has_item = np.repeat(lists.is_valid().to_numpy(zero_copy_only=False), records_of_row)
            items = items.take(pa.array(np.cumsum(has_item) - 1, mask=~has_item))
        columns = [items if other == index else column.take(rows) for other, column in enumerate(batch.columns)]
        yield Converted(pa.RecordBatch.from_arrays(columns, schema=output_schema), rows)

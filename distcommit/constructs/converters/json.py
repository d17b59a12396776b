"""JSON objects into columns of declared types."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Literal

import pyarrow as pa
from pydantic import Field, model_validator

from distcommit.constructs.column_types import ColumnType, arrow_type
from distcommit.constructs.columns import field_of, unique_names
from distcommit.constructs.json_records import JsonReader
from distcommit.constructs.settings import ConstructSettings
from distcommit.model.constructs import Converted, Converter

_reader = lru_cache(64)(JsonReader)


class JsonConverter(ConstructSettings, Converter, frozen=True, extra="forbid"):
    """Reads a column of JSON objects, bytes or text; each declared field becomes a column.

    Absent and null fields, and null values, give null. Fields that are not declared are ignored; of a name that an
    object has twice, the last counts. Turned away is what is not UTF-8 or not one JSON object, a field of another type
    or out of its type's range, `NaN` and `Infinity`, a decimal with more digits than its column has, and what is nested
    about a thousand deep. Dates and timestamps are ISO 8601 text (`2024-02-29`, `2024-02-29T12:00:00.5+01:00`);
    timestamps are in UTC where they name no zone, and digits beyond microseconds are rounded. Decimals are numbers, or
    the text of them.

    Attributes:
        fields: name and type of each, as in `constructs.column_types`.
        column: the column that is read.
        keep_column: whether it stays beside the fields.
    """

    type: Literal["json"]
    fields: dict[str, ColumnType] = Field(min_length=1)
    column: str = "value"
    keep_column: bool = True

    @model_validator(mode="after")
    def _has_types_of_json(self) -> JsonConverter:
        _reader(self._declared())
        return self

    def convert_schema(self, schema: pa.Schema) -> pa.Schema:
        field_of(schema, self.column, "json", _is_text, "binary or string")
        kept = [f for f in schema if self.keep_column or f.name != self.column]
        return unique_names(pa.schema([*kept, *self._declared()]), "json")

    def convert(self, batch: pa.RecordBatch) -> Iterator[Converted]:
        schema = self.convert_schema(batch.schema)
        read = _reader(self._declared()).read(batch.column(self.column))
        kept = batch if self.keep_column else batch.drop_columns([self.column])
        columns = kept.columns if read.rows is None else [column.take(read.rows) for column in kept.columns]
        yield Converted(pa.RecordBatch.from_arrays([*columns, *read.columns], schema=schema), read.rows, read.rejected)

    def _declared(self) -> pa.Schema:
        return pa.schema([(name, arrow_type(written)) for name, written in self.fields.items()])


def _is_text(kind: pa.DataType) -> bool:
    t = pa.types
    return bool(t.is_binary(kind) or t.is_large_binary(kind) or t.is_string(kind) or t.is_large_string(kind))


SETTINGS = JsonConverter

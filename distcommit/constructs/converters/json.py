"""The converter `json`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import pyarrow as pa

from distcommit.constructs.converters.inferring_converter import JsonFieldsConverter
from distcommit.constructs.json_decoding.column_inference import columns_of_fields
from distcommit.core.interfaces.constructs import Converted
from distcommit.core.work_units import WorkUnit
from distcommit.schemas.known_columns import Columns, check_unique_names, find_column
from distcommit.schemas.storable_types import is_text


class JsonConverter(JsonFieldsConverter):
    """Converter of JSON objects in a column of text or bytes. Each field becomes a column.

    Missing fields, null fields and null values become null. Undeclared fields are ignored. If an object has a name
    twice, the last value counts, but both must have the field's type. A record is rejected if its value is not UTF-8,
    is not a single JSON object, has a field of a wrong type or out of range, contains `NaN` or `Infinity`, has a
    decimal with too many digits, or is nested about a thousand deep. Dates and timestamps are ISO 8601 text, and digits
    beyond microseconds are rounded. A timestamp without a zone is in UTC: `2024-02-29T12:00:00` is 12:00 UTC, and
    `2024-02-29T12:00:00+01:00` is 11:00 UTC. Decimals are numbers or text. A field of type `string` takes text only: a
    record with a number there is rejected. For a field that is text in some records and a number in others, see the
    guide on columns.

    Without `fields`, they are inferred from the first batch of a dataset that has an object. All tasks of the run use
    them. Later runs use them once the records are published.

    Attributes:
        fields: `{NAME: TYPE}`. Left out: the fields are inferred.
        evolution: the policy for a field that was not inferred before: it becomes a column (`evolve`), is ignored
            (`pin`), or fails the work unit (`fail`). A field's type never changes; records with another type are
            rejected.
        datasets: the evolution of some datasets. It takes precedence over `evolution`.
        column: the column of objects.
        keep_column: whether this column stays beside the fields.
    """

    type: Literal["json"]
    keep_column: bool = True

    def convert_columns(self, columns: Columns) -> Columns:
        find_column(columns, self.column, "json", is_text, "binary or string")
        others = columns.with_or_without(self.column, self.keep_column)
        if self.fields is None:
            return Columns().with_fields(others.fields)
        return check_unique_names(others.with_fields([*others.fields, *columns_of_fields(self.fields)]), "json")

    def convert_schema(self, schema: pa.Schema, unit: WorkUnit | None) -> pa.Schema | None:
        find_column(schema, self.column, "json", is_text, "binary or string")
        pinned = self._inferred.pinned if unit is not None and self.fields is None else None
        return super().convert_schema(schema, unit) if pinned is None else self._joined(schema, pinned)

    def convert(self, output_schema: pa.Schema | None, batch: pa.RecordBatch, unit: WorkUnit) -> Iterator[Converted]:
        find_column(batch.schema, self.column, "json", is_text, "binary or string")
        columns, read = self._read(batch.column(self.column))
        schema = self._joined(batch.schema, columns)
        remaining = batch if self.keep_column else batch.drop_columns([self.column])
        selected = remaining.columns if read.rows is None else [column.take(read.rows) for column in remaining.columns]
        yield Converted(pa.RecordBatch.from_arrays([*selected, *read.columns], schema=schema), read.rows, read.rejected)

    def _joined(self, schema: pa.Schema, columns: pa.Schema) -> pa.Schema:
        others = Columns.of(schema).with_or_without(self.column, self.keep_column)
        return check_unique_names(Columns.of(pa.schema([*others.fields, *columns])), "json").fields

"""Some of the columns, in the order that is given."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import pyarrow as pa
from pydantic import Field

from distcommit.constructs.columns import field_of, unique_names
from distcommit.constructs.settings import ConstructSettings
from distcommit.model.constructs import Converted, Converter


class Select(ConstructSettings, Converter, frozen=True, extra="forbid"):
    """Keeps these columns, in this order."""

    type: Literal["select"]
    columns: tuple[str, ...] = Field(min_length=1)

    def convert_schema(self, schema: pa.Schema) -> pa.Schema:
        return unique_names(pa.schema([field_of(schema, name, "select") for name in self.columns]), "select")

    def convert(self, batch: pa.RecordBatch) -> Iterator[Converted]:
        schema = self.convert_schema(batch.schema)
        yield Converted(pa.RecordBatch.from_arrays([batch.column(name) for name in self.columns], schema=schema))


SETTINGS = Select

"""Columns under other names."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import pyarrow as pa
from pydantic import Field

from distcommit.constructs.columns import field_of, unique_names
from distcommit.constructs.settings import ConstructSettings
from distcommit.model.constructs import Converted, Converter


class Rename(ConstructSettings, Converter, frozen=True, extra="forbid"):
    """Gives columns other names, where they stand: `columns: {OLD: NEW}`. All at once, so that two can change names."""

    type: Literal["rename"]
    columns: dict[str, str] = Field(min_length=1)

    def convert_schema(self, schema: pa.Schema) -> pa.Schema:
        for name in self.columns:
            field_of(schema, name, "rename")
        renamed = [f.with_name(self.columns.get(f.name, f.name)) for f in schema]
        return unique_names(pa.schema(renamed), "rename")

    def convert(self, batch: pa.RecordBatch) -> Iterator[Converted]:
        yield Converted(pa.RecordBatch.from_arrays(batch.columns, schema=self.convert_schema(batch.schema)))


SETTINGS = Rename

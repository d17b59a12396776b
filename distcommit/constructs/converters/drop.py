"""All columns but some."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import pyarrow as pa
from pydantic import Field

from distcommit.constructs.columns import field_of, unique_names
from distcommit.constructs.settings import ConstructSettings
from distcommit.model.constructs import Converted, Converter


class Drop(ConstructSettings, Converter, frozen=True, extra="forbid"):
    """Leaves these columns out. Each has to be there, and another one."""

    type: Literal["drop"]
    columns: tuple[str, ...] = Field(min_length=1)

    def convert_schema(self, schema: pa.Schema) -> pa.Schema:
        for name in self.columns:
            field_of(schema, name, "drop")
        return unique_names(pa.schema([f for f in schema if f.name not in self.columns]), "drop")

    def convert(self, batch: pa.RecordBatch) -> Iterator[Converted]:
        self.convert_schema(batch.schema)
        yield Converted(batch.drop_columns(list(self.columns)).replace_schema_metadata(None))


SETTINGS = Drop

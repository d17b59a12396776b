"""Some of the columns, in the order that is given."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import pyarrow as pa
from pydantic import Field

from distcommit.constructs.columns import Columns, field_of, unique_names
from distcommit.constructs.settings import ConverterSettings
from distcommit.core.interfaces.constructs import Converted


class Select(ConverterSettings, frozen=True, extra="forbid"):
    """Keeps these columns, in this order."""

    type: Literal["select"]
    columns: tuple[str, ...] = Field(min_length=1)

    def convert_columns(self, columns: Columns) -> Columns:
        chosen = pa.schema([field_of(columns, name, "select") for name in self.columns])
        return unique_names(Columns(chosen, others=False), "select")

    def convert(self, batch: pa.RecordBatch) -> Iterator[Converted]:
        schema = self.made_of(batch.schema)
        yield Converted(pa.RecordBatch.from_arrays([batch.column(name) for name in self.columns], schema=schema))


SETTINGS = Select

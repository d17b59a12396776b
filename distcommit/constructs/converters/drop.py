"""All columns but some."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import pyarrow as pa
from pydantic import Field

from distcommit.constructs.columns import Columns, field_of, unique_names
from distcommit.constructs.settings import ConverterSettings
from distcommit.core.interfaces.constructs import Converted


class Drop(ConverterSettings, frozen=True, extra="forbid"):
    """Leaves these columns out. Each has to be there, and another one."""

    type: Literal["drop"]
    columns: tuple[str, ...] = Field(min_length=1)

    def convert_columns(self, columns: Columns) -> Columns:
        for name in self.columns:
            field_of(columns, name, "drop")
        left = [f for f in columns.known if f.name not in self.columns]
        return unique_names(columns.with_known(left, self.columns), "drop")

    def convert(self, batch: pa.RecordBatch) -> Iterator[Converted]:
        self.made_of(batch.schema)
        yield Converted(batch.drop_columns(list(self.columns)).replace_schema_metadata(None))


SETTINGS = Drop

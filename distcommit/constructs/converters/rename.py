"""Columns under other names."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import pyarrow as pa
from pydantic import Field

from distcommit.constructs.columns import Columns, field_of, unique_names
from distcommit.constructs.settings import ConverterSettings
from distcommit.core.interfaces.constructs import Converted


class Rename(ConverterSettings, frozen=True, extra="forbid"):
    """Gives columns other names, where they stand: `columns: {OLD: NEW}`. All at once, so that two can change names."""

    type: Literal["rename"]
    columns: dict[str, str] = Field(min_length=1)

    def convert_columns(self, columns: Columns) -> Columns:
        found = {old: field_of(columns, old, "rename").with_name(new) for old, new in self.columns.items()}
        renamed = [found.pop(f.name, f) for f in columns.known]
        return unique_names(columns.with_known([*renamed, *found.values()], self.columns), "rename")

    def convert(self, batch: pa.RecordBatch) -> Iterator[Converted]:
        yield Converted(pa.RecordBatch.from_arrays(batch.columns, schema=self.made_of(batch.schema)))


SETTINGS = Rename

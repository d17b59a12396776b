"""Converters that choose and rename columns."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import pyarrow as pa
from pydantic import Field

from distcommit.constructs.construct_settings import ConverterSettings
from distcommit.core.interfaces.constructs import Converted
from distcommit.core.work_units import WorkUnit
from distcommit.schemas.known_columns import Columns, check_unique_names, find_column


class Select(ConverterSettings):
    """Converter that keeps the listed columns only, in this order.

    Attributes:
        columns: the columns.
    """

    type: Literal["select"]
    columns: tuple[str, ...] = Field(min_length=1)

    def convert_columns(self, columns: Columns) -> Columns:
        chosen = pa.schema([find_column(columns, name, "select") for name in self.columns])
        return check_unique_names(Columns(chosen, may_have_others=False), "select")

    def convert(self, output_schema: pa.Schema | None, batch: pa.RecordBatch, unit: WorkUnit) -> Iterator[Converted]:
        yield Converted(pa.RecordBatch.from_arrays([batch.column(name) for name in self.columns], schema=output_schema))


class Drop(ConverterSettings):
    """Converter that drops the listed columns.

    Attributes:
        columns: the columns. Each must exist, and one other column must remain.
    """

    type: Literal["drop"]
    columns: tuple[str, ...] = Field(min_length=1)

    def convert_columns(self, columns: Columns) -> Columns:
        for name in self.columns:
            find_column(columns, name, "drop")
        remaining = [f for f in columns.fields if f.name not in self.columns]
        return check_unique_names(columns.with_fields(remaining, self.columns), "drop")

    def convert(self, output_schema: pa.Schema | None, batch: pa.RecordBatch, unit: WorkUnit) -> Iterator[Converted]:
        yield Converted(batch.drop_columns(list(self.columns)).replace_schema_metadata(None))


class Rename(ConverterSettings):
    """Converter that renames columns, all at once, so that two columns can swap names. Their order stays.

    Attributes:
        columns: `{OLD: NEW}`.
    """

    type: Literal["rename"]
    columns: dict[str, str] = Field(min_length=1)

    def convert_columns(self, columns: Columns) -> Columns:
        renamed = {old: find_column(columns, old, "rename").with_name(new) for old, new in self.columns.items()}
        fields = [renamed.pop(f.name, f) for f in columns.fields]
        return check_unique_names(columns.with_fields([*fields, *renamed.values()], self.columns), "rename")

    def convert(self, output_schema: pa.Schema | None, batch: pa.RecordBatch, unit: WorkUnit) -> Iterator[Converted]:
        yield Converted(pa.RecordBatch.from_arrays(batch.columns, schema=output_schema))

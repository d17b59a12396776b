"""Columns that have a value."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Literal

import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field

from distcommit.constructs.columns import field_of
from distcommit.constructs.settings import RowCheckerSettings


class NotNull(RowCheckerSettings, frozen=True, extra="forbid"):
    """Passes records that have a value in each of the columns. NaN and the empty text are values."""

    type: Literal["not_null"] = "not_null"
    columns: tuple[str, ...] = Field(min_length=1)

    def asked_columns(self) -> Sequence[str]:
        return self.columns

    def check_schema(self, schema: pa.Schema) -> None:
        for column in self.columns:
            field_of(schema, column, self.type)

    def check(self, batch: pa.RecordBatch) -> pa.BooleanArray:
        self.check_schema(batch.schema)
        return reduce(pc.and_, (pc.is_valid(batch.column(column)) for column in self.columns))

    def describe(self) -> str:
        return f"{', '.join(self.columns)} not null"


SETTINGS = NotNull

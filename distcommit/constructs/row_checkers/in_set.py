"""Values of a set."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field

from distcommit.constructs.conditions import literals
from distcommit.constructs.settings import RowCheckerSettings

_SHOWN = 10
"""Values, in reasons."""


class InSet(RowCheckerSettings, frozen=True, extra="forbid"):
    """Passes records whose value is one of `values`, or null."""

    type: Literal["in_set"] = "in_set"
    column: str
    values: tuple[literals.Value, ...] = Field(min_length=1)

    def asked_columns(self) -> Sequence[str]:
        return (self.column,)

    def check_schema(self, schema: pa.Schema) -> None:
        self._value_set(schema)

    def _value_set(self, schema: pa.Schema) -> pa.Array:
        kind = literals.check_comparable(schema, self.column, self.type)
        return literals.array_of(self.values, kind, self.type, self.column)

    def check(self, batch: pa.RecordBatch) -> pa.BooleanArray:
        values = self._value_set(batch.schema)
        column = literals.plain(batch.column(self.column))
        return pc.or_(pc.is_in(column, value_set=values), pc.is_null(column))

    def describe(self) -> str:
        more = ", ..." if len(self.values) > _SHOWN else ""
        return f"{self.column} in ({', '.join(map(str, self.values[:_SHOWN]))}{more})"


SETTINGS = InSet

"""Values within limits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field, model_validator

from distcommit.constructs.conditions import literals
from distcommit.constructs.settings import RowCheckerSettings


class Range(RowCheckerSettings, frozen=True, extra="forbid"):
    """Passes records whose value is at least `min` and at most `max`, or null. NaN is in no range; text is
    compared by its bytes."""

    type: Literal["range"] = "range"
    column: str
    at_least: literals.Value | None = Field(default=None, alias="min")
    at_most: literals.Value | None = Field(default=None, alias="max")

    @model_validator(mode="after")
    def _has_a_limit(self) -> Range:
        if self.at_least is None and self.at_most is None:
            raise ValueError("a range has a min, a max, or both")
        return self

    def asked_columns(self) -> Sequence[str]:
        return (self.column,)

    def check_schema(self, schema: pa.Schema) -> None:
        self._limits(schema)

    def _limits(self, schema: pa.Schema) -> tuple[pa.Scalar | None, pa.Scalar | None]:
        kind = literals.check_comparable(schema, self.column, self.type)
        low, high = (
            None if limit is None else literals.literal_of(limit, kind, self.type, self.column)
            for limit in (self.at_least, self.at_most)
        )
        return low, high

    def check(self, batch: pa.RecordBatch) -> pa.BooleanArray:
        low, high = self._limits(batch.schema)
        column = literals.plain(batch.column(self.column))
        passes = pc.is_null(column)
        within = pa.repeat(True, batch.num_rows)
        if low is not None:
            within = pc.and_(within, pc.greater_equal(column, low))
        if high is not None:
            within = pc.and_(within, pc.less_equal(column, high))
        return pc.or_(passes, pc.fill_null(within, False))

    def describe(self) -> str:
        low = "" if self.at_least is None else f"{self.at_least} <= "
        return f"{low}{self.column}" + ("" if self.at_most is None else f" <= {self.at_most}")


SETTINGS = Range

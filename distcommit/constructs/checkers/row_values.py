"""Row checkers of the values in columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import reduce
from typing import Literal

import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field

from distcommit.constructs.construct_settings import RowCheckerSettings
from distcommit.constructs.expressions import literals
from distcommit.constructs.expressions.comparable_columns import as_plain, check_comparable
from distcommit.core.support.settings_model import SettingError, checks, rule
from distcommit.schemas.known_columns import find_column
from distcommit.schemas.storable_types import is_text, plain_type

_SHOWN = 10
"""Maximum number of values in a rejection reason."""


class NotNull(RowCheckerSettings):
    """Check that columns are not null. NaN and empty text are values.

    Attributes:
        columns: the columns.
    """

    type: Literal["not_null"] = "not_null"
    columns: tuple[str, ...] = Field(min_length=1)

    def required_columns(self) -> Sequence[str]:
        return self.columns

    def check_schema(self, schema: pa.Schema) -> None:
        for column in self.columns:
            find_column(schema, column, self.type)

    def check(self, batch: pa.RecordBatch) -> pa.BooleanArray:
        self.check_schema(batch.schema)
        return reduce(pc.and_, (pc.is_valid(batch.column(column)) for column in self.columns))

    def describe(self) -> str:
        return f"{', '.join(self.columns)} not null"


class _OneColumn(RowCheckerSettings):
    """Base of checkers of a single column.

    Attributes:
        column: the column. Null passes.
    """

    column: str

    def required_columns(self) -> Sequence[str]:
        return (self.column,)


class InSet(_OneColumn):
    """Check that a value is one of a set.

    Attributes:
        values: the set.
    """

    type: Literal["in_set"] = "in_set"
    values: tuple[literals.Value, ...] = Field(min_length=1)

    def check_schema(self, schema: pa.Schema) -> None:
        self._value_set(schema)

    def _value_set(self, schema: pa.Schema) -> pa.Array:
        kind = check_comparable(schema, self.column, self.type)
        return literals.array_of(self.values, kind, self.type, self.column)

    def check(self, batch: pa.RecordBatch) -> pa.BooleanArray:
        values = self._value_set(batch.schema)
        column = as_plain(batch.column(self.column))
        return pc.or_(pc.is_in(column, value_set=values), pc.is_null(column))

    def describe(self) -> str:
        more = ", ..." if len(self.values) > _SHOWN else ""
        return f"{self.column} in ({', '.join(map(str, self.values[:_SHOWN]))}{more})"


class Range(_OneColumn):
    """Check that a value is within limits. NaN is in no range. Text is compared by its bytes.

    Attributes:
        min: the least value that passes.
        max: the greatest value that passes.
    """

    type: Literal["range"] = "range"
    at_least: literals.Value | None = Field(default=None, alias="min")
    at_most: literals.Value | None = Field(default=None, alias="max")

    @rule
    def _has_limit(self) -> Iterator[SettingError]:
        if self.at_least is None and self.at_most is None:
            yield SettingError("must have min, max, or both")

    def check_schema(self, schema: pa.Schema) -> None:
        self._limits(schema)

    def _limits(self, schema: pa.Schema) -> tuple[pa.Scalar | None, pa.Scalar | None]:
        kind = check_comparable(schema, self.column, self.type)
        low, high = (
            None if limit is None else literals.literal_of(limit, kind, self.type, self.column)
            for limit in (self.at_least, self.at_most)
        )
        return low, high

    def check(self, batch: pa.RecordBatch) -> pa.BooleanArray:
        low, high = self._limits(batch.schema)
        column = as_plain(batch.column(self.column))
        within = pa.repeat(True, batch.num_rows)
        if low is not None:
            within = pc.and_(within, pc.greater_equal(column, low))
        if high is not None:
            within = pc.and_(within, pc.less_equal(column, high))
        return pc.or_(pc.is_null(column), pc.fill_null(within, False))

    def describe(self) -> str:
        low = "" if self.at_least is None else f"{self.at_least} <= "
        return f"{low}{self.column}" + ("" if self.at_most is None else f" <= {self.at_most}")


class Regex(_OneColumn):
    """Check that text contains a match of a regular expression. Bytes are read as UTF-8.

    Attributes:
        pattern: an RE2 expression, which takes linear time. To match the whole text, begin with `^` and end with `$`.
    """

    type: Literal["regex"] = "regex"
    pattern: str

    @checks("pattern")
    @classmethod
    def _is_re2(cls, pattern: str) -> str:
        try:
            pc.match_substring_regex(pa.array([""]), pattern)
        except pa.ArrowInvalid as error:
            raise SettingError(f"must be a regular expression of RE2: {error}") from error
        return pattern

    def check_schema(self, schema: pa.Schema) -> None:
        find_column(schema, self.column, self.type, lambda kind: is_text(plain_type(kind)), "text or bytes")

    def check(self, batch: pa.RecordBatch) -> pa.BooleanArray:
        self.check_schema(batch.schema)
        return pc.fill_null(pc.match_substring_regex(as_plain(batch.column(self.column)), self.pattern), True)

    def describe(self) -> str:
        return f"{self.column} matches {self.pattern}"

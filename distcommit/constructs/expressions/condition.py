"""Conditions in YAML, compiled to Arrow functions.

`app.reading.row_filters` has a second compiler, because a filter is an expression for files' statistics, which widens a
column to represent each literal exactly. Here a literal must be a value of the column's type.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import reduce
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field

from distcommit.constructs.expressions import literals
from distcommit.constructs.expressions.comparable_columns import as_plain, check_comparable
from distcommit.core.support.settings_model import SettingError, SettingsModel, rule
from distcommit.schemas.known_columns import find_column

COMPARISONS: Mapping[str, Callable[[Any, Any], Any]] = {
    "==": pc.equal,
    "!=": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}
"""For arrays and expressions; a comparison with null is null."""


class Condition(SettingsModel):
    """One of the following forms. As in SQL, a comparison with null is neither true nor false.

    {column: price, op: ">=", value: 10}    ==, !=, <, <=, > or >=
    {column: kind, op: in, values: [a, b]}
    {column: price, op: is_null}
    {all: [CONDITION, ...]}                 or any
    {not: CONDITION}

    Attributes:
        column: name of the compared column; None for `all`, `any` and `not`.
        op: operator that compares the column; None without a column.
        value: operand of a comparison; None for other forms.
        values: operands of `in`, at least one; None for other operators.
        all: conditions that must all be true; None for other forms.
        any: conditions of which at least one must be true; None for other forms.
        not: condition that must be false; None for other forms.
    """

    column: str | None = None
    op: Literal["==", "!=", "<", "<=", ">", ">=", "in", "is_null"] | None = None
    value: literals.Value | None = None
    values: tuple[literals.Value, ...] | None = Field(default=None, min_length=1)
    all_of: tuple[Condition, ...] | None = Field(default=None, alias="all", min_length=1)
    any_of: tuple[Condition, ...] | None = Field(default=None, alias="any", min_length=1)
    negated: Condition | None = Field(default=None, alias="not")

    @rule
    def _check_one_form(self) -> Iterator[SettingError]:
        keys = {
            (field.alias or name) for name, field in type(self).model_fields.items() if getattr(self, name) is not None
        }
        if "column" in keys or "op" in keys:
            operands = {"in": {"values"}, "is_null": set()}.get(self.op or "", {"value"})
            allowed = [{"column", "op", *operands}]
        else:
            allowed = [{"all"}, {"any"}, {"not"}]
        if keys not in allowed:
            yield SettingError(f"must have {' or '.join(map(_listed, allowed))}", actual=_listed(keys) or "nothing")

    def columns(self) -> frozenset[str]:
        own = frozenset() if self.column is None else frozenset([self.column])
        return own.union(*(part.columns() for part in self._parts()))

    def _parts(self) -> Iterable[Condition]:
        return (*(self.all_of or ()), *(self.any_of or ()), *([self.negated] if self.negated else ()))

    def check_schema(self, schema: pa.Schema, construct: str) -> None:
        """Raise ConfigurationError if a column is missing or can't be compared."""
        for part in self._parts():
            part.check_schema(schema, construct)
        if self.column is not None:
            self._operand(self.column, schema, construct)

    def is_true(self, batch: pa.RecordBatch, construct: str) -> pa.BooleanArray:
        """Return `answers`, with false for null."""
        return pc.fill_null(self.answers(batch, construct), False)

    def answers(self, batch: pa.RecordBatch, construct: str) -> pa.BooleanArray:
        """Return whether the condition is true by row; null for neither.

        Args:
            construct: converter or fork, for messages.

        Raises:
            ConfigurationError: if a column is missing, or can't be compared with the value.
        """
        if self.all_of is not None:
            return reduce(pc.and_kleene, (part.answers(batch, construct) for part in self.all_of))
        if self.any_of is not None:
            return reduce(pc.or_kleene, (part.answers(batch, construct) for part in self.any_of))
        if self.negated is not None:
            return pc.invert(self.negated.answers(batch, construct))
        assert self.column is not None
        operand = self._operand(self.column, batch.schema, construct)
        column = batch.column(self.column)
        if self.op == "is_null":
            return pc.is_null(column)
        column = as_plain(column)
        if self.op == "in":
            return pc.if_else(pc.is_valid(column), pc.is_in(column, value_set=operand), None)
        return COMPARISONS[self.op or ""](column, operand)

    def _operand(self, column: str, schema: pa.Schema, construct: str) -> pa.Scalar | pa.Array | None:
        """Return the operand in the column's type; None for `is_null`; raises ConfigurationError."""
        if self.op == "is_null":
            find_column(schema, column, construct)
            return None
        kind = check_comparable(schema, column, construct)
        if self.values is not None:
            return literals.array_of(self.values, kind, construct, column)
        assert self.value is not None
        return literals.literal_of(self.value, kind, construct, column)


def _listed(keys: Iterable[str]) -> str:
    return " and ".join(sorted(keys))

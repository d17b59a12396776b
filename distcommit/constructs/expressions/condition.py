"""Conditions on columns, written in YAML and compiled to Arrow functions."""

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
"""Arrow function of each operator. A comparison with null returns null."""


def compile_comparison(column: Any, op: str, operand: Any, *, negated: bool = False) -> Any:
    """Return whether a comparison is true. With `negated`, return whether it is false.

    As in SQL, a comparison with null is neither true nor false. The result for null is null or false.

    Args:
        column: an array, for an array of results; or an expression, for an expression that the statistics of files can
            evaluate.
        op: a key of `COMPARISONS`, `in` or `is_null`.
        operand: a scalar; an array for `in`. Its type must be the column's.
    """
    if op == "is_null":
        result = pc.is_null(column)
    elif op == "in":
        result = pc.is_in(column, value_set=operand)
    else:
        result = COMPARISONS[op](column, operand)
    result = pc.invert(result) if negated else result
    return pc.and_kleene(result, pc.is_valid(column)) if op == "in" else result


class Condition(SettingsModel):
    """A condition in one of the following forms. As in SQL, a comparison with null is neither true nor false.

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
        """Raise ConfigurationError if a column is missing from the schema, or can't be compared with the value."""
        for part in self._parts():
            part.check_schema(schema, construct)
        if self.column is not None:
            self._operand(self.column, schema, construct)

    def is_true(self, batch: pa.RecordBatch, construct: str) -> pa.BooleanArray:
        """Return for each row whether the condition is true; false if it is neither true nor false. Raises
        ConfigurationError if a column is missing, or can't be compared with the value.
        """
        return pc.fill_null(self._compiled(batch, construct), False)

    def _compiled(self, batch: pa.RecordBatch, construct: str, *, negated: bool = False) -> pa.BooleanArray:
        """Return for each row whether the condition is true. With `negated`, return whether it is false. In other rows,
        the result is null or false.
        """
        if self.negated is not None:
            return self.negated._compiled(batch, construct, negated=not negated)
        if self.column is None:
            must_all_hold = (self.all_of is not None) is not negated
            parts = (part._compiled(batch, construct, negated=negated) for part in self._parts())
            return reduce(pc.and_kleene if must_all_hold else pc.or_kleene, parts)
        operand = self._operand(self.column, batch.schema, construct)
        column = batch.column(self.column)
        compared = column if self.op == "is_null" else as_plain(column)
        return compile_comparison(compared, self.op or "", operand, negated=negated)

    def _operand(self, column: str, schema: pa.Schema, construct: str) -> pa.Scalar | pa.Array | None:
        """Return the value or values in the column's type; None for `is_null`. Raises ConfigurationError if the column
        is missing, or can't be compared with them.
        """
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

"""Conditions on a record's columns, as a job file has them, and Arrow's answer by row."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import reduce
from typing import Literal

import pyarrow as pa
import pyarrow.compute as pc
from pydantic import BaseModel, Field, model_validator

from distcommit.constructs.columns import field_of
from distcommit.constructs.conditions import literals

_COMPARE: Mapping[str, Callable[[pa.Array, pa.Scalar], pa.BooleanArray]] = {
    "==": pc.equal,
    "!=": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}


class Condition(BaseModel, frozen=True, extra="forbid"):
    """One of these; a null that is compared makes it neither so nor not, as in SQL:

    {column: price, op: ">=", value: 10}    ==, !=, <, <=, > or >=
    {column: kind, op: in, values: [a, b]}
    {column: price, op: is_null}
    {all: [CONDITION, ...]}                 or any
    {not: CONDITION}
    """

    column: str | None = None
    op: Literal["==", "!=", "<", "<=", ">", ">=", "in", "is_null"] | None = None
    value: literals.Value | None = None
    values: tuple[literals.Value, ...] | None = Field(default=None, min_length=1)
    all_of: tuple[Condition, ...] | None = Field(default=None, alias="all", min_length=1)
    any_of: tuple[Condition, ...] | None = Field(default=None, alias="any", min_length=1)
    negated: Condition | None = Field(default=None, alias="not")

    @model_validator(mode="after")
    def _is_one(self) -> Condition:
        found = {
            (field.alias or name) for name, field in type(self).model_fields.items() if getattr(self, name) is not None
        }
        if "column" in found or "op" in found:
            compared = {"in": {"values"}, "is_null": set()}.get(self.op or "", {"value"})
            wanted = [{"column", "op", *compared}]
        else:
            wanted = [{"all"}, {"any"}, {"not"}]
        if found not in wanted:
            raise ValueError(
                f"a condition has {' or '.join(_listed(keys) for keys in wanted)}; found {_listed(found) or 'nothing'}"
            )
        return self

    def columns(self) -> frozenset[str]:
        """The names of the columns that it looks at."""
        own = frozenset() if self.column is None else frozenset([self.column])
        return own.union(*(below.columns() for below in self._parts()))

    def _parts(self) -> Iterable[Condition]:
        return (*(self.all_of or ()), *(self.any_of or ()), *([self.negated] if self.negated else ()))

    def check_schema(self, schema: pa.Schema, construct: str) -> None:
        """Asks whether it can be answered for records of a schema.

        Raises:
            ConfigurationError: if a column is missing, or can't be compared with the value.
        """
        for below in self._parts():
            below.check_schema(schema, construct)
        if self.column is not None:
            self._operand(self.column, schema, construct)

    def answers(self, batch: pa.RecordBatch, construct: str) -> pa.BooleanArray:
        """By row whether it is so; null: neither so nor not.

        Args:
            batch: the records.
            construct: who asks, for messages.

        Raises:
            ConfigurationError: as `check_schema`.
        """
        if self.all_of is not None:
            return reduce(pc.and_kleene, (condition.answers(batch, construct) for condition in self.all_of))
        if self.any_of is not None:
            return reduce(pc.or_kleene, (condition.answers(batch, construct) for condition in self.any_of))
        if self.negated is not None:
            return pc.invert(self.negated.answers(batch, construct))
        assert self.column is not None
        operand = self._operand(self.column, batch.schema, construct)
        column = batch.column(self.column)
        if self.op == "is_null":
            return pc.is_null(column)
        column = literals.plain(column)
        if self.op == "in":
            return pc.if_else(pc.is_valid(column), pc.is_in(column, value_set=operand), None)
        return _COMPARE[self.op or ""](column, operand)

    def _operand(self, column: str, schema: pa.Schema, construct: str) -> pa.Scalar | pa.Array | None:
        """What the column is compared with, as its type. Raises as `check_schema`."""
        if self.op == "is_null":
            field_of(schema, column, construct)
            return None
        kind = literals.check_comparable(schema, column, construct)
        if self.values is not None:
            return literals.array_of(self.values, kind, construct, column)
        assert self.value is not None
        return literals.literal_of(self.value, kind, construct, column)


def _listed(keys: Iterable[str]) -> str:
    return " and ".join(sorted(keys))

"""Filters of records by column values, for files whose column types may differ."""

from __future__ import annotations

import json
import operator
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import reduce
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from distcommit.constructs.expressions.condition import COMPARISONS, compile_comparison
from distcommit.constructs.expressions.literals import convert_literal
from distcommit.core.errors import ConfigurationError

_COMPARED = tuple("=" if op == "==" else op for op in COMPARISONS)
_AMONG = ("in", "not in")
_MOST_DIGITS = 76  # of Arrow's widest decimal
_UNFIT = (pa.ArrowException, OverflowError)
_NO_USE = ("!=", "not in")
"""Comparisons that row-group statistics rarely exclude. NaN passes them and is not in the statistics."""


@dataclass(frozen=True, slots=True)
class RowFilter:
    """A comparison of a column with one value or several. As in SQL, a comparison is never true for null.

    Attributes:
        column: name of the column.
        compared: operator: `=`, `!=`, `<`, `<=`, `>`, `>=`, `in` or `not in`.
        value: JSON value; a list of values for `in` and `not in`.
    """

    column: str
    compared: str
    value: Any

    @property
    def values(self) -> tuple[Any, ...]:
        return self.value if self.compared in _AMONG else (self.value,)

    def expression(self, kind: pa.DataType) -> pc.Expression:
        """Return the exact filter for a column of that type. Raises pa.ArrowException or OverflowError if a value does
        not fit the type.
        """
        common, values = _common_type(kind, self.values)
        column = pc.field(self.column) if common == kind else pc.field(self.column).cast(common)
        operands = [convert_literal(value, common) for value in values]
        operand = _value_set(operands, common) if self.compared in _AMONG else operands[0]
        op = {"=": "==", "not in": "in"}.get(self.compared, self.compared)
        result: pc.Expression = compile_comparison(column, op, operand, negated=self.compared == "not in")
        return result


@dataclass(frozen=True, slots=True)
class RowFilters:
    """Filters that a record must all pass.

    Attributes:
        all_of: the filters; if empty, every record passes.
    """

    all_of: tuple[RowFilter, ...] = ()

    @property
    def columns(self) -> frozenset[str]:
        return frozenset(row_filter.column for row_filter in self.all_of)

    def expression(self, schema: pa.Schema) -> pc.Expression | None:
        """Return the exact filter for files with these columns; None if every record passes.

        Raises:
            ConfigurationError: if a column does not exist, or a value does not fit its type.
        """
        result = _all_true([_exact(row_filter, schema) for row_filter in self.all_of])
        if result is not None:
            try:
                schema.empty_table().filter(result)
            except pa.ArrowException as error:
                raise ConfigurationError(
                    "the text has no valid filter", id="ARGUMENT_INVALID", expected="values", found=str(error)
                ) from error
        return result

    def of_file(self, schema: pa.Schema) -> pc.Expression | None:
        """Return a filter for the statistics of a file with these columns; None if it would exclude nothing. It passes
        all requested records, and possibly others.
        """
        return _all_true([result for row_filter in self.all_of if (result := _rough(row_filter, schema)) is not None])


def parsed_filters(text: str | None) -> RowFilters:
    """Return the filters of a JSON text: a list of lists of column, comparison and value, as in pandas and pyarrow.

    Raises:
        ConfigurationError: if the text is not JSON of this form.
    """
    if text is None:
        return RowFilters()
    try:
        return RowFilters(tuple(map(_parsed, _listed(json.loads(text, parse_float=Decimal)))))
    except (ValueError, RecursionError) as error:
        raise ConfigurationError(
            "the text is not a list of filters",
            id="ARGUMENT_INVALID",
            expected=f'a JSON list such as [["n", ">", 20], ["name", "in", ["a", "b"]]], of {", ".join(_COMPARED)},'
            f" {' and '.join(_AMONG)}",
            found=f"{text}: {error}",
        ) from error


def _listed(value: Any) -> list[Any]:
    match value:
        case [*items]:
            return items
    raise ValueError("it is not a list")


def _parsed(found: Any) -> RowFilter:
    match found:
        case [str(column), str(compared), value] if compared in _COMPARED and _is_value(value):
            return RowFilter(column, compared, value)
        case [str(column), str(compared), [*values]] if compared in _AMONG and values and all(map(_is_value, values)):
            return RowFilter(column, compared, tuple(values))
    raise ValueError(f"{json.dumps(found, default=str)} is none")


def _is_value(value: Any) -> bool:
    return isinstance(value, str | int | float | Decimal)


def _common_type(kind: pa.DataType, values: Sequence[Any]) -> tuple[pa.DataType, Sequence[Any]]:
    """Return the column's type, or a wider one that represents all values exactly; and the values, as decimals for a
    column of decimals.
    """
    if pa.types.is_floating(kind):
        return pa.float64(), values
    if not pa.types.is_decimal(kind):
        return kind, values
    try:
        numbers = [Decimal(str(value)) for value in values]
        scale = max(kind.scale, *(-int(number.as_tuple().exponent) for number in numbers))
    except (ArithmeticError, ValueError) as error:
        raise pa.ArrowInvalid(f"{values} are not decimal numbers") from error
    before_point = max(kind.precision - kind.scale, *(number.adjusted() + 1 for number in numbers))
    if before_point + scale > _MOST_DIGITS:
        raise pa.ArrowInvalid(f"{values} have too many digits to be compared with {kind}")
    is_same = scale == kind.scale and before_point <= kind.precision - kind.scale
    return (kind if is_same else pa.decimal256(_MOST_DIGITS, scale)), numbers  # statistics have the column's own type


def _value_set(operands: Sequence[pa.Scalar], kind: pa.DataType) -> pa.Array:
    values = pa.array([operand.as_py() for operand in operands], kind)
    if not pa.types.is_floating(kind):
        return values
    return pa.concat_arrays([values, pc.negate(values.filter(pc.equal(values, 0)))])  # -0.0 equals 0.0


def _exact(row_filter: RowFilter, schema: pa.Schema) -> pc.Expression:
    if row_filter.column not in schema.names:
        raise ConfigurationError(
            "there is no column of that name to filter by",
            id="ARGUMENT_INVALID",
            expected=f"one of {', '.join(schema.names)}",
            found=row_filter.column,
        )
    kind = schema.field(row_filter.column).type
    try:
        return row_filter.expression(kind)
    except _UNFIT as error:
        raise ConfigurationError(
            "a filter's value is not of its column's type",
            id="ARGUMENT_INVALID",
            column=row_filter.column,
            expected=str(kind),
            found=str(error),
        ) from error


def _rough(row_filter: RowFilter, schema: pa.Schema) -> pc.Expression | None:
    if row_filter.column not in schema.names:
        return pc.scalar(value=False)  # all null
    kind = schema.field(row_filter.column).type
    if row_filter.compared in _NO_USE or pa.types.is_nested(kind) or pa.types.is_dictionary(kind):
        return None
    if pa.types.is_temporal(kind) and not all(isinstance(value, str) for value in row_filter.values):
        return None  # a number counts in the unit that all files have together
    try:
        return row_filter.expression(kind)
    except _UNFIT:
        return None  # of a narrower type than that of other files


def _all_true(expressions: list[pc.Expression]) -> pc.Expression | None:
    return reduce(operator.and_, expressions) if expressions else None

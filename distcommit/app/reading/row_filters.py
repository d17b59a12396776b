"""Which records a reader wants, by their values: told once for all files, each of which may have types of its own."""

from __future__ import annotations

import json
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from distcommit.model.errors import ConfigurationError

_COMPARED: Mapping[str, Callable[[Any, Any], pc.Expression]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_AMONG = ("in", "not in")
_NO_USE = ("!=", "not in")
"""What statistics of a row group hardly ever rule out; and they know nothing of NaN, which passes these."""


@dataclass(frozen=True, slots=True)
class RowFilter:
    """A column, how it is compared (`=`, `!=`, `<`, `<=`, `>`, `>=`, `in`, `not in`), and with what: a value as JSON
    has it, or several. As in SQL nothing is true of null."""

    column: str
    compared: str
    value: Any

    def expression(self, kind: pa.DataType) -> pc.Expression:
        """The same of a column of that type. Raises pa.ArrowException if the value is none of that type."""
        column = pc.field(self.column)
        if self.compared in _AMONG:
            among = column.isin(pa.array(self.value).cast(kind))
            return (among if self.compared == "in" else ~among) & column.is_valid()
        return _COMPARED[self.compared](column, pa.scalar(self.value).cast(kind))


@dataclass(frozen=True, slots=True)
class RowFilters:
    """Filters that all have to be true of a record; none at all: every record is wanted."""

    all_of: tuple[RowFilter, ...] = ()

    @property
    def columns(self) -> frozenset[str]:
        """What they look at."""
        return frozenset(each.column for each in self.all_of)

    def expression(self, schema: pa.Schema) -> pc.Expression | None:
        """What is true of each record that is wanted, of all files with these columns; None if that is every one.

        Raises:
            ConfigurationError: if there is no such column, or a value is none of its type.
        """
        found = _all_true([_exact(each, schema) for each in self.all_of])
        if found is not None:
            try:
                schema.empty_table().filter(found)
            except pa.ArrowException as error:
                raise ConfigurationError(
                    "nothing can be filtered by this", expected="values", found=str(error)
                ) from error
        return found

    def of_file(self, schema: pa.Schema) -> pc.Expression | None:
        """What is true of each record that is wanted of a file with these columns, and maybe of others: for that file's
        statistics. None if nothing can be said."""
        return _all_true([found for each in self.all_of if (found := _rough(each, schema)) is not None])


def parsed_filters(text: str | None) -> RowFilters:
    """Filters as JSON: a list of lists of a column, a comparison and a value, as pandas and pyarrow have them.

    Raises:
        ConfigurationError: if it is none.
    """
    if text is None:
        return RowFilters()
    try:
        return RowFilters(tuple(map(_parsed, _listed(json.loads(text)))))
    except (ValueError, RecursionError) as error:
        raise ConfigurationError(
            "these are no filters",
            expected=f'a JSON list such as [["n", ">", 20], ["name", "in", ["a", "b"]]], of {", ".join(_COMPARED)},'
            f" {' and '.join(_AMONG)}",
            found=f"{text}: {error}",
        ) from error


def _listed(found: Any) -> list[Any]:
    match found:
        case [*each]:
            return each
    raise ValueError("it is no list")


def _parsed(found: Any) -> RowFilter:
    match found:
        case [str(column), str(compared), value] if compared in _COMPARED and _is_value(value):
            return RowFilter(column, compared, value)
        case [str(column), str(compared), [*values]] if compared in _AMONG and values and all(map(_is_value, values)):
            return RowFilter(column, compared, tuple(values))
    raise ValueError(f"{json.dumps(found)} is none")


def _is_value(found: Any) -> bool:
    return isinstance(found, str | int | float)


def _exact(each: RowFilter, schema: pa.Schema) -> pc.Expression:
    if each.column not in schema.names:
        raise ConfigurationError(
            "there is no column of that name to filter by",
            expected=f"one of {', '.join(schema.names)}",
            found=each.column,
        )
    kind = schema.field(each.column).type
    try:
        return each.expression(kind)
    except pa.ArrowException as error:
        raise ConfigurationError(
            "a filter's value is none of its column's type", column=each.column, expected=str(kind), found=str(error)
        ) from error


def _rough(each: RowFilter, schema: pa.Schema) -> pc.Expression | None:
    if each.column not in schema.names:
        return pc.scalar(value=False)  # all null
    kind = schema.field(each.column).type
    if each.compared in _NO_USE or pa.types.is_nested(kind) or pa.types.is_dictionary(kind):
        return None
    try:
        return each.expression(kind)
    except pa.ArrowException:
        return None  # of a narrower type than that of other files


def _all_true(expressions: list[pc.Expression]) -> pc.Expression | None:
    return reduce(operator.and_, expressions) if expressions else None

"""What is known of records' columns before there are any, and columns that constructs ask for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from distcommit.core.errors import ConfigurationError

UNKNOWN = pa.opaque(pa.null(), "as the records say", "distcommit")
"""The type of a column that is there for sure, and whose type only the records can tell."""


@dataclass(frozen=True, slots=True)
class Columns:
    """What is known of the columns of records: all, if these have a schema that is known; some names and types, or
    nothing, behind what only records can tell.

    Attributes:
        known: those that are there for sure, with `UNKNOWN` for types that are not known.
        others: whether there may be others.
        gone: names that none of the others has.
    """

    known: pa.Schema = pa.schema([])  # noqa: RUF009 - immutable
    others: bool = True
    gone: frozenset[str] = frozenset()

    @classmethod
    def of(cls, schema: pa.Schema | None) -> Columns:
        """All columns of a schema; None: nothing is known."""
        return cls() if schema is None else cls(schema, others=False)

    def whole(self) -> pa.Schema | None:
        """The schema, if it is known."""
        return None if self.others or UNKNOWN in self.known.types else self.known

    def may_have(self, name: str) -> bool:
        """Whether there may be a column of that name."""
        return name in self.known.names or (self.others and name not in self.gone)

    def with_known(self, fields: Iterable[pa.Field], without: Iterable[str] = ()) -> Columns:
        """The same with these as the ones that are known.

        Args:
            fields: theirs.
            without: names that none of the others has any more.
        """
        known = pa.schema(fields)
        gone = (self.gone | frozenset(without)) - set(known.names) if self.others else frozenset[str]()
        return Columns(known, self.others, gone)

    def beside(self, name: str, keep: bool) -> Columns:
        """The columns that stand beside what comes of one of them: with that one itself or without."""
        return self if keep else self.with_known([field for field in self.known if field.name != name], [name])


def field_of(
    columns: Columns | pa.Schema,
    name: str,
    construct: str,
    wanted: Callable[[pa.DataType], bool] = lambda _: True,
    expected: str = "",
) -> pa.Field:
    """The one column of that name; of type `UNKNOWN` if it may be there.

    Args:
        columns: of the records.
        name: the column's.
        construct: who asks, for messages.
        wanted: whether it can be used with a type.
        expected: which types these are, in words.

    Raises:
        ConfigurationError: if there is none for sure, or several, or its type is another.
    """
    columns = columns if isinstance(columns, Columns) else Columns.of(columns)
    found = columns.known.get_all_field_indices(name)
    if not found and columns.may_have(name):
        return pa.field(name, UNKNOWN)
    if len(found) != 1:
        raise ConfigurationError(
            "a construct asks for a column that the records do not have" if not found else "two columns have one name",
            construct=construct,
            expected=f"one column {name!r}",
            found=_told(columns),
            todo="correct the construct's settings, or the converters before it",
        )
    field = columns.known.field(found[0])
    if field.type != UNKNOWN and not wanted(field.type):
        raise ConfigurationError(
            "a construct can't work with the type of a column",
            construct=construct,
            column=name,
            expected=expected,
            found=str(field.type),
            todo="cast the column before, or name another",
        )
    return field


def fields_of(columns: Columns, names: Iterable[str], construct: str) -> pa.Schema | None:
    """The columns of these names as a schema; None if the type of one is not known. Raises as `field_of`."""
    return Columns(pa.schema([field_of(columns, name, construct) for name in names]), others=False).whole()


def typed_of(columns: Columns, asked: Sequence[str], construct: str) -> pa.Schema | None:
    """The columns of these names, and all others whose types are known and hold values; None if the type of one of
    these is not known, or there is no other. Raises as `field_of`."""
    named = [field_of(columns, name, construct) for name in asked]
    fields = [field for field in columns.known if field.name in asked or field.type not in (UNKNOWN, pa.null())]
    return pa.schema(fields) if fields and all(field.type != UNKNOWN for field in named) else None


def _told(columns: Columns) -> str:
    if columns.others and columns.gone:
        return f"none, whatever the records say: {', '.join(sorted(columns.gone))} left out or renamed before"
    return f"columns {', '.join(columns.known.names) or 'none'}"


def unique_names(columns: Columns, construct: str, keep: str = "keep one") -> Columns:
    """The same, if no two of the columns have one name, as far as they are known.

    Args:
        columns: those that are left.
        construct: the construct that leaves them.
        keep: the remedy if there are none.

    Raises:
        ConfigurationError: else, or if there are none.
    """
    names = columns.known.names
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice or not (names or columns.others):
        raise ConfigurationError(
            "two columns would have one name" if twice else "no column would be left",
            construct=construct,
            expected="columns of different names",
            found=", ".join(twice) or "none",
            todo="drop or rename one before" if twice else keep,
        )
    return columns


def replaced(columns: Columns, name: str, kind: pa.DataType, *, nullable: bool | None = None) -> Columns:
    """The same with another type for the one column of that name; `nullable`: as it was, unless that says it."""
    index = columns.known.get_field_index(name)
    if index < 0:
        return columns.with_known([*columns.known, pa.field(name, kind, nullable is not False)])
    field = columns.known.field(index)
    field = pa.field(name, kind, field.nullable if nullable is None else nullable)
    return replace(columns, known=columns.known.set(index, field))

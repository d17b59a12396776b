"""Columns of records that are known before the first record, and lookups of the columns that constructs use."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from distcommit.core.errors import ConfigurationError

UNKNOWN = pa.opaque(pa.null(), "as the records say", "distcommit")
"""Type of a column that exists, but whose type is known only from the records."""


@dataclass(frozen=True, slots=True)
class Columns:
    """The columns of records, as far as they are known before the first record.

    If the records have a schema, all columns are known. After a converter whose output depends on the records, only
    some names and types are known, or none.

    Attributes:
        fields: the columns that exist; an unknown type is `UNKNOWN`.
        may_have_others: whether further columns may exist.
        dropped: names that no further column can have.
    """

    fields: pa.Schema = pa.schema([])  # noqa: RUF009 - immutable
    may_have_others: bool = True
    dropped: frozenset[str] = frozenset()

    @classmethod
    def of(cls, schema: pa.Schema | None) -> Columns:
        """Return the columns of a schema. If the schema is None, nothing is known."""
        return cls() if schema is None else cls(schema, may_have_others=False)

    def full_schema(self) -> pa.Schema | None:
        """Return the schema; None if not all columns and types are known."""
        return None if self.may_have_others or UNKNOWN in self.fields.types else self.fields

    def may_have(self, name: str) -> bool:
        return name in self.fields.names or (self.may_have_others and name not in self.dropped)

    def with_fields(self, fields: Iterable[pa.Field], without: Iterable[str] = ()) -> Columns:
        """Return columns with these fields in place of the present ones.

        Args:
            without: names that no further column can have.
        """
        schema = pa.schema(fields)
        dropped = (self.dropped | frozenset(without)) - set(schema.names) if self.may_have_others else frozenset[str]()
        return Columns(schema, self.may_have_others, dropped)

    def with_or_without(self, name: str, keep: bool) -> Columns:
        return self if keep else self.with_fields([field for field in self.fields if field.name != name], [name])


def find_column(
    columns: Columns | pa.Schema,
    name: str,
    construct: str,
    predicate: Callable[[pa.DataType], bool] = lambda _: True,
    expected: str = "",
) -> pa.Field:
    """Return the only column with a name. If it is not known whether the column exists, return it with the type
    `UNKNOWN`.

    Args:
        construct: the converter, checker or fork that needs the column, for messages.
        predicate: returns whether the construct accepts a type.
        expected: the accepted types, for messages.

    Raises:
        ConfigurationError: if the column can't exist, if several have the name, or if its type is not accepted.
    """
    columns = columns if isinstance(columns, Columns) else Columns.of(columns)
    indices = columns.fields.get_all_field_indices(name)
    if not indices and columns.may_have(name):
        return pa.field(name, UNKNOWN)
    if len(indices) != 1:
        raise ConfigurationError(
            "a construct needs a column that the records do not have" if not indices else "two columns have one name",
            id="CONSTRUCT_SETTINGS_INVALID",
            construct=construct,
            expected=f"one column {name!r}",
            found=_in_words(columns),
            todo="correct the construct's settings, or the converters before it",
        )
    field = columns.fields.field(indices[0])
    if field.type != UNKNOWN and not predicate(field.type):
        raise ConfigurationError(
            "a construct can't use the type of a column",
            id="CONSTRUCT_SETTINGS_INVALID",
            construct=construct,
            column=name,
            expected=expected,
            found=str(field.type),
            todo="cast the column before, or name another one",
        )
    return field


def named_schema(columns: Columns, names: Iterable[str], construct: str) -> pa.Schema | None:
    """Return the named columns as a schema; None if the type of one is unknown. Raises ConfigurationError if a named
    column can't exist, or if several have its name.
    """
    return Columns(
        pa.schema([find_column(columns, name, construct) for name in names]), may_have_others=False
    ).full_schema()


def typed_columns(columns: Columns, requested: Sequence[str], construct: str) -> pa.Schema | None:
    """Return the named columns, and all other columns with a known type other than null.

    Return None if the type of a named column is unknown, or if there are no columns. Raises ConfigurationError if a
    named column can't exist, or if several have its name.
    """
    named = [find_column(columns, name, construct) for name in requested]
    fields = [field for field in columns.fields if field.name in requested or field.type not in (UNKNOWN, pa.null())]
    return pa.schema(fields) if fields and all(field.type != UNKNOWN for field in named) else None


def _in_words(columns: Columns) -> str:
    if columns.may_have_others and columns.dropped:
        return f"none: {', '.join(sorted(columns.dropped))} dropped or renamed before"
    return f"columns {', '.join(columns.fields.names) or 'none'}"


def check_unique_names(columns: Columns, construct: str, keep: str = "keep one") -> Columns:
    """Return the columns unchanged. Raises ConfigurationError if two known columns have one name, or there are no
    columns.

    Args:
        construct: the construct, for messages.
        keep: the remedy if there are no columns.
    """
    names = columns.fields.names
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice or not (names or columns.may_have_others):
        raise ConfigurationError(
            "two columns would have one name" if twice else "no column would be left",
            id="CONSTRUCT_SETTINGS_INVALID",
            construct=construct,
            expected="columns of different names",
            found=", ".join(twice) or "none",
            todo="drop or rename one column before" if twice else keep,
        )
    return columns


def with_column_type(columns: Columns, name: str, kind: pa.DataType, *, nullable: bool | None = None) -> Columns:
    """Return the columns with another type for the column `name`, which is added if it is not known. If `nullable` is
    None, the column's nullability does not change.
    """
    index = columns.fields.get_field_index(name)
    if index < 0:
        return columns.with_fields([*columns.fields, pa.field(name, kind, nullable is not False)])
    field = columns.fields.field(index)
    field = pa.field(name, kind, field.nullable if nullable is None else nullable)
    return replace(columns, fields=columns.fields.set(index, field))

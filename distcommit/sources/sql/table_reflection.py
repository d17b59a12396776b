"""Reflection of tables: columns, keys and indexes."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine.interfaces import ReflectedColumn, ReflectedIndex
from sqlalchemy.engine.reflection import ObjectKind
from sqlalchemy.exc import NoSuchTableError, SAWarning

from distcommit.core.errors import SourceError

_IN_SCHEMA = (
    " JOIN pg_namespace n ON n.oid = c.relnamespace"
    " WHERE CASE WHEN CAST(:schema AS text) IS NULL THEN pg_table_is_visible(c.oid) ELSE n.nspname = :schema END"
)
_CHILDREN = sa.text(f"SELECT c.relname FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid{_IN_SCHEMA}")
_PARENTS = sa.text(
    f"SELECT c.relname FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhparent AND c.relkind = 'r'{_IN_SCHEMA}"
)
"""Query of tables, not partitioned, that others inherit from. Their keys and indexes do not cover all rows."""


@dataclass(frozen=True, slots=True)
class Reflected:
    """Description of a table by the database.

    Attributes:
        columns: all columns.
        unique: columns that are unique by themselves.
        keys: columns of the primary key.
        indexed: columns that an index over all rows begins with.
    """

    columns: list[ReflectedColumn]
    unique: frozenset[str]
    keys: tuple[str, ...] = ()
    indexed: frozenset[str] = frozenset()

    def with_keys(self, table: str, keys: tuple[str, ...]) -> Reflected:
        """Add the job file's keys. Raises SourceError if one is not a column."""
        if not keys:
            return self
        names = [column["name"] for column in self.columns]
        if missing := [key for key in keys if key not in names]:
            raise SourceError(
                "a key is not a column",
                id="SOURCE_SETTINGS_INVALID",
                table=table,
                expected=f"columns {', '.join(names)}",
                found=", ".join(missing),
                todo=f"correct source.overrides.{table}.keys",
            )
        return replace(self, unique=self.unique.union(keys if len(keys) == 1 else ()), keys=keys)


def table_names(connection: sa.Connection, schema: str | None) -> list[str]:
    """Return the names of tables that patterns can match.

    Views are absent, and in PostgreSQL partitions and inheriting tables, which are read with their parent.
    """
    names = sa.inspect(connection).get_table_names(schema)
    if connection.dialect.name != "postgresql":
        return names
    children = set(connection.scalars(_CHILDREN, {"schema": schema}))
    return [name for name in names if name not in children]


def reflect(connection: sa.Connection, names: Sequence[str], schema: str | None) -> dict[str, Reflected]:
    """Describe existing tables and views together."""
    inspector, anything = sa.inspect(connection), ObjectKind.ANY
    with types_may_be_unknown():
        columns = inspector.get_multi_columns(schema, names, anything)
        keys = inspector.get_multi_pk_constraint(schema, names, anything)
        constraints = inspector.get_multi_unique_constraints(schema, names, anything)
        indexes = inspector.get_multi_indexes(schema, names, anything)
    is_postgresql = connection.dialect.name == "postgresql"
    parents = set(connection.scalars(_PARENTS, {"schema": schema}) if is_postgresql else ())
    described: dict[str, Reflected] = {}
    for key, table_columns in columns.items():
        primary = keys[key]["constrained_columns"] if key in keys else []
        enforced, whole = [primary], list[Sequence[str | None]]()
        if key[1] not in parents:
            enforced += [constraint["column_names"] for constraint in constraints.get(key, [])]
            whole = [*enforced, *(index["column_names"] for index in indexes.get(key, []) if not _is_partial(index))]
        unique = frozenset(names[0] for names in enforced if len(names) == 1 and key[1] not in parents)
        indexed = frozenset(names[0] for names in whole if names and names[0] is not None)
        described[key[1]] = Reflected(table_columns, unique, tuple(primary), indexed)
    return described


def _is_partial(index: ReflectedIndex) -> bool:
    """Return whether an index lacks rows, or is not ordered."""
    options: Mapping[str, Any] = index.get("dialect_options", {})
    return any(value for name, value in options.items() if name.endswith(("_where", "_using", "_prefix")))


def reflect_table(connection: sa.Connection, name: str, schema: str | None) -> Reflected:
    """Describe a table or view. Raises NoSuchTableError if it does not exist."""
    tables = reflect(connection, [name], schema)
    if name not in tables:
        raise NoSuchTableError(name)
    return tables[name]


def reflect_columns(connection: sa.Connection, name: str, schema: str | None) -> Reflected:
    """Describe columns without keys and indexes. Raises NoSuchTableError if the table does not exist."""
    with types_may_be_unknown():
        return Reflected(sa.inspect(connection).get_columns(name, schema), frozenset())


@contextmanager
def types_may_be_unknown() -> Iterator[None]:
    """Suppress warnings about unknown types, which `column_of` rejects."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SAWarning)
        yield

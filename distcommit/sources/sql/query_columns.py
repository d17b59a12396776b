"""A query's columns, described without reading a row."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import sqlalchemy as sa
from sqlalchemy import types
from sqlalchemy.dialects import mysql, postgresql
from sqlalchemy.engine.interfaces import ReflectedColumn

from distcommit.core.errors import SourceError
from distcommit.sources.sql.select_statements import source_of
from distcommit.sources.sql.table_reflection import Reflected, types_may_be_unknown
from distcommit.sources.sql.table_selection import TableRules

__all__ = ["query_columns"]

_POSTGRESQL: Mapping[int, types.TypeEngine[Any]] = {
    16: types.Boolean(),
    17: types.LargeBinary(),
    19: types.Text(),  # name
    20: types.BigInteger(),
    21: types.SmallInteger(),
    23: types.Integer(),
    25: types.Text(),
    114: types.JSON(),
    700: types.Float(),
    701: types.Float(),
    1042: types.CHAR(),
    1043: types.VARCHAR(),
    1082: types.Date(),
    1083: types.Time(),
    1114: types.DateTime(),
    1184: types.DateTime(timezone=True),
    2950: types.Uuid(),
    3802: postgresql.JSONB(),
}
"""Column types by PostgreSQL's built-in oids, which never change."""
_POSTGRESQL_EXTENSIONS: Mapping[str, types.TypeEngine[Any]] = {"citext": postgresql.CITEXT()}
_NUMERIC = 1700
_OTHER_TYPES = sa.text("SELECT oid, CAST(typtype AS text), typname FROM pg_type WHERE oid IN :oids")
_MYSQL_INTEGERS: Mapping[int, Callable[..., types.TypeEngine[Any]]] = {
    1: mysql.TINYINT,
    2: mysql.SMALLINT,
    3: mysql.INTEGER,
    8: mysql.BIGINT,
    9: mysql.MEDIUMINT,
}
_MYSQL: Mapping[int, types.TypeEngine[Any]] = {
    4: mysql.FLOAT(),
    5: mysql.DOUBLE(),
    7: mysql.TIMESTAMP(),
    10: types.Date(),
    12: mysql.DATETIME(),
    14: types.Date(),
    245: types.JSON(),
}
"""Column types by the type number of MySQL's protocol."""
_MYSQL_DECIMAL, _MYSQL_TEXTS = 246, {15, 249, 250, 251, 252, 253, 254}
_UNSIGNED, _ENUM_OR_SET, _BYTES = 32, 256 | 2048, 63
_VIEW, _EMPTY = "distcommit_columns", "distcommit_affinities"


class _Unknown(types.NullType):
    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return self.name


def query_columns(connection: sa.Connection, name: str, rules: TableRules) -> Reflected:
    """Return the columns of a query. All of them are nullable, and none is unique, because the database does not report
    keys of queries.

    Args:
        connection: a connection in a transaction that is rolled back.

    Raises:
        SourceError: if the query has two columns with one name.
    """
    if connection.dialect.name == "sqlite":
        columns = _of_sqlite(connection, rules)
    else:
        statement: sa.Select[Any] = sa.select(sa.literal_column("*")).select_from(source_of(name, rules, None)).limit(0)
        with connection.execute(statement) as result:
            columns = (
                _of_postgresql(connection, result) if connection.dialect.name == "postgresql" else _of_mysql(result)
            )
    if twice := _twice([column["name"] for column in columns], connection.dialect.name):
        raise SourceError(
            "a query has two columns of one name",
            id="SOURCE_SETTINGS_INVALID",
            table=name,
            expected="different names: SELECT ... AS NAME",
            found=", ".join(twice),
            todo=f"correct source.queries.{name}",
        )
    return Reflected(columns, frozenset())


def _twice(names: list[str], dialect: str) -> list[str]:
    """Return names that several columns have. SQLite treats `ID` as `id`, and names a second `id` `id:1`."""
    if dialect == "sqlite":
        lower = {name.lower() for name in names}
        numbered = ((name.lower(), name.lower().rpartition(":")) for name in names)
        names = [first if number.isdecimal() and first in lower else name for name, (first, _, number) in numbered]
    return [name for name, count in Counter(names).items() if count > 1]


def _of_postgresql(connection: sa.Connection, result: sa.CursorResult[Any]) -> list[ReflectedColumn]:
    described = _cursor(result).description
    other_codes = {field.type_code for field in described} - {*_POSTGRESQL, _NUMERIC}
    declared = dict(_POSTGRESQL)
    if other_codes:
        requested = _OTHER_TYPES.bindparams(sa.bindparam("oids", sorted(other_codes), expanding=True))
        for oid, kind, name in connection.execute(requested):
            declared[oid] = types.Enum() if kind == "e" else _POSTGRESQL_EXTENSIONS.get(name, _Unknown(name))
    columns = ((field, declared.get(field.type_code)) for field in described)
    return [_column(field.name, engine or types.Numeric(field.precision, field.scale)) for field, engine in columns]


def _of_mysql(result: sa.CursorResult[Any]) -> list[ReflectedColumn]:
    return [_column(field.name, _mysql_type(field)) for field in _cursor(result)._result.fields]


def _mysql_type(field: Any) -> types.TypeEngine[Any]:
    unsigned = bool(field.flags & _UNSIGNED)
    if field.type_code in _MYSQL_INTEGERS:
        return _MYSQL_INTEGERS[field.type_code](unsigned=unsigned)
    if field.type_code == _MYSQL_DECIMAL:  # its length includes the point and the sign
        other = (1 if field.scale else 0) + (0 if unsigned else 1)
        return types.Numeric(field.length - other, field.scale)
    if field.type_code in _MYSQL_TEXTS:
        text = types.Enum() if field.flags & _ENUM_OR_SET else types.Text()
        return types.LargeBinary() if field.charsetnr == _BYTES else text
    return _MYSQL.get(field.type_code, _Unknown(f"number {field.type_code} of the protocol"))


def _of_sqlite(connection: sa.Connection, rules: TableRules) -> list[ReflectedColumn]:
    """Return the columns of a temporary view. A temporary table gives computed columns the type of their CAST. Both end
    with the transaction."""
    body = rules.query.body if rules.query else ""
    connection.exec_driver_sql(f"CREATE TEMP VIEW {_VIEW} AS {body}")
    with types_may_be_unknown():
        columns = sa.inspect(connection).get_columns(_VIEW, "temp")
        if any(isinstance(column["type"], types.NullType) for column in columns):
            connection.exec_driver_sql(f"CREATE TEMP TABLE {_EMPTY} AS SELECT * FROM {_VIEW} LIMIT 0")
            cast = sa.inspect(connection).get_columns(_EMPTY, "temp")
            columns = [
                other if isinstance(column["type"], types.NullType) else column
                for column, other in zip(columns, cast, strict=True)
            ]
    return [_column(column["name"], column["type"]) for column in columns]


def _cursor(result: sa.CursorResult[Any]) -> Any:
    return result.cursor


def _column(name: str, declared: types.TypeEngine[Any]) -> ReflectedColumn:
    return {"name": name, "type": declared, "nullable": True, "default": None}

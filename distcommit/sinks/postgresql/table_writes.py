"""Tables of PostgreSQL within a commit's transaction."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, LiteralString

import psycopg
import pyarrow as pa
from pgpq import ArrowToPostgresBinaryEncoder
from psycopg import sql

from distcommit.core.errors import plain_text
from distcommit.sinks.databases.newer_rows import Newer
from distcommit.sinks.databases.row_loading_committer import (
    check_keys,
    columns_to_empty,
    dropped_rows_error,
    kept_rows_error,
    missing_columns,
    tagged,
    with_tags,
)
from distcommit.sinks.databases.table_committer import RefusedError
from distcommit.sinks.postgresql.columns import Column, check_fits, column_type, encoder_of, fitted, wider_type

logger = logging.getLogger(__name__)

_ROWS = sql.Identifier("_distcommit_rows")
_ORDER = sql.Identifier("_distcommit_order")
_TARGET_TABLE = sql.Identifier("_distcommit_t")
_COLUMNS = """
SELECT a.attname, CASE t.typtype WHEN 'e' THEN 'text' WHEN 'd' THEN b.typname ELSE t.typname END,
    CASE t.typtype WHEN 'd' THEN t.typtypmod ELSE a.atttypmod END, format_type(a.atttypid, a.atttypmod),
    a.atthasdef OR a.attidentity <> ''
FROM pg_catalog.pg_attribute a JOIN pg_catalog.pg_type t ON t.oid = a.atttypid
LEFT JOIN pg_catalog.pg_type b ON b.oid = t.typbasetype
WHERE a.attrelid = %s AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = ''
"""
_INEXACT = """
SELECT a.attname FROM pg_catalog.pg_attribute a
WHERE a.attrelid = %s AND a.attname = ANY(%s) AND EXISTS (
    SELECT FROM pg_catalog.pg_collation c WHERE NOT c.collisdeterministic AND (c.oid = a.attcollation OR EXISTS (
        SELECT FROM pg_catalog.pg_index i
        WHERE i.indrelid = a.attrelid AND a.attnum = ANY(i.indkey) AND c.oid = ANY(i.indcollation)
    ))
)
"""
"""Key columns with a nondeterministic collation, or an index with one."""
_IDENTITY = "SELECT oid::bigint, relkind, relpersistence FROM pg_catalog.pg_class WHERE oid = to_regclass({})"


@dataclass
class Table:
    """A table whose definition is locked until the transaction ends.

    Attributes:
        connection: connection whose transaction locks the definition.
        schema: schema of the table.
        name: name of the table in the schema.
        identity: the table's oid, which changes if it is recreated.
        columns: all columns by name.
        tags: values of the tag columns by name, which all rows get.
    """

    connection: psycopg.Connection
    schema: str
    name: str
    identity: int
    columns: Mapping[str, Column]
    tags: Mapping[str, int] = field(default_factory=dict)

    @property
    def shown(self) -> str:
        return f"{self.schema}.{self.name}"

    @property
    def identifier(self) -> sql.Identifier:
        return sql.Identifier(self.schema, self.name)

    def fit(self, schema: pa.Schema, *, add_columns: bool) -> None:
        """Check that the table takes these rows and tags. With `add_columns`, add and widen columns first. Raises
        RefusedError, and ConfigurationError if PostgreSQL has no type for an added column."""
        tagged_schema = with_tags(schema, self.tags)
        missing = missing_columns(tagged_schema, self.columns, self.shown, add_columns=add_columns)
        for item in missing:
            self.connection.execute(
                sql.SQL("ALTER TABLE {} ADD COLUMN IF NOT EXISTS {} {}").format(
                    self.identifier, sql.Identifier(item.name), sql.SQL(column_type(item))
                )
            )
        if missing:
            self.columns = _columns(self.connection, self.identity)
        if add_columns:
            self._widen(tagged_schema)
        check_fits(tagged_schema, self.columns)

    def _widen(self, schema: pa.Schema) -> None:
        """Widen columns; if that is not possible, log a warning, and each value is checked."""
        wider = {each.name: wider_type(each, self.columns[each.name]) for each in schema}
        for name, kind in wider.items():
            if kind is None:
                continue
            statement = sql.SQL("ALTER TABLE {} ALTER COLUMN {} TYPE {}").format(
                self.identifier, sql.Identifier(name), sql.SQL(kind)
            )
            try:
                with self.connection.transaction():
                    self.connection.execute(statement)
            except (psycopg.errors.FeatureNotSupported, psycopg.errors.InsufficientPrivilege):
                logger.warning("a column of %s stays too narrow for %s", self.shown, kind, exc_info=True)
        if any(wider.values()):
            self.columns = _columns(self.connection, self.identity)

    def copy(self, batches: Sequence[pa.RecordBatch], into: sql.Identifier | None = None) -> None:
        ready = [fitted(tagged(batch, self.tags), self.columns) for batch in batches]
        encoder = encoder_of(ready[0].schema, self.columns)
        names = sql.SQL(", ").join(map(sql.Identifier, ready[0].schema.names))
        statement = sql.SQL("COPY {} ({}) FROM STDIN (FORMAT BINARY)").format(into or self.identifier, names)
        with self.connection.cursor() as cursor:
            with cursor.copy(statement) as copy:
                copy.write(encoder.write_header())
                for batch in ready:
                    copy.write(_encoded(encoder, batch))
                copy.write(encoder.finish())
            sent = sum(batch.num_rows for batch in ready)
            if cursor.rowcount != sent:
                raise dropped_rows_error(self.shown, sent, cursor.rowcount)

    def upsert(
        self, batches: Sequence[pa.RecordBatch], keys: Sequence[str], newer: Newer, *, whole: bool = False
    ) -> None:
        names, parts = batches[0].schema.names, self._copied(batches, keys)
        other_columns = [sql.Identifier(name) for name in names if name not in keys]
        is_newer = sql.SQL(newer.condition(self._named("EXCLUDED"), self._named("_distcommit_t")))
        changed = sql.SQL(", ").join(
            sql.SQL("{0} = CASE WHEN {1} THEN EXCLUDED.{0} ELSE {2}.{0} END").format(name, is_newer, _TARGET_TABLE)
            for name in other_columns
        )
        for name in map(sql.Identifier, columns_to_empty(names, self.columns) if whole else ()):
            changed += sql.SQL(", {0} = CASE WHEN {1} THEN NULL ELSE {2}.{0} END").format(name, is_newer, _TARGET_TABLE)
        statement = "SELECT count(*) FROM (SELECT DISTINCT {by} FROM {rows}) AS keys"
        (sent,) = self._execute(statement, parts).fetchone() or (0,)
        inserted = self._execute(
            "INSERT INTO {table} AS _distcommit_t ({listed}) SELECT {listed} FROM"
            " (SELECT DISTINCT ON ({by}) * FROM {rows} ORDER BY {by}, {order} DESC) AS newest"
            " ON CONFLICT ({by}) DO " + ("UPDATE SET {changed}" if other_columns else "NOTHING"),
            {**parts, "changed": changed},
        ).rowcount
        if other_columns and inserted != sent:
            raise dropped_rows_error(self.shown, sent, inserted)
        self._execute("DROP TABLE {rows}", parts)

    def delete_older(self, batches: Sequence[pa.RecordBatch], keys: Sequence[str], newer: Newer) -> int:
        parts = self._copied(batches, keys)
        parts["newer"] = sql.SQL(newer.condition(self._named("_distcommit_rows"), self._named("_distcommit_t")))
        statement: LiteralString = "DELETE FROM {table} AS _distcommit_t USING {rows} WHERE {equal} AND {newer}"
        deleted = self._execute(statement, parts).rowcount
        statement = "SELECT 1 FROM {table} AS _distcommit_t JOIN {rows} ON {equal} AND {newer} LIMIT 1"
        if deleted < sum(batch.num_rows for batch in batches) and self._execute(statement, parts).fetchone():
            raise kept_rows_error(self.shown)
        self._execute("DROP TABLE {rows}", parts)
        return deleted

    def delete_before(self, column: str, value: int) -> None:
        parts = {"table": self.identifier, "column": sql.Identifier(column), "value": sql.Literal(value)}
        self._execute("DELETE FROM {table} WHERE {column} < {value}", parts)

    def inexact_keys(self, keys: Sequence[str]) -> list[str]:
        padded = {key for key in keys if self.columns[key].kind == "bpchar"}  # ignores spaces at the end
        return sorted(padded | {name for (name,) in self.connection.execute(_INEXACT, (self.identity, [*keys]))})

    def present(self, batch: pa.RecordBatch, keys: Sequence[str]) -> list[int]:
        parts = self._copied([batch.select([*keys])], keys)
        numbers = self._execute("SELECT {order} FROM {rows} JOIN {table} AS _distcommit_t ON {equal}", parts).fetchall()
        self._execute("DROP TABLE {rows}", parts)
        return [number - 1 for (number,) in numbers]

    def _copied(self, batches: Sequence[pa.RecordBatch], keys: Sequence[str]) -> dict[str, sql.Composable]:
        check_keys(batches, keys, self.columns)
        listed, by = (sql.SQL(", ").join(map(sql.Identifier, item)) for item in (batches[0].schema.names, keys))
        equal = sql.SQL(" AND ").join(
            sql.SQL("{0}.{2} = {1}.{2}").format(_ROWS, _TARGET_TABLE, sql.Identifier(k)) for k in keys
        )
        parts = {"table": self.identifier, "listed": listed, "by": by, "rows": _ROWS, "order": _ORDER, "equal": equal}
        self._execute("CREATE TEMP TABLE {rows} ON COMMIT DROP AS SELECT {listed} FROM {table} WITH NO DATA", parts)
        self._execute("ALTER TABLE {rows} ADD COLUMN {order} bigint GENERATED ALWAYS AS IDENTITY", parts)
        self.copy(batches, into=_ROWS)
        return parts

    def _named(self, row: str) -> Callable[[str], str]:
        return lambda name: f"{row}.{sql.Identifier(name).as_string(self.connection)}"

    def _execute(self, statement: LiteralString, parts: Mapping[str, sql.Composable]) -> psycopg.Cursor[Any]:
        return self.connection.execute(sql.SQL(statement).format(**parts))

    def delete(self, tags: Mapping[str, int]) -> int:
        statement = sql.SQL("DELETE FROM {}").format(self.identifier)
        if tags:
            location = [sql.SQL("{} = {}").format(sql.Identifier(name), value) for name, value in tags.items()]
            statement += sql.SQL(" WHERE ") + sql.SQL(" AND ").join(location)
        return self.connection.execute(statement).rowcount


def find(connection: psycopg.Connection, schema: str, name: str, tags: Mapping[str, int]) -> Table | None:
    identifier = sql.Identifier(schema, name)
    shown = identifier.as_string(connection)
    if connection.execute("SELECT to_regclass(%s) IS NULL", (shown,)).fetchone() == (True,):
        return None
    return _locked(connection, schema, name, tags)


def _locked(
    connection: psycopg.Connection, schema: str, name: str, tags: Mapping[str, int], *first: sql.Composable
) -> Table | None:
    identifier = sql.Identifier(schema, name)
    locked = sql.SQL("LOCK TABLE {} IN ROW EXCLUSIVE MODE").format(identifier)
    statement = sql.SQL(_IDENTITY).format(sql.Literal(identifier.as_string(connection)))
    answers = connection.execute(sql.SQL("; ").join((*first, locked, statement)))
    while answers.nextset():
        pass
    row = answers.fetchone()
    if row is None:
        return None
    oid, kind, persistence = row
    if kind not in ("r", "p") or persistence != "p":
        raise RefusedError(
            f"{schema}.{name} must be an ordinary table, not a view, a foreign table, or an unlogged table, which a"
            " crash of the server empties; replace it by a logged table, then release the dataset with retry"
        )
    return Table(connection, schema, name, oid, _columns(connection, oid), tags)


def create(
    connection: psycopg.Connection,
    schema: str,
    name: str,
    rows: pa.Schema,
    keys: Sequence[str],
    tags: Mapping[str, int],
) -> Table:
    alone = sql.SQL("SELECT pg_advisory_xact_lock(hashtextextended({}, 0))").format(sql.Literal(f"{schema}.{name}"))
    columns = [
        sql.SQL("{} {}").format(sql.Identifier(column.name), sql.SQL(column_type(column)))
        for column in with_tags(rows, tags)
    ]
    if keys:
        columns.append(sql.SQL("PRIMARY KEY ({})").format(sql.SQL(", ").join(map(sql.Identifier, keys))))
    statement = sql.SQL("CREATE TABLE IF NOT EXISTS {} ({})").format(
        sql.Identifier(schema, name), sql.SQL(", ").join(columns)
    )
    table = _locked(connection, schema, name, tags, alone, statement)
    if table is None:
        raise RefusedError(f"table {schema}.{name} does not exist after its creation")
    return table


def _columns(connection: psycopg.Connection, oid: int) -> dict[str, Column]:
    rows = connection.execute(_COLUMNS, (oid,)).fetchall()
    return {
        name: Column(name, kind, modifier, f"{name} {shown}", has_default)
        for name, kind, modifier, shown, has_default in rows
    }


def _encoded(encoder: ArrowToPostgresBinaryEncoder, batch: pa.RecordBatch) -> bytes:
    try:
        return encoder.write_batch(batch)
    except ValueError as error:  # for instance a time that PostgreSQL has no number for
        raise RefusedError(
            f"a value can't be written to PostgreSQL: {plain_text(error, 500)}; abandon the dataset, and convert or"
            " reject such records"
        ) from error

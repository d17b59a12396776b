"""Tables of MariaDB. They are created and altered outside of the transaction of rows."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from pymysql.connections import Connection
from pymysql.cursors import Cursor
from pymysql.err import MySQLError

from distcommit.sinks.databases.newer_rows import Newer
from distcommit.sinks.databases.row_loading_committer import (
    check_keys,
    columns_to_empty,
    identity_in,
    missing_columns,
    new_identity,
    tagged,
    with_tags,
)
from distcommit.sinks.databases.table_committer import RefusedError
from distcommit.sinks.mariadb.columns import Column, check_fits, column_of, column_type, values, wider_type
from distcommit.sinks.mariadb.sessions import NO_SUCH_TABLE, code_of, execute

_STATEMENT_BYTES = 1 << 20
_HEAD_BYTES = 16 << 10
_HARMLESS = {1287, 1592}
"""Codes of harmless warnings: deprecated VALUES() in MySQL; binary log in statement format."""
_SLICE_ROWS = 1024
_COMPARED_ROWS = 200
"""Most rows in a statement that compares keys with literals."""
_EXACT = re.compile(r"_(nopad|0900)_bin$")
"""Names of collations that compare all bytes. Others, even `utf8mb4_bin`, ignore trailing spaces."""
_TYPE = re.compile(r"^\w+(\([^)]*\))?")


class AlterTableFirst(Exception):  # noqa: N818 - not an error
    """Statement that must create or alter a table before the table can take rows."""

    def __init__(self, statement: str) -> None:
        super().__init__(statement)
        self.statement = statement


@dataclass
class Table:
    """A table whose definition is locked until the transaction ends.

    Attributes:
        connection: connection whose transaction locks the definition.
        shown: name of the table.
        columns: all columns by name.
        most_bytes: largest size of a statement in bytes (`max_allowed_packet`).
        tags: values of the tag columns by name, which all rows get.
        identity: random 60-bit number in the definition of a table that the sink created; 0 for other tables. A
            recreated table has another number.
    """

    connection: Connection[Cursor]
    shown: str
    columns: Mapping[str, Column]
    most_bytes: int
    tags: Mapping[str, int] = field(default_factory=dict)
    identity: int = 0

    def fit(self, schema: pa.Schema, *, add_columns: bool) -> None:
        """Check that the table takes these rows and tags; raises RefusedError. With `add_columns`, raises
        AlterTableFirst if columns are missing or too narrow."""
        tagged_schema = with_tags(schema, self.tags)
        missing = missing_columns(tagged_schema, self.columns, self.shown, add_columns=add_columns)
        changes = [f"ADD COLUMN {quoted(column.name)} {column_type(column, ())}" for column in missing]
        if add_columns:
            present = [
                (column.name, wider_type(column, self.columns[column.name]))
                for column in tagged_schema
                if column not in missing
            ]
            changes += [f"MODIFY COLUMN {self._redefined(name, kind)}" for name, kind in present if kind is not None]
        if changes:
            raise AlterTableFirst(f"ALTER TABLE {quoted(self.shown)} {', '.join(changes)}")
        check_fits(tagged_schema, self.columns)

    def _redefined(self, name: str, kind: str) -> str:
        ((_, definition),) = execute(self.connection, f"SHOW CREATE TABLE {quoted(self.shown)}").fetchall()
        begin = f"  {quoted(name)} "
        (line,) = (line for line in definition.splitlines() if line.startswith(begin))
        remainder = _TYPE.sub("", line.removeprefix(begin).removesuffix(","), count=1)
        return f"{quoted(name)} {kind}{remainder}"

    def copy(self, batches: Sequence[pa.RecordBatch]) -> None:
        for rows, statement in self._statements(batches, ""):
            inserted = self._insert(statement)
            if inserted != rows:
                raise RefusedError(f"table {self.shown} drops rows: {rows} were sent, {inserted} were inserted")

    def upsert(
        self, batches: Sequence[pa.RecordBatch], keys: Sequence[str], newer: Newer, *, whole: bool = False
    ) -> None:
        """Replace rows with the same keys by newer ones. The server sets columns one by one, and expressions see those
        already set."""
        names = batches[0].schema.names
        self._check_keys(names, keys)
        check_keys(batches, keys, self.columns)
        other_columns = [quoted(name) for name in newer.last(names) if name not in keys] or [quoted(keys[0])]
        is_newer = newer.condition(lambda name: f"VALUES({quoted(name)})", quoted)
        absent = map(quoted, columns_to_empty(names, self.columns) if whole else ())
        changed = "".join(f"{name} = IF({is_newer}, NULL, {name}), " for name in absent)
        changed += ", ".join(f"{name} = IF({is_newer}, VALUES({name}), {name})" for name in other_columns)
        for _, statement in self._statements(batches, f" ON DUPLICATE KEY UPDATE {changed}"):
            self._insert(statement)

    def delete(self, tags: Mapping[str, int]) -> int:
        location = " AND ".join(f"{quoted(name)} = {value}" for name, value in tags.items())
        statement = f"DELETE FROM {quoted(self.shown)}" + (f" WHERE {location}" if tags else "")
        return int(execute(self.connection, statement).rowcount)

    def delete_older(self, batches: Sequence[pa.RecordBatch], keys: Sequence[str], newer: Newer) -> int:
        names, deleted = batches[0].schema.names, 0
        for rows in self._literals(batches, keys):
            older = [
                f"({_are_equal(keys, row)} AND {newer.condition(row.__getitem__, quoted)})"
                for row in (dict(zip(names, literals, strict=True)) for literals in rows)
            ]
            statement = f"DELETE FROM {quoted(self.shown)} WHERE {' OR '.join(older)}"
            deleted += execute(self.connection, statement.encode("utf-8", "surrogateescape")).rowcount
        return deleted

    def delete_before(self, column: str, value: int) -> None:
        execute(self.connection, f"DELETE FROM {quoted(self.shown)} WHERE {quoted(column)} < {value}")

    def inexact_keys(self, keys: Sequence[str]) -> list[str]:
        collations = execute(self.connection, f"SHOW FULL COLUMNS FROM {quoted(self.shown)}").fetchall()
        of_texts = {name: collation for name, _, collation, *_ in collations if name in keys and collation is not None}
        return [f"{name} ({collation})" for name, collation in of_texts.items() if not _EXACT.search(collation)]

    def present(self, batch: pa.RecordBatch, keys: Sequence[str]) -> list[int]:
        table, present = quoted(self.shown), list[int]()
        if execute(self.connection, f"SELECT 1 FROM {table} LIMIT 1").fetchone() is None:
            return present  # as during a snapshot, whose rows need no comparison
        begin = 0
        for rows in self._literals([batch.select([*keys])], keys):
            conditions = [_are_equal(keys, dict(zip(keys, literals, strict=True))) for literals in rows]
            statement = " UNION ALL ".join(
                f"SELECT {row} FROM DUAL WHERE EXISTS (SELECT 1 FROM {table} WHERE {condition})"
                for row, condition in enumerate(conditions, begin)
            )
            result = execute(self.connection, statement.encode("utf-8", "surrogateescape"))
            present += [row for (row,) in result.fetchall()]
            begin += len(rows)
        return present

    def _literals(self, batches: Sequence[pa.RecordBatch], keys: Sequence[str]) -> Iterator[list[list[str]]]:
        check_keys(batches, keys, self.columns)
        for batch in batches:
            for begin in range(0, batch.num_rows, _COMPARED_ROWS):
                sent = values(batch.slice(begin, _COMPARED_ROWS), self.columns)
                yield [[self.connection.escape(value) for value in row] for row in sent]

    def _statements(self, batches: Sequence[pa.RecordBatch], end: str) -> Iterator[tuple[int, bytes]]:
        names = ", ".join(map(quoted, tagged(batches[0], self.tags).schema.names))
        head = f"INSERT INTO {quoted(self.shown)} ({names}) VALUES ".encode()
        ready: list[bytes] = []
        size_bytes = 0
        for row in self._rows(batches):
            if len(row) + _HEAD_BYTES > self.most_bytes:
                raise RefusedError(
                    f"a row for table {self.shown} has {len(row)} bytes as it is sent; the server takes"
                    f" {self.most_bytes} (max_allowed_packet): raise that, and release the dataset with retry"
                )
            if ready and size_bytes + len(row) > min(_STATEMENT_BYTES, self.most_bytes - _HEAD_BYTES):
                yield len(ready), head + b",".join(ready) + end.encode()
                ready, size_bytes = [], 0
            ready.append(row)
            size_bytes += len(row) + 1
        if ready:
            yield len(ready), head + b",".join(ready) + end.encode()

    def _rows(self, batches: Sequence[pa.RecordBatch]) -> Iterator[bytes]:
        for batch in batches:
            for begin in range(0, batch.num_rows, _SLICE_ROWS):
                part = tagged(batch.slice(begin, _SLICE_ROWS), self.tags)
                for row in values(part, self.columns):
                    yield f"({','.join(map(self.connection.escape, row))})".encode("utf-8", "surrogateescape")

    def _insert(self, statement: bytes) -> int:
        cursor = execute(self.connection, statement)
        if cursor.warning_count:
            warnings = execute(self.connection, "SHOW WARNINGS").fetchall()
            problems = [str(text) for _, code, text in warnings if code not in _HARMLESS]
            if problems or not warnings:
                reason = problems[0] if problems else "the server does not name them"
                raise RefusedError(
                    f"table {self.shown} would change values: {reason}. Alter the table and release the dataset with"
                    " retry; or abandon it and convert or reject such records"
                )
        return int(cursor.rowcount)

    def _check_keys(self, names: Sequence[str], keys: Sequence[str]) -> None:
        """Raise RefusedError unless the only unique index is on the keys, because ON DUPLICATE KEY applies to any
        unique index. An AUTO_INCREMENT column without values is allowed."""
        indexes: dict[str, list[tuple[Any, ...]]] = {}
        for row in execute(self.connection, f"SHOW INDEX FROM {quoted(self.shown)}").fetchall():
            if not row[1]:  # non_unique
                indexes.setdefault(row[2], []).append((row[4], row[7]))  # column, and how much of it
        on_keys = [index for index in indexes.values() if set(index) == {(key, None) for key in keys}]
        other_columns = [
            name for name, index in indexes.items() if index not in on_keys and not self._is_counted(index, names)
        ]
        if not on_keys or other_columns:
            problem = f"it also has {', '.join(other_columns)}" if other_columns else "it has none"
            raise RefusedError(
                f"table {self.shown} must have a unique index on {', '.join(keys)} and no other one; {problem}. Alter"
                " the table, then release the dataset with retry"
            )

    def _is_counted(self, index: Sequence[tuple[Any, ...]], names: Sequence[str]) -> bool:
        statement = f"SHOW COLUMNS FROM {quoted(self.shown)} WHERE Extra LIKE '%auto_increment%'"
        counted = {row[0] for row in execute(self.connection, statement).fetchall()}
        return len(index) == 1 and index[0][0] in counted and index[0][0] not in names


def _are_equal(keys: Sequence[str], literals: Mapping[str, str]) -> str:
    return " AND ".join(f"{quoted(key)} = {literals[key]}" for key in keys)


def find(connection: Connection[Cursor], name: str, tags: Mapping[str, int], most_bytes: int) -> Table | None:
    try:
        execute(connection, f"SELECT 1 FROM {quoted(name)} LIMIT 0")
    except MySQLError as error:
        if code_of(error) == NO_SUCH_TABLE:
            return None
        raise
    engine, comment = _described(connection, name)
    if engine != "InnoDB":
        raise RefusedError(
            f"{name} must use the engine InnoDB, but is {engine or 'a view'}, which may keep rows after a rollback;"
            " alter its engine, then release the dataset with retry"
        )
    shown = execute(connection, f"SHOW COLUMNS FROM {quoted(name)}").fetchall()
    columns = {
        column: column_of(column, declared, nullable=nullable == "YES", has_default=default is not None or extra != "")
        for column, declared, nullable, _, default, extra in shown
        if not extra.upper().startswith(("VIRTUAL", "STORED", "PERSISTENT"))  # generated columns
    }
    return Table(connection, name, columns, most_bytes, tags, identity_in(comment))


def engine_of(connection: Connection[Cursor], name: str) -> str | None:
    return _described(connection, name)[0]


def _described(connection: Connection[Cursor], name: str) -> tuple[str | None, str]:
    requested = (
        "SELECT TABLE_NAME, ENGINE, TABLE_COMMENT FROM information_schema.TABLES"
        " WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = %s"
    )
    for present, engine, comment in execute(connection, requested, (name,)).fetchall():
        if present == name:  # the server compares names by a collation
            return engine, comment or ""
    return None, ""


def create_statement(
    connection: Connection[Cursor], name: str, rows: pa.Schema, keys: Sequence[str], tags: Mapping[str, int]
) -> str:
    """Return the statement that creates the table. Texts are compared by bytes, with trailing spaces if the server
    can."""
    statement = "SELECT COLLATION_NAME FROM information_schema.COLLATIONS WHERE COLLATION_NAME IN (%s, %s)"
    unpadded = execute(connection, statement, ("utf8mb4_nopad_bin", "utf8mb4_0900_bin")).fetchone()
    collation = unpadded[0] if unpadded else "utf8mb4_bin"
    columns = [f"{quoted(column.name)} {column_type(column, keys)}" for column in with_tags(rows, tags)]
    if keys:
        columns.append(f"PRIMARY KEY ({', '.join(map(quoted, keys))})")
    return (
        f"CREATE TABLE IF NOT EXISTS {quoted(name)} ({', '.join(columns)})"
        f" ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE {collation} COMMENT = '{new_identity()}'"
    )


def quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"

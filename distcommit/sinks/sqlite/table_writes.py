"""Tables of an SQLite file within a commit's transaction."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from distcommit.sinks.databases.newer_rows import Newer
from distcommit.sinks.databases.row_loading_committer import (
    check_keys,
    columns_to_empty,
    dropped_rows_error,
    identity_in,
    kept_rows_error,
    missing_columns,
    new_identity,
    tagged,
    with_tags,
)
from distcommit.sinks.databases.table_committer import RefusedError
from distcommit.sinks.sqlite.columns import Column, check_fits, column_type, values


@dataclass
class Table:
    """A table, in a file that no other session writes to until the transaction ends.

    Attributes:
        connection: connection with the open transaction.
        shown: name of the table.
        columns: all columns by name, without hidden ones.
        tags: values of the tag columns by name, which all rows get.
        identity: random 60-bit number in the definition of a table that the sink created; 0 for other tables. A
            recreated table has another number.
    """

    connection: sqlite3.Connection
    shown: str
    columns: Mapping[str, Column]
    tags: Mapping[str, int] = field(default_factory=dict)
    identity: int = 0

    def fit(self, schema: pa.Schema, *, add_columns: bool) -> None:
        tagged_schema = with_tags(schema, self.tags)
        missing = missing_columns(tagged_schema, self.columns, self.shown, add_columns=add_columns)
        for item in missing:
            definition = f"{quoted(item.name)} {column_type(item)}"
            self.connection.execute(f"ALTER TABLE {quoted(self.shown)} ADD COLUMN {definition}")
        if missing:
            self.columns = _columns(self.connection, self.shown)
        check_fits(tagged_schema, self.columns)

    def copy(self, batches: Sequence[pa.RecordBatch]) -> None:
        self._insert(batches, "")

    def upsert(
        self, batches: Sequence[pa.RecordBatch], keys: Sequence[str], newer: Newer, *, whole: bool = False
    ) -> None:
        check_keys(batches, keys, self.columns)
        other_columns = [quoted(name) for name in batches[0].schema.names if name not in keys]
        is_newer = newer.condition(lambda name: f"excluded.{quoted(name)}", self._there)
        changed = ", ".join(
            f"{name} = CASE WHEN {is_newer} THEN excluded.{name} ELSE {quoted(self.shown)}.{name} END"
            for name in other_columns or [quoted(keys[0])]
        )
        for name in map(quoted, columns_to_empty(batches[0].schema.names, self.columns) if whole else ()):
            changed += f", {name} = CASE WHEN {is_newer} THEN NULL ELSE {quoted(self.shown)}.{name} END"
        self._insert(batches, f" ON CONFLICT ({', '.join(map(quoted, keys))}) DO UPDATE SET {changed}")

    def _there(self, name: str) -> str:
        return f"{quoted(self.shown)}.{quoted(name)}"

    def _insert(self, batches: Sequence[pa.RecordBatch], on_conflict: str) -> None:
        """Insert with OR ABORT, because constraints' conflict clauses could drop rows silently."""
        names = tagged(batches[0], self.tags).schema.names
        listed, placeholders = ", ".join(map(quoted, names)), ", ".join("?" * len(names))
        into = f"INSERT OR ABORT INTO {quoted(self.shown)} ({listed}) VALUES ({placeholders}){on_conflict}"
        for batch in batches:
            sent = values(tagged(batch, self.tags), self.columns)
            inserted = self.connection.executemany(into, sent).rowcount
            if sent and inserted != len(sent):
                raise dropped_rows_error(self.shown, len(sent), inserted)

    def delete(self, tags: Mapping[str, int]) -> int:
        location = " AND ".join(f"{quoted(name)} = ?" for name in tags)
        statement = f"DELETE FROM {quoted(self.shown)}" + (f" WHERE {location}" if tags else "")
        return self.connection.execute(statement, (*tags.values(),)).rowcount

    def delete_older(self, batches: Sequence[pa.RecordBatch], keys: Sequence[str], newer: Newer) -> int:
        check_keys(batches, keys, self.columns)
        names = batches[0].schema.names
        is_newer = newer.condition(lambda name: f"?{names.index(name) + 1}", quoted)
        older, deleted = f"FROM {quoted(self.shown)} WHERE {_are_equal(keys, names)} AND {is_newer}", 0
        for batch in batches:
            sent = values(batch, self.columns)
            count = self.connection.executemany(f"DELETE {older}", sent).rowcount
            if count < len(sent) and any(self.connection.execute(f"SELECT 1 {older}", row).fetchone() for row in sent):
                raise kept_rows_error(self.shown)
            deleted += count
        return deleted

    def delete_before(self, column: str, value: int) -> None:
        self.connection.execute(f"DELETE FROM {quoted(self.shown)} WHERE {quoted(column)} < ?", (value,))

    def inexact_keys(self, keys: Sequence[str]) -> list[str]:
        """Find the columns by a UNION, which compares texts by the collation of its first column."""
        counted = "SELECT count(*) FROM (SELECT {} FROM {} WHERE 0 UNION SELECT 'a' UNION SELECT 'A' UNION SELECT 'a ')"
        statements = {key: counted.format(quoted(key), quoted(self.shown)) for key in keys}
        return [key for key, counts in statements.items() if self.connection.execute(counts).fetchone() != (3,)]

    def present(self, batch: pa.RecordBatch, keys: Sequence[str]) -> list[int]:
        statement = f"SELECT 1 FROM {quoted(self.shown)} WHERE {_are_equal(keys, keys)}"
        rows = enumerate(values(batch.select([*keys]), self.columns))
        return [row for row, key in rows if self.connection.execute(statement, key).fetchone()]


def _are_equal(keys: Sequence[str], names: Sequence[str]) -> str:
    return " AND ".join(f"{quoted(key)} = ?{names.index(key) + 1}" for key in keys)


def find(connection: sqlite3.Connection, name: str, tags: Mapping[str, int]) -> Table | None:
    location = "name = ? COLLATE NOCASE AND type IN (?, ?)"
    statement = f"SELECT type = 'table' AND rootpage > 0, sql FROM sqlite_master WHERE {location}"
    row = connection.execute(statement, (name, "table", "view")).fetchone()
    if row is None:
        return None
    if not row[0]:
        raise RefusedError(
            f"{name} must be an ordinary table, not a view or virtual table; replace it, then release the dataset with"
            " retry"
        )
    return Table(connection, name, _columns(connection, name), tags, identity_in(row[1]))


def create(
    connection: sqlite3.Connection, name: str, rows: pa.Schema, keys: Sequence[str], tags: Mapping[str, int]
) -> Table:
    tagged_schema = with_tags(rows, tags)
    columns = [f"{quoted(column.name)} {column_type(column)}" for column in tagged_schema]
    if keys:
        columns.append(f"PRIMARY KEY ({', '.join(map(quoted, keys))})")
    mark = new_identity()
    connection.execute(f"CREATE TABLE {quoted(name)} (/* {mark} */ {', '.join(columns)})")
    return Table(connection, name, _columns(connection, name), tags, identity_in(mark))


def quoted(name: str) -> str:
    """Quote a name with backticks. SQLite reads an unknown column in double quotes as a text."""
    return "`" + name.replace("`", "``") + "`"


def _columns(connection: sqlite3.Connection, name: str) -> dict[str, Column]:
    rows = connection.execute("SELECT name, type, pk, dflt_value FROM pragma_table_xinfo(?) WHERE hidden = 0", (name,))
    return {
        name: Column(name, declared, key > 0, has_default=key > 0 or (default or "NULL").upper() != "NULL")
        for name, declared, key, default in rows
    }

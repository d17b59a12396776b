"""The tables that rows go to: found, checked, made and widened in the transaction of the rows."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from distcommit.sinks.databases.newest_row import Newer
from distcommit.sinks.databases.plain_arrays import refused_value
from distcommit.sinks.databases.table_committer import RefusedError
from distcommit.sinks.databases.table_loading import missing_columns, tagged, with_tags
from distcommit.sinks.databases.table_marks import identity_in, new_mark
from distcommit.sinks.sqlite.columns import Column, check_fits, column_type, values


@dataclass
class Table:
    """A table; while the transaction lasts nobody else writes to its file. `tags`: what each row says in columns beside
    its own; `identity`: of the mark in its definition."""

    connection: sqlite3.Connection
    shown: str
    columns: Mapping[str, Column]
    tags: Mapping[str, int] = field(default_factory=dict)
    identity: int = 0

    def fit(self, schema: pa.Schema, *, add_columns: bool) -> None:
        """Makes sure that rows of that schema, with tags, can go into it. Raises as `table_loading.Table`."""
        whole = with_tags(schema, self.tags)
        missing = missing_columns(whole, self.columns, self.shown, add_columns=add_columns)
        for each in missing:
            made = f"{quoted(each.name)} {column_type(each)}"
            self.connection.execute(f"ALTER TABLE {quoted(self.shown)} ADD COLUMN {made}")
        if missing:
            self.columns = _columns(self.connection, self.shown)
        check_fits(whole, self.columns)

    def copy(self, batches: Sequence[pa.RecordBatch]) -> None:
        """Adds batches, all of one schema. Raises as `table_loading.Table`."""
        self._insert(batches, "")

    def upsert(self, batches: Sequence[pa.RecordBatch], keys: Sequence[str], newer: Newer) -> None:
        """Puts each row in the place of the one with the same keys. Raises as `table_loading.Table`."""
        for key in keys:
            if any(batch.column(key).null_count for batch in batches):
                raise refused_value(key, self.columns[key].shown, "null in a key, which is never the same as another")
        others = [quoted(name) for name in batches[0].schema.names if name not in keys]
        is_newer = newer.condition(lambda name: f"excluded.{quoted(name)}", self._there)
        changed = ", ".join(
            f"{name} = CASE WHEN {is_newer} THEN excluded.{name} ELSE {quoted(self.shown)}.{name} END"
            for name in others or [quoted(keys[0])]
        )
        self._insert(batches, f" ON CONFLICT ({', '.join(map(quoted, keys))}) DO UPDATE SET {changed}")

    def _there(self, name: str) -> str:
        return f"{quoted(self.shown)}.{quoted(name)}"

    def _insert(self, batches: Sequence[pa.RecordBatch], on_conflict: str) -> None:
        """By OR ABORT, whatever the table's constraints say of conflicts: else they may leave out rows in silence."""
        names = tagged(batches[0], self.tags).schema.names
        listed, placeholders = ", ".join(map(quoted, names)), ", ".join("?" * len(names))
        into = f"INSERT OR ABORT INTO {quoted(self.shown)} ({listed}) VALUES ({placeholders}){on_conflict}"
        for batch in batches:
            sent = values(tagged(batch, self.tags), self.columns)
            found = self.connection.executemany(into, sent).rowcount
            if sent and found != len(sent):
                raise RefusedError(
                    f"a trigger of table {self.shown} leaves out rows: {len(sent)} were sent, {found} came in; take it"
                    " away, then release the dataset with retry"
                )

    def delete(self, tags: Mapping[str, int]) -> int:
        """Deletes the rows with these tags, all if there are none; how many there were."""
        where = " AND ".join(f"{quoted(name)} = ?" for name in tags)
        made = f"DELETE FROM {quoted(self.shown)}" + (f" WHERE {where}" if tags else "")
        return self.connection.execute(made, (*tags.values(),)).rowcount


def find(connection: sqlite3.Connection, name: str, tags: Mapping[str, int]) -> Table | None:
    """The table; None if there is none.

    Raises:
        RefusedError: if what is there is no table that keeps rows.
    """
    where = "name = ? COLLATE NOCASE AND type IN (?, ?)"
    asked = f"SELECT type = 'table' AND rootpage > 0, sql FROM sqlite_master WHERE {where}"
    found = connection.execute(asked, (name, "table", "view")).fetchone()
    if found is None:
        return None
    if not found[0]:
        raise RefusedError(
            f"{name} is no ordinary table but a view or a virtual one; make it one, then release the dataset with retry"
        )
    return Table(connection, name, _columns(connection, name), tags, identity_in(found[1]))


def make(
    connection: sqlite3.Connection, name: str, rows: pa.Schema, keys: Sequence[str], tags: Mapping[str, int]
) -> Table:
    """Makes the table for rows of that schema."""
    whole = with_tags(rows, tags)
    columns = [f"{quoted(each.name)} {column_type(each)}" for each in whole]
    if keys:
        columns.append(f"PRIMARY KEY ({', '.join(map(quoted, keys))})")
    mark = new_mark()
    connection.execute(f"CREATE TABLE {quoted(name)} (/* {mark} */ {', '.join(columns)})")
    return Table(connection, name, _columns(connection, name), tags, identity_in(mark))


def quoted(name: str) -> str:
    """A name in a statement. What stands in double quotes would be a text where there is no such column."""
    return "`" + name.replace("`", "``") + "`"


def _columns(connection: sqlite3.Connection, name: str) -> dict[str, Column]:
    """Those that rows can have values in, which generated ones are not."""
    found = connection.execute("SELECT name, type, pk FROM pragma_table_xinfo(?) WHERE hidden = 0", (name,))
    return {column: Column(column, declared, key > 0) for column, declared, key in found}

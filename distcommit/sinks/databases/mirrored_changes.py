"""The rule of mode `mirror`: a table has the last state of each key, and rows of deleted keys are gone.

A second table keeps the order columns of deletes, so that an older change does not restore a row. A change is applied
only if it is newer than the row with its key in either table.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from distcommit.core.interfaces.constructs import RowChecker
from distcommit.sinks.databases.newer_rows import ORDER_COLUMNS, Newer
from distcommit.sinks.databases.table_committer import RefusedError
from distcommit.sinks.databases.table_interface import Table

DELETED_AT = "_distcommit_deleted_at"
"""Column of the table of deleted keys: the time of the commit, in seconds since 1970."""
DELETES = ("d", "delete")
UPSERTS = ("c", "r", "u", "i", "create", "read", "update", "insert", "upsert")
"""Values of the operation column, in lower or upper case."""
_ROW = "_distcommit_row"


@dataclass(frozen=True, slots=True)
class ChangeCheck(RowChecker):
    """Row checker that rejects changes without a complete key or a known operation, and deletes without a version.

    Attributes:
        keys: the key columns.
        operation: the operation column.
        version: the version column; empty if rows have no version.
    """

    keys: tuple[str, ...]
    operation: str
    version: str

    def check(self, batch: pa.RecordBatch) -> pa.BooleanArray:
        """Return whether each change can be applied. Missing columns are ignored; `check_schema` reports them."""
        passes = pa.repeat(pa.scalar(True), batch.num_rows)
        for key in self.keys:
            if key in batch.schema.names:
                passes = pc.and_(passes, batch.column(key).is_valid())
        if self.operation in batch.schema.names and is_operation_type(batch.schema.field(self.operation).type):
            operations = _lowered(batch.column(self.operation))
            passes = pc.and_(passes, pc.is_in(operations, pa.array([*DELETES, *UPSERTS])))
            if self.version in batch.schema.names:  # a delete without a version would never be newer
                has_version = batch.column(self.version).is_valid()
                passes = pc.and_(passes, pc.or_(has_version, pc.invert(pc.is_in(operations, pa.array(DELETES)))))
        return passes

    def describe(self) -> str:
        return (
            f"a change with a value in each key column ({', '.join(self.keys)}), and one of {', '.join(UPSERTS)} or"
            f" {', '.join(DELETES)} in {self.operation}"
            + (f"; a delete also needs a value in {self.version}" if self.version else "")
        )


def is_operation_type(kind: pa.DataType) -> bool:
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def check_exact_keys(table: Table, keys: Sequence[str], remedy: str) -> None:
    """Raise RefusedError if the table could treat different keys as equal."""
    inexact = table.inexact_keys(keys)
    if inexact:
        raise RefusedError(
            f"table {table.shown} must compare its keys by bytes, or changes of one row would apply to another; it"
            f" ignores case, accents or spaces in {', '.join(inexact)}. Nothing was written. {remedy}; then release the"
            " dataset with retry"
        )


def apply_changes(
    table: Table, deleted: Table, changes: pa.Table, keys: Sequence[str], operation: str, newer: Newer, now_s: int
) -> None:
    """Apply changes to a table. The newest change of a key must come last.

    Args:
        table: the mirrored table, without the operation column.
        deleted: the table of deleted keys.
        changes: changes with known operations and no null keys.
        now_s: seconds since 1970.
    """
    last = _last_of_each_key(changes, keys)
    is_delete = pc.is_in(_lowered(last.column(operation)), pa.array(DELETES))
    rows = last.drop_columns([operation])
    deletes, upserts = _batch(rows.filter(is_delete)), _batch(rows.filter(pc.invert(is_delete)))
    order = [name for name in (*keys, *ORDER_COLUMNS, newer.version) if name in rows.column_names]
    if deletes.num_rows:
        deletes = deletes.select(order)
        if table.delete_older([deletes], keys, newer) < deletes.num_rows:
            deletes = _without(deletes, table.present(deletes, keys))
        if deletes.num_rows:
            times = pa.repeat(pa.scalar(now_s, pa.int64()), deletes.num_rows)
            deleted.upsert([deletes.append_column(DELETED_AT, times)], keys, newer)
    if upserts.num_rows:
        known = deleted.present(upserts, keys)
        if known:
            of_deleted = upserts.select(order).take(pa.array(known))
            deleted.delete_older([of_deleted], keys, newer)
            upserts = _without(upserts, [known[row] for row in deleted.present(of_deleted, keys)])
        if upserts.num_rows:
            table.upsert([upserts], keys, newer, whole=True)


def deleted_schema(schema: pa.Schema, keys: Sequence[str], version: str) -> pa.Schema:
    names = [name for name in (*keys, *ORDER_COLUMNS, version) if name in schema.names]
    return pa.schema([*(schema.field(name) for name in names), pa.field(DELETED_AT, pa.int64())])


def _without(batch: pa.RecordBatch, rows: Sequence[int]) -> pa.RecordBatch:
    return batch.filter(pc.invert(pc.is_in(pa.array(range(batch.num_rows)), pa.array(rows, pa.int64()))))


def _last_of_each_key(changes: pa.Table, keys: Sequence[str]) -> pa.Table:
    columns = [_plain(changes.column(key)) for key in keys]
    names = [f"{number}" for number in range(len(keys))]
    numbered = pa.table([*columns, pa.array(range(changes.num_rows))], [*names, _ROW])
    last = numbered.group_by(names).aggregate([(_ROW, "max")]).column(f"{_ROW}_max")
    return changes.take(last.sort())


def _plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column


def _lowered(operations: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    return pc.utf8_lower(operations.cast(pa.string()))


def _batch(rows: pa.Table) -> pa.RecordBatch:
    batches = rows.combine_chunks().to_batches()
    return batches[0] if batches else pa.RecordBatch.from_pylist([], schema=rows.schema)

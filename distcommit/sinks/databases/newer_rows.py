"""The rule of upserts: a row replaces the row with the same keys only if it is not older.

Four columns record where a row comes from: the dataset (`OF`), the epoch that read it, its source partition within the
source's incarnation (`PART`), and its position there. Rows are compared as follows:

- Of two rows of one partition, the one with the later position is newer, whichever branch it came through.
- Positions of files and lists are counted from the watermark on, so they are compared within one epoch only.
- Other pairs of rows have no order in the source. The row that is read now is newer.
- A row that is reprocessed from error files has the epoch of its first read. It is newer only than rows of the same
  dataset with older epochs.
- If the sink names a `version` column, its values are compared instead, and tables have none of the four columns.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from xxhash import xxh3_64_intdigest

from distcommit.core.interfaces.sink import Origin, Origins

OF, EPOCH = "_distcommit_of", "_distcommit_epoch"
PART, POSITION = "_distcommit_part", "_distcommit_position"
ORDER_COLUMNS = (POSITION, PART, EPOCH, OF)
"""The four columns, in the order in which an UPDATE must set them if its assignments see columns that are already set.
Once the position is set, the condition stays true for the other columns."""

Named = Callable[[str], str]


@dataclass(frozen=True, slots=True)
class Newer:
    """The SQL condition under which a row replaces another row.

    Attributes:
        version: column whose greater value is newer; empty to compare rows by the four columns.
        is_reprocessed: whether the rows come from error files.
        is_by_reading: whether positions count records read, so that they are comparable within one epoch only.
    """

    version: str
    is_reprocessed: bool
    is_by_reading: bool = False

    def condition(self, new: Named, old: Named) -> str:
        """Return the condition, which is never null. `new` and `old` return the SQL of a row's column."""
        if self.version:
            value, present = new(self.version), old(self.version)
            return f"({present} IS NULL OR COALESCE({value} >= {present}, FALSE))"
        same_dataset = f"{old(OF)} = {new(OF)}"
        same = f"{same_dataset} AND {old(PART)} = {new(PART)}"
        if self.is_by_reading:
            same += f" AND {old(EPOCH)} = {new(EPOCH)}"
        later = f"{new(POSITION)} >= {old(POSITION)}"
        if not self.is_reprocessed:
            return f"(CASE WHEN {same} THEN COALESCE({later}, TRUE) ELSE TRUE END)"
        older_epoch = f"COALESCE({same_dataset} AND {old(EPOCH)} < {new(EPOCH)}, FALSE)"
        return f"(CASE WHEN {same} THEN COALESCE({later}, FALSE) ELSE {older_epoch} END)"

    def last(self, names: Sequence[str]) -> list[str]:
        """Return the names with those that the condition reads last, for servers that set columns one by one."""
        compared = [name for name in (*ORDER_COLUMNS, self.version) if name in names]
        return [name for name in names if name not in compared] + compared


def with_positions(batch: pa.RecordBatch, origin: Origin, origins: Origins | None) -> pa.RecordBatch:
    """Add columns with the rows' source partition and position, null if unknown."""
    parts: pa.Array = pa.nulls(batch.num_rows, pa.int64())
    positions = parts
    provenance = origin.provenance
    if provenance is not None:
        partitions = origins.partitions if origins else batch.column(provenance.partition_column)
        offsets = origins.offsets if origins else batch.column(provenance.offset_column)
        names = partitions.dictionary_encode()
        hashes = pa.array([_part(origin.incarnation, name) for name in names.dictionary.to_pylist()], pa.int64())
        parts, positions = hashes.take(names.indices), offsets.cast(pa.int64())
    return batch.append_column(PART, parts).append_column(POSITION, positions)


def with_order(batch: pa.RecordBatch, of: int, epoch: int) -> pa.RecordBatch:
    for name in (PART, POSITION):
        if name not in batch.schema.names:
            batch = batch.append_column(name, pa.nulls(batch.num_rows, pa.int64()))
    for name, value in ((OF, of), (EPOCH, epoch)):
        batch = batch.append_column(name, pa.repeat(pa.scalar(value, pa.int64()), batch.num_rows))
    return batch


def oldest_first(batches: Sequence[pa.RecordBatch], version: str) -> list[pa.RecordBatch]:
    """Sort batches of one schema so that the newest row of a key comes last.

    A `version` column sorts all rows, null first. Otherwise only the rows of each source partition are sorted among
    themselves.
    """
    table = pa.Table.from_batches(batches)
    if version:
        values = table.column(version).combine_chunks()
        values = values.dictionary_decode() if pa.types.is_dictionary(values.type) else values
        present = pc.indices_nonzero(values.is_valid())
        by_value = present.take(pc.sort_indices(values.take(present)))
        return _ordered_rows(table, pa.concat_arrays([pc.indices_nonzero(values.is_null()), by_value]), batches)
    parts, positions = (table.column(name).fill_null(0).to_numpy() for name in (PART, POSITION))
    by_part = np.argsort(parts, kind="stable")
    by_position = np.lexsort((np.arange(len(parts)), positions, parts))
    if np.array_equal(by_part, by_position):
        return [*batches]
    rows = np.empty(len(parts), np.int64)
    rows[by_part] = by_position
    return _ordered_rows(table, pa.array(rows), batches)


def _ordered_rows(table: pa.Table, order: pa.Array, batches: Sequence[pa.RecordBatch]) -> list[pa.RecordBatch]:
    return table.take(order).combine_chunks().to_batches() if table.num_rows else [*batches]


def _part(incarnation: str, partition: Any) -> int:
    return xxh3_64_intdigest(f"{incarnation}\0{partition}".encode()) - (1 << 63)

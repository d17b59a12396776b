"""Detection of Parquet columns whose values rarely repeat.

A dictionary of such values is larger than the values, and slow.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import lru_cache

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

_PIECES = 8
_ROWS_AT_EACH = 256
_LEAST_ROWS = 2 * _PIECES * _ROWS_AT_EACH
_MOST_REPEATED = 1 / 50
_LONG = 64
"""Mean size in bytes above which values may have a dictionary: Parquet soon gives it up."""

_NUMBERS = {
    pa.int32(), pa.uint32(), pa.int64(), pa.uint64(), pa.float32(), pa.float64(), pa.date32(),
    pa.time64("us"), pa.time64("ns"), pa.duration("us"), pa.duration("ns"),
}  # fmt: skip


@lru_cache(64)
def leaves(schema: pa.Schema) -> Sequence[str]:
    """Return the paths of a schema's columns in Parquet."""
    out = pa.BufferOutputStream()
    pq.ParquetWriter(out, schema).close()
    result = pq.read_metadata(pa.BufferReader(out.getvalue())).schema
    return [result.column(index).path for index in range(len(result))]


def rarely_repeating_columns(rows: pa.Table, skipped: Collection[str] = ()) -> Sequence[str]:
    """Return columns of short, rarely repeating values; none below 4,096 rows."""
    if rows.num_rows < _LEAST_ROWS:
        return []
    step = rows.num_rows // _PIECES
    some = pa.concat_tables([rows.slice(chunk * step, _ROWS_AT_EACH) for chunk in range(_PIECES)])
    return [
        field.name
        for field, values in zip(some.schema, some.columns, strict=True)
        if field.name not in skipped and _is_short(values) and _repeated(values) < _MOST_REPEATED
    ]


def _is_short(values: pa.ChunkedArray) -> bool:
    kind, types = values.type, pa.types
    if types.is_binary(kind) or types.is_string(kind) or types.is_large_binary(kind) or types.is_large_string(kind):
        all_bytes: int = pc.sum(pc.binary_length(values)).as_py() or 0
        return all_bytes <= _LONG * len(values)
    return kind in _NUMBERS or bool(types.is_timestamp(kind))


def _repeated(values: pa.ChunkedArray) -> float:
    present = len(values) - values.null_count
    distinct: int = pc.count_distinct(values).as_py()
    return 1 - distinct / present if present else 1.0

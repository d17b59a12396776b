"""Finding the records that an operation on whole batches fails at, by trying ever smaller parts."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from distcommit.core.foreign_errors import ForeignError, foreign_errors
from distcommit.core.interfaces.constructs import Converted

Made = tuple[pa.RecordBatch, pa.Array | None]
"""Records, and which row of what was given each is of; None: record i is of row i."""


def by_halves(
    batch: pa.RecordBatch,
    make: Callable[[pa.RecordBatch], Made],
    schema: pa.Schema,
    failures: type[Exception] | tuple[type[Exception], ...],
    reason: Callable[[Exception, int], str],
    cut: int = 0,
) -> Converted:
    """Makes records of a whole batch, or, where that fails, of each half by itself, down to single rows.

    With k bad rows among n, it is tried at most about 2 k log2(n) times.

    Args:
        batch: what is given.
        make: makes records of a part of it; for a single row it fails if that row is to blame.
        schema: of what it makes.
        failures: what it raises then, besides panics of native code; everything else is raised from here.
        reason: why a row is rejected, from the error and the row.
        cut: the first row of those that may be bad, where that is known: it is cut there first.
    """
    caught: tuple[type[Exception], ...] = (
        (*failures, ForeignError) if isinstance(failures, tuple) else (failures, ForeignError)
    )
    parts = [(cut, batch.num_rows - cut), (0, cut)] if cut else [(0, batch.num_rows)]
    made: list[pa.RecordBatch] = []
    rows: list[pa.Array] = []
    rejected: dict[int, str] = {}
    while parts:
        start, length = parts.pop()
        if not length:
            continue
        try:
            with foreign_errors():
                records, its_rows = make(batch.slice(start, length))
        except caught as error:
            half = length // 2
            if half:
                parts += [(start + half, length - half), (start, half)]
            else:
                rejected[start] = reason(error, start)
            continue
        if length == batch.num_rows:
            return Converted(records, its_rows)
        made.append(records)
        of = pa.array(range(length), pa.int64()) if its_rows is None else its_rows.cast(pa.int64())
        rows.append(pa.array(of.to_numpy() + start))
    table = pa.Table.from_batches(made, schema).combine_chunks()
    records = table.to_batches()[0] if table.num_rows else pa.RecordBatch.from_pylist([], schema)
    return Converted(records, pa.chunked_array(rows, pa.int64()).combine_chunks(), rejected)

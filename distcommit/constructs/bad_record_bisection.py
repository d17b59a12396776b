"""Conversion of a batch with bisection of bad records."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from distcommit.core.error_handling.foreign_errors import ForeignError, foreign_errors
from distcommit.core.interfaces.constructs import Converted

ConvertedPart = tuple[pa.RecordBatch, pa.Array | None]
"""Converted records, and the input row of each. The rows are None if each record has the number of its input row."""


def convert_or_bisect(
    batch: pa.RecordBatch,
    make: Callable[[pa.RecordBatch], ConvertedPart],
    schema: pa.Schema,
    failures: type[Exception] | tuple[type[Exception], ...],
    reason: Callable[[Exception, int], str],
    cut: int = 0,
) -> Converted:
    """Convert a whole batch. If that fails, convert each half, down to single rows, and reject the rows that fail.

    With k bad rows among n, `make` is called at most about 2 k log2(n) times.

    Args:
        make: converts a part of the batch. It must fail for a single row only if the row is bad.
        schema: schema of the converted records.
        failures: errors of `make` that mean bad rows, besides panics of native code. Other errors are raised.
        reason: returns the rejection reason of an error and a row.
        cut: the first row that may be bad, if known. The batch is first split there.
    """
    caught: tuple[type[Exception], ...] = (
        (*failures, ForeignError) if isinstance(failures, tuple) else (failures, ForeignError)
    )
    parts = [(cut, batch.num_rows - cut), (0, cut)] if cut else [(0, batch.num_rows)]
    converted: list[pa.RecordBatch] = []
    rows: list[pa.Array] = []
    rejected: dict[int, str] = {}
    while parts:
        start, length = parts.pop()
        if not length:
            continue
        try:
            with foreign_errors():
                records, part_rows = make(batch.slice(start, length))
        except caught as error:
            half = length // 2
            if half:
                parts += [(start + half, length - half), (start, half)]
            else:
                rejected[start] = reason(error, start)
            continue
        if length == batch.num_rows:
            return Converted(records, part_rows)
        converted.append(records)
        numbers = pa.array(range(length), pa.int64()) if part_rows is None else part_rows.cast(pa.int64())
        rows.append(pa.array(numbers.to_numpy() + start))
    table = pa.Table.from_batches(converted, schema).combine_chunks()
    records = table.to_batches()[0] if table.num_rows else pa.RecordBatch.from_pylist([], schema)
    return Converted(records, pa.chunked_array(rows, pa.int64()).combine_chunks(), rejected)

"""Confluent's wire format: a byte 0, the schema id in four bytes, and the message.

Source: Confluent Platform, Formats, Serializers and Deserializers: Wire format.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

HEADER_BYTES = 5
MAX_ID = 2**31 - 1
Indices = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Framed:
    schema_id: int
    """Id of the schema in the registry."""
    data: NDArray[np.uint8]
    """Bytes of the whole column."""
    begin: Indices
    """Offset of each message in `data`."""
    end: Indices
    """Offset of the end of each message in `data`."""
    rows: Indices
    """Row of each message in the batch, ascending."""

    def only(self, part: slice) -> Framed:
        return Framed(self.schema_id, self.data, self.begin[part], self.end[part], self.rows[part])

    def messages(self) -> pa.Array:
        offsets = np.empty(2 * len(self.rows), np.int32)
        offsets[0::2], offsets[1::2] = self.begin, self.end
        if not len(offsets):
            return pa.array([], pa.binary())
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(self.data)]
        return pa.Array.from_buffers(pa.binary(), len(offsets) - 1, buffers).take(
            pa.array(np.arange(0, len(offsets), 2))
        )


@dataclass(frozen=True, slots=True)
class Split:
    """The values of a column, by schema id."""

    framed: tuple[Framed, ...]
    """Messages by schema id, in the order of their first rows."""
    nulls: Indices
    """Rows without a value."""
    rejected: dict[int, str]
    """Rejection reasons by row."""


def split(column: pa.Array) -> Split:
    if pa.types.is_large_binary(column.type):
        column = column.cast(pa.binary())
    offsets = np.frombuffer(column.buffers()[1], np.int32, len(column) + 1, 4 * column.offset) if len(column) else None
    if offsets is None:
        return Split((), np.empty(0, np.int64), {})
    data = np.frombuffer(column.buffers()[2] or b"", np.uint8)
    begin, end = offsets[:-1].astype(np.int64), offsets[1:].astype(np.int64)
    null = np.asarray(column.is_null())
    long_enough = ~null & (end - begin >= HEADER_BYTES)
    header = data[np.where(long_enough, begin, 0)[:, None] + np.arange(HEADER_BYTES)] if long_enough.any() else None
    if header is None:
        return Split((), np.flatnonzero(null), dict(_wrong(column, np.flatnonzero(~null))))
    ids = header[:, 1:].astype(np.int64) @ np.array([1 << 24, 1 << 16, 1 << 8, 1])
    good = long_enough & (header[:, 0] == 0) & (ids <= MAX_ID)
    framed = []
    schema_ids, first = np.unique(ids[good], return_index=True)
    for schema_id in schema_ids[np.argsort(first)]:
        rows = np.flatnonzero(good & (ids == schema_id))
        framed.append(Framed(int(schema_id), data, begin[rows] + HEADER_BYTES, end[rows], rows))
    return Split(tuple(framed), np.flatnonzero(null), dict(_wrong(column, np.flatnonzero(~null & ~good))))


def _wrong(column: pa.Array, rows: Indices) -> Iterator[tuple[int, str]]:
    for row in rows.tolist():
        value = column[row].as_py()
        if len(value) < HEADER_BYTES:
            yield row, f"it has {len(value)} bytes; the wire format's header has {HEADER_BYTES}"
        elif value[0]:
            yield row, f"it begins with byte {value[0]}; the wire format begins with 0"
        else:
            yield row, f"its schema id {int.from_bytes(value[1:5], 'big')} is larger than {MAX_ID}"

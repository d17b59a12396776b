"""Decoder of a batch's Avro datums in lockstep, value by value (Apache Avro 1.12 specification, Binary Encoding).

Avro has no offsets of fields, so a datum must be read from its start. NumPy reads all datums together, 15 times as
fast. A fault does not affect other datums. Values that end before or behind their datum's end are always detected.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from distcommit.schemas.schema_size_limits import MAX_NESTING

Integers = NDArray[np.int64]
_PADDING = 64
"""Number of readable bytes behind the last datum: more than the longest number has."""
MAX_LONG_BYTES = 10


Buffer = bytes | memoryview
Skip = Callable[[Buffer, int], int]
"""Function that returns the offset behind a value, which may be past the data. Raises IndexError if the data ends
within a number, and ValueError for an impossible length."""


def long_at(data: Buffer, position: int) -> tuple[int, int]:
    """Decode the zig-zag number at an offset. Return the number and the offset behind it.

    Raises:
        IndexError: if the data ends within the number.
        ValueError: if the number has more than 10 bytes.
    """
    byte = data[position]
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), position + 1
    value, shift = byte & 0x7F, 7
    while byte >= 0x80:
        if shift >= 7 * MAX_LONG_BYTES:
            raise ValueError("a number has more than 64 bits")
        position += 1
        byte = data[position]
        value, shift = value | (byte & 0x7F) << shift, shift + 7
    return (value >> 1) ^ -(value & 1), position + 1


class Fault(IntEnum):
    NONE = 0
    TOO_SHORT = 1
    TOO_LONG = 2
    NUMBER = 3
    INT = 4
    BRANCH = 5
    SYMBOL = 6
    BOOLEAN = 7
    LENGTH = 8
    TEXT = 9
    DECIMAL = 10
    TIME = 11
    UNREADABLE = 12
    NESTED = 13


REASONS = {
    Fault.TOO_SHORT: "it ends before its schema does",
    Fault.TOO_LONG: "bytes are left after the last field of its schema",
    Fault.NUMBER: "a number has more than 64 bits",
    Fault.INT: "an int has more than 32 bits",
    Fault.BRANCH: "a union has no such branch",
    Fault.SYMBOL: "an enum has no such symbol, and the reader's enum has no default",
    Fault.BOOLEAN: "a boolean is neither 0 nor 1",
    Fault.LENGTH: "a length is negative, or larger than the rest of the datum",
    Fault.TEXT: "a string is not UTF-8",
    Fault.DECIMAL: "a decimal has more digits than its precision",
    Fault.TIME: "a time of day is not within a day",
    Fault.UNREADABLE: "a value is of a union branch that the pinned schema can't take",
    Fault.NESTED: f"a record contains itself more than {MAX_NESTING} levels deep",
}


class Datums:
    """Read positions in the datums of a batch, with methods that read the next value of each datum.

    Args:
        data: the bytes of all datums, followed by padding; see `of`.
        position: offset of each datum's next value.
        end: offset of each datum's end.
        row: index of each datum in `faults`.
        faults: the first fault of each datum of the batch, shared with the results of `take`.
    """

    __slots__ = ("data", "end", "faults", "position", "row")

    def __init__(
        self, data: NDArray[np.uint8], position: Integers, end: Integers, row: Integers, faults: NDArray[np.int8]
    ) -> None:
        self.data, self.position, self.end, self.row, self.faults = data, position, end, row, faults

    @classmethod
    def of(cls, data: NDArray[np.uint8], begin: Integers, end: Integers) -> Datums:
        """Return the datums of `data` between `begin` and `end`, which must ascend and span less than 2 GiB."""
        first, last = (int(begin[0]), int(end[-1])) if len(begin) else (0, 0)
        padded = np.concatenate([data[first:last], np.zeros(_PADDING, np.uint8)])
        return cls(padded, begin - first, end - first, np.arange(len(begin)), np.zeros(len(begin), np.int8))

    def __len__(self) -> int:
        return len(self.position)

    def take(self, indices: Integers) -> Datums:
        """Return the datums at ascending indices. After reading, pass them to `put_back`."""
        return Datums(self.data, self.position[indices], self.end[indices], self.row[indices], self.faults)

    def put_back(self, indices: Integers, selected: Datums) -> None:
        """Set the positions of datums from the result of `take`."""
        self.position[indices] = selected.position

    def fail(self, mask: NDArray[np.bool_], fault: Fault) -> None:
        """Record a fault of the datums in `mask`, unless they have an earlier one, and skip to their end."""
        if mask.any():
            rows = self.row[mask]
            self.faults[rows] = np.where(self.faults[rows], self.faults[rows], fault)
            self.position[mask] = self.end[mask]

    @property
    def failed(self) -> NDArray[np.bool_]:
        return np.not_equal(self.faults[self.row], 0)

    def finish(self) -> None:
        """Record a fault of each datum with unread bytes."""
        self.fail(self.position < self.end, Fault.TOO_LONG)

    def _advance(self, count: Integers | int) -> Integers:
        """Advance by `count` bytes. Return the previous positions, 0 for datums that are too short."""
        begin = self.position
        self.position = begin + count
        over = self.position > self.end
        self.fail(over, Fault.TOO_SHORT)
        return np.where(over, 0, begin)

    def longs(self) -> Integers:
        byte = self.data[self.position]
        value = (byte & 0x7F).astype(np.uint64)
        self.position = self.position + 1
        more, shift = np.flatnonzero(byte & 0x80), 7
        while more.size and shift < 7 * MAX_LONG_BYTES:
            byte = self.data[self.position[more]]
            value[more] |= (byte & 0x7F).astype(np.uint64) << np.uint64(shift)
            self.position[more] += 1
            more, shift = more[byte >= 0x80], shift + 7
        if more.size:
            too_long = np.zeros(len(self), bool)
            too_long[more] = True
            self.fail(too_long, Fault.NUMBER)
        self.fail(self.position > self.end, Fault.TOO_SHORT)
        signs = (value & np.uint64(1)).astype(np.int64)
        numbers: Integers = (value >> np.uint64(1)).astype(np.int64) ^ -signs
        return numbers

    def ints(self) -> Integers:
        values = self.longs()
        over = (values < -(2**31)) | (values >= 2**31)
        if over.any():
            self.fail(over, Fault.INT)
            values = np.where(over, 0, values)
        return values

    def reals(self, dtype: str) -> NDArray[np.floating]:
        size = np.dtype(dtype).itemsize
        at_any_offset = np.ndarray((len(self.data) - size + 1,), dtype, self.data, 0, (1,))
        return at_any_offset[self._advance(size)]

    def booleans(self) -> NDArray[np.bool_]:
        values = self.data[self._advance(1)]
        self.fail(values > 1, Fault.BOOLEAN)
        return np.equal(values, 1)

    def lengths(self) -> Integers:
        """Read the next length of each datum; 0 if it is impossible."""
        lengths = self.longs()
        impossible = (lengths < 0) | (lengths > self.end - self.position)
        self.fail(impossible, Fault.LENGTH)
        return np.where(impossible, 0, lengths)

    def texts(self, arrow_type: pa.DataType) -> pa.Array:
        lengths = self.lengths()
        values = self._slices(self.position, lengths)
        self.position = self.position + lengths
        return values if pa.types.is_binary(arrow_type) else self._as_text(values)

    def _slices(self, begin: Integers, lengths: Integers) -> pa.Array:
        """Return slices of the data as binary values, without a loop in Python.

        Slices must be ascending and disjoint: they are the even values of one array, and the gaps the odd values.
        """
        if not len(begin):
            return pa.array([], pa.binary())
        offsets = np.empty(2 * len(begin), np.int32)
        offsets[0::2], offsets[1::2] = begin, begin + lengths
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(self.data)]
        with_gaps = pa.Array.from_buffers(pa.binary(), len(offsets) - 1, buffers)
        return with_gaps.take(pa.array(np.arange(0, len(offsets), 2)))

    def _as_text(self, values: pa.Array) -> pa.Array:
        try:
            return values.cast(pa.string())
        except pa.ArrowInvalid:
            valid = np.array([_is_text(value) for value in values.to_pylist()], bool)
            self.fail(~valid, Fault.TEXT)
            return pa.compute.if_else(pa.array(valid), values, pa.scalar(b"", pa.binary())).cast(pa.string())

    def fixed(self, size: int) -> NDArray[np.uint8]:
        """Read `size` bytes of each datum, as a matrix with one row each."""
        begin = self._advance(size)
        if len(self.data) < size:
            return np.zeros((len(begin), size), np.uint8)
        matrix: NDArray[np.uint8] = np.lib.stride_tricks.sliding_window_view(self.data, size)[begin]
        return matrix

    def decimals(self, arrow_type: pa.DataType, size: int | None) -> pa.Array:
        """Read decimals: big-endian two's complement of `size` bytes, or after a length if `size` is None."""
        if size is None:
            lengths = self.lengths()
            begin = self.position
            self.position = begin + lengths
        else:
            begin, lengths = self._advance(size), np.full(len(self), size)
        width = arrow_type.bit_width // 8
        begin, lengths = self._without_sign_bytes(begin, np.where(self.failed, 0, lengths), width)
        self.fail(lengths > width, Fault.DECIMAL)
        lengths = np.where(self.failed, 0, lengths)
        offsets = np.maximum((begin + lengths - 1)[:, None] - np.arange(width), 0)
        negative = (lengths > 0) & (self.data[begin] >= 0x80)
        is_stored = np.arange(width) < lengths[:, None]
        matrix = np.where(is_stored, self.data[offsets], np.where(negative, 0xFF, 0)[:, None]).astype(np.uint8)
        decimals = pa.Array.from_buffers(arrow_type, len(self), [None, pa.py_buffer(matrix)])
        try:
            decimals.validate(full=True)
        except pa.ArrowInvalid:
            limit = 10**arrow_type.precision
            over = [abs(int.from_bytes(row.tobytes(), "little", signed=True)) >= limit for row in matrix]
            self.fail(np.array(over, bool), Fault.DECIMAL)
        return decimals

    def _without_sign_bytes(self, begin: Integers, lengths: Integers, width: int) -> tuple[Integers, Integers]:
        begin, lengths = begin.copy(), lengths.copy()
        for row in np.flatnonzero(lengths > width):
            value = self.data[begin[row] : begin[row] + lengths[row]]
            extra = int(lengths[row]) - width
            sign = 0xFF if value[extra] >= 0x80 else 0
            if (value[:extra] == sign).all():
                begin[row], lengths[row] = begin[row] + extra, width
        return begin, lengths


def _is_text(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True

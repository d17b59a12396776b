"""Avro datums of a batch, read in lockstep: each read takes the same value of all of them at once.

Avro's binary encoding says nothing of where its fields are: a datum has to be walked. Here all datums of a batch are
walked together, a value at a time, by NumPy. So nothing is done by record, and what is wrong with one stops that one
alone: a datum that ends too early or too late is found for certain. (Decoders of container files, which are as fast,
trust their framing there: DataFusion 55 never comes back from a block with bytes left. Those that take one datum at a
time are 15 times slower.)

Source: Apache Avro 1.12 specification, Binary Encoding.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from distcommit.constructs.registry.schema_bounds import MAX_NESTING

Integers = NDArray[np.int64]
_PADDING = 64
"""Bytes behind the last datum that may be looked at: more than the longest number has."""
_LONGEST = 10


class Wrong(IntEnum):
    """What may be wrong with a datum."""

    NOTHING = 0
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
    Wrong.TOO_SHORT: "it ends before its schema does",
    Wrong.TOO_LONG: "bytes are left behind what its schema says",
    Wrong.NUMBER: "a number has more than 64 bits",
    Wrong.INT: "an int has more than 32 bits",
    Wrong.BRANCH: "a union has no such branch",
    Wrong.SYMBOL: "an enum has no such symbol, and the reader's no default",
    Wrong.BOOLEAN: "a boolean is neither 0 nor 1",
    Wrong.LENGTH: "a length is negative, or more than what is left",
    Wrong.TEXT: "a string is not UTF-8",
    Wrong.DECIMAL: "a decimal has more digits than its precision",
    Wrong.TIME: "a time of day is not within a day",
    Wrong.UNREADABLE: "a value is of a branch that the pinned schema can't take",
    Wrong.NESTED: f"a record holds itself more than {MAX_NESTING} levels deep",
}


class Datums:
    """Where the reading of each datum stands.

    Args:
        data: the bytes that hold them, with padding behind; see `of`.
        position: where the next value of each begins.
        end: where each ends.
        row: the number of each in `wrong`.
        wrong: what is wrong with each datum of the batch, shared by all that was taken of it; the first finding stays.
    """

    __slots__ = ("data", "end", "position", "row", "wrong")

    def __init__(
        self, data: NDArray[np.uint8], position: Integers, end: Integers, row: Integers, wrong: NDArray[np.int8]
    ) -> None:
        self.data, self.position, self.end, self.row, self.wrong = data, position, end, row, wrong

    @classmethod
    def of(cls, data: NDArray[np.uint8], begin: Integers, end: Integers) -> Datums:
        """Datums at offsets of `data`, which have to ascend."""
        first, last = (int(begin[0]), int(end[-1])) if len(begin) else (0, 0)
        padded = np.concatenate([data[first:last], np.zeros(_PADDING, np.uint8)])
        return cls(padded, begin - first, end - first, np.arange(len(begin)), np.zeros(len(begin), np.int8))

    def __len__(self) -> int:
        return len(self.position)

    def take(self, which: Integers) -> Datums:
        """Some of them, by ascending number; `put_back` tells these where they stand then."""
        return Datums(self.data, self.position[which], self.end[which], self.row[which], self.wrong)

    def put_back(self, which: Integers, taken: Datums) -> None:
        """After reading of what `take` gave."""
        self.position[which] = taken.position

    def fail(self, which: NDArray[np.bool_], wrong: Wrong) -> None:
        """Marks those as wrong, unless they are already, and reads nothing more of them."""
        if which.any():
            rows = self.row[which]
            self.wrong[rows] = np.where(self.wrong[rows], self.wrong[rows], wrong)
            self.position[which] = self.end[which]

    @property
    def failed(self) -> NDArray[np.bool_]:
        """Which of them are wrong."""
        return np.not_equal(self.wrong[self.row], 0)

    def finish(self) -> None:
        """Marks those of which something is left."""
        self.fail(self.position < self.end, Wrong.TOO_LONG)

    def _pass(self, count: Integers | int) -> Integers:
        """Goes on by so many bytes, and returns where it was; of datums that have not so many, a start without harm."""
        begin = self.position
        self.position = begin + count
        over = self.position > self.end
        self.fail(over, Wrong.TOO_SHORT)
        return np.where(over, 0, begin)

    def longs(self) -> Integers:
        """A number each, in Avro's variable-length zig-zag coding."""
        byte = self.data[self.position]
        value = (byte & 0x7F).astype(np.uint64)
        self.position = self.position + 1
        more, shift = np.flatnonzero(byte & 0x80), 7
        while more.size and shift < 7 * _LONGEST:
            byte = self.data[self.position[more]]
            value[more] |= (byte & 0x7F).astype(np.uint64) << np.uint64(shift)
            self.position[more] += 1
            more, shift = more[byte >= 0x80], shift + 7
        if more.size:
            too_long = np.zeros(len(self), bool)
            too_long[more] = True
            self.fail(too_long, Wrong.NUMBER)
        self.fail(self.position > self.end, Wrong.TOO_SHORT)
        signs = (value & np.uint64(1)).astype(np.int64)
        numbers: Integers = (value >> np.uint64(1)).astype(np.int64) ^ -signs
        return numbers

    def ints(self) -> Integers:
        """As `longs`, of 32 bits."""
        values = self.longs()
        over = (values < -(2**31)) | (values >= 2**31)
        if over.any():
            self.fail(over, Wrong.INT)
            values = np.where(over, 0, values)
        return values

    def reals(self, kind: str) -> NDArray[np.floating]:
        """A floating point number each, of the NumPy type."""
        size = np.dtype(kind).itemsize
        anywhere = np.ndarray((len(self.data) - size + 1,), kind, self.data, 0, (1,))
        return anywhere[self._pass(size)]

    def booleans(self) -> NDArray[np.bool_]:
        """A boolean each."""
        values = self.data[self._pass(1)]
        self.fail(values > 1, Wrong.BOOLEAN)
        return np.equal(values, 1)

    def lengths(self) -> Integers:
        """How many bytes follow, for each: 0 for those that have not so many."""
        found = self.longs()
        impossible = (found < 0) | (found > self.end - self.position)
        self.fail(impossible, Wrong.LENGTH)
        return np.where(impossible, 0, found)

    def texts(self, arrow_type: pa.DataType) -> pa.Array:
        """Bytes or text each, as that type, which is binary or string."""
        count = self.lengths()
        found = self._between(self.position, count)
        self.position = self.position + count
        return found if pa.types.is_binary(arrow_type) else self._as_text(found)

    def _between(self, begin: Integers, count: Integers) -> pa.Array:
        """The bytes at those offsets, which ascend. Every second value of an array over all bytes is one of them."""
        if not len(begin):
            return pa.array([], pa.binary())
        offsets = np.empty(2 * len(begin), np.int32)
        offsets[0::2], offsets[1::2] = begin, begin + count
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(self.data)]
        with_gaps = pa.Array.from_buffers(pa.binary(), len(offsets) - 1, buffers)
        return with_gaps.take(pa.array(np.arange(0, len(offsets), 2)))

    def _as_text(self, found: pa.Array) -> pa.Array:
        try:
            return found.cast(pa.string())
        except pa.ArrowInvalid:
            valid = np.array([_is_text(value) for value in found.to_pylist()], bool)
            self.fail(~valid, Wrong.TEXT)
            return pa.compute.if_else(pa.array(valid), found, pa.scalar(b"", pa.binary())).cast(pa.string())

    def fixed(self, size: int) -> NDArray[np.uint8]:
        """That many bytes of each, as a matrix."""
        begin = self._pass(size)
        offsets = begin[:, None] + np.arange(size)
        found: NDArray[np.uint8] = self.data[np.minimum(offsets, len(self.data) - 1)]
        return found

    def decimals(self, arrow_type: pa.DataType, size: int | None) -> pa.Array:
        """A decimal each, of two's complement bytes, the highest first: of `size` bytes, or as many as each says."""
        if size is None:
            count = self.lengths()
            begin = self.position
            self.position = begin + count
        else:
            begin, count = self._pass(size), np.full(len(self), size)
        width = arrow_type.bit_width // 8
        begin, count = self._without_sign_bytes(begin, np.where(self.failed, 0, count), width)
        self.fail(count > width, Wrong.DECIMAL)
        count = np.where(self.failed, 0, count)
        offsets = np.maximum((begin + count - 1)[:, None] - np.arange(width), 0)
        negative = (count > 0) & (self.data[begin] >= 0x80)
        given = np.arange(width) < count[:, None]
        matrix = np.where(given, self.data[offsets], np.where(negative, 0xFF, 0)[:, None]).astype(np.uint8)
        made = pa.Array.from_buffers(arrow_type, len(self), [None, pa.py_buffer(matrix)])
        try:
            made.validate(full=True)
        except pa.ArrowInvalid:
            most = 10**arrow_type.precision
            over = np.array([abs(int.from_bytes(row.tobytes(), "little", signed=True)) >= most for row in matrix], bool)
            self.fail(over, Wrong.DECIMAL)
        return made

    def _without_sign_bytes(self, begin: Integers, count: Integers, width: int) -> tuple[Integers, Integers]:
        """Return numbers without leading bytes that only repeat their sign, down to `width` bytes."""
        begin, count = begin.copy(), count.copy()
        for row in np.flatnonzero(count > width):
            value = self.data[begin[row] : begin[row] + count[row]]
            extra = int(count[row]) - width
            sign = 0xFF if value[extra] >= 0x80 else 0
            if (value[:extra] == sign).all():
                begin[row], count[row] = begin[row] + extra, width
        return begin, count


def _is_text(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True

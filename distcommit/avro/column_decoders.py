"""Decoders of Avro datums into Arrow columns (Apache Avro 1.12 specification, Binary Encoding)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa

from distcommit.avro.arrays_and_maps import read_items
from distcommit.avro.lockstep_decoding import Datums, Fault, Skip
from distcommit.schemas.schema_size_limits import MAX_NESTING

_MS_OF_DAY = 86_400_000


class Column(Protocol):
    """Decoder of the next value of each datum."""

    @property
    def type(self) -> pa.DataType: ...

    @property
    def min_bytes(self) -> int:
        """Minimum size of an encoded value."""

    def read(self, datums: Datums) -> pa.Array:
        """Read one value of each datum; a faulty one has any value or null."""


@dataclass(frozen=True, slots=True)
class Numbers:
    """Decoder of int and long, dates and times, into a type that may be wider."""

    type: pa.DataType
    """Integer, float, date, time or timestamp."""
    is_int: bool
    """Encoded as int, otherwise long."""
    min_bytes: int = 1
    """Minimum size of an encoded value in bytes."""

    def read(self, datums: Datums) -> pa.Array:
        values = datums.ints() if self.is_int else datums.longs()
        if pa.types.is_floating(self.type):
            return pa.array(values.astype(self.type.to_pandas_dtype()))
        if pa.types.is_time(self.type):
            outside = (values < 0) | (values >= (_MS_OF_DAY if self.type == pa.time32("ms") else _MS_OF_DAY * 1000))
            datums.fail(outside, Fault.TIME)
            values = np.where(outside, 0, values)
        stored = np.ascontiguousarray(values, np.int32 if self.type.bit_width == 32 else np.int64)
        return pa.Array.from_buffers(self.type, len(stored), [None, pa.py_buffer(stored)])


@dataclass(frozen=True, slots=True)
class Reals:
    """Decoder of float and double into a type that may be wider."""

    type: pa.DataType
    """Float or double."""
    dtype: str
    """NumPy type, little-endian."""

    @property
    def min_bytes(self) -> int:
        return np.dtype(self.dtype).itemsize

    def read(self, datums: Datums) -> pa.Array:
        return pa.array(datums.reals(self.dtype).astype(self.type.to_pandas_dtype()))


@dataclass(frozen=True, slots=True)
class Booleans:
    min_bytes: int = 1
    """The fixed size."""

    @property
    def type(self) -> pa.DataType:
        return pa.bool_()

    def read(self, datums: Datums) -> pa.Array:
        return pa.array(datums.booleans())


@dataclass(frozen=True, slots=True)
class Texts:
    """Decoder of bytes and string."""

    type: pa.DataType
    """Binary or string."""
    min_bytes: int = 1
    """The length of an empty value."""

    def read(self, datums: Datums) -> pa.Array:
        return datums.texts(self.type)


@dataclass(frozen=True, slots=True)
class Fixed:
    type: pa.DataType
    """Fixed-size binary, whose width is a value's size."""

    @property
    def min_bytes(self) -> int:
        return int(self.type.byte_width)

    def read(self, datums: Datums) -> pa.Array:
        matrix = np.ascontiguousarray(datums.fixed(self.type.byte_width))
        return pa.Array.from_buffers(self.type, len(matrix), [None, pa.py_buffer(matrix)])


@dataclass(frozen=True, slots=True)
class Decimals:
    type: pa.DataType
    """Type of the decoded column, with precision and scale."""
    size: int | None
    """Size of a value in bytes; None if each value has its length before it."""

    @property
    def min_bytes(self) -> int:
        return 1 if self.size is None else self.size

    def read(self, datums: Datums) -> pa.Array:
        return datums.decimals(self.type, self.size)


@dataclass(frozen=True, slots=True)
class Symbols:
    """Decoder of an enum into text."""

    symbols: tuple[str | None, ...]
    """The reader's symbol for each encoded number; None if the reader has neither the symbol nor a default."""
    min_bytes: int = 1
    """Minimum size of an encoded value in bytes: a symbol's number."""

    @property
    def type(self) -> pa.DataType:
        return pa.string()

    def read(self, datums: Datums) -> pa.Array:
        values = datums.ints()
        existing = np.array([symbol is not None for symbol in self.symbols] + [False])
        index = np.where((values < 0) | (values >= len(self.symbols)), len(self.symbols), values)
        datums.fail(~existing[index], Fault.SYMBOL)
        return pa.array([*self.symbols, None], pa.string()).take(pa.array(index))


@dataclass(frozen=True, slots=True)
class Nulls:
    min_bytes: int = 0
    """A null takes none."""

    @property
    def type(self) -> pa.DataType:
        return pa.null()

    def read(self, datums: Datums) -> pa.Array:
        return pa.nulls(len(datums), self.type)


@dataclass(frozen=True, slots=True)
class Constant:
    """A field's default, which the writer's schema lacks."""

    value: pa.Scalar
    """The default, which every row gets."""
    min_bytes: int = 0
    """It is not in the data."""

    @property
    def type(self) -> pa.DataType:
        return self.value.type

    def read(self, datums: Datums) -> pa.Array:
        return pa.repeat(self.value, len(datums))


@dataclass(frozen=True, slots=True)
class Record:
    written: Sequence[tuple[Column, int | None]]
    """Decoders in the writer's order, each with its index in `fields`; None if the reader lacks the field."""
    fields: Sequence[pa.Field]
    """Fields of the decoded column, in the reader's order."""
    constants: Sequence[tuple[Constant, int]]
    """Defaults and their indices in `fields`."""

    @property
    def type(self) -> pa.DataType:
        return pa.struct(self.fields)

    @property
    def min_bytes(self) -> int:
        return sum(column.min_bytes for column, _ in self.written)

    def columns(self, datums: Datums) -> list[pa.Array]:
        columns: list[pa.Array] = [None] * len(self.fields)
        for column, index in self.written:
            values = column.read(datums)
            if index is not None:
                columns[index] = values
        for constant, index in self.constants:
            columns[index] = constant.read(datums)
        return columns

    def read(self, datums: Datums) -> pa.Array:
        return pa.StructArray.from_arrays(self.columns(datums), fields=list(self.fields))


@dataclass(slots=True)
class Skipped:
    """Decoder that drops a recursive record that the reader lacks."""

    record: Record | None = None
    """The enclosing record of the type, or None until it is built."""
    depth: int = 0
    """Enclosing reads at present, up to `MAX_NESTING`."""
    min_bytes: int = 1
    """Assumed while the record is not built."""

    @property
    def type(self) -> pa.DataType:
        return pa.null()

    def read(self, datums: Datums) -> pa.Array:
        assert self.record is not None
        if self.depth >= MAX_NESTING:
            datums.fail(np.ones(len(datums), bool), Fault.NESTED)
        elif len(datums):
            self.depth += 1
            try:
                self.record.columns(datums)
            finally:
                self.depth -= 1
        return pa.nulls(len(datums), pa.null())


@dataclass(frozen=True, slots=True)
class Member:
    """A branch of a union, whose column is a struct of all."""

    column: Column
    """Decoder of the branch itself."""
    index: int
    """Index of this branch's field. All other fields are null."""
    type: pa.DataType
    """Struct of all branches but null."""

    @property
    def min_bytes(self) -> int:
        return self.column.min_bytes

    def read(self, datums: Datums) -> pa.Array:
        members = [pa.nulls(len(datums), field.type) for field in self.type]
        members[self.index] = self.column.read(datums)
        return pa.StructArray.from_arrays(members, fields=list(self.type))


@dataclass(frozen=True, slots=True)
class Union:
    branches: Sequence[Column | None]
    """None if the reader cannot represent one."""
    type: pa.DataType
    """The branch null is a null row."""
    min_bytes: int = 1
    """Minimum size of an encoded value in bytes: the branch's number."""

    def read(self, datums: Datums) -> pa.Array:
        chosen = datums.longs()
        datums.fail((chosen < 0) | (chosen >= len(self.branches)), Fault.BRANCH)
        index, chunks, count = np.full(len(datums), -1), [], 0
        for number, column in enumerate(self.branches):
            rows = np.flatnonzero(chosen == number)
            if not rows.size or isinstance(column, Nulls):
                continue
            if column is None:
                datums.fail(chosen == number, Fault.UNREADABLE)
                continue
            selected = datums.take(rows)
            chunks.append(column.read(selected))
            datums.put_back(rows, selected)
            index[rows] = count + np.arange(rows.size)
            count += rows.size
        if not chunks:
            return pa.nulls(len(datums), self.type)
        if len(chunks) == 1 and count == len(datums):
            return chunks[0]
        return pa.concat_arrays(chunks).take(pa.array(index, mask=index < 0))


@dataclass(frozen=True, slots=True)
class Array:
    items: Column
    """Decoder of the items."""
    item_field: pa.Field
    """Name, type and nullability of the items in the decoded list."""
    skip: Skip | None
    """Finds an item's end; None to decode all in lockstep."""
    min_bytes: int = 1
    """Minimum size of an encoded value in bytes: the end mark of an empty array."""

    @property
    def type(self) -> pa.DataType:
        return pa.list_(self.item_field)

    def read(self, datums: Datums) -> pa.Array:
        values, offsets = read_items(datums, self.items.read, pa.array([], self.items.type), self.skip)
        return pa.ListArray.from_arrays(offsets, values, type=self.type)


@dataclass(frozen=True, slots=True)
class Map:
    values: Column
    """Decoder of the values. Keys are text."""
    value_field: pa.Field
    """Name, type and nullability of the values in the decoded map."""
    skip: Skip | None
    """Finds an entry's end; None to decode all in lockstep."""
    min_bytes: int = 1
    """Minimum size of an encoded value in bytes: the end mark of an empty map."""

    @property
    def type(self) -> pa.DataType:
        return pa.map_(pa.string(), self.value_field)

    def read(self, datums: Datums) -> pa.Array:
        fields = [pa.field("key", pa.string(), nullable=False), self.value_field]

        def entry(selected: Datums) -> pa.Array:
            key_and_value = [selected.texts(pa.string()), self.values.read(selected)]
            return pa.StructArray.from_arrays(key_and_value, fields=fields)

        entries, offsets = read_items(datums, entry, pa.array([], pa.struct(fields)), self.skip)
        return pa.MapArray.from_arrays(offsets, entries.field(0), entries.field(1), type=self.type)

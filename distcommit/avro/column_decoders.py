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
        """Minimum encoded size in bytes."""

    def read(self, datums: Datums) -> pa.Array:
        """Read the next value of each datum. A faulty datum's value is arbitrary."""


@dataclass(frozen=True, slots=True)
class Numbers:
    """Decoder of int, long, dates and times into a type that may be wider."""

    type: pa.DataType
    """Column type: integer, float, date, time or timestamp."""
    is_int: bool
    """Whether values are encoded as int; otherwise as long."""
    min_bytes: int = 1
    """Minimum encoded size in bytes."""

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
    """Column type: float or double."""
    dtype: str
    """NumPy type of an encoded value, little-endian."""

    @property
    def min_bytes(self) -> int:
        return np.dtype(self.dtype).itemsize

    def read(self, datums: Datums) -> pa.Array:
        return pa.array(datums.reals(self.dtype).astype(self.type.to_pandas_dtype()))


@dataclass(frozen=True, slots=True)
class Booleans:
    min_bytes: int = 1
    """Size of an encoded value in bytes."""

    @property
    def type(self) -> pa.DataType:
        return pa.bool_()

    def read(self, datums: Datums) -> pa.Array:
        return pa.array(datums.booleans())


@dataclass(frozen=True, slots=True)
class Texts:
    """Decoder of bytes and string."""

    type: pa.DataType
    """Column type: binary or string."""
    min_bytes: int = 1
    """Minimum encoded size in bytes."""

    def read(self, datums: Datums) -> pa.Array:
        return datums.texts(self.type)


@dataclass(frozen=True, slots=True)
class Fixed:
    type: pa.DataType
    """Column type: fixed-size binary of an encoded value's size."""

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
    """Size of a value in bytes; None if a length precedes each value."""

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
    """Minimum encoded size in bytes."""

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
    """A null takes no bytes."""

    @property
    def type(self) -> pa.DataType:
        return pa.null()

    def read(self, datums: Datums) -> pa.Array:
        return pa.nulls(len(datums), self.type)


@dataclass(frozen=True, slots=True)
class Constant:
    """Decoder of a field that the writer's schema lacks. Every row gets the field's default."""

    value: pa.Scalar
    """The field's default."""
    min_bytes: int = 0
    """The default takes no bytes in the data."""

    @property
    def type(self) -> pa.DataType:
        return self.value.type

    def read(self, datums: Datums) -> pa.Array:
        return pa.repeat(self.value, len(datums))


@dataclass(frozen=True, slots=True)
class Record:
    written: Sequence[tuple[Column, int | None]]
    """Decoders in the writer's order, each with its index in `fields`, or None if the reader lacks the field."""
    fields: Sequence[pa.Field]
    """Fields of the decoded column, in the reader's order."""
    constants: Sequence[tuple[Constant, int]]
    """Fields that the writer lacks, with their indices in `fields`."""

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
    """Decoder that drops a recursive record in a field that the reader lacks."""

    record: Record | None = None
    """Decoder of the record type, which encloses this one; None until it is built."""
    depth: int = 0
    """Number of nested reads in progress, at most `MAX_NESTING`."""
    min_bytes: int = 1
    """Minimum encoded size in bytes, assumed because `record` is not built yet."""

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
    """Decoder of one branch of a union into a struct of all branches."""

    column: Column
    """Decoder of the branch itself."""
    index: int
    """Index of this branch's field. All other fields are null."""
    type: pa.DataType
    """Struct with a field for each branch except null."""

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
    """Decoders by branch number; None for a branch that the reader cannot represent."""
    type: pa.DataType
    """Column type. The null branch is a null row."""
    min_bytes: int = 1
    """Minimum encoded size in bytes."""

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
    """Function that finds an item's end. If None, all items are decoded in lockstep."""
    min_bytes: int = 1
    """Minimum encoded size in bytes."""

    @property
    def type(self) -> pa.DataType:
        return pa.list_(self.item_field)

    def read(self, datums: Datums) -> pa.Array:
        values, offsets = read_items(datums, self.items.read, pa.array([], self.items.type), self.skip)
        return pa.ListArray.from_arrays(offsets, values, type=self.type)


@dataclass(frozen=True, slots=True)
class Map:
    values: Column
    """Decoder of the values. Keys are strings."""
    value_field: pa.Field
    """Name, type and nullability of the values in the decoded map."""
    skip: Skip | None
    """Function that finds an entry's end. If None, all entries are decoded in lockstep."""
    min_bytes: int = 1
    """Minimum encoded size in bytes."""

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

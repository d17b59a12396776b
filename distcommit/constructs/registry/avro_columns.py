"""Columns out of Avro datums: one class for each way in which a value is read. `avro_schema` puts them together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa

from distcommit.constructs.registry.avro_datums import Datums, Integers, Wrong
from distcommit.constructs.registry.schema_bounds import MAX_NESTING

_MS_OF_DAY = 86_400_000


class Column(Protocol):
    """Reads the next value of each datum."""

    @property
    def type(self) -> pa.DataType:
        """The type of what is read."""

    @property
    def least_bytes(self) -> int:
        """How many bytes a value takes at least."""

    def read(self, datums: Datums) -> pa.Array:
        """A value for each of them; where one is wrong, anything or null."""


@dataclass(frozen=True, slots=True)
class Numbers:
    """Numbers that an Avro int or long holds, as they are or wider. `is_int`: whether 32 bits are the most."""

    type: pa.DataType
    is_int: bool
    least_bytes: int = 1

    def read(self, datums: Datums) -> pa.Array:
        values = datums.ints() if self.is_int else datums.longs()
        if pa.types.is_floating(self.type):
            return pa.array(values.astype(self.type.to_pandas_dtype()))
        if pa.types.is_time(self.type):
            beyond = (values < 0) | (values >= (_MS_OF_DAY if self.type == pa.time32("ms") else _MS_OF_DAY * 1000))
            datums.fail(beyond, Wrong.TIME)
            values = np.where(beyond, 0, values)
        held = np.ascontiguousarray(values, np.int32 if self.type.bit_width == 32 else np.int64)
        return pa.Array.from_buffers(self.type, len(held), [None, pa.py_buffer(held)])


@dataclass(frozen=True, slots=True)
class Reals:
    """An Avro float or double, as it is or wider."""

    type: pa.DataType
    kind: str

    @property
    def least_bytes(self) -> int:
        return np.dtype(self.kind).itemsize

    def read(self, datums: Datums) -> pa.Array:
        return pa.array(datums.reals(self.kind).astype(self.type.to_pandas_dtype()))


@dataclass(frozen=True, slots=True)
class Booleans:
    """Booleans."""

    least_bytes: int = 1

    @property
    def type(self) -> pa.DataType:
        return pa.bool_()

    def read(self, datums: Datums) -> pa.Array:
        return pa.array(datums.booleans())


@dataclass(frozen=True, slots=True)
class Texts:
    """Avro bytes or string, as either."""

    type: pa.DataType
    least_bytes: int = 1

    def read(self, datums: Datums) -> pa.Array:
        return datums.texts(self.type)


@dataclass(frozen=True, slots=True)
class Fixed:
    type: pa.DataType

    @property
    def least_bytes(self) -> int:
        return int(self.type.byte_width)

    def read(self, datums: Datums) -> pa.Array:
        held = np.ascontiguousarray(datums.fixed(self.type.byte_width))
        return pa.Array.from_buffers(self.type, len(held), [None, pa.py_buffer(held)])


@dataclass(frozen=True, slots=True)
class Decimals:
    """A decimal of that many bytes; None: each says it."""

    type: pa.DataType
    size: int | None

    @property
    def least_bytes(self) -> int:
        return 1 if self.size is None else self.size

    def read(self, datums: Datums) -> pa.Array:
        return datums.decimals(self.type, self.size)


@dataclass(frozen=True, slots=True)
class Symbols:
    """An enum as text. `symbols`: for each number the reader's symbol, or None if it has none."""

    symbols: tuple[str | None, ...]
    least_bytes: int = 1

    @property
    def type(self) -> pa.DataType:
        return pa.string()

    def read(self, datums: Datums) -> pa.Array:
        values = datums.ints()
        known = np.array([symbol is not None for symbol in self.symbols] + [False])
        index = np.where((values < 0) | (values >= len(self.symbols)), len(self.symbols), values)
        datums.fail(~known[index], Wrong.SYMBOL)
        return pa.array([*self.symbols, None], pa.string()).take(pa.array(index))


@dataclass(frozen=True, slots=True)
class Nulls:
    """Nulls, which take no bytes."""

    least_bytes: int = 0

    @property
    def type(self) -> pa.DataType:
        return pa.null()

    def read(self, datums: Datums) -> pa.Array:
        return pa.nulls(len(datums), self.type)


@dataclass(frozen=True, slots=True)
class Constant:
    """What the reader's schema says for a field that the writer has not."""

    value: pa.Scalar
    least_bytes: int = 0

    @property
    def type(self) -> pa.DataType:
        return self.value.type

    def read(self, datums: Datums) -> pa.Array:
        return pa.repeat(self.value, len(datums))


@dataclass(frozen=True, slots=True)
class Record:
    """A record.

    Args:
        written: what is read, in the writer's order, and the index of each in `fields`; None: it is passed over.
        fields: of the reader.
        constants: by index, the fields that the writer has not.
    """

    written: Sequence[tuple[Column, int | None]]
    fields: Sequence[pa.Field]
    constants: Sequence[tuple[Constant, int]]

    @property
    def type(self) -> pa.DataType:
        return pa.struct(self.fields)

    @property
    def least_bytes(self) -> int:
        return sum(column.least_bytes for column, _ in self.written)

    def columns(self, datums: Datums) -> list[pa.Array]:
        """The value of each field."""
        found: list[pa.Array] = [None] * len(self.fields)
        for column, index in self.written:
            values = column.read(datums)
            if index is not None:
                found[index] = values
        for constant, index in self.constants:
            found[index] = constant.read(datums)
        return found

    def read(self, datums: Datums) -> pa.Array:
        return pa.StructArray.from_arrays(self.columns(datums), fields=list(self.fields))


@dataclass(slots=True)
class Skipped:
    """A record that holds itself, in a field that the reader has not: it is walked, and nothing is made of it.

    Attributes:
        record: what reads it; None until it is whole.
        depth: how many of it stand in one another where the reading is.
    """

    record: Record | None = None
    depth: int = 0
    least_bytes: int = 1

    @property
    def type(self) -> pa.DataType:
        return pa.null()

    def read(self, datums: Datums) -> pa.Array:
        assert self.record is not None
        if self.depth >= MAX_NESTING:
            datums.fail(np.ones(len(datums), bool), Wrong.NESTED)
        elif len(datums):
            self.depth += 1
            try:
                self.record.columns(datums)
            finally:
                self.depth -= 1
        return pa.nulls(len(datums), pa.null())


@dataclass(frozen=True, slots=True)
class Member:
    """One branch of a union of several types: a struct that has a field for each, all others null."""

    column: Column
    index: int
    type: pa.DataType

    @property
    def least_bytes(self) -> int:
        return self.column.least_bytes

    def read(self, datums: Datums) -> pa.Array:
        held = [pa.nulls(len(datums), field.type) for field in self.type]
        held[self.index] = self.column.read(datums)
        return pa.StructArray.from_arrays(held, fields=list(self.type))


@dataclass(frozen=True, slots=True)
class Union:
    """A union. `branches`: a column for each; None if the reader can't take it."""

    branches: Sequence[Column | None]
    type: pa.DataType
    least_bytes: int = 1

    def read(self, datums: Datums) -> pa.Array:
        chosen = datums.longs()
        datums.fail((chosen < 0) | (chosen >= len(self.branches)), Wrong.BRANCH)
        index, pieces, reached = np.full(len(datums), -1), [], 0
        for number, column in enumerate(self.branches):
            which = np.flatnonzero(chosen == number)
            if not which.size or isinstance(column, Nulls):
                continue
            if column is None:
                datums.fail(chosen == number, Wrong.UNREADABLE)
                continue
            taken = datums.take(which)
            pieces.append(column.read(taken))
            datums.put_back(which, taken)
            index[which] = reached + np.arange(which.size)
            reached += which.size
        if not pieces:
            return pa.nulls(len(datums), self.type)
        if len(pieces) == 1 and reached == len(datums):
            return pieces[0]
        return pa.concat_arrays(pieces).take(pa.array(index, mask=index < 0))


def _items(datums: Datums, read: Callable[[Datums], pa.Array], none: pa.Array) -> tuple[pa.Array, pa.Array]:
    """The items of an array or map each, those of a datum together, and the offsets that part them.

    The first items of all datums are read, then their second ones, and so on. Each takes a byte at least, so that no
    number of items is believed that the datum can't hold.
    """
    left, found = np.zeros(len(datums), np.int64), np.zeros(len(datums), np.int64)
    pieces: list[pa.Array] = [none]
    owners: list[Integers] = [np.empty(0, np.int64)]
    active = np.flatnonzero(~datums.failed)
    while active.size:
        at_block = active[left[active] == 0]
        if at_block.size:
            left[at_block] = _block_sizes(datums, at_block)
            active = active[left[active] > 0]
        taken = datums.take(active)
        pieces.append(read(taken))
        datums.put_back(active, taken)
        owners.append(active)
        found[active] += 1
        left[active] -= 1
        active = active[~taken.failed]
    order = np.argsort(np.concatenate(owners), kind="stable")
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(found)])
    return pa.concat_arrays(pieces).take(pa.array(order)), pa.array(offsets, pa.int32())


def _block_sizes(datums: Datums, which: Integers) -> Integers:
    """How many items the next block has; 0 at the end, and where something is wrong."""
    taken = datums.take(which)
    count = taken.longs()
    with_size = np.flatnonzero(count < 0)
    if with_size.size:
        sized = taken.take(with_size)
        sized.longs()
        taken.put_back(with_size, sized)
    count = np.abs(count)
    taken.fail((count < 0) | (count > taken.end - taken.position), Wrong.LENGTH)
    datums.put_back(which, taken)
    return np.where(taken.failed, 0, count)


@dataclass(frozen=True, slots=True)
class Array:
    items: Column
    item_field: pa.Field
    least_bytes: int = 1

    @property
    def type(self) -> pa.DataType:
        return pa.list_(self.item_field)

    def read(self, datums: Datums) -> pa.Array:
        values, offsets = _items(datums, self.items.read, pa.array([], self.items.type))
        return pa.ListArray.from_arrays(offsets, values, type=self.type)


@dataclass(frozen=True, slots=True)
class Map:
    values: Column
    value_field: pa.Field
    least_bytes: int = 1

    @property
    def type(self) -> pa.DataType:
        return pa.map_(pa.string(), self.value_field)

    def read(self, datums: Datums) -> pa.Array:
        fields = [pa.field("key", pa.string(), nullable=False), self.value_field]

        def entry(taken: Datums) -> pa.Array:
            held = [taken.texts(pa.string()), self.values.read(taken)]
            return pa.StructArray.from_arrays(held, fields=fields)

        entries, offsets = _items(datums, entry, pa.array([], pa.struct(fields)))
        return pa.MapArray.from_arrays(offsets, entries.field(0), entries.field(1), type=self.type)

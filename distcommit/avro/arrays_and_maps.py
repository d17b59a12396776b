"""Reader of arrays and maps (Apache Avro 1.12 specification, Binary Encoding)."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa

from distcommit.avro.lockstep_decoding import Datums, Fault, Integers, Skip, long_at

MIN_LANES = 64
"""Minimum number of datums for lockstep decoding. If fewer are left, their items are separated first."""
_MAX_WALKED = 65_536
"""Maximum number of separated items that are decoded together."""


def read_items(
    datums: Datums, read: Callable[[Datums], pa.Array], empty: pa.Array, skip: Skip | None
) -> tuple[pa.Array, pa.Array]:
    """Read the array or map of each datum. Return all items in order, and the offsets where each datum's items begin.

    All first items are read together, then all second items, until fewer than `MIN_LANES` datums are left. If
    `skip` is given, it separates their items, so that the time does not depend on the longest array.
    """
    items_left, counts = np.zeros(len(datums), np.int64), np.zeros(len(datums), np.int64)
    chunks: list[pa.Array] = [empty]
    owners: list[Integers] = [np.empty(0, np.int64)]
    active = np.flatnonzero(~datums.failed)
    while active.size >= (MIN_LANES if skip is not None else 1):
        at_block = active[items_left[active] == 0]
        if at_block.size:
            items_left[at_block] = _block_sizes(datums, at_block)
            active = active[items_left[active] > 0]
        selected = datums.take(active)
        chunks.append(read(selected))
        datums.put_back(active, selected)
        owners.append(active)
        counts[active] += 1
        items_left[active] -= 1
        active = active[~selected.failed]
    if skip is not None:
        for items, indices in _walked(datums, active, items_left, skip):
            chunks.append(read(items))
            owners.append(indices)
            np.add.at(counts, indices, 1)
    order = np.argsort(np.concatenate(owners), kind="stable")
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])
    return pa.concat_arrays(chunks).take(pa.array(order)), pa.array(offsets, pa.int32())


def _walked(datums: Datums, active: Integers, items_left: Integers, skip: Skip) -> Iterator[tuple[Datums, Integers]]:
    """Yield the remaining items in groups, each with the indices of the items' datums.

    At the end, each datum's position is behind its array, or at the datum's end if an item is faulty.
    """
    begins, ends, indices, faults = list[int](), list[int](), list[int](), list[tuple[int, Fault]]()
    for index in active.tolist():
        body, position, has_ended = datums.data.data[: datums.end[index]], int(datums.position[index]), False
        remaining = int(items_left[index])
        while not has_ended:
            try:
                while len(begins) < _MAX_WALKED and not has_ended:
                    if not remaining:
                        remaining, position = _next_block(body, position)
                        has_ended = not remaining
                        continue
                    begins.append(position)
                    indices.append(index)
                    position = skip(body, position)
                    if position > len(body):
                        raise IndexError
                    ends.append(position)
                    remaining -= 1
            except (IndexError, ValueError) as error:
                has_ended = True
                faults.append((index, Fault.TOO_SHORT if isinstance(error, IndexError) else Fault.LENGTH))
                ends += [len(body)] * (len(begins) - len(ends))
            if len(begins) >= _MAX_WALKED:
                yield _group(datums, begins, ends, indices)
                begins, ends, indices = [], [], []
                has_ended = has_ended or bool(datums.faults[datums.row[index]])
        datums.position[index] = position
    if begins:
        yield _group(datums, begins, ends, indices)
    for index, fault in faults:
        datums.fail(np.arange(len(datums)) == index, fault)
    datums.position = np.where(datums.failed, datums.end, datums.position)


def _group(datums: Datums, begins: list[int], ends: list[int], indices: list[int]) -> tuple[Datums, Integers]:
    owners = np.array(indices, np.int64)
    items = Datums(datums.data, np.array(begins), np.array(ends), datums.row[owners], datums.faults)
    return items, owners


def _next_block(body: memoryview, position: int) -> tuple[int, int]:
    count, position = long_at(body, position)
    if count < 0:
        _, position = long_at(body, position)
    if abs(count) > len(body) - position:
        raise ValueError("a count of items is larger than the rest of the datum")
    return abs(count), position


def _block_sizes(datums: Datums, rows: Integers) -> Integers:
    selected = datums.take(rows)
    count = selected.longs()
    with_size = np.flatnonzero(count < 0)
    if with_size.size:
        sized = selected.take(with_size)
        sized.longs()
        selected.put_back(with_size, sized)
    count = np.abs(count)
    selected.fail((count < 0) | (count > selected.end - selected.position), Fault.LENGTH)
    datums.put_back(rows, selected)
    return np.where(selected.failed, 0, count)

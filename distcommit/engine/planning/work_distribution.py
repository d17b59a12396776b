"""Distribution of reading over tasks by size; commits stay with the owner of a bucket.

A partition with much more to read lends ranges of work units. A range is two offsets into the load of a bucket's plan,
so the driver needs one number for each bucket.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from distcommit.core.work_units import DatasetPlan, WorkUnit
from distcommit.stores.state.run_plans import LentUnits, Manifest

MAX_REPORTED_UNITS = 64
"""Maximum number of large work units that a partition reports."""
_LARGEST_LOAD = 1 << 40
_TOLERANCE_DIVISOR = 8
"""A partition lends above 9/8 of its share, because borrowers must poll its buckets."""


def load_of(unit: WorkUnit) -> int:
    """Return a work unit's size + 1, limited so that sums fit into 64 bits."""
    return min(unit.size, _LARGEST_LOAD) + 1


@dataclass(slots=True)
class Loads:
    """Load that a partition has to read.

    Attributes:
        by_bucket: sum of `load_of` by bucket.
        largest: heap of (load, bucket, work unit id), at most `MAX_REPORTED_UNITS`.
    """

    by_bucket: dict[int, int] = field(default_factory=dict)
    largest: list[tuple[int, int, str]] = field(default_factory=list)

    def add(self, bucket: int, units: Iterable[WorkUnit]) -> None:
        for unit in units:
            entry = (load_of(unit), bucket, unit.work_unit_id)
            self.by_bucket[bucket] = self.by_bucket.get(bucket, 0) + entry[0]
            if len(self.largest) < MAX_REPORTED_UNITS:
                heapq.heappush(self.largest, entry)
            elif entry > self.largest[0]:
                heapq.heapreplace(self.largest, entry)


def pack_large_units(large: Sequence[tuple[int, int, str]], tasks: int) -> tuple[tuple[tuple[int, str], ...], ...]:
    """Distribute work units, sorted largest first, each to the task with the least load."""
    heap = [(0, task) for task in range(min(len(large), tasks))]
    groups: list[list[tuple[int, str]]] = [[] for _ in heap]
    for size, bucket, unit_id in large:
        load, task = heapq.heappop(heap)
        groups[task].append((bucket, unit_id))
        heapq.heappush(heap, (load + size, task))
    return tuple(tuple(group) for group in groups)


def lent_ranges(loads: Mapping[int, int], partitions: int, largest: int) -> tuple[LentUnits, ...]:
    """Return the ranges that are read by another partition than the owner of the bucket. Costs O(buckets + partitions).

    The share of a partition is the mean load. A partition whose load exceeds its share by more than 1/8 keeps work
    units up to its share, from its first bucket on, and lends the others. Partitions below their shares take them, up
    to their shares. In the end each partition is at most 1/8, or one work unit, above its share.

    Args:
        loads: load of each bucket, without the work units of large tasks.
        largest: load of the largest of these work units; a share is never smaller.
    """
    load_of_partition: list[int] = [0] * partitions
    for bucket, load in loads.items():
        load_of_partition[bucket % partitions] += load
    share = max(-(-sum(load_of_partition) // partitions), largest)
    excess = list(_excess_ranges(loads, load_of_partition, share))[::-1]
    ranges: list[LentUnits] = []
    for load, partition in sorted((load, partition) for partition, load in enumerate(load_of_partition)):
        free_load = share - load
        while excess and free_load > 0:
            bucket, begin, end = excess.pop()
            range_end = min(end, begin + free_load)
            ranges.append(LentUnits(partition, bucket, begin, range_end))
            free_load -= range_end - begin
            if range_end < end:
                excess.append((bucket, range_end, end))
    return tuple(ranges)


def _excess_ranges(
    loads: Mapping[int, int], load_of_partition: Sequence[int], share: int
) -> Iterator[tuple[int, int, int]]:
    kept_load = [0] * len(load_of_partition)
    for bucket in sorted(loads):
        load, owner = loads[bucket], bucket % len(load_of_partition)
        if load_of_partition[owner] <= share + share // _TOLERANCE_DIVISOR:
            continue
        keep = min(load, share - kept_load[owner])
        kept_load[owner] += keep
        if keep < load:
            yield bucket, keep, load


def buckets_read(manifest: Manifest, task: int, owned: Iterable[int], partitions: int) -> list[int]:
    """Return the buckets of which a task may read work units. Buckets of one owner are adjacent, because they share a
    file.

    Args:
        task: number of the ingest task.
        owned: buckets of the task's partition; empty for a task of large work units.
    """
    if task < len(manifest.large_units):
        lent_buckets, own_buckets = {bucket for bucket, _ in manifest.large_units[task]}, list[int]()
    else:
        partition = task - len(manifest.large_units)
        lent_buckets = {part.bucket for part in manifest.lent_ranges if part.partition == partition}
        own_buckets = list(owned)
    return [*own_buckets, *sorted(lent_buckets, key=lambda bucket: (bucket % partitions, bucket))]


def units_read(
    manifest: Manifest,
    task: int,
    bucket: int,
    plans: Iterable[DatasetPlan],
    partitions: int,
    *,
    in_turn: bool = False,
) -> list[WorkUnit]:
    """Return a bucket's work units for a task. Exactly one task reads each work unit.

    With `in_turn`, tasks take work units in turn, by share, so that finished ones have few gaps.
    """
    units = [unit for plan in plans for unit in plan.work_units]
    if task < len(manifest.large_units):
        own_ids = {unit_id for _, unit_id in manifest.large_units[task]}
        return [unit for unit in units if unit.work_unit_id in own_ids]
    large = {unit_id for group in manifest.large_units for _, unit_id in group}
    small = [unit for unit in units if unit.work_unit_id not in large]
    parts = [part for part in manifest.lent_ranges if part.bucket == bucket]
    readers = (_readers_in_turn if in_turn else _reading_partitions)(small, parts, bucket % partitions)
    return [unit for unit, reader in zip(small, readers, strict=True) if reader == task - len(manifest.large_units)]


def _reading_partitions(units: Sequence[WorkUnit], parts: Iterable[LentUnits], owner: int) -> Iterator[int]:
    """Yield each work unit's partition, whose range contains its start, or else the owner."""
    offset, excess = 0, sorted(parts, key=lambda part: part.begin, reverse=True)
    for unit in units:
        while excess and excess[-1].end <= offset:
            excess.pop()
        yield excess[-1].partition if excess and excess[-1].begin <= offset else owner
        offset += load_of(unit)


def _readers_in_turn(units: Sequence[WorkUnit], parts: Sequence[LentUnits], owner: int) -> Iterator[int]:
    """Yield for each work unit the partition that is furthest behind its share."""
    shares = Counter({owner: sum(map(load_of, units))})
    for part in parts:
        shares[part.partition] += part.end - part.begin
        shares[owner] -= part.end - part.begin
    shares = +shares
    read = Counter[int]()
    for unit in units:
        load = load_of(unit)
        reader = min(shares, key=lambda partition: ((read[partition] + load) / shares[partition], partition))
        read[reader] += load
        yield reader

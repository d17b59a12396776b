"""How reading is shared out over the tasks of an ingest job: by size, whatever bucket it belongs to.

Committing stays with a bucket's owner; reading does too, as long as no partition has much more of it than others. What
is lent is named by what lies before it in its bucket's plan, so that the driver needs one number for each bucket.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from distcommit.core.work import DatasetPlan, WorkUnit
from distcommit.stores.state.plans import Lent, Manifest

LARGEST_KEPT = 64
"""How many work units a partition may name to the driver."""
_LARGEST_LOAD = 1 << 40
_SLACK = 8
"""A partition reads up to an eighth more than its share rather than have others poll its buckets, too."""


def load_of(unit: WorkUnit) -> int:
    """What a work unit counts where reading is shared out. One without records is work, too; sums stay within 64 bits,
    whatever a source says."""
    return min(unit.size, _LARGEST_LOAD) + 1


@dataclass(slots=True)
class Loads:
    """What there is to read: in all by bucket, and the largest work units (load, bucket, id), as a heap."""

    by_bucket: dict[int, int] = field(default_factory=dict)
    largest: list[tuple[int, int, str]] = field(default_factory=list)

    def add(self, bucket: int, units: Iterable[WorkUnit]) -> None:
        """Takes in work units of a bucket."""
        for unit in units:
            entry = (load_of(unit), bucket, unit.work_unit_id)
            self.by_bucket[bucket] = self.by_bucket.get(bucket, 0) + entry[0]
            if len(self.largest) < LARGEST_KEPT:
                heapq.heappush(self.largest, entry)
            elif entry > self.largest[0]:
                heapq.heapreplace(self.largest, entry)


def packed(large: Sequence[tuple[int, int, str]], tasks: int) -> tuple[tuple[tuple[int, str], ...], ...]:
    """Large work units, the largest first, as at most so many tasks have them: worst-fit decreasing."""
    heap = [(0, task) for task in range(min(len(large), tasks))]
    groups: list[list[tuple[int, str]]] = [[] for _ in heap]
    for size, bucket, unit_id in large:
        load, task = heapq.heappop(heap)
        groups[task].append((bucket, unit_id))
        heapq.heappush(heap, (load + size, task))
    return tuple(tuple(group) for group in groups)


def lent(loads: Mapping[int, int], partitions: int, largest: int) -> tuple[Lent, ...]:
    """What other partitions than its bucket's owner read. Costs O(buckets + partitions).

    A partition that has more than an eighth above its share keeps its share, from its first bucket on, and the others
    are filled up to theirs: each then has at most an eighth, or one work unit, above it.

    Args:
        loads: by bucket, what is to be read of it, without what large tasks read.
        partitions: how many there are.
        largest: the load of the largest work unit among these; a share is no less than that.
    """
    of: list[int] = [0] * partitions
    for bucket, load in loads.items():
        of[bucket % partitions] += load
    share = max(-(-sum(of) // partitions), largest)
    left = list(_above(loads, of, share))[::-1]
    found: list[Lent] = []
    for load, partition in sorted((load, partition) for partition, load in enumerate(of)):
        room = share - load
        while left and room > 0:
            bucket, begin, end = left.pop()
            cut = min(end, begin + room)
            found.append(Lent(partition, bucket, begin, cut))
            room -= cut - begin
            if cut < end:
                left.append((bucket, cut, end))
    return tuple(found)


def _above(loads: Mapping[int, int], of: Sequence[int], share: int) -> Iterator[tuple[int, int, int]]:
    """What partitions that have too much give away: parts of buckets."""
    kept = [0] * len(of)
    for bucket in sorted(loads):
        load, owner = loads[bucket], bucket % len(of)
        if of[owner] <= share + share // _SLACK:
            continue
        keep = min(load, share - kept[owner])
        kept[owner] += keep
        if keep < load:
            yield bucket, keep, load


def buckets_read(manifest: Manifest, task: int, owned: Iterable[int], partitions: int) -> list[int]:
    """The buckets whose work units a task may read, those of one owner together, as they share a file. `owned`: those
    of its partition, if it has one; `partitions`: how many there are."""
    if task < len(manifest.large):
        found, mine = {bucket for bucket, _ in manifest.large[task]}, list[int]()
    else:
        partition = task - len(manifest.large)
        found, mine = {part.bucket for part in manifest.lent if part.partition == partition}, list(owned)
    return [*mine, *sorted(found, key=lambda bucket: (bucket % partitions, bucket))]


def units_read(
    manifest: Manifest, task: int, bucket: int, plans: Iterable[DatasetPlan], partitions: int
) -> list[WorkUnit]:
    """The work units of a bucket that a task reads. Each is read by exactly one task."""
    units = [unit for plan in plans for unit in plan.work_units]
    if task < len(manifest.large):
        mine = {unit_id for _, unit_id in manifest.large[task]}
        return [unit for unit in units if unit.work_unit_id in mine]
    large = {unit_id for group in manifest.large for _, unit_id in group}
    small = [unit for unit in units if unit.work_unit_id not in large]
    readers = _readers(small, [part for part in manifest.lent if part.bucket == bucket], bucket % partitions)
    return [unit for unit, reader in zip(small, readers, strict=True) if reader == task - len(manifest.large)]


def _readers(units: Sequence[WorkUnit], parts: Iterable[Lent], owner: int) -> Iterator[int]:
    """Who reads each work unit: who has the part that it begins in."""
    begun, left = 0, sorted(parts, key=lambda part: part.begin, reverse=True)
    for unit in units:
        while left and left[-1].end <= begun:
            left.pop()
        yield left[-1].partition if left and left[-1].begin <= begun else owner
        begun += load_of(unit)

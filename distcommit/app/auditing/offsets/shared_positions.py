"""Detects source positions that two datasets have published, so that their records exist twice.

A position is a partition and an offset in an offset space. The URN of the dataset and the incarnation in the footer
identify the offset space (see `core.interfaces.provenance.Provenance`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import msgspec

from distcommit.core.interfaces.provenance import Provenance
from distcommit.sinks.files.offset_sets import OffsetSets


class SharedRange(msgspec.Struct, frozen=True):
    """A range of one source partition that two datasets have published.

    Attributes:
        datasets: URNs of the two datasets.
        partition: partition of the source.
        low: first offset.
        high: end of the offsets (exclusive).
        incarnation: offset space (a Kafka topic id); empty if no file names it.
    """

    datasets: tuple[str, str]
    partition: str
    low: int
    high: int
    incarnation: str = ""


@dataclass(frozen=True, slots=True)
class _Published:
    urn: str
    incarnation: str
    offsets: OffsetSets


@dataclass(slots=True)
class SharedPositions:
    """The published offsets of datasets by offset space. They are added dataset by dataset.

    Attributes:
        provenance: determines which datasets have the same offset space.
    """

    provenance: Provenance
    _by_name: dict[str, list[_Published]] = field(default_factory=dict)

    def add(self, urn: str, by_incarnation: dict[str, OffsetSets]) -> tuple[int, Iterator[SharedRange]]:
        """Add the offsets of a dataset. Return the count and the ranges that earlier datasets have published too."""
        count, overlaps = 0, list[tuple[_Published, _Published, OffsetSets]]()
        published_ranges = [_Published(urn, incarnation, offsets) for incarnation, offsets in by_incarnation.items()]
        for published in published_ranges:
            twice = OffsetSets()
            for other in self._overlapping(published):
                shared = other.offsets.intersection(published.offsets)
                if shared.count():
                    twice = twice.union(shared)
                    overlaps.append((other, published, shared))
            count += twice.count()
        for published in published_ranges:
            for name in self._names(published):
                self._by_name.setdefault(name, []).append(published)
        return count, (shared_range for each in overlaps for shared_range in _ranges(*each))

    def _overlapping(self, published: _Published) -> list[_Published]:
        """Return earlier published offsets that may have the same offset space."""
        overlapping: dict[int, _Published] = {}
        for name in self._names(published):
            for other in self._by_name.get(name, ()):
                if not is_other_incarnation(other.incarnation, published.incarnation):
                    overlapping[id(other)] = other
        return list(overlapping.values())

    def _names(self, published: _Published) -> list[str]:
        names = [f"space {self.provenance.offset_space_of(published.urn)}"]
        if self.provenance.unique_incarnations and published.incarnation:
            names.append(f"incarnation {published.incarnation}")
        return names


def is_other_incarnation(incarnation: str, current: str) -> bool:
    """Return whether two incarnations are known and differ. Older files, and watermarks set by operators, have none."""
    return bool(incarnation and current) and incarnation != current


def _ranges(first: _Published, second: _Published, shared: OffsetSets) -> Iterator[SharedRange]:
    for partition in shared.partitions():
        for low, high in shared.ranges(partition):
            incarnation = first.incarnation or second.incarnation
            yield SharedRange((first.urn, second.urn), partition, low, high, incarnation)

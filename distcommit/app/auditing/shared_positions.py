"""Source positions that two datasets have published: each of them holds a record once, and together they hold it twice.

A position is what the files say: the source's partition and offset, and the thing that they count in, which is named by
the dataset's URN and by the incarnation in the footer (see `core.interfaces.source.Provenance`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import msgspec

from distcommit.core.provenance import Provenance
from distcommit.sinks.files.offsets import OffsetSets


class SharedRange(msgspec.Struct, frozen=True):
    """Offsets [low, high) of one source partition that two datasets have published. `incarnation`: what they count in
    (a Kafka topic id), as far as a file says."""

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
    """Takes in what one dataset after the other has published, and keeps a set of offsets for each source partition."""

    provenance: Provenance
    _by_name: dict[str, list[_Published]] = field(default_factory=dict)

    def add(self, urn: str, by_incarnation: dict[str, OffsetSets]) -> tuple[int, Iterator[SharedRange]]:
        """Adds a dataset's offsets; how many of them datasets before it have published too, and where."""
        count, found = 0, list[tuple[_Published, _Published, OffsetSets]]()
        mine = [_Published(urn, incarnation, offsets) for incarnation, offsets in by_incarnation.items()]
        for published in mine:
            twice = OffsetSets()
            for other in self._others(published):
                shared = other.offsets.intersection(published.offsets)
                if shared.count():
                    twice = twice.union(shared)
                    found.append((other, published, shared))
            count += twice.count()
        for published in mine:
            for name in self._names(published):
                self._by_name.setdefault(name, []).append(published)
        return count, (shared_range for each in found for shared_range in _ranges(*each))

    def _others(self, published: _Published) -> list[_Published]:
        """What earlier datasets published that may count in the same thing: nothing says that it surely does not."""
        found: dict[int, _Published] = {}
        for name in self._names(published):
            for other in self._by_name.get(name, ()):
                if not is_other(other.incarnation, published.incarnation):
                    found[id(other)] = other
        return list(found.values())

    def _names(self, published: _Published) -> list[str]:
        names = [f"thing {self.provenance.thing_of(published.urn)}"]
        if self.provenance.unique_incarnations and published.incarnation:
            names.append(f"incarnation {published.incarnation}")
        return names


def is_other(incarnation: str, current: str) -> bool:
    """Whether these are surely two; older files and watermarks set by hand do not name theirs."""
    return bool(incarnation and current) and incarnation != current


def _ranges(first: _Published, second: _Published, shared: OffsetSets) -> Iterator[SharedRange]:
    for partition in shared.partitions():
        for low, high in shared.ranges(partition):
            incarnation = first.incarnation or second.incarnation
            yield SharedRange((first.urn, second.urn), partition, low, high, incarnation)

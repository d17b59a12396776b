"""The source offsets that rows cover."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
import pyarrow as pa
from msgspec.structs import replace

from distcommit.core.interfaces.ledger import Covered
from distcommit.core.interfaces.sink import Filtered, Origin, Origins, SinkWriter
from distcommit.core.support.decoding import converted
from distcommit.core.work_units import SkippedRange
from distcommit.sinks.files.offset_sets import OffsetSets, offsets_of, parsed


class OffsetCoverage:
    """Collector of the source offsets of rows, filtered records and holes."""

    def __init__(self, origin: Origin) -> None:
        self._origin = origin
        self._offsets, self._holes = OffsetSets(), OffsetSets()
        self._ranges: list[SkippedRange] = []
        self._filtered: dict[str, str] = {}
        self.rows = 0

    def add(self, batch: pa.RecordBatch, origins: Origins | None) -> None:
        self.rows += batch.num_rows
        provenance = self._origin.provenance
        if provenance is None:
            return
        if origins is None:
            self._offsets.add(batch, provenance)
        else:
            self._offsets.add_origins(origins, provenance)

    def note_holes(self, holes: Iterable[SkippedRange]) -> None:
        ranges = list(holes)
        self._ranges += ranges
        self._holes.update(offsets_of(ranges))

    def note_filtered(self, filtered: Filtered) -> bool:
        """Add offsets of filtered records. If no row was written, add none and return False, because there is no commit
        info."""
        if not (self.rows and filtered.positions):
            return False
        self._filtered = dict(filtered.positions)
        return True

    @property
    def holes_left(self) -> Sequence[SkippedRange]:
        """The holes for `Prepared.holes`; empty if a commit info contains them."""
        return () if self.rows else self._ranges

    def covered(self) -> dict[str, Any]:
        """Return the coverage as JSON data for a commit info."""
        coverage = Covered(
            incarnation=self._origin.incarnation,
            branches=tuple(self._origin.branches),
            offsets=_text(self._offsets),
            holes=_text(self._holes),
            filtered=self._filtered,
            rows=self.rows,
            makes_several=self._origin.makes_several,
        )
        plain: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(coverage))  # with lists, not tuples
        return plain


class CoveringWriter(SinkWriter):
    """A writer whose subclasses add each batch to `_covering`."""

    def __init__(self, origin: Origin) -> None:
        self._covering = OffsetCoverage(origin)

    def note_holes(self, holes: Iterable[SkippedRange]) -> None:
        self._covering.note_holes(holes)

    def note_filtered(self, filtered: Filtered) -> bool:
        return self._covering.note_filtered(filtered)


def covered_in(infos: Iterable[Mapping[str, Any]], key: str = "covered") -> tuple[Covered, ...]:
    """Return the sums of the coverage in commit infos, which `OffsetCoverage.covered` returned."""
    return added(*(converted(info[key], Covered) for info in infos))


def added(*parts: Covered) -> tuple[Covered, ...]:
    """Return the sum of the parts for each source incarnation, list of branches and `makes_several`. `duplicates`
    counts offsets that two parts cover."""
    sums: dict[_Kind, Covered] = {}
    for part in parts:
        earlier = sums.pop(_kind(part), None)
        sums[_kind(part)] = part if earlier is None else _both(earlier, part)
    return tuple(sums.values())


def without(atomic: Iterable[Covered], taken_back: Iterable[Covered]) -> tuple[Covered, ...]:
    """Return the coverage `atomic` without the coverage of a commit that was rolled back."""
    removed = {_kind(part): part for part in taken_back}
    remaining = (_less(part, removed[_kind(part)]) if _kind(part) in removed else part for part in atomic)
    return tuple(part for part in remaining if part.rows or part.offsets or part.filtered)


_Kind = tuple[str, tuple[str, ...], bool]


def _kind(part: Covered) -> _Kind:
    return part.incarnation, part.branches, part.makes_several


def _both(one: Covered, other: Covered) -> Covered:
    offsets, more = parsed(one.offsets), parsed(other.offsets)
    twice = offsets.intersection(more).count()
    offsets.update(more)
    return replace(
        one,
        offsets=_text(offsets),
        holes=_text(parsed(one.holes).union(parsed(other.holes))),
        filtered={
            branch: _text(parsed(one.filtered.get(branch, "")).union(parsed(other.filtered.get(branch, ""))))
            for branch in sorted({*one.filtered, *other.filtered})
        },
        rows=one.rows + other.rows,
        duplicates=one.duplicates + other.duplicates + twice,
    )


def _less(one: Covered, other: Covered) -> Covered:
    filtered = {
        branch: _text(parsed(text).difference(parsed(other.filtered.get(branch, ""))))
        for branch, text in one.filtered.items()
    }
    return replace(
        one,
        offsets=_text(parsed(one.offsets).difference(parsed(other.offsets))),
        holes=_text(parsed(one.holes).difference(parsed(other.holes))),
        filtered={branch: text for branch, text in filtered.items() if text},
        rows=one.rows - other.rows,
    )


def _text(sets: OffsetSets) -> str:
    return sets.to_text() if sets.partitions() else ""

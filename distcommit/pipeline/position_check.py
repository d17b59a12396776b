"""Checks of a source's positions, holes and byte counts."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from distcommit.core.errors import SourceError
from distcommit.core.interfaces.provenance import Provenance
from distcommit.core.support.storable_check import storable
from distcommit.core.watermark import Watermark, at_or_past
from distcommit.core.work_units import SkippedRange, WorkUnit

_MOST_BYTES = 1 << 48
"""Limit of a work unit's byte count, so that sums fit into 64 bits."""


@dataclass(slots=True)
class PositionCheck:
    """Check of a source's positions against the records that it delivers. It keeps the end of the delivered records by
    source partition.

    Attributes:
        unit: the work unit that is read.
        provenance: columns of the records with their partition and offset; None if the source has no offsets. Nothing
            is compared without offsets, or for a maintenance unit.
    """

    unit: WorkUnit
    provenance: Provenance | None
    _next: dict[str, int] = field(default_factory=dict)

    def take(self, batch: pa.RecordBatch, holes: Iterable[SkippedRange]) -> None:
        """Check a batch, and the holes before its end.

        Raises:
            SourceError: if a record is outside the work unit, was delivered before, or is inside a hole.
        """
        ranges = list(self._ranges(batch))
        for partition, low, high in ranges:
            first = self.unit.low.positions.get(partition)
            end = self.unit.expected_high.positions.get(partition)
            at = self._next.get(partition, first if isinstance(first, int) else low)
            if first is None or low < at or (isinstance(end, int) and high >= end):
                raise self._wrong(
                    "delivers a record outside its work unit, or twice",
                    f"records of {sorted(self.unit.low.positions)} from {at} to before {end}",
                    f"offsets {low} to {high} of partition {partition!r}",
                    "Extraction.__iter__",
                )
            self._next[partition] = high + 1
        self._compare_holes(batch, ranges, holes)

    def compare(self, high: Watermark) -> None:
        """Check a reported position.

        Raises:
            SourceError: if a delivered record at or past the position would be read again.
        """
        for partition, end in self._next.items():
            claimed = high.positions.get(partition)
            if not isinstance(self.unit.low.positions.get(partition), int):
                continue  # positions of another kind than offsets
            if not isinstance(claimed, int) or claimed < end:
                raise self._wrong(
                    "reports a position before its last delivered record",
                    f"position {end} of partition {partition!r} or later",
                    repr(claimed),
                    "Extraction.actual_high",
                )

    def _ranges(self, batch: pa.RecordBatch) -> Iterator[tuple[str, int, int]]:
        if self.provenance is None or not self.unit.low.positions or not batch.num_rows:
            return
        partition_column, offset_column = self.provenance.partition_column, self.provenance.offset_column
        if not {partition_column, offset_column} <= set(batch.schema.names):
            return  # the writer rejects it and names the missing column
        offsets = batch.column(offset_column)
        if not pa.types.is_integer(offsets.type):
            return
        grouped = pa.table({"partition": batch.column(partition_column), "offset": offsets}).group_by("partition")
        ranges = grouped.aggregate([("offset", "min"), ("offset", "max")])
        for row in ranges.to_pylist():
            if row["partition"] is not None and row["offset_min"] is not None:
                yield str(row["partition"]), row["offset_min"], row["offset_max"]

    def _compare_holes(
        self, batch: pa.RecordBatch, ranges: list[tuple[str, int, int]], holes: Iterable[SkippedRange]
    ) -> None:
        if self.provenance is None:
            return
        for hole in holes:
            for partition, low, high in ranges:
                if partition != hole.partition or not isinstance(hole.low, int) or not isinstance(hole.high, int):
                    continue
                if hole.high <= low or hole.low > high:
                    continue
                offsets = batch.column(self.provenance.offset_column)
                inside = pc.and_(pc.greater_equal(offsets, hole.low), pc.less(offsets, hole.high))
                partitions = pc.cast(batch.column(self.provenance.partition_column), pa.string())
                if pc.any(pc.and_(inside, pc.equal(partitions, partition))).as_py():
                    raise self._wrong(
                        "reports a hole where it delivered a record",
                        "holes without records",
                        f"{hole.low} to {hole.high} of partition {partition!r}",
                        "Extraction.holes",
                    )

    def _wrong(self, problem: str, expected: str, actual: str, culprit: str) -> SourceError:
        return SourceError(
            f"the source {problem}",
            id="SOURCE_PLAN_INVALID",
            dataset=self.unit.dataset_urn,
            work_unit=self.unit.work_unit_id,
            expected=expected,
            found=actual,
            todo=f"correct {culprit} of the source",
        )


def checked_high(unit: WorkUnit, actual: Watermark) -> Watermark:
    """Return the actual high watermark; raises SourceError outside the work unit's range or partitions."""
    if unit.can_end_at(actual):
        return actual
    raise SourceError(
        "the source reports an actual high watermark outside its work unit",
        id="SOURCE_PLAN_INVALID",
        work_unit=unit.work_unit_id,
        expected=f"between {unit.low} and {unit.expected_high}",
        found=str(actual),
        todo="correct Extraction.actual_high of the source",
    )


def checked_bytes(unit: WorkUnit, bytes_read: int) -> int:
    """Return the byte count as int; raises SourceError if it is out of range."""
    count = operator.index(bytes_read)
    if 0 <= count <= _MOST_BYTES:
        return count
    raise SourceError(
        "the source reports an impossible number of bytes",
        id="SOURCE_PLAN_INVALID",
        work_unit=unit.work_unit_id,
        expected=f"0 to {_MOST_BYTES}",
        found=str(count),
        todo="correct Extraction.bytes_read of the source",
    )


def checked_holes(unit: WorkUnit, holes: Iterable[SkippedRange]) -> list[SkippedRange]:
    """Return the holes, on which audits rely; raises SourceError if one is outside the work unit."""
    checked = [storable(hole) for hole in holes]
    for hole in checked:
        low, high = unit.low.positions.get(hole.partition), unit.expected_high.positions.get(hole.partition, hole.high)
        within = low is not None and at_or_past(hole.low, low) and at_or_past(high, hole.high)
        if not (within and hole.is_hole and at_or_past(hole.high, hole.low)):
            raise SourceError(
                "the source reports a hole outside its work unit",
                id="SOURCE_PLAN_INVALID",
                work_unit=unit.work_unit_id,
                expected=f"between {unit.low} and {unit.expected_high}",
                found=str(hole),
                todo="correct Extraction.holes of the source",
            )
    return checked

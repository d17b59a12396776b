"""A task flow with every possible outcome of a record, for explorers: each outcome is known in advance.

Before the fork the record at offset n is, by n modulo 4: kept, rejected, doubled, filtered. All remaining records go to
the branch `left`; those of even offsets also go to `right`. Branch `right` rejects those with a remainder of 4 modulo
8, and its records do not name their origin.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pyarrow as pa

from distcommit.core.interfaces.constructs import Converted, Converter, ForkOperator
from distcommit.core.interfaces.sink import Sink
from distcommit.core.interfaces.source import Source
from distcommit.core.work_units import WorkUnit, error_branch_of
from distcommit.pipeline.task_flow import Branch, Stage, TaskFlow
from distcommit.sinks.files.sink import FileSink

LEFT, RIGHT = "left", "right"


@dataclass(frozen=True, slots=True)
class ByOffset(Converter):
    """Converter that keeps, rejects, doubles or filters a record by its offset."""

    makes_several: ClassVar[bool] = True

    def convert(self, output_schema: pa.Schema | None, batch: pa.RecordBatch, unit: WorkUnit) -> Iterator[Converted]:
        offsets = batch.column("offset").to_pylist()
        times = {0: 1, 1: 0, 2: 2, 3: 0}
        rows = [row for row, offset in enumerate(offsets) for _ in range(times[offset % 4])]
        rejected = {row: f"offset {offset}" for row, offset in enumerate(offsets) if offset % 4 == 1}
        yield Converted(batch.take(pa.array(rows, pa.int64())), pa.array(rows, pa.int64()), rejected)


@dataclass(frozen=True, slots=True)
class Bare(Converter):
    """Converter that rejects some records, and reduces the others to their values."""

    def convert(self, output_schema: pa.Schema | None, batch: pa.RecordBatch, unit: WorkUnit) -> Iterator[Converted]:
        rejected = {row: "4" for row, offset in enumerate(batch.column("offset").to_pylist()) if offset % 8 == 4}
        rows = pa.array([row for row in range(batch.num_rows) if row not in rejected], pa.int64())
        yield Converted(batch.select(["value"]).take(rows), rows, rejected)


@dataclass(frozen=True, slots=True)
class EvenToBoth(ForkOperator):
    """Fork that sends all records to the left, and those at even offsets to the right, too."""

    def choose(self, batch: pa.RecordBatch, branches: Sequence[str]) -> Mapping[str, pa.BooleanArray | None]:
        even = batch.column("offset").to_numpy(zero_copy_only=False) % 2 == 0
        return {LEFT: None, RIGHT: pa.array(np.asarray(even, bool))}


def model_flow(source: Source, sink: Sink) -> TaskFlow:
    """Return the flow, with the same sink for both branches."""
    branches = (Branch(sink, LEFT), Branch(sink, RIGHT, (Stage("bare", Bare(), on_failure="divert"),)))
    return TaskFlow(source, branches, (Stage("by_offset", ByOffset(), on_failure="divert"),), EvenToBoth(), "divert")


@dataclass(frozen=True, slots=True)
class Broken(Converter):
    """Converter that always raises."""

    def convert(self, output_schema: pa.Schema | None, batch: pa.RecordBatch, unit: WorkUnit) -> Iterator[Converted]:
        raise ZeroDivisionError("broken")


def without_right(source: Source, sink: Sink) -> TaskFlow:
    """Return the flow with an optional `right` that always fails."""
    flow = model_flow(source, sink)
    right = replace(flow.branches[1], stages=(Stage("broken", Broken()),), optional=True)
    return replace(flow, branches=(flow.branches[0], right))


def flow_of_formats(source: Source, sink: Sink) -> TaskFlow:
    """Return the flow with JSON lines in folders by a field on the left, and sorted ORC on the right."""
    left_sink = FileSink.model_validate(
        {"format": "jsonl", "compression": "gzip", "partition_by": {"field": "partition"}, "target_file_bytes": 1}
    )
    right = FileSink.model_validate({"format": "orc", "sort_by": [{"column": "value"}]})
    flow = model_flow(source, sink)
    return replace(flow, branches=[replace(flow.branches[0], sink=left_sink), replace(flow.branches[1], sink=right)])


def places_of(offset: int) -> tuple[str, ...]:
    """Return the places of the record at that offset: names of branches and their error branches."""
    match offset % 8:
        case 0:
            return LEFT, RIGHT
        case 1 | 5:
            return (error_branch_of(""),)
        case 2 | 6:
            return LEFT, LEFT, RIGHT, RIGHT
        case 4:
            return LEFT, error_branch_of(RIGHT)
    return ()


def records_of(offset: int) -> int:
    """Return how many records are published for that offset, in both branches and their error branches."""
    return len(places_of(offset))


def records_without_right(offset: int) -> int:
    """Return that number for the flow whose right fails: a record for `right` becomes one error."""
    return {0: 2, 1: 1, 2: 3, 3: 0}[offset % 4]


MODEL_FLOWS = ((model_flow, records_of), (flow_of_formats, records_of), (without_right, records_without_right))
"""Flows, with the number of records that each publishes for an offset."""

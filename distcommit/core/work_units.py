"""Plans, work units, and the task states that report their attempts."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from itertools import islice
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from distcommit.core.task_properties import TaskProperties
from distcommit.core.watermark import Position, Watermark, at_or_past, format_position

_LISTED = 100
MAIN_BRANCH = "main"
"""The branch of all records of a dataset without a fork."""

ERRORS = "errors"
"""The error branch of records that were rejected before the fork, or without one. Records that a branch behind a fork
rejected go to `errors/` and the branch's name."""


def error_branch_of(branch: str) -> str:
    """Return the error branch of a branch; for an empty name, the error branch of records rejected before the fork."""
    return f"{ERRORS}/{branch}" if branch else ERRORS


def is_error_branch(branch: str) -> bool:
    return branch == ERRORS or branch.startswith(f"{ERRORS}/")


def rejecting_branch(errors: str) -> str:
    """Return the branch whose rejected records an error branch holds; empty if they were rejected before the fork."""
    return errors.removeprefix(ERRORS).removeprefix("/")


SchemaIds = dict[str, tuple[int, ...]]
"""Ids of schemas by converter, without duplicates, oldest first."""

MOST_SCHEMAS = 100
"""Number of schema ids that are kept for a dataset and converter."""


def merge_schema_ids(*groups: SchemaIds) -> SchemaIds:
    """Merge schema ids, keeping the newest hundred of each converter."""
    names = dict.fromkeys(name for ids in groups for name in ids)
    by_converter = {
        name: [*dict.fromkeys(schema_id for ids in groups for schema_id in ids.get(name, ()))] for name in names
    }
    return {name: tuple(ids[-MOST_SCHEMAS:]) for name, ids in by_converter.items()}


FILTERED = "nothing was made of it, on purpose"
"""The reason of a hole whose work unit was read and whose records were all filtered."""


class SkippedRange(Struct, frozen=True, array_like=True):
    """A range of positions of one source partition, [low, high), without published records.

    Attributes:
        partition: the source partition.
        low: the first position.
        high: the position after the last one.
        reason: why nothing is published.
        is_hole: True if the source was read past the range and had no record there. False if the range was given up by
            decision, which is counted as data loss.
        incarnation: the incarnation of the watermark that the positions belong to.
    """

    partition: str
    low: Position
    high: Position
    reason: str
    is_hole: bool = False
    incarnation: str = ""

    @property
    def is_filtered(self) -> bool:
        """Return whether the job's own constructs filtered all records of a whole work unit."""
        return self.is_hole and self.reason == FILTERED


def merge_ranges(skipped: Iterable[SkippedRange]) -> tuple[SkippedRange, ...]:
    """Return the same positions in fewer ranges.

    A range that overlaps or continues the previous range of the same partition, incarnation and kind is joined with it.
    The joined range has the later reason.
    """
    ranges: list[SkippedRange] = []
    newest: dict[tuple[str, bool, bool, str], int] = {}
    for range_ in skipped:
        kind = (range_.partition, range_.is_hole, range_.is_filtered, range_.incarnation)
        index = newest.get(kind)
        before = ranges[index] if index is not None else range_
        if index is not None and at_or_past(range_.low, before.low) and at_or_past(before.high, range_.low):
            high = range_.high if at_or_past(range_.high, before.high) else before.high
            ranges[index] = replace(before, high=high, reason=range_.reason)
        else:
            newest[kind] = len(ranges)
            ranges.append(range_)
    return tuple(ranges)


def positions_lost(skipped: Iterable[SkippedRange]) -> int:
    """Return how many positions were given up. An uncountable range counts as one. The sum is bounded, so that sums of
    such numbers fit into 64 bits."""
    lost_count = sum(
        max(0, range_.high - range_.low) if isinstance(range_.low, int) and isinstance(range_.high, int) else 1
        for range_ in skipped
        if not range_.is_hole
    )
    return min(lost_count, 1 << 53)


def describe_lost_ranges(skipped: Iterable[SkippedRange]) -> list[str]:
    """Describe the first hundred ranges that were given up."""
    given_up = (range_ for range_ in skipped if not range_.is_hole)
    return [
        f"partition {lost_range.partition!r}, {format_position(lost_range.low)} to "
        f"{format_position(lost_range.high)}: {lost_range.reason}"
        for lost_range in islice(given_up, _LISTED)
    ]


class WorkUnit(Struct, frozen=True):
    """A range of one dataset for a task attempt to read: from `low` to `expected_high`, by source partition.

    Attributes:
        work_unit_id: the id from the plan, unique in the run.
        dataset_urn: the dataset.
        low: the first position to read of each partition.
        expected_high: the end, exclusive. It has no position for a partition whose end the source cannot know before
            reading. An attempt may then end anywhere from `low` on, and no later range of that partition may be planned
            in the same run.
        size: the planner's estimate of the work, in the source's unit (records, for Kafka).
        properties: data that the source passes to its extractor and to converters, and data of the engine.
    """

    work_unit_id: str
    dataset_urn: str
    low: Watermark
    expected_high: Watermark
    size: int
    properties: dict[str, str] = {}

    def can_end_at(self, actual: Watermark) -> bool:
        """Return whether an attempt may end at `actual`: in exactly the unit's partitions, each between `low` and
        `expected_high`."""
        own = actual.positions.keys() == self.low.positions.keys()
        bounded = {p: position for p, position in actual.positions.items() if p in self.expected_high.positions}
        within = self.expected_high.covers(Watermark(bounded, actual.incarnation))
        return own and actual.covers(self.low) and within

    @property
    def known_end(self) -> Watermark:
        """Return the expected high watermark, with `low` for partitions whose end is unknown."""
        return Watermark({**self.low.positions, **self.expected_high.positions}, self.expected_high.incarnation)


class DatasetPlan(Struct, frozen=True):
    """The work that a run plans for one dataset.

    Attributes:
        dataset_urn: the dataset.
        planned_low: the stored watermark that the plan is based on; None if nothing was ever committed. The run can
            seal the dataset only while this is still the stored watermark.
        start: where reading begins for partitions that are new.
        work_units: the ranges to read.
        skipped: ranges that the plan passes over.
    """

    dataset_urn: str
    planned_low: Watermark | None
    start: Watermark
    work_units: tuple[WorkUnit, ...]
    skipped: tuple[SkippedRange, ...] = ()


class TaskOutcome(StrEnum):
    """The outcome of an attempt at one work unit. PARTIAL is a failed attempt with a prefix that can be committed."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    PARTIAL = "partial"


class StagedFile(Struct, frozen=True, array_like=True, gc=False):
    """A closed and synced file in staging, with its destination.

    Attributes:
        staged_path: the path relative to the staging root.
        final_path: the path relative to the output root.
        size_bytes: the size.
        checksum: the xxh3-64 checksum of the bytes.
        file_id: the file system's own id (inode, HDFS file id); 0 where it has none.
        mtime_ns: the modification time in nanoseconds since 1970.
        records: the number of records in the file.
    """

    staged_path: str
    final_path: str
    size_bytes: int
    checksum: int
    file_id: int
    mtime_ns: int
    records: int = 0


INPUT_PROBLEM = "input problem"
"""Name of the informational check that reports unreadable inputs, and of their count (`Extraction.problems`)."""

COLUMN_NOTE = "note on columns"
"""Name of the informational check that reports the notes of converters (`Converter.column_notes`)."""


class CheckOutcome(Struct, frozen=True, array_like=True):
    """The result of a task checker for a branch of one attempt.

    Attributes:
        checker: the checker's name.
        passed: whether the attempt may be committed.
        mandatory: whether a failed check fails the work unit.
        detail: the expected and the actual state.
    """

    checker: str
    passed: bool
    mandatory: bool
    detail: str


class ConstructCounts(Struct, frozen=True, array_like=True):
    """Record counts of a construct in one attempt at a work unit.

    Attributes:
        branch: the branch that the construct belongs to; empty before a fork.
        construct: the construct's name.
        records_in: records that the construct received.
        records_out: records that it produced.
        rejected: records of `records_in` that it rejected.
        filtered: records of `records_in` that it filtered.
        noted: records of `records_in` that failed an optional checker. If `construct` is `INPUT_PROBLEM`, the number of
            inputs that the source could not read.
        seconds: time spent in the construct.
    """

    branch: str
    construct: str
    records_in: int = 0
    records_out: int = 0
    rejected: int = 0
    filtered: int = 0
    noted: int = 0
    seconds: float = 0.0


class BranchResult(Struct, frozen=True):
    """The output of one attempt at a work unit in one branch, prepared by one sink.

    Attributes:
        branch: the branch.
        sink: the sink's name.
        files: the staged files.
        infos: the commit infos, plain data.
        records_written: the number of records given to the writer.
        records_rejected: the number of records in the error branch.
        holes: positions without a record that no file or info names.
        content_sum: the sum of the files' content sums (`sinks.files.content_sum`), 16 hexadecimal digits; empty
            without files.
        checks: the results of the task checkers.
        error: why the branch failed. In a successful attempt, only an optional branch can have failed, and all of its
            records are in its error branch.
        error_construct: the construct that failed.
    """

    branch: str
    sink: str
    files: tuple[StagedFile, ...] = ()
    infos: tuple[Any, ...] = ()
    records_written: int = 0
    records_rejected: int = 0
    holes: tuple[SkippedRange, ...] = ()
    content_sum: str = ""
    checks: tuple[CheckOutcome, ...] = ()
    error: str = ""
    error_construct: str = ""


class TaskState(Struct, frozen=True):
    """The result of one attempt at one work unit: one row of the task state store.

    A successful attempt has a result for each branch of its dataset and each error branch in use. A failed attempt has
    only the number of records written, the checks and the failed branches. A partial attempt has an `error` and
    complete results for the records from `low` to `actual_high`.

    Attributes:
        run_id: the run.
        epoch: the run's epoch.
        dataset_urn: the dataset.
        work_unit_id: the work unit.
        attempt: the attempt's unique id.
        outcome: how the attempt ended.
        low: the work unit's `low`.
        expected_high: the work unit's `expected_high`.
        actual_high: where reading ended, exclusive.
        branches: the prepared output by branch.
        records_read: the number of records read; of a partial attempt, up to `actual_high`.
        bytes_read: payload bytes read.
        error: why the attempt failed.
        started_ms: the start, milliseconds since 1970.
        finished_ms: the end, milliseconds since 1970.
        constructs: the record counts by construct.
        schemas: the schema ids that converters knew of the dataset or met in this attempt.
        properties: the properties that extraction, converters, checkers and writers recorded.
    """

    run_id: str
    epoch: int
    dataset_urn: str
    work_unit_id: str
    attempt: str
    outcome: TaskOutcome
    low: Watermark
    expected_high: Watermark
    actual_high: Watermark
    branches: tuple[BranchResult, ...] = ()
    records_read: int = 0
    bytes_read: int = 0
    error: str = ""
    started_ms: int = 0
    finished_ms: int = 0
    constructs: tuple[ConstructCounts, ...] = ()
    schemas: SchemaIds = {}
    properties: TaskProperties = {}

    @property
    def files(self) -> tuple[StagedFile, ...]:
        return tuple(file for result in self.branches for file in result.files)

    @property
    def has_prepared(self) -> bool:
        """Return whether the attempt has anything to commit."""
        return any(result.files or result.infos for result in self.branches)


def sum_content(sums: Iterable[str]) -> str:
    """Return the sum of content sums, each 16 hexadecimal digits; empty if there are none or one is unknown."""
    texts = list(sums)
    if not all(texts) or not texts:
        return ""
    return f"{sum(int(text, 16) for text in texts) % (1 << 64):016x}"

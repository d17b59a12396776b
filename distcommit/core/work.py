"""Work units, what a task reports about them, and the plan they come from."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from itertools import islice
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from distcommit.core.watermark import Position, Watermark, at_or_past, shown

_LISTED = 100
MAIN_BRANCH = "main"
"""The branch that all records of a dataset go to where nothing forks."""

ERRORS = "errors"
"""The branch of records that were turned away before a fork, or where nothing forks. Those that a branch behind a fork
has turned away go to `errors/` and its name."""


def errors_of(branch: str) -> str:
    """The error branch of a branch; that of all of them for the name of none."""
    return f"{ERRORS}/{branch}" if branch else ERRORS


def is_errors(branch: str) -> bool:
    """Whether it is an error branch."""
    return branch == ERRORS or branch.startswith(f"{ERRORS}/")


def rejecting_branch(errors: str) -> str:
    """The branch that the records of an error branch were turned away from; empty if from all of them."""
    return errors.removeprefix(ERRORS).removeprefix("/")


SchemaIds = dict[str, tuple[int, ...]]
"""Ids of schemas by the converter that they are known to, each once, those that came first in front."""

MOST_SCHEMAS = 100
"""How many ids of a converter are known of a dataset."""


def added_schemas(*found: SchemaIds) -> SchemaIds:
    """All of them, the newest hundred of each converter."""
    names = dict.fromkeys(name for ids in found for name in ids)
    each = {name: [*dict.fromkeys(one for ids in found for one in ids.get(name, ()))] for name in names}
    return {name: tuple(ids[-MOST_SCHEMAS:]) for name, ids in each.items()}


FILTERED = "nothing was made of it, on purpose"
"""The reason of a hole where a work unit was read and nothing was written of it on purpose."""


class SkippedRange(Struct, frozen=True, array_like=True):
    """Positions of one source partition of which nothing is published, [low, high), and why.

    Given up on purpose, which is data loss and counted as such; or `is_hole`: the source was read past them and had no
    record there. `incarnation` is the one of the watermark that the positions belong to.
    """

    partition: str
    low: Position
    high: Position
    reason: str
    is_hole: bool = False
    incarnation: str = ""

    @property
    def is_filtered(self) -> bool:
        """Whether the job's own flow wrote nothing of a whole work unit, on purpose."""
        return self.is_hole and self.reason == FILTERED


def merged(skipped: Iterable[SkippedRange]) -> tuple[SkippedRange, ...]:
    """The same positions in few ranges: one that continues the one before it, or is within it, is added to that, with
    the reason of the later. Only ranges of one partition, incarnation and kind are."""
    found: list[SkippedRange] = []
    newest: dict[tuple[str, bool, bool, str], int] = {}
    for each in skipped:
        kind = (each.partition, each.is_hole, each.is_filtered, each.incarnation)
        index = newest.get(kind)
        before = found[index] if index is not None else each
        if index is not None and at_or_past(each.low, before.low) and at_or_past(before.high, each.low):
            high = each.high if at_or_past(each.high, before.high) else before.high
            found[index] = replace(before, high=high, reason=each.reason)
        else:
            newest[kind] = len(found)
            found.append(each)
    return tuple(found)


def positions_lost(skipped: Iterable[SkippedRange]) -> int:
    """How many positions were given up; a range of positions that can't be counted is one. Sums of such numbers stay
    within 64 bits, whatever a source says."""
    lost = sum(
        max(0, range_.high - range_.low) if isinstance(range_.low, int) and isinstance(range_.high, int) else 1
        for range_ in skipped
        if not range_.is_hole
    )
    return min(lost, 1 << 53)


def lost_ranges(skipped: Iterable[SkippedRange]) -> list[str]:
    """Return the first hundred ranges that were given up, in words."""
    lost = (each for each in skipped if not each.is_hole)
    return [
        f"partition {each.partition!r}, {shown(each.low)} to {shown(each.high)}: {each.reason}"
        for each in islice(lost, _LISTED)
    ]


class WorkUnit(Struct, frozen=True):
    """A range of one dataset for one task attempt to read: per source partition from `low` to `expected_high`.

    Where the source can't know before it reads how far a partition goes, `expected_high` has no position of it, and an
    attempt may end anywhere from `low` on. Nothing else of that partition can be planned behind it in the same run.

    `size` is the planner's estimate of the work, in the source's unit (records, for Kafka). `work_unit_id` comes from
    the plan and is unique in the run.
    """

    work_unit_id: str
    dataset_urn: str
    low: Watermark
    expected_high: Watermark
    size: int
    properties: dict[str, str] = {}

    def can_end_at(self, actual: Watermark) -> bool:
        """Whether an attempt at this work unit may end there: in its own partitions, from `low` to `expected_high`."""
        own = actual.positions.keys() == self.low.positions.keys()
        bounded = {p: position for p, position in actual.positions.items() if p in self.expected_high.positions}
        within = self.expected_high.covers(Watermark(bounded, actual.incarnation))
        return own and actual.covers(self.low) and within

    @property
    def least_end(self) -> Watermark:
        """The expected high watermark, and `low` where none is known."""
        return Watermark({**self.low.positions, **self.expected_high.positions}, self.expected_high.incarnation)


class DatasetPlan(Struct, frozen=True):
    """What a run intends for one dataset.

    `planned_low` is the stored watermark that the plan was made on (None: nothing was ever committed): the sequence is
    sealed only if it is still that. `start` holds, for partitions seen for the first time, where reading begins.
    """

    dataset_urn: str
    planned_low: Watermark | None
    start: Watermark
    work_units: tuple[WorkUnit, ...]
    skipped: tuple[SkippedRange, ...] = ()


class TaskOutcome(StrEnum):
    """How a task attempt ended for one work unit. One that failed and has a prefix to commit is partial."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    PARTIAL = "partial"


class StagedFile(Struct, frozen=True, array_like=True, gc=False):
    """One closed and synced file in task-output, and where it will be published.

    Paths are relative to the staging root and to the output root. `file_id` is the file system's own identity (inode,
    HDFS file id), 0 where there is none; `checksum` is xxh3-64 over the bytes.
    """

    staged_path: str
    final_path: str
    size_bytes: int
    checksum: int
    file_id: int
    mtime_ns: int
    records: int = 0


class CheckOutcome(Struct, frozen=True, array_like=True):
    """What a task checker says of a branch of one attempt. `detail`: expected and found."""

    checker: str
    passed: bool
    mandatory: bool
    detail: str


class ConstructCounts(Struct, frozen=True, array_like=True):
    """What a construct has done in one attempt at a work unit. `branch`: where it stands; empty: before a fork.

    Of the records that it was given (`taken`), those that were rejected by it, those that nothing became of, on purpose
    (`filtered`), and those that an optional checker found wrong (`noted`). `made`: records that came of the others.
    """

    branch: str
    construct: str
    taken: int = 0
    made: int = 0
    rejected: int = 0
    filtered: int = 0
    noted: int = 0
    seconds: float = 0.0


class BranchResult(Struct, frozen=True):
    """What one attempt at a work unit prepared in one branch, by the sink of that name.

    `files` are staged files, `infos` commit infos (plain data); `holes` are those that nothing of it names.
    `content_sum`: the sum of the files' own (`sinks.files.content`), as 16 hexadecimal digits; empty without files.
    `records_diverted`: records in the error branch. `checks`: results of the task checkers. `error`: why the branch
    has failed, and `error_construct` at what; in an attempt that has succeeded it is optional, and all of its records
    are in its error branch.
    """

    branch: str
    sink: str
    files: tuple[StagedFile, ...] = ()
    infos: tuple[Any, ...] = ()
    records_written: int = 0
    records_diverted: int = 0
    holes: tuple[SkippedRange, ...] = ()
    content_sum: str = ""
    checks: tuple[CheckOutcome, ...] = ()
    error: str = ""
    error_construct: str = ""


class TaskState(Struct, frozen=True):
    """One row of the TaskStateStore: what one attempt at one work unit did. Times are milliseconds since 1970.

    One that has succeeded has a result for each branch of its dataset, and for those of errors that there were. What
    one that failed has says only how many records it had written, what was checked, and in which branches it failed. A
    partial one has both: an `error`, and what all branches hold of the records from `low` to `actual_high`, whole;
    `records_read` counts these. `schemas`: those that converters knew of the dataset, and those that they have met
    besides.
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

    @property
    def files(self) -> tuple[StagedFile, ...]:
        """The staged files of all branches."""
        return tuple(file for result in self.branches for file in result.files)

    @property
    def has_prepared(self) -> bool:
        """Whether there is anything to commit."""
        return any(result.files or result.infos for result in self.branches)


def added_content(sums: Iterable[str]) -> str:
    """The sum of content sums, each 16 hexadecimal digits; empty if there are none, or one of them is not known."""
    texts = list(sums)
    if not all(texts) or not texts:
        return ""
    return f"{sum(int(text, 16) for text in texts) % (1 << 64):016x}"

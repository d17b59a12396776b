"""Counts of the attempts at each dataset's work units in a run, summed from its task states. For diagnosis only.

Only the needed columns are read, as the staged files of a run may be far too many for memory.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from distcommit.core.errors import CorruptError
from distcommit.core.ports import FileSystem
from distcommit.core.work import TaskOutcome
from distcommit.protocol.paths.store import is_table, writer_of
from distcommit.stores.state.stored_tables import check_table
from distcommit.stores.state.task_states import run_folder

_COLUMNS = ["dataset_urn", "work_unit_id", "outcome", "records_read", "bytes_read", "started_ms", "finished_ms"]
_CHECK = "branches.list.element.checks.list.element"
_NESTED = ["branches.list.element.records_diverted", f"{_CHECK}.checker", f"{_CHECK}.passed"]


class AttemptCounts(msgspec.Struct, frozen=True):
    """Counts of the attempts at one dataset's work units.

    Attributes:
        attempts: number of attempts.
        failed: attempts that did not succeed.
        records_read: records read.
        bytes_read: bytes read.
        records_rejected: records rejected to error branches.
        ms: duration of all attempts, in milliseconds.
        not_passed: by checker, how often it did not pass.
    """

    attempts: int = 0
    failed: int = 0
    records_read: int = 0
    bytes_read: int = 0
    records_rejected: int = 0
    ms: int = 0
    not_passed: dict[str, int] = {}


class Attempt(msgspec.Struct, frozen=True):
    """One attempt at a work unit.

    Attributes:
        dataset: the dataset.
        work_unit: id of the work unit.
        writer: the 32 digits of the task that made the attempt.
        outcome: outcome of the attempt.
        started_ms: its begin, in milliseconds since 1970.
        finished_ms: its end.
        records_read: records read.
        bytes_read: bytes read.
        records_rejected: records rejected to error branches.
        not_passed: checkers that did not pass, each as often as that happened.
    """

    dataset: str
    work_unit: str
    writer: str
    outcome: str
    started_ms: int
    finished_ms: int
    records_read: int
    bytes_read: int
    records_rejected: int
    not_passed: tuple[str, ...] = ()

    @property
    def has_failed(self) -> bool:
        """Whether the attempt did not succeed, or only in part."""
        return self.outcome != TaskOutcome.SUCCEEDED


def count_attempts(
    fs: FileSystem, store_root: str, run_id: str, on_attempt: Callable[[Attempt], None] = lambda _: None
) -> dict[str, AttemptCounts]:
    """Return counts by dataset from a run's task states.

    Args:
        fs: file system of the store.
        store_root: folder of the store.
        run_id: the run's id.
        on_attempt: called with each attempt.

    Raises:
        CorruptError: if a file of task states is corrupt.
    """
    by_dataset: dict[str, AttemptCounts] = {}
    folder = run_folder(store_root, run_id)
    for bucket in sorted(entry.name for entry in fs.list_folder(folder) if entry.is_folder):
        for entry in fs.list_folder(f"{folder}/{bucket}"):
            if is_table(entry.name):
                path = f"{folder}/{bucket}/{entry.name}"
                for attempt in _attempts_in(check_table(fs.read(path), path), path):
                    on_attempt(attempt)
                    urn, counts = attempt.dataset, _counts(attempt)
                    by_dataset[urn] = _sum(by_dataset[urn], counts) if urn in by_dataset else counts
    return by_dataset


def _attempts_in(data: bytes, path: str) -> Iterable[Attempt]:
    try:
        file = pq.ParquetFile(pa.BufferReader(data), page_checksum_verification=True)
        present = {file.schema.column(number).path for number in range(len(file.schema))}
        columns = [*_COLUMNS, *(name for name in _NESTED if name in present)]
        rows: list[dict[str, Any]] = file.read(columns=columns, use_threads=False).to_pylist()
    except (pa.ArrowException, OSError, ValueError) as error:
        raise CorruptError(
            "task states cannot be read", id="RUN_STATISTICS_CORRUPT", path=path, found=str(error)[:500]
        ) from error
    writer = writer_of(path)
    return [_attempt(row, writer) for row in rows]


def _attempt(row: dict[str, Any], writer: str) -> Attempt:
    branches = row.get("branches") or []
    not_passed = (check["checker"] for b in branches for check in b.get("checks") or [] if not check["passed"])
    return Attempt(
        dataset=row["dataset_urn"],
        work_unit=row["work_unit_id"],
        writer=writer,
        outcome=row["outcome"],
        started_ms=row["started_ms"],
        finished_ms=row["finished_ms"],
        records_read=row["records_read"],
        bytes_read=row["bytes_read"],
        records_rejected=sum(branch["records_diverted"] for branch in branches),
        not_passed=tuple(not_passed),
    )


def _counts(attempt: Attempt) -> AttemptCounts:
    return AttemptCounts(
        attempts=1,
        failed=1 if attempt.has_failed else 0,
        records_read=attempt.records_read,
        bytes_read=attempt.bytes_read,
        records_rejected=attempt.records_rejected,
        ms=attempt.finished_ms - attempt.started_ms,
        not_passed=dict(Counter(attempt.not_passed)),
    )


def _sum(one: AttemptCounts, other: AttemptCounts) -> AttemptCounts:
    not_passed = dict(Counter(one.not_passed) + Counter(other.not_passed))
    numbers = (name for name in AttemptCounts.__struct_fields__ if name != "not_passed")
    return AttemptCounts(**{name: getattr(one, name) + getattr(other, name) for name in numbers}, not_passed=not_passed)

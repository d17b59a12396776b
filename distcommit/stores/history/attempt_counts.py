"""Attempts and counts of a run from task states, for diagnosis only.

Only the needed columns are read, because of memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from distcommit.core.errors import CorruptError
from distcommit.core.interfaces.file_system import FileSystem
from distcommit.core.records.run_counts import CheckCounts, FlowCounts, RunCounts
from distcommit.core.work_units import TaskOutcome
from distcommit.protocol.paths.store import is_table, writer_of
from distcommit.stores.state.plan_and_task_state_encoding import check_table
from distcommit.stores.state.task_states import run_folder

_COLUMNS = ["dataset_urn", "work_unit_id", "outcome", "records_read", "bytes_read", "started_ms", "finished_ms"]
_CHECK = "branches.list.element.checks.list.element"
_NESTED = [
    "branches.list.element.branch",
    "branches.list.element.records_written",
    "branches.list.element.records_rejected",
    f"{_CHECK}.checker",
    f"{_CHECK}.mandatory",
    f"{_CHECK}.passed",
]


class Attempt(msgspec.Struct, frozen=True):
    """One attempt at a work unit, with times in milliseconds since 1970."""

    dataset: str
    """URN of the dataset."""
    work_unit: str
    """Id of the work unit."""
    writer: str
    """Id of the Spark task attempt, 32 hexadecimal digits."""
    started_ms: int
    """Start of the attempt."""
    finished_ms: int
    """End of the attempt."""
    counts: RunCounts
    """Counts of the attempt. Of converters and checkers, only task checkers are counted."""

    @property
    def has_failed(self) -> bool:
        return self.counts.attempts_failed > 0


def count_attempts(
    fs: FileSystem, store_root: str, run_id: str, on_attempt: Callable[[Attempt], None] = lambda _: None
) -> dict[str, RunCounts]:
    """Return counts by dataset from a run's task states.

    Args:
        on_attempt: called with each attempt.

    Raises:
        CorruptError: if a file of task states is corrupt.
    """
    by_dataset: dict[str, RunCounts] = {}
    folder = run_folder(store_root, run_id)
    for bucket in sorted(entry.name for entry in fs.list_folder(folder) if entry.is_folder):
        for entry in fs.list_folder(f"{folder}/{bucket}"):
            if is_table(entry.name):
                path = f"{folder}/{bucket}/{entry.name}"
                for attempt in _attempts_in(check_table(fs.read(path), path), path):
                    on_attempt(attempt)
                    before = by_dataset.get(attempt.dataset)
                    by_dataset[attempt.dataset] = before + attempt.counts if before else attempt.counts
    return by_dataset


def _attempts_in(data: bytes, path: str) -> Iterable[Attempt]:
    try:
        file = pq.ParquetFile(pa.BufferReader(data), page_checksum_verification=True)
        present = {file.schema.column(number).path for number in range(len(file.schema))}
        columns = [*_COLUMNS, *(name for name in _NESTED if name in present)]
        rows: list[dict[str, Any]] = file.read(columns=columns, use_threads=False).to_pylist()
    except (pa.ArrowException, OSError, ValueError) as error:
        raise CorruptError(
            "task states cannot be read",
            id="RUN_STATISTICS_CORRUPT",
            path=path,
            found=str(error)[:500],
            todo="delete the file once its run has ended: only statistics of that run are lost",
        ) from error
    writer = writer_of(path)
    return [_attempt(row, writer) for row in rows]


def _attempt(row: dict[str, Any], writer: str) -> Attempt:
    branches = row.get("branches") or []
    checks = [
        CheckCounts(branch["branch"], check["checker"], check["mandatory"], *((1, 0) if check["passed"] else (0, 1)))
        for branch in branches
        for check in branch.get("checks") or []
    ]
    counts = RunCounts(
        attempts=1,
        attempts_failed=0 if row["outcome"] == TaskOutcome.SUCCEEDED else 1,
        attempt_ms=row["finished_ms"] - row["started_ms"],
        records_read=row["records_read"],
        bytes_read=row["bytes_read"],
        records_written=sum(branch["records_written"] for branch in branches),
        records_rejected=sum(branch["records_rejected"] for branch in branches),
        flow=FlowCounts(checks=tuple(checks)),
    )
    return Attempt(row["dataset_urn"], row["work_unit_id"], writer, row["started_ms"], row["finished_ms"], counts)

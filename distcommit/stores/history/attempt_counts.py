"""What attempts at a dataset's work units came to in a run, added up from its task states; for people to look at.

Only the columns that are needed are read: what a run has staged may be far more than fits into memory.
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
    """Attempts at one dataset's work units: how many there were and failed, what they read and turned away, how long
    they took, and by checker how many did not pass."""

    attempts: int = 0
    failed: int = 0
    records_read: int = 0
    bytes_read: int = 0
    records_rejected: int = 0
    ms: int = 0
    not_passed: dict[str, int] = {}


class Attempt(msgspec.Struct, frozen=True):
    """One attempt at a work unit. `writer`: the 32 digits of the task that made it; `not_passed`: the checkers that did
    not pass, each as often as it did not."""

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
        """Whether it has not succeeded as a whole."""
        return self.outcome != TaskOutcome.SUCCEEDED


def attempts_of(
    fs: FileSystem, store_root: str, run_id: str, noted: Callable[[Attempt], None] = lambda _: None
) -> dict[str, AttemptCounts]:
    """By dataset, what the task states say that are kept of a run.

    Args:
        fs: where the store is.
        store_root: its folder.
        run_id: the run.
        noted: given each attempt.

    Raises:
        CorruptError: if a file of them is not one that a run has put.
    """
    found: dict[str, AttemptCounts] = {}
    folder = run_folder(store_root, run_id)
    for bucket in sorted(entry.name for entry in fs.list_folder(folder) if entry.is_folder):
        for entry in fs.list_folder(f"{folder}/{bucket}"):
            if is_table(entry.name):
                path = f"{folder}/{bucket}/{entry.name}"
                for attempt in _in_file(check_table(fs.read(path), path), path):
                    noted(attempt)
                    urn, counts = attempt.dataset, _counts(attempt)
                    found[urn] = _added(found[urn], counts) if urn in found else counts
    return found


def _in_file(data: bytes, path: str) -> Iterable[Attempt]:
    try:
        file = pq.ParquetFile(pa.BufferReader(data), page_checksum_verification=True)
        there = {file.schema.column(number).path for number in range(len(file.schema))}
        columns = [*_COLUMNS, *(name for name in _NESTED if name in there)]
        rows: list[dict[str, Any]] = file.read(columns=columns, use_threads=False).to_pylist()
    except (pa.ArrowException, OSError, ValueError) as error:
        raise CorruptError("task states can't be read", path=path, found=str(error)[:500]) from error
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


def _added(one: AttemptCounts, other: AttemptCounts) -> AttemptCounts:
    not_passed = dict(Counter(one.not_passed) + Counter(other.not_passed))
    numbers = (name for name in AttemptCounts.__struct_fields__ if name != "not_passed")
    return AttemptCounts(**{name: getattr(one, name) + getattr(other, name) for name in numbers}, not_passed=not_passed)

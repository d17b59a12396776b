"""Detects live runs that make no progress.

A run creates files in folders of the store: progress, plans, segments, tables. While the driver is alive, it renews the
lease of the job lock. If the newest renewal is much later than the newest file, the run is stalled. Both times come
from the store's file system, so clocks of machines do not matter. If the file system reports no times of folders (S3),
no stall is detected.

For a run without an epoch, the newest renewal is compared with the start time in the run's id. Both times come from the
clock of the driver's machine.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from statistics import median

from distcommit.app.inspection.recorded_runs import RunRow, RunsResult, RunStatus
from distcommit.core.interfaces.file_system import FileSystem
from distcommit.protocol.paths.staging import SPOOLED_FRAMES
from distcommit.protocol.paths.store import (
    BEGUN,
    LOCK,
    PLANS,
    PROGRESS,
    RUN_TABLES,
    RUNS,
    TASK_STATES,
    record_name,
    run_name,
)
from distcommit.stores.state.job_lock import LockRecord, holders
from distcommit.stores.state.job_store import JobStore

STALLED_S = 900
"""The least number of seconds without progress after which a live run counts as stalled."""


def stalled_runs(store: JobStore, runs: RunsResult) -> dict[str, float]:
    """Return the seconds without progress by the id of each stalled run.

    A run is stalled after `STALLED_S`. A run with an epoch must also have made no progress for the median duration of
    the recorded runs.
    """
    took_s = [(row.ended_ms - row.began_ms) / 1000 for row in runs.runs if row.began_ms and row.ended_ms]
    least_s = max(STALLED_S, median(took_s) if took_s else 0)
    living = (row for row in runs.runs if row.status is RunStatus.RUNNING and row.run_id and not row.is_renewal_late)
    stalled_s = {row.run_id: _stalled_s(store, row, least_s) for row in living}
    if any(row.status is RunStatus.PENDING for row in runs.runs):
        holders_by_run = holders(store.fs, store.roots.store)
        waiting = (row for row in runs.runs if row.status is RunStatus.PENDING and not row.is_renewal_late)
        stalled_s |= {
            row.run_id: _waits_s(holders_by_run[row.run_id]) for row in waiting if row.run_id in holders_by_run
        }
    return {run_id: seconds for run_id, seconds in stalled_s.items() if seconds}


def _waits_s(holder: LockRecord) -> float:
    """Return the seconds from the run's start to its last renewal; 0 if it is not stalled, or its id has no time."""
    try:
        began = datetime.strptime(holder.run_id[: len("20260101T000000")], "%Y%m%dT%H%M%S").replace(tzinfo=UTC)
    except ValueError:
        return 0
    seconds = holder.renewed_ms / 1000 - began.timestamp()
    return seconds if seconds >= STALLED_S else 0


def _stalled_s(store: JobStore, row: RunRow, least_s: float) -> float:
    """Return the seconds without progress; 0 if they are fewer than `least_s`, or unknown."""
    fs, lock = store.fs, f"{store.roots.store}/{LOCK}"
    renewed_ns = _changed_ns(fs, f"{lock}/{run_name(row.run_id)}") or _changed_ns(fs, lock)
    newest_ns = 0
    for changed_ns in _signs(store, row):
        newest_ns = max(newest_ns, changed_ns)
        if renewed_ns - newest_ns < least_s * 1e9:
            return 0
    return (renewed_ns - newest_ns) / 1e9 if newest_ns else 0


def _signs(store: JobStore, row: RunRow) -> Iterator[int]:
    """Yield the times of the run's newest files in nanoseconds, beginning with the folders that change most often."""
    fs, root, run = store.fs, store.roots.store, run_name(row.run_id)
    for folder in (PROGRESS, RUN_TABLES, TASK_STATES, PLANS):
        yield _changed_ns(fs, f"{root}/{folder}/{run}")
    yield _changed_ns(fs, f"{root}/{RUNS}/{record_name(row.epoch, BEGUN)}")
    yield _changed_ns(fs, store.job_log().folder)
    for bucket in range(store.buckets):
        yield _changed_ns(fs, store.bucket_log(bucket).folder)
    yield from _below(fs, f"{store.roots.staging}/{SPOOLED_FRAMES}")


def _below(fs: FileSystem, folder: str) -> Iterator[int]:
    for entry in fs.list_folder(folder):
        path = f"{folder}/{entry.name}"
        yield _changed_ns(fs, path)
        if entry.is_folder:
            yield from _below(fs, path)


def _changed_ns(fs: FileSystem, path: str) -> int:
    """Return when a file, or the names in a folder, last changed, in nanoseconds; 0 if unknown."""
    status = fs.status(path)
    return status.mtime_ns if status is not None else 0

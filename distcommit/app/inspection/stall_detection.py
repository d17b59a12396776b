"""Live runs that do not get on, as far as the store shows it.

What a run does leaves names in folders of its store: how far its tasks are, plans, segments, tables. As long as its
driver lives, so does its lease. When names came there last is held against when the lease was renewed last, both as the
file system tells the times of folders: so clocks of machines have no say. Where it tells none (S3), nothing is found.

A run that has no epoch yet has left nothing there but its lease, which is held against when the run began, as its id
says it: both by the clock of the driver's machine.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from statistics import median

from distcommit.app.inspection.runs import RunRow, RunsResult, RunStatus
from distcommit.core.ports import FileSystem
from distcommit.protocol.paths.staging import SPOOLED_FRAMES
from distcommit.protocol.paths.store import (
    BEGUN,
    LOCK,
    PLANS,
    PROGRESS,
    RUN_DATASETS,
    RUN_TIMES,
    RUNS,
    TASK_STATES,
    record_name,
    run_name,
)
from distcommit.stores.state.job_lock import LockRecord, holders
from distcommit.stores.state.job_store import JobStore

STILL_S = 900
"""A live run that leaves no sign for less than so many seconds may just be at something that takes long."""


def still_runs(store: JobStore, runs: RunsResult) -> dict[str, float]:
    """Of runs that live and renew their lease, by id, for how many seconds nothing of them has moved: where these are
    more than `STILL_S`, and more than runs of this job take as a whole. Of those that have no epoch yet, since when
    they wait for it: where that is more than `STILL_S`."""
    took_s = [(row.ended_ms - row.began_ms) / 1000 for row in runs.runs if row.began_ms and row.ended_ms]
    least_s = max(STILL_S, median(took_s) if took_s else 0)
    living = (row for row in runs.runs if row.status is RunStatus.RUNNING and row.run_id and not row.overdue)
    found = {row.run_id: _still_s(store, row, least_s) for row in living}
    if any(row.status is RunStatus.PENDING for row in runs.runs):
        held = holders(store.fs, store.roots.store)
        waiting = (row for row in runs.runs if row.status is RunStatus.PENDING and not row.overdue)
        found |= {row.run_id: _waits_s(held[row.run_id]) for row in waiting if row.run_id in held}
    return {run_id: seconds for run_id, seconds in found.items() if seconds}


def _waits_s(holder: LockRecord) -> float:
    """0 if it is less than `STILL_S`, or the id does not tell."""
    try:
        began = datetime.strptime(holder.run_id[: len("20260101T000000")], "%Y%m%dT%H%M%S").replace(tzinfo=UTC)
    except ValueError:
        return 0
    seconds = holder.renewed_ms / 1000 - began.timestamp()
    return seconds if seconds >= STILL_S else 0


def _still_s(store: JobStore, row: RunRow, least_s: float) -> float:
    """0 if it is less than that, or if it can't be told."""
    fs, lock = store.fs, f"{store.roots.store}/{LOCK}"
    renewed_ns = _changed_ns(fs, f"{lock}/{run_name(row.run_id)}") or _changed_ns(fs, lock)
    newest_ns = 0
    for changed_ns in _signs(store, row):
        newest_ns = max(newest_ns, changed_ns)
        if renewed_ns - newest_ns < least_s * 1e9:
            return 0
    return (renewed_ns - newest_ns) / 1e9 if newest_ns else 0


def _signs(store: JobStore, row: RunRow) -> Iterator[int]:
    """When something of the run came where it leaves what it does, in nanoseconds; those first that come most often."""
    fs, root, run = store.fs, store.roots.store, run_name(row.run_id)
    for folder in (PROGRESS, RUN_TIMES, RUN_DATASETS, TASK_STATES, PLANS):
        yield _changed_ns(fs, f"{root}/{folder}/{run}")
    yield _changed_ns(fs, f"{root}/{RUNS}/{record_name(row.epoch, BEGUN)}")
    yield _changed_ns(fs, store.job_log().folder)
    for bucket in range(store.buckets):
        yield _changed_ns(fs, store.bucket_log(bucket).folder)
    yield from _below(fs, f"{store.roots.staging}/{SPOOLED_FRAMES}")


def _below(fs: FileSystem, folder: str) -> Iterator[int]:
    """Of all that is below a folder."""
    for entry in fs.list_folder(folder):
        path = f"{folder}/{entry.name}"
        yield _changed_ns(fs, path)
        if entry.is_folder:
            yield from _below(fs, path)


def _changed_ns(fs: FileSystem, path: str) -> int:
    """When a file or the names in a folder changed last; 0 if there is none, or it is not told."""
    status = fs.status(path)
    return status.mtime_ns if status is not None else 0

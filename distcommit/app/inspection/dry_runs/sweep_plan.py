"""Predicts the files that the next run deletes, by the code that deletes them. Deletes nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import cast

import msgspec

from distcommit.core.errors import DistcommitError
from distcommit.core.interfaces.file_system import FileSystem
from distcommit.core.records.log_records import DatasetState
from distcommit.engine.driver.run import new_run_id
from distcommit.fs.dry_run_file_system import DryRunDeletes
from distcommit.pipeline.maintenance.delete_superseded_files import delete_superseded
from distcommit.protocol.next_log_record import next_epoch
from distcommit.stores.folders.attempt_notes import noted_attempts
from distcommit.stores.folders.staging import staged_epochs, sweep_epoch, swept_epochs
from distcommit.stores.history.retention import Retention, expire_history
from distcommit.stores.logs.log_anchors import require_intact
from distcommit.stores.snapshots.snapshot_retention import expire_older_snapshots
from distcommit.stores.state.job_store import JobStore
from distcommit.stores.state.task_states import PastStates

_NAMED = 1000


class SweepResult(msgspec.Struct, frozen=True):
    """Files that the next run would delete. Its replays and checkpoints may make more files deletable.

    Attributes:
        job: name of the job.
        counts: number of files by kind, such as `staged files`; kinds without a file are missing.
        files: first thousand paths of files to delete.
        files_count: number of all files to delete.
        at_targets: number of attempts without a commit whose data at a target the sink is asked to delete.
        unreadable: error of each log, folder or dataset whose files can't be read or deleted, by its name.
    """

    job: str
    counts: dict[str, int]
    files: list[str]
    files_count: int
    at_targets: int
    unreadable: dict[str, str]


def show_sweeps(store: JobStore, retention: Retention, kept_snapshots: int) -> SweepResult:
    """Return the files that the next run would delete, by running its deletions on a file system that only records
    them.
    """
    recorder = DryRunDeletes(store.fs)
    dry = replace(store, fs=cast(FileSystem, recorder))
    counts: Counter[str] = Counter()
    unreadable: dict[str, str] = {}
    states: dict[int, Mapping[str, DatasetState]] = {}
    at_targets = 0

    def count(kind: str, before: int) -> None:
        if len(recorder.deleted) > before:
            counts[kind] += len(recorder.deleted) - before

    job_fold, past = dry.job_log().refresh(), PastStates(store.fs, store.roots.store)
    epoch = next_epoch(job_fold)
    staged = staged_epochs(dry.fs, store.roots.staging)
    for bucket in [None, *range(store.buckets)]:
        log, before = dry.job_log() if bucket is None else dry.bucket_log(bucket), len(recorder.deleted)
        try:
            fold = log.refresh() if bucket is None else require_intact(store, job_fold, bucket, log, past)
            log.sweep_temporary()
            log.truncate()
            count("segments of logs", before)
            if bucket is None:
                continue
            states[bucket] = fold.datasets
            for older in swept_epochs(staged, epoch, fold):
                before = len(recorder.deleted)
                at_targets += len(noted_attempts(dry.fs, store.roots.staging, older, bucket))
                sweep_epoch(dry.fs, store.roots.staging, older, bucket)
                count("staged files", before)
        except (DistcommitError, OSError) as error:
            unreadable["job log" if bucket is None else f"bucket {bucket}"] = str(error)
    before = len(recorder.deleted)
    # the next run counts itself among the kept runs
    refused = {*range(store.buckets)} - {*states}
    try:
        expire_history(
            dry.fs, store.roots.store, new_run_id(), 0, 1, replace(retention, runs=retention.runs - 1), refused
        )
    except (DistcommitError, OSError) as error:
        unreadable["tables of runs"] = str(error)
    count("tables and records of runs", before)
    before = len(recorder.deleted)
    try:
        expire_older_snapshots(dry, epoch, kept_snapshots, is_to_come=True)
    except (DistcommitError, OSError) as error:
        unreadable["cuts"] = str(error)
    count("cuts", before)
    before = len(recorder.deleted)
    unreadable |= dict(delete_superseded(dry, states))
    count("superseded files", before)
    files = recorder.deleted
    return SweepResult(store.job, dict(counts), files[:_NAMED], len(files), at_targets, unreadable)

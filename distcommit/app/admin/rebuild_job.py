"""Rebuild of a job's store from its output: preconditions, the job lock, repair of files, plan and new store."""

from __future__ import annotations

import uuid

import msgspec

from distcommit.app.admin.operator_progress import signs_of_life
from distcommit.app.admin.rebuild_result import RebuildResult
from distcommit.app.admin.rebuild_store import accept_store, plan_keeping, plan_rebuild, rebuild_store, stored_states
from distcommit.app.admin.repair_store_files import repair_files
from distcommit.app.job_file.job_config import JobConfig
from distcommit.app.job_file.job_folders import JobFolders
from distcommit.core.errors import ConfigurationError, ConflictError, LostTailError, StaleStoreError
from distcommit.engine.driver.run import new_run_id
from distcommit.engine.system_clock import SystemClock
from distcommit.pipeline.maintenance.delete_superseded_files import lacks_merged_files
from distcommit.pipeline.task_flow import TaskFlow
from distcommit.stores.folders.folder_ownership import read_owner, wrong_owner_error
from distcommit.stores.folders.run_markers import Marker, put_run_marker, read_markers
from distcommit.stores.logs.corrupt_log_tail import is_corrupt
from distcommit.stores.logs.fencing import OLDER_OUTPUT, is_other_staging, newer_runs, older_output
from distcommit.stores.logs.log_anchors import require_intact
from distcommit.stores.state.job_lock import JobLock
from distcommit.stores.state.job_store import DEFAULT_BUCKETS, JobStore, open_store
from distcommit.stores.state.recorded_fixed_settings import record_settings
from distcommit.stores.state.task_states import PastStates


def rebuild_job(
    folders: JobFolders, user: str, *, accept_gaps: bool, keep_watermarks: bool, dry_run: bool
) -> RebuildResult:
    """Repair damaged files, then rebuild the store if necessary. Arguments and errors are those of `Job.rebuild`."""
    config, run_id = folders.config, new_run_id()
    flow = config.task_flow()
    repaired = repair_files(folders, run_id, dry_run=dry_run)
    if repaired and dry_run:
        return RebuildResult(repaired=repaired)
    fs, roots = folders.roots()
    store, owner = None, None
    if folders.has_store():
        store = folders.opened()
        older = older_output(store)
        if older and not keep_watermarks:
            raise StaleStoreError(
                "a store can't be rebuilt from an output that is older",
                id="OUTPUT_OLDER_THAN_STORE",
                store=roots.store,
                output=roots.output,
                found=older,
                todo=OLDER_OUTPUT,
            )
        has_lost = bool(older) or _has_lost(store)
        if not has_lost and repaired:
            return RebuildResult(written=True, repaired=repaired)
        if not has_lost and not (keep_watermarks and _can_be_declared(store)):
            raise ConflictError(
                "there is nothing to rebuild",
                id="NOTHING_TO_REBUILD",
                store=roots.store,
                expected="a store that is older than its output, or has lost segments of a log, or can't read one; or"
                " an output without the merged file of a compaction",
                found="the newest one",
                todo="run the job; `distcommit audit` says whether its output is exact",
            )
    else:
        owner = read_owner(fs, roots.output) or read_owner(fs, roots.staging)
        if owner is not None and owner.job != config.job:
            raise wrong_owner_error(roots.output, owner, config.job)
    if not keep_watermarks:
        _require_offsets(config, flow)
    if keep_watermarks:
        return msgspec.structs.replace(_accept(folders, store, run_id, user, dry_run=dry_run), repaired=repaired)
    lost = owner.store_id if owner is not None else uuid.uuid4().hex
    buckets = config.commit.buckets or DEFAULT_BUCKETS
    planned = store or JobStore(fs, roots, config.job, buckets, lost, folders.groups)
    rebuild_result = plan_rebuild(planned, stored_states(store) if store else {}, accept_gaps=accept_gaps, flow=flow)
    if dry_run or rebuild_result.problems:
        return msgspec.structs.replace(rebuild_result, repaired=repaired)
    if store is None:
        put_run_marker(fs, roots.output, max(read_markers(fs, roots.output).values()) + 1, Marker.REBUILD)
        store = open_store(
            fs, roots, config.job, config.commit.buckets, create=True, lost_store_id=lost, groups=folders.groups
        )
    clock = SystemClock()
    with JobLock(fs, roots.store, run_id, config.lock.lease_ttl_s, clock), signs_of_life(store, run_id, clock) as tick:
        record_settings(store, folders.fixed_settings())
        result = rebuild_store(store, rebuild_result, run_id, user, accept_gaps=accept_gaps, flow=flow, tick=tick)
        return msgspec.structs.replace(result, repaired=repaired)


def _require_offsets(config: JobConfig, flow: TaskFlow) -> None:
    if not flow.can_be_audited or config.source.provenance is None:
        raise ConfigurationError(
            "a store is rebuilt from the offsets in published files and in the ledgers of targets",
            id="REBUILD_NEEDS_OFFSETS",
            expected="a source with offsets, and sinks that report their commits",
            todo="`distcommit store rebuild --keep-watermarks`, then `distcommit dataset set-watermark` to what its"
            " target has",
        )


def _accept(folders: JobFolders, store: JobStore | None, run_id: str, user: str, *, dry_run: bool) -> RebuildResult:
    if store is None:
        raise ConfigurationError(
            "--keep-watermarks needs an existing store",
            id="KEPT_WATERMARKS_NEED_STORE",
            path=folders.roots()[1].store,
            expected="a store",
            found="none",
            todo="`distcommit store rebuild` makes one from the published files",
        )
    if dry_run:
        return plan_keeping(store)
    with JobLock(store.fs, store.roots.store, run_id, folders.config.lock.lease_ttl_s, SystemClock()):
        return accept_store(store, run_id, user)


def _can_be_declared(store: JobStore) -> bool:
    """Return whether an operator may declare the store valid: its newest run died, or its staging folder is lost."""
    return not store.job_log().refresh().has_ended or is_other_staging(store)


def _has_lost(store: JobStore) -> bool:
    """Return whether runs or log records are missing in the store, or merged files in the output."""
    is_unmarked = not read_markers(store.fs, store.roots.output)[Marker.BEGAN]
    if is_unmarked or newer_runs(store) or _has_lost_tail(store):
        return True
    return lacks_merged_files(store, stored_states(store).values())


def _has_lost_tail(store: JobStore) -> bool:
    """Return whether a bucket's log has lost its end, had lost it when a run last checked, or is partly unreadable."""
    job_fold, past = store.job_log().refresh(), PastStates(store.fs, store.roots.store)
    try:
        for bucket in range(store.buckets):
            if is_corrupt(log := store.bucket_log(bucket)):
                return True
            require_intact(store, job_fold, bucket, log, past)
    except LostTailError:
        return True
    return any(not head.is_complete for head in job_fold.heads.values())

"""Epochs: a run fences the job log, then its buckets, so that no older run can seal."""

from __future__ import annotations

import logging
from functools import partial

from distcommit.core.errors import DistcommitError, FencedError, StaleStoreError
from distcommit.core.records.log_records import DatasetStatus
from distcommit.core.support.io_batching import BatchedWork, run_alone
from distcommit.core.support.parallel import run_parallel
from distcommit.protocol import next_log_record
from distcommit.protocol.log_state import Fold
from distcommit.stores.folders.folder_ownership import OWNER_VERSION, Owner, read_owner, take_ownership
from distcommit.stores.folders.nested_roots_check import require_apart
from distcommit.stores.folders.run_markers import Marker, newest_end, put_run_marker, read_markers
from distcommit.stores.logs.commit_log import CommitLog
from distcommit.stores.logs.generation_checks import require_current_generation
from distcommit.stores.state.job_store import JobStore

logger = logging.getLogger(__name__)

OLDER_OUTPUT = (
    "restore the newest output with its folder .distcommit. If it was removed on purpose or is lost, `distcommit"
    " store rebuild --keep-watermarks` lets the job continue in the present output; missing data is published again"
    " only where you set watermarks back. Or give the job new folders (paths)"
)
"""Remedy for an output older than its store."""
_UNCLAIMED = "an unclaimed output"
_FORMER_OUTPUT = "if paths.output was changed, set it to the former folder again, or move that folder here. Otherwise "
OTHER_STAGING = (
    "mount the disk of paths.staging, or correct paths.staging. If it is lost or was emptied, `distcommit"
    " store rebuild --keep-watermarks` lets the job continue in the present folder; a dataset that lost pending files"
    " is quarantined then, to be released"
)
"""Remedy for a staging folder that is not the one of earlier runs."""


def begin_run(store: JobStore, run_id: str, *, unsealed: bool = False) -> int:
    """Check that store, output and staging belong together, fence the job log, and mark the output with the run's
    epoch.

    All of this precedes any publication. Costs O(1) operations.

    Args:
        unsealed: whether the run delivers at least once.

    Returns:
        the run's epoch.

    Raises:
        StaleStoreError: if the output has markers of runs that the store does not know, or the store knows runs without
            a marker in the output.
        ConfigurationError: if staging or output belong to another job.
        FencedError, OutcomeUnknownError, StorageRefusedError: like `fence_job`.
    """
    require_newest(store)
    epoch = fence_job(store, run_id)
    if unsealed:
        put_run_marker(store.fs, store.roots.output, epoch, Marker.UNSEALED)
    put_run_marker(store.fs, store.roots.output, epoch, Marker.BEGAN)
    return epoch


def require_newest(store: JobStore, *, read_only: bool = False) -> None:
    """Check that neither the store nor the output is older than the other, and claim the folders.

    If `read_only`, only compare claims. Raises the errors of `begin_run`, but for fencing.
    """
    problem = older_output(store)
    if problem:
        raise StaleStoreError(
            "the output is older than the store, or belongs to another store",
            id="OUTPUT_OLDER_THAN_STORE",
            store=store.roots.store,
            output=store.roots.output,
            expected="the output of the newest run",
            found=problem,
            todo=f"{_FORMER_OUTPUT}{OLDER_OUTPUT}" if problem == _UNCLAIMED else OLDER_OUTPUT,
        )
    if is_other_staging(store):
        raise StaleStoreError(
            "the staging folder is not the one that contains pending staged files",
            id="STAGING_OF_ANOTHER_STORE",
            store=store.roots.store,
            staging=store.roots.staging,
            expected="the folder claimed by the job",
            found="an unclaimed folder",
            todo=OTHER_STAGING,
        )
    take_ownership_of_folders(store, read_only=read_only)
    problem = newer_runs(store)
    if problem:
        raise StaleStoreError(
            "the store is older than its published output",
            id="STORE_OLDER_THAN_OUTPUT",
            store=store.roots.store,
            output=store.roots.output,
            expected="the store of the newest run",
            found=problem,
            todo="restore the newest store; if it is lost, `distcommit store rebuild` repairs this one from the"
            " published files. A run on this store would publish records again",
        )


def take_ownership_of_folders(store: JobStore, *, read_only: bool = False) -> None:
    """Claim staging and output for the job. If `read_only`, only compare existing claims.

    Raises:
        ConfigurationError, StaleStoreError: if staging or output belongs to another job or store, or a folder of the
            job is inside a folder of another job.
    """
    require_apart(store.fs, store.roots.store, store.roots.staging, store.roots.output)
    owner = Owner(OWNER_VERSION, store.store_id, store.job, store.roots.store)
    for root in (store.roots.output, store.roots.staging):
        take_ownership(store.fs, root, owner, read_only=read_only)


def end_run(store: JobStore, epoch: int, *, clean: bool) -> None:
    """Mark the run's end in the output, as `clean` if no sequence is open.

    If the job log has no CUT of the run's end, nothing is marked. So a store copy that was made during the run lacks an
    end that the output has, and is detected. An OSError is only logged.
    """
    try:
        fold = store.job_log().refresh()
        if fold.has_ended and fold.fence_epoch == epoch:
            put_run_marker(store.fs, store.roots.output, epoch, Marker.CLEAN if clean else Marker.ENDED)
    except OSError:  # the run's results are not affected; the next run marks the output again
        logger.warning(
            "the output cannot be marked", extra={"epoch": epoch, "output": store.roots.output}, exc_info=True
        )


UNFINISHED_REBUILD = "a rebuild that was begun and not finished"
"""Result of `newer_runs` after an interrupted rebuild, which the same command resumes."""


def newer_runs(store: JobStore) -> str:
    """Describe the runs in the output that the store does not know; empty if there are none.

    Call it after the fence, because a rebuild marks before it fences, and before the log is read, because a run marks
    after its records.
    """
    log, fenced = store.job_log(), -1
    while (fold := log.refresh()).fence_epoch != fenced:
        fenced = fold.fence_epoch
        run_markers = read_markers(store.fs, store.roots.output)
    newest, ended = max(run_markers.values()), newest_end(run_markers)
    if run_markers[Marker.REBUILD] > ended:
        return UNFINISHED_REBUILD
    if newest > fold.fence_epoch:
        return f"runs up to epoch {newest} in the output, up to {fold.fence_epoch} in the store"
    if ended == fold.fence_epoch and not fold.has_ended:
        return f"the end of epoch {ended} in the output, in the store only its beginning"
    return ""


def older_output(store: JobStore) -> str:
    """Describe the runs in the store that the output does not know; empty if there are none.

    The log is read before the markers, because a run marks before its CUT.
    """
    fold = store.job_log().refresh()
    if not fold.began_epoch and not fold.ended_epoch:
        return ""  # no run has published anything yet
    if read_owner(store.fs, store.roots.output) is None:
        return _UNCLAIMED
    began = read_markers(store.fs, store.roots.output)[Marker.BEGAN]
    if fold.began_epoch > began:
        return f"runs up to epoch {fold.began_epoch} in the store, up to {began} in the output"
    return ""


def is_other_staging(store: JobStore) -> bool:
    """Return whether pending sequences have their files in another staging folder, such as an unmounted disk. A run
    with this folder would take the files for lost.

    Logs are read only if the folder is unclaimed, and an unreadable one counts as pending.
    """
    if not store.job_log().refresh().began_epoch or read_owner(store.fs, store.roots.staging) is not None:
        return False
    return any(
        run_parallel(
            store.fs.parallel_calls, _has_open_dataset, [store.bucket_log(bucket) for bucket in range(store.buckets)]
        )
    )


def _has_open_dataset(log: CommitLog) -> bool:
    try:
        return any(state.status is not DatasetStatus.IDLE for state in log.refresh().datasets.values())
    except DistcommitError:
        return True


def fence_job(store: JobStore, run_id: str, *, moving: bool = False) -> int:
    """Fence the job log and return the run's epoch.

    The epoch is the number of the run's FENCE, or one above the newest epoch if that is higher, as after a rebuild.

    Args:
        moving: whether the caller moves the store to another generation, or resumes such a move.

    Raises:
        FencedError: if another run fenced the log at the same moment. This run must end, and must not retry.
        ConflictError: if the store is not open in its current generation: see `require_current_generation`.
        OutcomeUnknownError, StorageRefusedError: if the log cannot be written.
    """
    log = store.job_log()
    before = log.refresh()
    require_current_generation(store, before, moving=moving)
    fold = run_alone(log.settle(partial(next_log_record.fence_job, run_id=run_id, begun_at=before.fence_epoch)))
    if fold.fence_run_id != run_id:
        raise FencedError(
            "another run of this job began at the same moment",
            job=store.job,
            expected=f"run {run_id}",
            found=f"run {fold.fence_run_id}, epoch {fold.fence_epoch}",
            todo="wait until that run has ended, then start this run again",
        )
    require_current_generation(store, fold, moving=moving)  # from here on no other process can begin a move
    log.sweep_temporary()
    return fold.fence_epoch


def fence_bucket(log: CommitLog, epoch: int, run_id: str) -> BatchedWork[Fold]:
    """Fence one bucket's log and return its state, which includes the fence.

    Raises:
        FencedError: if a newer run has fenced the log.
    """
    fold = yield from log.settle(partial(next_log_record.fence, epoch=epoch, run_id=run_id))
    require_fence(fold, epoch, log.folder)
    log.sweep_temporary()
    return fold


def require_fence(fold: Fold, epoch: int, log_folder: str) -> None:
    """Raise FencedError if a newer run has fenced the log, or the log has ended."""
    if fold.fence_epoch > epoch:
        raise FencedError(
            "a newer run has fenced this one",
            log=log_folder,
            expected=f"epoch {epoch}",
            found=f"epoch {fold.fence_epoch} (run {fold.fence_run_id})",
            todo="nothing: the newer run replays the sequences that this run sealed",
        )
    if fold.moved_to:
        raise FencedError(
            "the number of buckets was changed since this run began",
            log=log_folder,
            expected="the current generation of the log",
            found=f"a log that ended and continues in generation {fold.moved_to}",
            todo="run again, which opens the store again; all sequences sealed by this run are done",
        )

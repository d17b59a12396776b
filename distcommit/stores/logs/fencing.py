"""Epochs: a run fences the job log, then its buckets; whoever has an older epoch can seal nothing from then on."""

from __future__ import annotations

import logging
from functools import partial

from distcommit.core.errors import DistcommitError, FencedError, StaleStoreError
from distcommit.core.records.log_records import DatasetStatus
from distcommit.core.support.io_batching import Work, alone
from distcommit.core.support.parallel import in_flight
from distcommit.protocol import next_record
from distcommit.protocol.fold import Fold
from distcommit.stores.folders.nested_roots import require_apart
from distcommit.stores.folders.ownership import (
    OWNER_VERSION,
    Mark,
    Owner,
    claim,
    newest_end,
    put_mark,
    read_marks,
    read_owner,
)
from distcommit.stores.logs.generation import require_counting
from distcommit.stores.logs.log import CommitLog
from distcommit.stores.state.job_store import JobStore

logger = logging.getLogger(__name__)

OLDER_OUTPUT = (
    "put the newest output back, with its folder .distcommit. If it was taken away on purpose or is lost, `distcommit"
    " store rebuild --keep-watermarks` lets the job go on in the output that is there; what is missing is published"
    " again only where you set watermarks back. Or give the job new folders (paths)"
)
"""What to do where the output is older than its store."""
OTHER_STAGING = (
    "see that what paths.staging is on is mounted, or correct paths.staging. If it is lost, or was emptied, `distcommit"
    " store rebuild --keep-watermarks` lets the job go on in the folder that is there; a dataset whose pending files"
    " were lost with it is quarantined then, to be released"
)
"""What to do where the staging folder is not the one that runs have staged in."""


def begin_run(store: JobStore, run_id: str, *, unsealed: bool = False) -> int:
    """Makes sure that the store is the newest there is of its output, fences the job log, and marks the output with the
    run's epoch before anything can be published. Costs O(1) operations.

    Args:
        store: the store.
        run_id: the run's.
        unsealed: whether the run delivers at least once.

    Raises:
        StaleStoreError: if runs that this store does not know of have published into the output, or the output knows
            nothing of runs that this store knows.
        ConfigurationError: if staging or output belong to another job.
        FencedError, OutcomeUnknownError, StorageRefusedError: as `fence_job`.
    """
    require_newest(store)
    epoch = fence_job(store, run_id)
    if unsealed:
        put_mark(store.fs, store.roots.output, epoch, Mark.UNSEALED)
    put_mark(store.fs, store.roots.output, epoch, Mark.BEGAN)
    return epoch


def require_newest(store: JobStore) -> None:
    """Claims the job's folders, and raises as `begin_run` if the store is not the newest there is of its output, or the
    output not the newest there is of the store."""
    older = older_output(store)
    if older:
        raise StaleStoreError(
            "the output is older than the store, or another one",
            store=store.roots.store,
            output=store.roots.output,
            expected="the output that the newest run has left",
            found=older,
            todo=OLDER_OUTPUT,
        )
    if is_other_staging(store):
        raise StaleStoreError(
            "the staging folder is another one than that in which pending files were staged",
            store=store.roots.store,
            staging=store.roots.staging,
            expected="the folder that the job has claimed",
            found="one that nobody has claimed",
            todo=OTHER_STAGING,
        )
    claim_folders(store)
    newer = newer_runs(store)
    if newer:
        raise StaleStoreError(
            "the store is older than what was published from it",
            store=store.roots.store,
            output=store.roots.output,
            expected="the store that the newest run has left",
            found=newer,
            todo="put the newest store in its place; if it is lost, `distcommit store rebuild` mends this one from the"
            " published files. Running as it is would publish records again",
        )


def claim_folders(store: JobStore) -> None:
    """Makes staging and output the job's own.

    Raises:
        ConfigurationError, StaleStoreError: if they belong to another job, or to another store of this one, or one of
            the job's folders is inside another job's.
    """
    require_apart(store.fs, store.roots.store, store.roots.staging, store.roots.output)
    owner = Owner(OWNER_VERSION, store.store_id, store.job, store.roots.store)
    for root in (store.roots.output, store.roots.staging):
        claim(store.fs, root, owner)


def end_run(store: JobStore, epoch: int, *, clean: bool) -> None:
    """Marks in the output that the run has come to its end; `clean` says that it left no sequence open anywhere.

    The job log says so first (CUT, at its end), so that a store copied in mid-run is told.
    """
    try:
        fold = store.job_log().refresh()
        if fold.has_ended and fold.fence_epoch == epoch:
            put_mark(store.fs, store.roots.output, epoch, Mark.CLEAN if clean else Mark.ENDED)
    except OSError:  # what the run has done stands; the next one marks the output again
        logger.warning(
            "the output can't be marked", extra={"epoch": epoch, "output": store.roots.output}, exc_info=True
        )


UNFINISHED_REBUILD = "a rebuild that began and was not finished"
"""Of what the output knows that the store does not: what the same command goes on with."""


def newer_runs(store: JobStore) -> str:
    """What the output knows of runs that the store does not; empty if the store is the newest there is.

    Marks count that were read after the fence by which they are judged, as that of a rebuild comes before its fence;
    and before the fold, as those of a run come after its records: one that ends meanwhile is no newer store.
    """
    log, fenced = store.job_log(), -1
    while (fold := log.refresh()).fence_epoch != fenced:
        fenced = fold.fence_epoch
        marks = read_marks(store.fs, store.roots.output)
    newest, ended = max(marks.values()), newest_end(marks)
    if marks[Mark.REBUILD] > ended:
        return UNFINISHED_REBUILD
    if newest > fold.fence_epoch:
        return f"runs up to epoch {newest} in the output, up to {fold.fence_epoch} in the store"
    if ended == fold.fence_epoch and not fold.has_ended:
        return f"the end of epoch {ended} in the output, in the store only its beginning"
    return ""


def older_output(store: JobStore) -> str:
    """What the store knows of runs that the output does not; empty if the output has been there for all of them.

    The fold is read before the output is looked at: a run marks that first, and then cuts.
    """
    fold = store.job_log().refresh()
    if not fold.began_epoch and not fold.ended_epoch:
        return ""  # no run has published anything yet
    if read_owner(store.fs, store.roots.output) is None:
        return "an output that nobody has claimed"
    began = read_marks(store.fs, store.roots.output)[Mark.BEGAN]
    if fold.began_epoch > began:
        return f"runs up to epoch {fold.began_epoch} in the store, up to {began} in the output"
    return ""


def is_other_staging(store: JobStore) -> bool:
    """Whether something is pending whose files runs have staged in another folder than this one, as where a disk is not
    mounted: it would count as lost. Logs are read only where nobody has claimed the folder; where that can't be, it is
    told as if something were."""
    if not store.job_log().refresh().began_epoch or read_owner(store.fs, store.roots.staging) is not None:
        return False
    return any(in_flight(store.fs.parallel_calls, _is_open, [store.bucket_log(each) for each in range(store.buckets)]))


def _is_open(log: CommitLog) -> bool:
    try:
        return any(state.status is not DatasetStatus.IDLE for state in log.refresh().datasets.values())
    except DistcommitError:
        return True


def fence_job(store: JobStore, run_id: str, *, moving: bool = False) -> int:
    """Fences the job log and returns the run's epoch: the number of its FENCE there, or what follows the newest epoch
    if that is higher, as it is after a rebuild.

    Args:
        store: the store.
        run_id: the run's.
        moving: whether it moves the store to another generation, or goes on with that.

    Raises:
        FencedError: if another run fenced it at the same moment. This run ends; it never tries again.
        ConflictError: if the store is not open as it counts: see `require_counting`.
        OutcomeUnknownError, StorageRefusedError: if the log can't be written.
    """
    log = store.job_log()
    before = log.refresh()
    require_counting(store, before, moving=moving)
    fold = log.settle(partial(next_record.fence_job, run_id=run_id, begun_at=before.fence_epoch))
    if fold.fence_run_id != run_id:
        raise FencedError(
            "another run of this job began at the same moment",
            job=store.job,
            expected=f"run {run_id}",
            found=f"run {fold.fence_run_id}, epoch {fold.fence_epoch}",
            todo="let it finish, or start again after it",
        )
    require_counting(store, fold, moving=moving)  # from here on nobody else can begin to move it
    log.sweep_temporary()
    return fold.fence_epoch


def fence_bucket(log: CommitLog, epoch: int, run_id: str) -> Fold:
    """`fencing_bucket`, for one bucket alone."""
    return alone(fencing_bucket(log, epoch, run_id))


def fencing_bucket(log: CommitLog, epoch: int, run_id: str) -> Work[Fold]:
    """Fences one bucket's log and returns its fold, which contains the fence.

    Raises:
        FencedError: if a newer run was there first.
    """
    fold = yield from log.settling(partial(next_record.fence, epoch=epoch, run_id=run_id))
    require_fence(fold, epoch, log.folder)
    log.sweep_temporary()
    return fold


def require_fence(fold: Fold, epoch: int, log_folder: str) -> None:
    """Raises FencedError if a run newer than `epoch` has fenced the log, or if it has ended."""
    if fold.fence_epoch > epoch:
        raise FencedError(
            "a newer run has fenced this one",
            log=log_folder,
            expected=f"epoch {epoch}",
            found=f"epoch {fold.fence_epoch} (run {fold.fence_run_id})",
            todo="nothing: the newer run replays what this one had sealed",
        )
    if fold.moved_to:
        raise FencedError(
            "the job has got another number of buckets since this run began",
            log=log_folder,
            expected="a log that goes on",
            found=f"one that goes on in generation {fold.moved_to}",
            todo="run again, which opens the store again; this run had sealed nothing that is not done",
        )

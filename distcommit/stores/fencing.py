"""Epochs: a run fences the job log, then its buckets; whoever has an older epoch can seal nothing from then on."""

from __future__ import annotations

from distcommit.model.errors import FencedError
from distcommit.model.log_records import Fence, Record
from distcommit.protocol.fold import Fold
from distcommit.stores.job_store import JobStore
from distcommit.stores.log import CommitLog


def fence_job(store: JobStore, run_id: str) -> int:
    """Fences the job log and returns the run's epoch: the number of its FENCE there.

    Raises:
        FencedError: if another run fenced it at the same moment. This run ends; it never tries again.
        OutcomeUnknownError: if the log can't be written.
    """
    log = store.job_log()
    found: list[int] = []

    def decide(fold: Fold) -> Record | None:
        found.append(fold.fence_epoch)
        if fold.fence_run_id == run_id or fold.fence_epoch != found[0]:
            return None
        return Fence(log.last_number + 1, run_id)

    fold = log.settle(decide)
    if fold.fence_run_id != run_id:
        raise FencedError(
            "another run of this job began at the same moment",
            job=store.job,
            expected=f"run {run_id}",
            found=f"run {fold.fence_run_id}, epoch {fold.fence_epoch}",
            todo="let it finish, or start again after it",
        )
    log.sweep_temporary()
    return fold.fence_epoch


def fence_bucket(log: CommitLog, epoch: int, run_id: str) -> Fold:
    """Fences one bucket's log and returns its fold, which contains the fence.

    Raises:
        FencedError: if a newer run was there first.
    """

    def decide(fold: Fold) -> Record | None:
        require_fence(fold, epoch, log.folder)
        return None if fold.fence_epoch == epoch else Fence(epoch, run_id)

    fold = log.settle(decide)
    log.sweep_temporary()
    return fold


def require_fence(fold: Fold, epoch: int, log_folder: str) -> None:
    """Raises FencedError if a run newer than `epoch` has fenced the log."""
    if fold.fence_epoch > epoch:
        raise FencedError(
            "a newer run has fenced this one",
            log=log_folder,
            expected=f"epoch {epoch}",
            found=f"epoch {fold.fence_epoch} (run {fold.fence_run_id})",
            todo="nothing: the newer run replays what this one had sealed",
        )

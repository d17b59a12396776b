"""Checks, for every writer, that the open generation is the current one."""

from __future__ import annotations

from distcommit.core.errors import ConflictError, StaleStoreError
from distcommit.protocol.log_state import Fold
from distcommit.stores.state.job_store import JobStore


def require_current_generation(store: JobStore, fold: Fold, *, moving: bool = False) -> None:
    """Check that the store is open in its current generation.

    Args:
        store: the store, as it was opened.
        fold: a later state of its job log.
        moving: whether the caller moves it to another generation.

    Raises:
        ConflictError: if another generation is current, or a move to one is in progress.
    """
    if fold.generation != store.generation:
        raise ConflictError(
            "the number of buckets was changed since the store was opened",
            id="STORE_MOVED",
            store=store.roots.store,
            expected=f"generation {store.generation}, of {store.buckets} buckets",
            found=f"generation {fold.generation}, of {fold.buckets}",
            todo="start again, which opens the store again",
        )
    if fold.under_way is not None and not moving:
        move = fold.under_way
        settings = [f"{name}: {value}" for name, value in sorted(move.settings.items())]
        raise ConflictError(
            "a change of the number of buckets is in progress",
            id="MOVE_IN_PROGRESS",
            store=store.roots.store,
            expected=f"generation {store.generation}, of {store.buckets} buckets, and no change in progress",
            found=", ".join([f"unfinished generation {move.generation}, of {move.buckets} buckets", *settings]),
            todo=f"`distcommit store rebucket JOB.yaml --buckets {move.buckets}`"
            f"{', with these settings in the job file,' if settings else ''} finishes it; nothing else may change the"
            " job until then. If it fails because the store is older than its output: move the store away,"
            " and `distcommit store rebuild` recreates it",
        )


def require_not_moved(store: JobStore, fold: Fold) -> None:
    """Check that a bucket's log has not ended.

    Raises:
        ConflictError: if it continues in another generation.
        StaleStoreError: if the job log does not know that generation.
    """
    if not fold.moved_to:
        return
    require_current_generation(store, store.job_log().refresh())
    raise StaleStoreError(
        "the job log is older than a bucket's log",
        id="JOB_LOG_OLDER_THAN_LOGS",
        store=store.roots.store,
        expected=f"generation {fold.moved_to}, in which this bucket continues",
        found=f"generation {store.generation}",
        todo="restore the newest job log; or move the store away, and `distcommit store rebuild` recreates it",
    )

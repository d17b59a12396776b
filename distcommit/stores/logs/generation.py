"""Which generation of bucket logs counts: what every writer asks before it counts on those that it has opened."""

from __future__ import annotations

from distcommit.core.errors import ConflictError, StaleStoreError
from distcommit.protocol.fold import Fold
from distcommit.stores.state.job_store import JobStore


def require_counting(store: JobStore, fold: Fold, *, moving: bool = False) -> None:
    """Whether the store is open as it counts, by a fold of its job log.

    Args:
        store: the store, as it was opened.
        fold: of its job log, since.
        moving: whether it is opened to be moved on to another generation.

    Raises:
        ConflictError: if another generation counts by now, or a move to one is under way.
    """
    if fold.generation != store.generation:
        raise ConflictError(
            "the job has got another number of buckets since this began",
            store=store.roots.store,
            expected=f"generation {store.generation}, of {store.buckets} buckets",
            found=f"generation {fold.generation}, of {fold.buckets}",
            todo="begin again, which opens the store again",
        )
    if fold.under_way is not None and not moving:
        move = fold.under_way
        changed = [f"{name}: {value}" for name, value in sorted(move.settings.items())]
        raise ConflictError(
            "the job is on its way to another number of buckets",
            store=store.roots.store,
            expected=f"generation {store.generation}, of {store.buckets} buckets, alone",
            found=", ".join([f"generation {move.generation}, of {move.buckets}, half made", *changed]),
            todo=f"`distcommit store rebucket JOB.yaml --buckets {move.buckets}`"
            f"{', with these settings in the job file,' if changed else ''} finishes it; nothing else may change the"
            " job until then. Should it refuse because the store is older than its output: put the store aside,"
            " and `distcommit store rebuild` makes it anew",
        )


def require_not_moved(store: JobStore, fold: Fold) -> None:
    """Whether anything can be written in a bucket's log, by a fold of it; raises as `require_counting` if not."""
    if not fold.moved_to:
        return
    require_counting(store, store.job_log().refresh())
    raise StaleStoreError(
        "the job log is older than a bucket's log",
        store=store.roots.store,
        expected=f"generation {fold.moved_to}, in which this bucket goes on",
        found=f"generation {store.generation}",
        todo="put the newest job log in its place; or put the store aside, and `distcommit store rebuild` makes it"
        " anew",
    )

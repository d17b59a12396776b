"""The check for state that depends on fixed settings."""

from __future__ import annotations

from functools import partial

from distcommit.core.errors import CorruptError
from distcommit.core.records.log_records import DatasetState
from distcommit.core.support.parallel import run_parallel
from distcommit.protocol.paths.shared_names import bucket_number
from distcommit.stores.folders.attempt_notes import noted_attempts
from distcommit.stores.folders.nested_roots_check import first_published
from distcommit.stores.logs.fencing import require_fence
from distcommit.stores.state.job_store import JobStore


def find_bound_state(store: JobStore, epoch: int, *, at_target: bool, regroups: bool) -> str:
    """Return the first state that depends on the fixed settings, for a message; empty if there is none.

    Costs one read of the job log and of each bucket's log, and a listing of the output.

    Args:
        epoch: epoch of the calling run, which has fenced the logs, so that older runs cannot add such state later; 0
            for a caller that only reads.
        at_target: whether data that aborted attempts left at a sink's target counts, too.
        regroups: whether a dataset without committed state counts if the store's commit groups assign it to another
            bucket than the one with its state. Its state must be moved first.

    Raises:
        FencedError: if a newer run than `epoch` has begun.
    """
    log = store.job_log()
    fold = log.refresh()
    if epoch:
        require_fence(fold, epoch, log.folder)
    if fold.under_way is not None:
        return "`distcommit store rebucket` has begun a move and not finished it"
    buckets = run_parallel(
        store.fs.parallel_buckets, partial(_find_in_bucket, store, epoch, regroups), range(store.buckets)
    )
    if in_logs := next(filter(None, buckets), ""):
        return in_logs
    if published := first_published(store.fs, store.roots.output):
        return f"published file {published}"
    return _find_attempt(store) if at_target else ""


def _find_in_bucket(store: JobStore, epoch: int, regroups: bool, bucket: int) -> str:
    log = store.bucket_log(bucket)
    try:
        fold = log.refresh()
    except CorruptError as error:
        return f"log {log.folder}, which cannot be read: {error.failure}"
    if epoch:
        require_fence(fold, epoch, log.folder)
        if fold.fence_epoch < epoch:
            return f"log {log.folder}, which this run could not fence"
    for urn, state in fold.datasets.items():
        if evidence := _committed_of(state):
            return f"dataset {urn} with {evidence}"
        if regroups and store.planning_bucket(urn) != bucket:
            return f"the read failures of dataset {urn}, which are in another bucket than its new commit group"
    return ""


def _committed_of(state: DatasetState) -> str:
    """Describe state that may be committed, or return an empty text. A failed run alone depends on no setting."""
    if state.open is not None:
        return f"an open sequence of epoch {state.open.sequence.epoch}"
    if state.reached is not None:
        return "a watermark"
    is_untouched = state == DatasetState(
        state.dataset_urn, read_failure=state.read_failure, previous_run=state.previous_run
    )
    return "" if is_untouched else "earlier sequences"


def _find_attempt(store: JobStore) -> str:
    fs, staging = store.fs, store.roots.staging
    for run in fs.list_folder(staging):
        if not (run.is_folder and run.name.isdecimal()):
            continue
        for entry in fs.list_folder(f"{staging}/{run.name}"):
            bucket = bucket_number(entry.name)
            noted = noted_attempts(fs, staging, int(run.name), bucket) if bucket is not None else []
            if noted:
                sinks = ", ".join(noted[0].sinks)
                return f"data that an attempt of epoch {noted[0].epoch} may have left at the target of sink {sinks}"
    return ""

"""Rebuild a store from the published files: fence, write the states of `app.admin.rebuild_plan`, mark the end."""

from __future__ import annotations

import errno
from collections.abc import Callable
from contextlib import suppress
from functools import partial

import msgspec

from distcommit.app.admin.rebuild_plan import planned
from distcommit.app.admin.rebuild_result import RebuildResult
from distcommit.app.auditing.target_ledgers import fence_targets
from distcommit.core.errors import ConflictError, StaleStoreError
from distcommit.core.interfaces.file_system import FileSystem
from distcommit.core.records.log_records import DatasetState
from distcommit.core.support.io_batching import run_alone
from distcommit.core.support.parallel import run_parallel
from distcommit.core.watermark import format_watermark
from distcommit.pipeline.task_flow import TaskFlow
from distcommit.protocol import next_log_record
from distcommit.protocol.log_state import Fold
from distcommit.protocol.paths.store import set_aside_folder
from distcommit.stores.folders.run_markers import Marker, put_run_marker, read_markers
from distcommit.stores.folders.staging import staged_buckets, staged_epochs, sweep_epoch
from distcommit.stores.logs.corrupt_log_tail import fold_readable_part, set_corrupt_tail_aside
from distcommit.stores.logs.fencing import fence_bucket, require_fence, take_ownership_of_folders
from distcommit.stores.logs.generation_checks import require_current_generation, require_not_moved
from distcommit.stores.logs.log_anchors import discard_heads, durable_heads, record_cut_ended
from distcommit.stores.schemas.schema_copies import plan_copies, put_copies
from distcommit.stores.snapshots.snapshot_retention import delete_snapshots
from distcommit.stores.state.job_store import JobStore


def plan_rebuild(
    store: JobStore, states: dict[str, DatasetState], *, accept_gaps: bool, flow: TaskFlow | None = None
) -> RebuildResult:
    """Read all footers and ledgers, and return the changes that `rebuild_store` would make. Nothing is written.

    Args:
        accept_gaps: whether gaps between the offsets of files are recorded as skipped. Otherwise each is a problem.
        flow: the job's flow, which opens the ledgers of its sinks; None reads only files.
    """
    plan = planned(store, states, flow, accept_gaps=accept_gaps)
    plan.result.epoch = plan.newest_epoch + 1
    return plan.result


def rebuild_store(
    store: JobStore,
    result: RebuildResult,
    run_id: str,
    user: str,
    *,
    accept_gaps: bool,
    flow: TaskFlow | None = None,
    tick: Callable[[], None] = lambda: None,
) -> RebuildResult:
    """Rebuild an opened store. Repeatable after a crash: no run begins until a rebuild has ended.

    Args:
        store: the store, stale or new.
        result: the plan. It is computed again after all runs are fenced and older staged files are deleted. If the new
            plan has problems, it is returned, states stay unchanged, and no run begins until a rebuild succeeds.
        run_id: a new run's id.
        accept_gaps: as in `plan_rebuild`.
        flow: the job's flow, which opens the ledgers of its sinks; None reads only files.

    Raises:
        StaleStoreError: if the folders belong to another store of the job, or another run began meanwhile.
        FencedError: if another run has fenced this one.
        ConflictError: if an operator changed a dataset meanwhile, or the number of buckets is being changed.
        ConfigurationError: if the folders belong to another job.
        TransientError: if the ledger of a target can't be read.
    """
    _require_open(store)
    take_ownership_of_folders(store)
    fs, roots = store.fs, store.roots
    epoch = max(result.epoch, _next_epoch(store))
    put_run_marker(fs, roots.output, epoch, Marker.REBUILD)
    _fence(store, epoch, run_id)
    for bucket in range(store.buckets):
        set_corrupt_tail_aside(store, store.bucket_log(bucket, epoch), epoch)
        run_alone(fence_bucket(store.bucket_log(bucket, epoch), epoch, run_id))
    # Without staged files no process that still executes an old sequence can publish after the files are read.
    for staged in (older for older in staged_epochs(fs, roots.staging) if older < epoch):
        for bucket in staged_buckets(fs, roots.staging, staged):
            sweep_epoch(fs, roots.staging, staged, bucket)
            tick()
    if flow is not None:
        fence_targets(flow, store, epoch)
    dataset_states = stored_states(store)
    plan = planned(store, dataset_states, flow, accept_gaps=accept_gaps, tick=tick)
    if plan.result.problems:
        return plan.result
    delete_snapshots(store)
    # First: once their dataset is idle, they can't be distinguished from published files.
    _set_aside(store, epoch, plan.revoked, tick)
    states = plan.states if flow is None else _with_schemas(store, flow, plan.states, dataset_states, epoch)
    _write(store, states, dataset_states, epoch, user)
    _set_aside(store, epoch, plan.set_aside, tick)
    _end(store, epoch, user)
    put_run_marker(fs, roots.output, epoch, Marker.CLEAN)
    plan.result.epoch, plan.result.written = epoch, True
    return plan.result


def _with_schemas(
    store: JobStore, flow: TaskFlow, new_states: list[DatasetState], states: dict[str, DatasetState], epoch: int
) -> list[DatasetState]:
    """Store the schemas of the new states, also of datasets that the store does not know. Return the states with the
    ids of their schemas.
    """
    new = [state for state in new_states if state.dataset_urn not in states]
    before = {**states, **{state.dataset_urn: state for state in new_states if state.dataset_urn in states}}
    ids = put_copies(store, plan_copies(store, before.values(), new, flow.source.current_name, epoch))
    return [
        msgspec.structs.replace(dataset_state, schemas=ids.get(dataset_state.dataset_urn, dataset_state.schemas))
        for dataset_state in new_states
    ]


def _write(
    store: JobStore, new_states: list[DatasetState], dataset_states: dict[str, DatasetState], epoch: int, user: str
) -> None:
    by_bucket: dict[int, list[DatasetState]] = {}
    for state in new_states:
        by_bucket.setdefault(store.bucket_of(state.dataset_urn), []).append(state)
    for bucket, states in by_bucket.items():
        log = store.bucket_log(bucket, epoch)
        written = partial(
            next_log_record.rebuild, epoch=epoch, states=tuple(states), dataset_states=dataset_states, user=user
        )
        fold = run_alone(log.settle(written))
        require_fence(fold, epoch, log.folder)  # otherwise another process is at work
        for state in states:
            _require_written(state, epoch, fold)


def _end(store: JobStore, epoch: int, user: str) -> None:
    """Record the present ends of all logs in the job log, and mark the end of the rebuild in the output."""
    discard_heads(store, epoch, user)
    record_cut_ended(store, epoch, durable_heads(store))
    put_run_marker(store.fs, store.roots.output, epoch, Marker.BEGAN)


def plan_keeping(store: JobStore) -> RebuildResult:
    """Return the changes that `accept_store` would make: only the epoch.

    Raises:
        DistcommitError: see `accept_store`.
    """
    _require_open(store)
    return RebuildResult(epoch=_next_epoch(store))


def accept_store(store: JobStore, run_id: str, user: str) -> RebuildResult:
    """Declare the store's state valid without a comparison with the published files. The store gets an epoch above all
    others. Raises the errors of `rebuild_store`.
    """
    _require_open(store)
    take_ownership_of_folders(store)
    epoch = _next_epoch(store)
    put_run_marker(store.fs, store.roots.output, epoch, Marker.REBUILD)
    _fence(store, epoch, run_id)
    _end(store, epoch, user)
    put_run_marker(store.fs, store.roots.output, epoch, Marker.ENDED)
    return RebuildResult(epoch=epoch, written=True)


def _require_open(store: JobStore) -> None:
    """Raise ConflictError or StaleStoreError if the store's logs have ended in another generation, or a move to one is
    in progress.
    """
    require_current_generation(store, store.job_log().refresh())
    for bucket in range(store.buckets):
        require_not_moved(store, fold_readable_part(store.bucket_log(bucket)))


def _next_epoch(store: JobStore) -> int:
    """Return an epoch above all epochs of the logs and of the marks in the output. The marks count because a damaged
    job log may have lost its newest epochs.
    """
    marked = read_markers(store.fs, store.roots.output).values()
    fenced = (fold_readable_part(store.bucket_log(bucket)).fence_epoch for bucket in range(store.buckets))
    return max(next_log_record.next_epoch(store.job_log().refresh()), *(epoch + 1 for epoch in (*marked, *fenced)))


def stored_states(store: JobStore) -> dict[str, DatasetState]:
    """Return the stored states of datasets. If a log has a corrupt tail, only its readable part counts."""
    logs = list(map(store.bucket_log, range(store.buckets)))
    folds = run_parallel(store.fs.parallel_buckets, fold_readable_part, logs)
    return {urn: state for fold in folds for urn, state in fold.datasets.items()}


def _fence(store: JobStore, epoch: int, run_id: str) -> None:
    log = store.job_log(epoch)
    fold = run_alone(log.settle(partial(next_log_record.fence, epoch=epoch, run_id=run_id)))
    if (fold.fence_epoch, fold.fence_run_id) != (epoch, run_id):
        raise StaleStoreError(
            "another run has begun on this store meanwhile",
            store=store.roots.store,
            expected=f"run {run_id}",
            found=f"run {fold.fence_run_id}, epoch {fold.fence_epoch}",
            todo="make sure that no other process works on the store, then rebuild again",
        )


def _require_written(state: DatasetState, epoch: int, fold: Fold) -> None:
    if not next_log_record.is_rebuilt(fold, epoch, state):
        dataset_state = fold.state_of(state.dataset_urn)
        watermark = format_watermark(dataset_state.watermark.positions if dataset_state.watermark else {})
        raise ConflictError(
            "an operator changed a dataset while the store was being rebuilt",
            dataset=state.dataset_urn,
            found=f"{dataset_state.status.value}, watermark {watermark}",
            todo="rebuild again",
        )


def _set_aside(store: JobStore, epoch: int, paths: list[str], tick: Callable[[], None]) -> None:
    """Move files out of the output to a folder of the store, under their relative paths."""
    fs, base = store.fs, f"{store.roots.store}/{set_aside_folder(epoch)}"
    touched: set[str] = set()
    for path in paths:
        target = f"{base}/{path.removeprefix(store.roots.output + '/')}"
        folder = target.rpartition("/")[0]
        if folder not in touched:
            fs.make_folders(folder)
        with suppress(FileNotFoundError):  # an operator who abandons its sequence was first
            _move(fs, path, target, store.roots.store)
        touched.add(folder)
        tick()
    fs.sync(touched, store.roots.store)
    fs.sync({path.rpartition("/")[0] for path in paths}, store.roots.output)


def _move(fs: FileSystem, path: str, target: str, root: str) -> None:
    """Rename a file. Copy and delete it if the store is on another file system, or on one that can't rename. Repeatable
    after a crash.
    """
    try:
        fs.rename(path, target)
    except OSError as error:
        if error.errno not in (errno.EXDEV, errno.EOPNOTSUPP):  # objects cannot be renamed
            raise
        fs.put_if_absent(target, fs.read(path))
        fs.sync([target.rpartition("/")[0]], root)  # the copy must be durable before the file is deleted
        fs.delete(path)

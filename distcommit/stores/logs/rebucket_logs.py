"""Rebucketing: give a job another number of buckets, or other names or commit groups of datasets.

All logs of the current generation are ended, new logs start with their state, then the job log names the new
generation. The model is `tests/spec/generation_model.py`.

After a crash any process can resume: it takes a new epoch and continues the recorded move. A fenced process can neither
end a log nor switch, and every process creates the same new logs.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from distcommit.core.errors import ConflictError, CorruptError
from distcommit.core.interfaces.commit_step import StepContext
from distcommit.core.records.log_records import Checkpoint, DatasetStatus
from distcommit.core.support.io_batching import BatchedWork, run_alone, run_batched, with_ids
from distcommit.core.support.parallel import run_parallel
from distcommit.core.work_units import SchemaIds
from distcommit.protocol import next_log_record
from distcommit.protocol.dataset_renaming import NamedNow, renamed
from distcommit.protocol.log_state import Fold
from distcommit.stores.folders.run_markers import Marker, newest_end, put_run_marker, read_markers
from distcommit.stores.logs.commit_log import CommitLog
from distcommit.stores.logs.fencing import end_run, fence_job, require_fence, require_newest
from distcommit.stores.logs.generation_checks import require_current_generation
from distcommit.stores.logs.log_anchors import durable_heads, record_cut_ended, require_intact, require_published
from distcommit.stores.logs.segment_format import Segment
from distcommit.stores.schemas.schema_copies import plan_copies, put_copies
from distcommit.stores.state.job_store import JobStore
from distcommit.stores.state.recorded_fixed_settings import change_settings
from distcommit.stores.state.task_states import PastStates

logger = logging.getLogger(__name__)

_SHOWN_NAMES = 20


@dataclass(frozen=True, slots=True)
class Move:
    """The requested buckets and dataset names of a rebucketing.

    Attributes:
        buckets: number of buckets.
        settings: new values of the fixed settings that name or group datasets, as the store records them.
        current_names: maps old dataset names to new ones; None if no dataset is renamed. The mapping follows from
            `settings`.
    """

    buckets: int
    settings: Mapping[str, str] = field(default_factory=dict)
    current_names: NamedNow | None = None


@dataclass(frozen=True, slots=True)
class Rebucketed:
    """The result of a rebucketing.

    Attributes:
        store: the store in its new generation.
        epoch: epoch of the move; 0 if no move was needed.
        datasets: number of datasets in the new logs.
        is_resumed: whether this command finished the move of an interrupted command.
    """

    store: JobStore
    epoch: int = 0
    datasets: int = 0
    is_resumed: bool = False


def rebucket(store: JobStore, move: Move, run_id: str, report_step: Callable[[str], None]) -> Rebucketed:
    """Move a job to another generation of logs. Costs O(old buckets + new buckets) operations.

    Args:
        store: the store in its current generation, with the new grouping of datasets.
        move: the requested buckets and names.
        run_id: unique id of this command.
        report_step: called with each step as it starts.

    Returns:
        the result, with the store in its new generation; durable.

    Raises:
        ConflictError: if a dataset is not idle, or a stopped dataset would get another name. The logs then have at most
            new fences. Also if another move is in progress, the store's generation is not current, or a log can't be
            ended.
        ConfigurationError: if the job's sink names no commit group for a dataset.
        FencedError: if another process has fenced the job meanwhile. If that process does not resume the move, repeat
            this command.
        StaleStoreError: if the store is older than its output.
        LostTailError: if a bucket's log has lost its newest segments.
        CorruptError: if a log cannot be read, a new log exists with other content, or the stored schema of a dataset to
            rename is lost or unreadable.
    """
    fold = store.job_log().refresh()
    require_current_generation(store, fold, moving=True)
    _require_same(store, fold, move)
    if fold.under_way is None and store.buckets == move.buckets and not move.settings:
        return Rebucketed(store)
    require_newest(store)
    _require_whole_logs(store, fold)
    if fold.under_way is None:  # reject before anything is changed
        _require_movable(store, move, run_parallel(store.fs.parallel_calls, CommitLog.refresh, _logs(store)))
    report_step("fence")
    epoch = fence_job(store, run_id, moving=True)
    put_run_marker(store.fs, store.roots.output, epoch, Marker.BEGAN)
    _require_whole_logs(store, store.job_log(epoch).refresh())
    fenced = run_batched(
        [with_ids(_fence_log(log, run_id), log=log.folder) for log in _logs(store, epoch)], store.fs.parallel_buckets
    )
    _require_movable(store, move, fenced)
    after = _begin(store, epoch, move)
    report_step("end logs")
    ended = run_batched(
        [with_ids(_end_log(log, after.generation), log=log.folder) for log in _logs(store, epoch)],
        store.fs.parallel_buckets,
    )
    report_step("begin logs")
    datasets = _begin_logs(after, epoch, ended, move)
    if move.settings:
        report_step("record settings")
        change_settings(store, move.settings, partial(_require_own_fence, store, epoch))
    report_step("switch")
    _switch(store, epoch, after)
    record_cut_ended(after, epoch, durable_heads(after))
    end_run(after, epoch, clean=True)
    return Rebucketed(after, epoch, datasets, is_resumed=fold.under_way is not None)


def _require_whole_logs(store: JobStore, job_fold: Fold) -> None:
    """Check that no log has lost segments and the output is not older, because the move would hide that."""
    require_current_generation(store, job_fold, moving=True)  # heads belong to the current generation
    context = StepContext(store.fs, store.roots.staging, store.roots.output)
    ended, past = newest_end(read_markers(store.fs, store.roots.output)), PastStates(store.fs, store.roots.store)
    for bucket, log in enumerate(_logs(store)):
        fold = require_intact(store, job_fold, bucket, log, past)
        if job_fold.began_epoch:
            require_published(context, log, fold, ended)


def _logs(store: JobStore, epoch: int = 0) -> list[CommitLog]:
    return [store.bucket_log(bucket, epoch) for bucket in range(store.buckets)]


def _require_same(store: JobStore, fold: Fold, move: Move) -> None:
    under_way = fold.under_way
    if under_way is not None and (under_way.buckets, under_way.settings) != (move.buckets, dict(move.settings)):
        raise ConflictError(
            "another change of the number of buckets or of settings is in progress",
            id="MOVE_IN_PROGRESS",
            store=store.roots.store,
            expected=_description(under_way.buckets, under_way.settings),
            found=_description(move.buckets, move.settings),
            todo=f"`distcommit store rebucket JOB.yaml --buckets {under_way.buckets}`, with these settings in the job"
            " file, finishes it; then repeat this command",
        )


def _description(buckets: int, settings: Mapping[str, str]) -> str:
    return ", ".join([f"{buckets} buckets", *(f"{name}: {value}" for name, value in sorted(settings.items()))])


def _require_movable(store: JobStore, move: Move, folds: Sequence[Fold]) -> None:
    states = [state for fold in folds for state in fold.datasets.values()]
    busy = sorted(f"{s.dataset_urn} ({s.status.value})" for s in states if s.status is not DatasetStatus.IDLE)
    if busy:
        raise ConflictError(
            "the store cannot be rebucketed while commits are unfinished",
            id="MOVE_WITH_OPEN_SEQUENCES",
            store=store.roots.store,
            expected="all datasets to be idle",
            found=_first_names(busy),
            todo="complete pending commits with `distcommit recover JOB.yaml`, release quarantined datasets with"
            " `distcommit dataset release JOB.yaml DATASET`, then repeat this command; nothing was changed",
        )
    stopped = sorted(state.dataset_urn for state in states if state.is_stopped) if move.current_names else []
    if stopped:
        raise ConflictError(
            "stopped datasets cannot be renamed",
            id="RENAME_OF_STOPPED_DATASET",
            store=store.roots.store,
            expected="no stopped dataset",
            found=_first_names(stopped),
            todo="`distcommit dataset release JOB.yaml DATASET retry`, run it with its former configuration, then"
            " repeat this; nothing was changed",
        )
    after = renamed(states, move.current_names) if move.current_names else states
    for state in after:
        store.bucket_of(state.dataset_urn)  # raises before any change if the sink names no group for it
    if move.current_names:
        plan_copies(
            store, states, after, move.current_names, epoch=0
        )  # raises before any change if a schema is unreadable


def _first_names(names: Sequence[str]) -> str:
    return ", ".join(names[:_SHOWN_NAMES]) + (
        f" and {len(names) - _SHOWN_NAMES} more" if len(names) > _SHOWN_NAMES else ""
    )


def _fence_log(log: CommitLog, run_id: str) -> BatchedWork[Fold]:
    fold = yield from log.settle(partial(next_log_record.fence, epoch=log.epoch, run_id=run_id))
    if not fold.moved_to:
        require_fence(fold, log.epoch, log.folder)
    return fold


def _begin(store: JobStore, epoch: int, move: Move) -> JobStore:
    log, generation = store.job_log(epoch), store.generation + 1
    make_beginnings = partial(
        next_log_record.rebucket, epoch=epoch, generation=generation, buckets=move.buckets, settings=move.settings
    )
    fold = run_alone(log.settle(make_beginnings))
    require_fence(fold, epoch, log.folder)
    _require_same(store, fold, move)
    return replace(store, generation=generation, buckets=move.buckets)


def _require_own_fence(store: JobStore, epoch: int) -> None:
    log = store.job_log(epoch)
    require_fence(log.refresh(), epoch, log.folder)


def _end_log(log: CommitLog, generation: int) -> BatchedWork[Fold]:
    fold = yield from log.settle(partial(next_log_record.move, epoch=log.epoch, generation=generation))
    if not fold.moved_to:
        require_fence(fold, log.epoch, log.folder)
        raise ConflictError("a bucket's log cannot be ended", log=log.folder, todo="repeat the command")
    return fold


def _begin_logs(after: JobStore, epoch: int, ended: Sequence[Fold], move: Move) -> int:
    """Create the new logs, durably; return the number of datasets in them.

    Raises:
        CorruptError: if a log has other content, which would be valid after the switch.
    """
    logs = _logs(after, epoch)
    make_beginnings = partial(next_log_record.beginnings, ended, after.buckets, after.bucket_of, move.current_names)
    beginnings = make_beginnings()
    if move.current_names:
        beginnings = make_beginnings(_rename_schemas(after, ended, beginnings, move.current_names))

    def make(log_and_beginning: tuple[CommitLog, Checkpoint]) -> str:
        log, beginning = log_and_beginning
        log.create(beginning)
        errors = [segment.record if isinstance(segment, Segment) else segment for _, segment in log.segments()]
        return "" if errors == [beginning] else log.folder

    results = run_parallel(after.fs.parallel_calls, make, list(zip(logs, beginnings, strict=True)))
    foreign_folders = [folder for folder in results if folder]
    if foreign_folders:
        job_log = after.job_log(epoch)
        require_fence(job_log.refresh(), epoch, job_log.folder)  # after a switch by another process runs write there
        raise CorruptError(
            "a log of the new generation exists with other content",
            id="FOREIGN_FILE_FOUND",
            path=foreign_folders[0],
            expected="only its first record, as this command writes it",
            todo=f"find out what created it, move {foreign_folders[0].rpartition('/')[0]} away and repeat the command",
        )
    after.fs.sync([log.folder for log in logs], after.roots.store)
    return sum(len(beginning.datasets) for beginning in beginnings)


def _rename_schemas(
    after: JobStore, ended: Sequence[Fold], beginnings: list[Checkpoint], named_now: NamedNow
) -> dict[str, SchemaIds]:
    """Copy schemas to new dataset names; return the ids of the copies. A resuming process writes the same copies."""
    before = [state for fold in ended for state in fold.datasets.values()]
    renamed_states = [state for beginning in beginnings for state in beginning.datasets]
    return put_copies(after, plan_copies(after, before, renamed_states, named_now, beginnings[0].fence_epoch))


def _switch(store: JobStore, epoch: int, after: JobStore) -> None:
    log = store.job_log(epoch)
    fold = run_alone(log.settle(partial(next_log_record.switch, epoch=epoch, generation=after.generation)))
    require_fence(fold, epoch, log.folder)
    logger.info(
        "the job has %d buckets", after.buckets, extra={"generation": after.generation, "store": store.roots.store}
    )

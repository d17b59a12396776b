"""Log anchors: recorded heads (newest segments), which show whether a bucket log has lost its newest segments.

A run records the heads in the job log after replay and at its end (CUT). An operator command records the head of each
log that it has changed (HEADS). Every writer of a bucket first checks the segment of its last recorded head. The model
is `tests/spec/anchor_model.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import partial

from distcommit.core.errors import CorruptError, DistcommitError, LostTailError, StaleStoreError
from distcommit.core.interfaces.commit_step import CommitStep, StepContext
from distcommit.core.records.job_log_records import CutPhase, Head
from distcommit.core.records.log_records import Intent
from distcommit.core.support.io_batching import run_alone
from distcommit.core.support.parallel import run_parallel
from distcommit.core.work_units import TaskOutcome, TaskState
from distcommit.protocol import next_log_record
from distcommit.protocol.log_state import Fold
from distcommit.steps.step_registry import load_steps
from distcommit.stores.folders.run_markers import Marker, read_markers
from distcommit.stores.logs.commit_log import CommitLog, checkpoint_every
from distcommit.stores.logs.fencing import OLDER_OUTPUT, require_fence
from distcommit.stores.logs.generation_checks import require_current_generation, require_not_moved
from distcommit.stores.state.job_store import JobStore
from distcommit.stores.state.task_states import PastStates


def require_head(job_fold: Fold, bucket: int, log: CommitLog) -> Fold:
    """Refresh a bucket log and return its state. The caller must have read the job log before.

    Raises:
        LostTailError: if the log lacks its newest recorded head.
        CorruptError: if the log cannot be read.
    """
    fold, head = log.refresh(), job_fold.heads.get(bucket)
    if head is not None and not log.has(head):
        newest = log.head(bucket).number
        raise _lost_tail(
            bucket,
            log,
            expected=f"segment {head.number} with checksum {head.checksum}",
            actual=f"another segment {head.number}" if newest >= head.number else f"segment {newest} as the newest",
        )
    return fold


def require_intact(store: JobStore, job_fold: Fold, bucket: int, log: CommitLog, past: PastStates) -> Fold:
    """Check that a bucket's log has lost no segments, and return its state. Raises the errors of `require_head`.

    If the newest run of the log died, or no run has checked the bucket since, the log must also contain every sequence
    that this run published.

    `past` can be shared by all buckets.
    """
    fold, head = require_head(job_fold, bucket, log), job_fold.heads.get(bucket)
    is_whole = head.is_complete if head is not None else not job_fold.began_epoch  # no run has written a CUT yet
    if fold.fence_epoch <= job_fold.ended_epoch and is_whole:
        return fold
    published = [
        (state, path) for state, path in _published_unsealed(store, bucket, fold, past) if _is_unsealed(state, fold)
    ]
    if not published:
        return fold
    fold = log.refresh()  # a live run seals before it publishes
    for state, path in published:
        sealed_later = read_markers(store.fs, store.roots.output)[Marker.UNSEALED] >= state.epoch  # at-least-once
        if _is_unsealed(state, fold) and not sealed_later:
            raise _lost_tail(
                bucket, log, expected=f"a sequence of {state.dataset_urn}, epoch {state.epoch}", actual=f"only {path}"
            )
    return fold


def _is_unsealed(state: TaskState, fold: Fold) -> bool:
    return fold.state_of(state.dataset_urn).closed_epoch < state.epoch


def _published_unsealed(store: JobStore, bucket: int, fold: Fold, past: PastStates) -> Iterator[tuple[TaskState, str]]:
    for state in past.of(fold.fence_run_id, bucket):
        if state.outcome is not TaskOutcome.FAILED and _is_unsealed(state, fold):
            paths = [f"{store.roots.output}/{file.final_path}" for file in state.files]
            file_status = run_parallel(store.fs.parallel_calls, store.fs.status, paths)
            yield from ((state, path) for path, status in zip(paths, file_status, strict=True) if status is not None)


def _lost_tail(bucket: int, log: CommitLog, *, expected: str, actual: str) -> LostTailError:
    return LostTailError(
        "a bucket's log has lost its newest segments",
        bucket=bucket,
        log=log.folder,
        expected=expected,
        found=actual,
        todo="restore the newest segments; if they are lost, `distcommit store rebuild` repairs the store from the"
        " published files. The bucket's datasets are skipped until then",
    )


def require_published(context: StepContext, log: CommitLog, fold: Fold, ended_epoch: int) -> None:
    """Check, after a crash, that the output contains the effects of sequences that dead runs have finished in a bucket.

    Args:
        ended_epoch: epoch of the newest run that has marked its end in the output. Effects up to this epoch are not
            checked, because users may delete them.

    Raises:
        StaleStoreError: if an effect is missing.
    """
    dead_epochs = {
        state.dataset_urn: state.done_epoch
        for state in fold.datasets.values()
        if state.done_epoch > ended_epoch and state.done_epoch not in state.accepted_epochs
    }
    for _, segment in log.segments() if dead_epochs else ():
        if isinstance(segment, DistcommitError) or not isinstance(segment.record, Intent):
            continue
        for sequence in segment.record.sequences:
            if dead_epochs.get(sequence.dataset_urn) != sequence.epoch:
                continue
            del dead_epochs[sequence.dataset_urn]  # the first INTENT counts
            gone: CommitStep | None = None
            with suppress(DistcommitError):  # a step type or sink that this process does not know
                gone = next((step for step in load_steps(sequence.steps, context) if step.is_gone()), None)
            if gone is not None:
                raise StaleStoreError(
                    "the output is older than its store",
                    id="OUTPUT_OLDER_THAN_STORE",
                    output=context.output_root,
                    dataset=sequence.dataset_urn,
                    epoch=sequence.epoch,
                    expected="all effects of the dead run",
                    found=f"no effect of {gone}",
                    todo=OLDER_OUTPUT,
                )


def record_cut_began(store: JobStore, epoch: int, heads: Iterable[Head]) -> int:
    """Record the heads after replay.

    Args:
        heads: durable heads of the buckets that this run has fenced and checked.

    Returns:
        the epoch of the previous run if the job log lacks its end, else 0.

    Raises:
        FencedError: if a newer run has started.
    """
    log = store.job_log(epoch)
    before = log.refresh()
    dead_epoch = before.began_epoch if before.began_epoch > before.ended_epoch else 0
    fold = run_alone(log.settle(partial(next_log_record.cut, epoch=epoch, phase=CutPhase.BEGAN, reported=tuple(heads))))
    require_fence(fold, epoch, log.folder)
    return dead_epoch


def record_cut_ended(store: JobStore, epoch: int, heads: Iterable[Head], *, decided_from: int = 0) -> None:
    """Record a run's end, unless a newer one has started, and write a due checkpoint.

    Arguments: see `record_cut_began` and `CommitLog.checkpoint`.
    """
    log = store.job_log(epoch)
    at_least = checkpoint_every(log.refresh())
    run_alone(
        log.settle(
            partial(
                next_log_record.end, epoch=epoch, reported=tuple(heads), at_least=at_least, decided_from=decided_from
            )
        )
    )
    log.truncate()


def discard_heads(store: JobStore, epoch: int, user: str) -> None:
    """Discard all recorded heads, so that the present logs count as complete, which only an operator may decide.
    `epoch` must be the newest one."""
    run_alone(store.job_log(epoch).settle(partial(next_log_record.discard_heads, epoch=epoch, user=user)))


def durable_heads(store: JobStore) -> Iterator[Head]:
    for bucket in range(store.buckets):
        with suppress(CorruptError):
            log = store.bucket_log(bucket)
            log.refresh()
            run_alone(log.make_durable())
            yield log.head(bucket)


@contextmanager
def by_hand(store: JobStore, bucket: int, user: str) -> Iterator[CommitLog]:
    """Open a bucket's log for an operator action.

    When the block ends, also by an exception, a changed head is durable and recorded in the job log.

    Raises:
        LostTailError: if the log has lost segments. Nothing was changed.
        ConflictError: if the number of buckets was changed, or a change is in progress.
    """
    with many_by_hand(store, user) as open_log:
        yield open_log(bucket)


@contextmanager
def many_by_hand(store: JobStore, user: str) -> Iterator[Callable[[int], CommitLog]]:
    """Yield a function that opens logs like `by_hand`."""
    job_log = store.job_log()
    job_fold = job_log.refresh()
    require_current_generation(store, job_fold)
    open_logs: dict[int, tuple[CommitLog, Head]] = {}
    past = PastStates(store.fs, store.roots.store)

    def open_log(bucket: int) -> CommitLog:
        log = store.bucket_log(bucket)
        require_not_moved(store, require_intact(store, job_fold, bucket, log, past))
        open_logs[bucket] = log, log.head(bucket)
        return log

    try:
        yield open_log
    finally:
        heads = {bucket: log.head(bucket) for bucket, (log, _) in open_logs.items()}
        changed_heads = [heads[bucket] for bucket, (_, before) in open_logs.items() if heads[bucket] != before]
        for head in changed_heads:
            run_alone(open_logs[head.bucket][0].make_durable())
        if changed_heads:
            run_alone(
                job_log.settle(
                    partial(next_log_record.heads, generation=store.generation, reported=changed_heads, user=user)
                )
            )

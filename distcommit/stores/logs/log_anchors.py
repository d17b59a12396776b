"""How the job log and the buckets' logs hold each other: heads in the one, the segments that they name in the others.

A run says in the job log where the buckets' logs were when it had replayed them, and when it ended (CUT); a person,
where one was after a command (HEADS). Whoever is about to write to a bucket asks here first whether its log still has
what it had. `tests/spec/anchor_model.py` is these rules as a model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import partial

from distcommit.core.errors import CorruptError, DistcommitError, LostTailError, StaleStoreError
from distcommit.core.interfaces.steps import CommitStep, StepContext
from distcommit.core.records.log_records import CutPhase, Head, Intent
from distcommit.core.support.parallel import in_flight
from distcommit.core.work import TaskOutcome, TaskState
from distcommit.protocol import next_record
from distcommit.protocol.fold import Fold
from distcommit.steps.registry import load_steps
from distcommit.stores.folders.ownership import Mark, read_marks
from distcommit.stores.logs.fencing import OLDER_OUTPUT, require_fence
from distcommit.stores.logs.generation import require_counting, require_not_moved
from distcommit.stores.logs.log import CommitLog, checkpoint_every
from distcommit.stores.state.job_store import JobStore
from distcommit.stores.state.task_states import PastStates


def require_head(job_fold: Fold, bucket: int, log: CommitLog) -> Fold:
    """The fold of a bucket's log, read after the job log was.

    Raises:
        LostTailError: if it lacks the segment that the newest head of the bucket names.
        CorruptError: if it can't be read.
    """
    fold, head = log.refresh(), job_fold.heads.get(bucket)
    if head is not None and not log.has(head):
        newest = log.head(bucket).number
        raise _lost_tail(
            bucket,
            log,
            expected=f"segment {head.number} with checksum {head.checksum}",
            found=f"another segment {head.number}" if newest >= head.number else f"segment {newest} as the newest",
        )
    return fold


def require_whole(store: JobStore, job_fold: Fold, bucket: int, log: CommitLog, past: PastStates) -> Fold:
    """As `require_head`; and if the newest run of the bucket died, or nobody has found the bucket whole since it ended,
    its log has to name what that run has published. `past`: one for all the buckets that somebody asks for."""
    fold, head = require_head(job_fold, bucket, log), job_fold.heads.get(bucket)
    is_whole = head.is_whole if head is not None else not job_fold.began_epoch  # no run has cut yet
    if fold.fence_epoch <= job_fold.ended_epoch and is_whole:
        return fold
    published = [(state, path) for state, path in _published(store, bucket, fold, past) if _is_open(state, fold)]
    if not published:
        return fold
    fold = log.refresh()  # a run that is alive seals, and then publishes
    for state, path in published:
        sealed_later = read_marks(store.fs, store.roots.output)[Mark.UNSEALED] >= state.epoch  # at-least-once
        if _is_open(state, fold) and not sealed_later:
            raise _lost_tail(
                bucket, log, expected=f"a sequence of {state.dataset_urn}, epoch {state.epoch}", found=f"only {path}"
            )
    return fold


def _is_open(state: TaskState, fold: Fold) -> bool:
    return fold.state_of(state.dataset_urn).closed_epoch < state.epoch


def _published(store: JobStore, bucket: int, fold: Fold, past: PastStates) -> Iterator[tuple[TaskState, str]]:
    """What the bucket's newest run has published of what it never sealed."""
    for state in past.of(fold.fence_run_id, bucket):
        if state.outcome is not TaskOutcome.FAILED and _is_open(state, fold):
            paths = [f"{store.roots.output}/{file.final_path}" for file in state.files]
            found = in_flight(store.fs.parallel_calls, store.fs.status, paths)
            yield from ((state, path) for path, status in zip(paths, found, strict=True) if status is not None)


def _lost_tail(bucket: int, log: CommitLog, *, expected: str, found: str) -> LostTailError:
    return LostTailError(
        "a bucket's log has lost its newest segments",
        bucket=bucket,
        log=log.folder,
        expected=expected,
        found=found,
        todo="put the newest segments back; if they are lost, `distcommit store rebuild` mends the store from the"
        " published files. The bucket's datasets are left alone until then",
    )


def require_published(context: StepContext, log: CommitLog, fold: Fold, ended_epoch: int) -> None:
    """After a death: that all is still there which the runs that died have done in a bucket, as far as its log tells.

    Args:
        context: where the steps' effects went.
        log: the bucket's, and
        fold: that of it.
        ended_epoch: the newest run that has marked its end in the output. What people take away of it and of older
            ones is theirs.

    Raises:
        StaleStoreError: naming what is missing.
    """
    died = {
        state.dataset_urn: state.done_epoch
        for state in fold.datasets.values()
        if state.done_epoch > ended_epoch and state.done_epoch not in state.accepted_epochs
    }
    for _, segment in log.segments() if died else ():
        if isinstance(segment, DistcommitError) or not isinstance(segment.record, Intent):
            continue
        for sequence in segment.record.sequences:
            if died.get(sequence.dataset_urn) != sequence.epoch:
                continue
            del died[sequence.dataset_urn]  # the first one counts
            gone: CommitStep | None = None
            with suppress(DistcommitError):  # of a kind or a sink that nobody here knows
                gone = next((step for step in load_steps(sequence.steps, context) if step.is_gone()), None)
            if gone is not None:
                raise StaleStoreError(
                    "the output is older than what was published into it",
                    output=context.output_root,
                    dataset=sequence.dataset_urn,
                    epoch=sequence.epoch,
                    expected="all that the run published which died",
                    found=f"no effect of {gone}",
                    todo=OLDER_OUTPUT,
                )


def cut_began(store: JobStore, epoch: int, seen: Iterable[Head]) -> None:
    """Says in the job log where the buckets' logs are, of which all that older runs left is replayed.

    Args:
        store: the store.
        epoch: the run's.
        seen: of the buckets that this run has fenced; each was durable, and had its last head.

    Raises:
        FencedError: if a newer run was there.
    """
    log = store.job_log(epoch)
    fold = log.settle(partial(next_record.cut, epoch=epoch, phase=CutPhase.BEGAN, seen=tuple(seen)))
    require_fence(fold, epoch, log.folder)


def cut_ended(store: JobStore, epoch: int, seen: Iterable[Head], *, decided_from: int = 0) -> None:
    """Says in the job log that a run has ended, unless a newer one has begun; then writes a checkpoint if one is due.

    Arguments as of `cut_began`, and of `CommitLog.checkpoint`.
    """
    log = store.job_log(epoch)
    due = checkpoint_every(log.refresh())
    log.settle(partial(next_record.end, epoch=epoch, seen=tuple(seen), at_least=due, decided_from=decided_from))
    log.truncate()


def forget_heads(store: JobStore, epoch: int, who: str) -> None:
    """Lets the buckets' logs go on as they stand, on a person's word. For the holder of the newest fence."""
    store.job_log(epoch).settle(partial(next_record.forget_heads, epoch=epoch, who=who))


def heads_now(store: JobStore) -> Iterator[Head]:
    """Where the logs of all buckets are that can be read, durably."""
    for bucket in range(store.buckets):
        with suppress(CorruptError):
            log = store.bucket_log(bucket)
            log.refresh()
            log.make_durable()
            yield log.head(bucket)


@contextmanager
def by_hand(store: JobStore, bucket: int, who: str) -> Iterator[CommitLog]:
    """A bucket's log, for what a person does to it. Once that is done, the job log says where it ended.

    Raises:
        LostTailError: if it has lost its newest segments; nothing was done.
        ConflictError: if the job has another number of buckets by now, or is on its way to one.
    """
    with many_by_hand(store, who) as open_log:
        yield open_log(bucket)


@contextmanager
def many_by_hand(store: JobStore, who: str) -> Iterator[Callable[[int], CommitLog]]:
    """As `by_hand`, for the logs of several buckets, which are asked for one by one."""
    job_log = store.job_log()
    job_fold = job_log.refresh()
    require_counting(store, job_fold)
    opened: dict[int, tuple[CommitLog, Head]] = {}
    past = PastStates(store.fs, store.roots.store)

    def open_log(bucket: int) -> CommitLog:
        log = store.bucket_log(bucket)
        require_not_moved(store, require_whole(store, job_fold, bucket, log, past))
        opened[bucket] = log, log.head(bucket)
        return log

    try:
        yield open_log
    finally:
        heads = {bucket: log.head(bucket) for bucket, (log, _) in opened.items()}
        moved = [heads[bucket] for bucket, (_, before) in opened.items() if heads[bucket] != before]
        for head in moved:
            opened[head.bucket][0].make_durable()
        if moved:
            job_log.settle(partial(next_record.heads, generation=store.generation, seen=moved, who=who))

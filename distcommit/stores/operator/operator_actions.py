"""Operator actions on a dataset.

Each action is a log record without epoch or fence, so it is possible beside a live run. Afterwards the log's new head
is recorded (`stores.logs.log_anchors`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial

from distcommit.core.errors import (
    ConflictError,
    DistcommitError,
)
from distcommit.core.interfaces.commit_step import CommitStep, StepContext, require_success, step_name
from distcommit.core.interfaces.committer import OpensCommitter
from distcommit.core.records.log_records import DatasetState, DatasetStatus, OperatorAction
from distcommit.core.records.read_failure_records import ReadFailure
from distcommit.core.records.sealed_sequences import SealedSequence, SequenceName
from distcommit.core.support.io_batching import run_alone
from distcommit.core.watermark import Watermark, format_watermark
from distcommit.core.work_units import SkippedRange
from distcommit.protocol import next_log_record
from distcommit.protocol.log_state import Fold
from distcommit.steps.step_registry import load_steps
from distcommit.stores.logs.commit_log import CommitLog
from distcommit.stores.logs.generation_checks import require_not_moved
from distcommit.stores.logs.log_anchors import by_hand, many_by_hand
from distcommit.stores.operator.accept_replacement_check import require_published_replacement
from distcommit.stores.operator.in_doubt_transactions import InDoubt
from distcommit.stores.state.job_store import JobStore


class Release(StrEnum):
    """Ways to release a dataset, described by the functions of these names."""

    RETRY = "retry"
    ACCEPT = "accept"
    ABANDON = "abandon"
    RESTART = "restart"


@dataclass(frozen=True, slots=True)
class RetryResult:
    """The result of `retry_all`.

    Attributes:
        datasets: URNs of the released datasets.
        unreadable: error by bucket, of buckets that could not be read.
    """

    datasets: list[str] = field(default_factory=list)
    unreadable: dict[str, str] = field(default_factory=dict)


def release(
    store: JobStore, urn: str, action: Release, user: str, committers: Mapping[str, OpensCommitter] | None = None
) -> Sequence[CommitStep]:
    """Release a dataset by an action. Return the steps that `accept` could not roll back; empty for other actions."""
    match action:
        case Release.RETRY:
            retry(store, urn, user)
        case Release.ACCEPT:
            return accept(store, urn, user, committers)
        case Release.ABANDON:
            abandon(store, urn, user, committers)
        case Release.RESTART:
            restart(store, urn, user, committers)
    return ()


def retry_all(store: JobStore, user: str) -> RetryResult:
    """Let the next run replay all quarantined datasets with all attempts, and read all stopped datasets.

    Datasets of unreadable buckets, and datasets that are being abandoned, are left out. Idempotent. Raises
    ConflictError if the number of buckets was changed, or is being changed.
    """
    retried = RetryResult()
    with many_by_hand(store, user) as open_log:
        for bucket in range(store.buckets):
            try:
                log = open_log(bucket)
                for state in log.refresh().datasets.copy().values():
                    if state.read_failure is not None and state.is_stopped:
                        _read_again(log, state.dataset_urn, state.read_failure, user)
                        retried.datasets.append(state.dataset_urn)
                    if state.status is DatasetStatus.QUARANTINED and state.sequence is not None:
                        _act(log, OperatorAction.RETRY, state.sequence, user)
                        retried.datasets.append(state.dataset_urn)
            except ConflictError:
                raise
            except (DistcommitError, OSError) as error:
                retried.unreadable[f"bucket {bucket}"] = str(error)
    return retried


def quarantine(store: JobStore, urn: str, user: str) -> None:
    """Quarantine a pending dataset whose sequence can never be finished.

    Raises:
        ConflictError: if the dataset is not pending, or its sequence is held by a run that has not decided to publish.
            The next run drops such a sequence.
    """
    with by_hand(store, store.bucket_of(urn), user) as log:
        state = log.refresh().state_of(urn)
        if state.open is None or state.status is not DatasetStatus.PENDING:
            raise _wrong_status(urn, state, "pending")
        sequence = state.open.sequence
        if state.open.held and sequence.epoch not in store.job_log().refresh().decided_epochs:
            raise ConflictError(
                "the dataset was held back with its whole run",
                id="SEQUENCE_HELD_BACK",
                dataset=urn,
                expected="a sequence that the next run replays",
                found=f"epoch {sequence.epoch}, which has not decided to publish",
                todo="run the job, or `distcommit recover`: the sequence is dropped, and its records are read again",
            )
        after = _act(log, OperatorAction.QUARANTINE, sequence, user).state_of(urn)
        if after.status is not DatasetStatus.QUARANTINED:
            raise _wrong_status(urn, after, "still pending")


def retry(store: JobStore, urn: str, user: str) -> None:
    """Let the next run replay a quarantined sequence with all attempts, or read a stopped dataset from its watermark.

    Raises:
        ConflictError: if the dataset is neither quarantined nor stopped.
    """
    with by_hand(store, store.bucket_of(urn), user) as log:
        state = log.refresh().state_of(urn)
        if state.read_failure is not None and state.is_stopped:
            _read_again(log, urn, state.read_failure, user)
            return
        _act(log, OperatorAction.RETRY, _require_status(log, urn), user)


NotPublished = Callable[[SealedSequence], tuple[SkippedRange, ...]]


def accept(
    store: JobStore,
    urn: str,
    user: str,
    committers: Mapping[str, OpensCommitter] | None = None,
    not_published: NotPublished = lambda sequence: (),
) -> Sequence[CommitStep]:
    """Declare a quarantined sequence done, and move the watermark.

    Unpublished data is lost, and so is data that an unfinished abandon has revoked. The positions that `not_published`
    returns are recorded as skipped. Prepared transactions are then rolled back.

    Returns:
        steps that could not be rolled back; the next run does that.

    Raises:
        ConflictError: if the dataset is neither quarantined nor being abandoned, or accept would double or lose
            records: the sequence publishes only files, replaces others, and is being abandoned or lacks its published
            tombstone, or it compacts files and is not published as a whole. Nothing was changed.
        OSError: if a note of an attempt cannot be written. Nothing was changed.
    """
    with by_hand(store, store.bucket_of(urn), user) as log:
        sequence = _require_status(log, urn, DatasetStatus.QUARANTINED, DatasetStatus.REVOKING)
        is_revoking = log.refresh().state_of(urn).status is DatasetStatus.REVOKING
        require_published_replacement(store, sequence, is_revoking=is_revoking)
        in_doubt = InDoubt(store, sequence, committers or {})
        unpublished = not_published(sequence)
        if is_revoking:  # else another process may have begun to abandon it after the check
            _act(log, OperatorAction.GIVEN_UP, sequence, user, unpublished)
        after = _act(log, OperatorAction.ACCEPT, sequence, user, unpublished).state_of(urn)
        if sequence.epoch not in after.accepted_epochs:
            raise _wrong_status(urn, after, "still quarantined")
    return in_doubt.roll_back()


def abandon(store: JobStore, urn: str, user: str, committers: Mapping[str, OpensCommitter] | None = None) -> None:
    """Undo a quarantined dataset's sequence. The next run reads its records again, from the present watermark.

    First the log records REVOKING, so that no run may execute the sequence any more. Then each target withdraws its
    commit, in reverse order, because targets that cannot withdraw are committed last. If a target refuses, the targets
    before it allow the commit again. Then staged files are deleted, so that a zombie cannot publish them later, and
    last the published files. After a crash a repeated call resumes. The model is `tests/spec/abandon_model.py`.

    Args:
        committers: committers of the sequence's sinks, by sink name.

    Raises:
        ConflictError: if the dataset is neither quarantined nor being abandoned, or was released or finished in the
            meantime: nothing was removed. Also if a step cannot be abandoned, or a sink cannot withdraw its commit: the
            dataset stays quarantined.
        SinkUnavailableError: if a sink of the steps is not among `committers`. Nothing was changed.
        DistcommitError: if a step cannot be undone. The dataset stays revoking, and a repeated call resumes.
    """
    context = StepContext(store.fs, store.roots.staging, store.roots.output, committers or {}, store.store_id)
    with by_hand(store, store.bucket_of(urn), user) as log:
        sequence = _require_status(log, urn, DatasetStatus.QUARANTINED, DatasetStatus.REVOKING)
        _abandon(log, sequence, context, user)


def restart(store: JobStore, urn: str, user: str, committers: Mapping[str, OpensCommitter] | None = None) -> None:
    """Abandon a quarantined dataset's sequence, and delete its watermark and the state of its targets.

    The next run reads the dataset from its beginning into the target that exists then. Use it if the target is not the
    one that the store knows, such as a table that was dropped and recreated. If the caller dies between the two
    actions, the next run quarantines the dataset again.

    Raises:
        ConflictError, DistcommitError: if the sequence cannot be abandoned, see `abandon`.
    """
    abandon(store, urn, user, committers)
    set_watermark(store, urn, None, user)


def _abandon(log: CommitLog, sequence: SealedSequence, context: StepContext, user: str) -> None:
    urn = sequence.dataset_urn
    irrevocable = next((step for step in load_steps(sequence.steps, context) if not step.can_be_abandoned()), None)
    if irrevocable is not None:
        _act(log, OperatorAction.RESTORED, sequence, user)
        raise ConflictError(
            "this kind of commit step cannot be abandoned",
            id="ROLLBACK_NOT_SUPPORTED",
            dataset=urn,
            step=repr(irrevocable),
            todo="release the dataset with retry or accept, or implement withdraw() and undo() in the step's class",
        )
    fold = _act(log, OperatorAction.REVOKING, sequence, user)
    revoked = fold.sequence(_name(sequence))
    if revoked is None or fold.state_of(urn).status is not DatasetStatus.REVOKING:
        raise _wrong_status(urn, fold.state_of(urn), "still quarantined")  # a run may publish it, or has
    # Until REVOKING, a run may have changed the steps. Files are sealed first and undone last: they never refuse.
    steps = list(load_steps(revoked.steps, context))[::-1]
    withdrawn: list[CommitStep] = []
    try:
        for step in steps:
            require_success(step_name(step), "withdraw", step.withdraw())
            withdrawn.append(step)
    except ConflictError:
        if _allow_again(withdrawn):
            _act(log, OperatorAction.RESTORED, sequence, user)
        raise
    for step in steps:
        require_success(step_name(step), "undo", step.undo())
    _act(log, OperatorAction.ABANDONED, sequence, user)


def _allow_again(withdrawn: Sequence[CommitStep]) -> bool:
    """Allow withdrawn steps again; return False if a step does not support that. Call it before RESTORED is recorded,
    after which runs may execute the steps."""
    try:
        for step in reversed(withdrawn):
            require_success(step_name(step), "allow", step.allow())
    except NotImplementedError:
        return False
    return True


def set_watermark(store: JobStore, urn: str, watermark: Watermark | None, user: str) -> None:
    """Set an idle dataset's watermark; None deletes it.

    A run that has planned the dataset cannot seal it any more. Moving back publishes records again, moving forward
    skips records.

    Raises:
        ConflictError: if the dataset has a sequence that is not done, or was changed in the meantime.
    """
    with by_hand(store, store.bucket_of(urn), user) as log:
        before = log.refresh().state_of(urn)
        if before.status is not DatasetStatus.IDLE:
            raise _wrong_status(urn, before, "idle")
        requested = partial(next_log_record.set_watermark, before=before, watermark=watermark, user=user)
        fold = run_alone(log.settle(requested))
        after = fold.state_of(urn)
        if after.watermark != watermark or (fold.moved_to and after == before):
            require_not_moved(store, fold)
            raise _wrong_status(urn, after, "unchanged meanwhile")


def set_watermarks(
    store: JobStore, requested: Mapping[str, Watermark], before: Mapping[str, Watermark | None], user: str
) -> None:
    """Set the watermarks of many idle datasets, within each bucket all or none. After a crash a repeated call resumes.

    Args:
        requested: the new watermarks, by dataset.
        before: the watermarks on which the operator decided. A dataset with another watermark is not changed.

    Raises:
        ConflictError: if a dataset is not idle, or its watermark has moved in the meantime. Its bucket is unchanged.
    """
    buckets: dict[int, dict[str, Watermark]] = {}
    for urn, watermark in requested.items():
        buckets.setdefault(store.bucket_of(urn), {})[urn] = watermark
    with many_by_hand(store, user) as open_log:
        for bucket, bucket_watermarks in sorted(buckets.items()):
            set_bucket = partial(next_log_record.set_watermarks, requested=bucket_watermarks, before=before, user=user)
            after = run_alone(open_log(bucket).settle(set_bucket))
            for urn, watermark in bucket_watermarks.items():
                if not next_log_record.is_set(after, urn, watermark):
                    require_not_moved(store, after)
                    raise _wrong_status(urn, after.state_of(urn), "idle and unchanged meanwhile")


def _require_status(log: CommitLog, urn: str, *allowed: DatasetStatus) -> SealedSequence:
    state = log.refresh().state_of(urn)
    if state.sequence is None or state.status not in (allowed or (DatasetStatus.QUARANTINED,)):
        raise _wrong_status(urn, state, "quarantined")
    return state.sequence


def _name(sequence: SealedSequence) -> SequenceName:
    return SequenceName(sequence.dataset_urn, sequence.epoch)


def _read_again(log: CommitLog, urn: str, failure: ReadFailure, user: str) -> None:
    name = SequenceName(urn, failure.epoch)
    run_alone(
        log.settle(partial(next_log_record.operator_decision, action=OperatorAction.READ_AGAIN, name=name, user=user))
    )


def _act(
    log: CommitLog, action: OperatorAction, sequence: SealedSequence, user: str, skipped: tuple[SkippedRange, ...] = ()
) -> Fold:
    return run_alone(
        log.settle(
            partial(next_log_record.operator_decision, action=action, name=_name(sequence), user=user, skipped=skipped)
        )
    )


_REMEDIES = {
    DatasetStatus.IDLE: ("DATASET_IDLE", "nothing: the dataset has no sequence that is still open"),
    DatasetStatus.PENDING: (
        "DATASET_PENDING",
        "commit it: the next run does, or `distcommit recover`; if it never can be, quarantine it",
    ),
    DatasetStatus.QUARANTINED: ("DATASET_IN_QUARANTINE", "release it with retry, accept or abandon"),
    DatasetStatus.REVOKING: (
        "DATASET_BEING_ABANDONED",
        "release it with abandon, which resumes; or with accept, if that can never succeed and no files are replaced",
    ),
}
"""Error id and remedy by status."""
_REMEDY_STOPPED = ("DATASET_NOT_READ", "release it with retry; or set its watermark past the unreadable records")


def _wrong_status(urn: str, state: DatasetState, expected: str) -> DistcommitError:
    watermark = format_watermark(state.watermark.positions if state.watermark else {})
    error_id, todo = _REMEDY_STOPPED if state.is_stopped else _REMEDIES[state.status]
    return ConflictError(
        "the action is not possible in the dataset's status",
        id=error_id,
        dataset=urn,
        expected=f"the dataset to be {expected}",
        found=f"{'stopped' if state.is_stopped else state.status.value}, watermark {watermark}",
        todo=todo,
    )

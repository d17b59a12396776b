"""What a person may do to a dataset: release a quarantined sequence or a stopped dataset, or set a watermark. Each is a
record in the log.

These records carry no epoch and need no fence, so that they work beside a run that is alive. Where the log ended that
they were written to, the job log is told before the command answers (`stores.logs.log_anchors`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial

from distcommit.core.errors import (
    ConflictError,
    CorruptError,
    DistcommitError,
    UnknownStepTypeError,
    UnknownVersionError,
)
from distcommit.core.interfaces.committer import OpensCommitter
from distcommit.core.interfaces.steps import CommitStep, StepContext, Verdict, require_success, step_name
from distcommit.core.records.log_records import DatasetState, DatasetStatus, HandAction, SealedSequence, SequenceName
from distcommit.core.records.read_failures import FailedReading
from distcommit.core.watermark import Watermark, shown_in_short
from distcommit.core.work import SkippedRange
from distcommit.protocol import next_record
from distcommit.protocol.fold import Fold
from distcommit.protocol.paths.output import is_tombstone
from distcommit.steps.registry import load_steps
from distcommit.steps.rename import FsRenameCommitStep
from distcommit.stores.logs.generation import require_not_moved
from distcommit.stores.logs.log import CommitLog
from distcommit.stores.logs.log_anchors import by_hand, many_by_hand
from distcommit.stores.operator.in_doubt import InDoubt
from distcommit.stores.state.job_store import JobStore


class Release(StrEnum):
    """How a quarantined dataset is let go."""

    RETRY = "retry"
    ACCEPT = "accept"
    ABANDON = "abandon"
    RESTART = "restart"


@dataclass(frozen=True, slots=True)
class Retried:
    """What `retry_all` did: the datasets it released, and the buckets it could not read, with the error."""

    datasets: list[str] = field(default_factory=list)
    unreadable: dict[str, str] = field(default_factory=dict)


def release(
    store: JobStore, urn: str, how: Release, who: str, committers: Mapping[str, OpensCommitter] | None = None
) -> Sequence[CommitStep]:
    """Releases a quarantined dataset in that way; see `retry`, `accept`, whose result it is, `abandon` and
    `restart`."""
    match how:
        case Release.RETRY:
            retry(store, urn, who)
        case Release.ACCEPT:
            return accept(store, urn, who, committers)
        case Release.ABANDON:
            abandon(store, urn, who, committers)
        case Release.RESTART:
            restart(store, urn, who, committers)
    return ()


def retry_all(store: JobStore, who: str) -> Retried:
    """Lets the next run replay every quarantined dataset again, with all its attempts, and read every stopped one. Safe
    to call again."""
    done = Retried()
    with many_by_hand(store, who) as open_log:
        for bucket in range(store.buckets):
            try:
                log = open_log(bucket)
                for state in log.refresh().datasets.copy().values():
                    if state.unread is not None and state.is_stopped:
                        _read_again(log, state.dataset_urn, state.unread, who)
                        done.datasets.append(state.dataset_urn)
                    if state.status is DatasetStatus.QUARANTINED and state.sequence is not None:
                        _act(log, HandAction.RETRY, state.sequence, who)
                        done.datasets.append(state.dataset_urn)
            except ConflictError:
                raise
            except (DistcommitError, OSError) as error:
                done.unreadable[f"bucket {bucket}"] = str(error)
    return done


def quarantine(store: JobStore, urn: str, who: str) -> None:
    """Lets no run go on with a pending dataset's sequence until a person releases it: the way out for what can't be
    finished and is nobody's failed attempt, such as a sink that is gone for good.

    Raises:
        ConflictError: if the dataset is not pending, or was held back by a run that has not decided to publish it: then
            the next run drops it.
    """
    with by_hand(store, store.bucket_of(urn), who) as log:
        state = log.refresh().state_of(urn)
        if state.open is None or state.status is not DatasetStatus.PENDING:
            raise _not(urn, state, "pending")
        sequence = state.open.sequence
        if state.open.held and sequence.epoch not in store.job_log().refresh().decided_epochs:
            raise ConflictError(
                "this dataset was held back with its whole run",
                dataset=urn,
                expected="a sequence that the next run replays",
                found=f"epoch {sequence.epoch}, which has not decided to publish",
                todo="run the job, or `distcommit recover`: the sequence is dropped, and its records are read again",
            )
        after = _act(log, HandAction.QUARANTINE, sequence, who).state_of(urn)
        if after.status is not DatasetStatus.QUARANTINED:
            raise _not(urn, after, "pending still")


def retry(store: JobStore, urn: str, who: str) -> None:
    """Lets the next run replay a quarantined dataset's sequence again, with all its attempts. A dataset that was
    stopped, as too many runs could not read it, is read again, from its watermark.

    Raises:
        ConflictError: if the dataset is neither quarantined nor stopped.
    """
    with by_hand(store, store.bucket_of(urn), who) as log:
        state = log.refresh().state_of(urn)
        if state.unread is not None and state.is_stopped:
            _read_again(log, urn, state.unread, who)
            return
        _act(log, HandAction.RETRY, _quarantined(log, urn), who)


NotPublished = Callable[[SealedSequence], tuple[SkippedRange, ...]]
"""Returns the positions of a sequence that are published nowhere, as it is."""


def accept(
    store: JobStore,
    urn: str,
    who: str,
    committers: Mapping[str, OpensCommitter] | None = None,
    not_published: NotPublished = lambda sequence: (),
) -> Sequence[CommitStep]:
    """Declares a quarantined dataset's sequence done as it is: its watermark moves, and the sequence is marked as
    accepted by a person. What it has not published is lost; also what was taken back of it, if it was being abandoned
    and that can never be finished: `not_published` returns it, and it is recorded as skipped. What is prepared at
    targets for it is rolled back then, by `committers`.

    Returns:
        the steps of which it could not be, as the target is away: the next run of the job rolls it back.

    Raises:
        ConflictError: if the dataset is neither quarantined nor being abandoned, or not any more as this is written; or
            if what it replaces would be read beside it, as what says so is not published: nothing was changed.
        OSError: if what is prepared can't be noted: nothing was changed.
    """
    with by_hand(store, store.bucket_of(urn), who) as log:
        sequence = _quarantined(log, urn, DatasetStatus.QUARANTINED, DatasetStatus.REVOKING)
        if log.refresh().state_of(urn).status is DatasetStatus.QUARANTINED:
            _require_replaced(store, sequence)
        in_doubt = InDoubt(store, sequence, committers or {})
        lost = not_published(sequence)
        _act(log, HandAction.GIVEN_UP, sequence, who, lost)
        after = _act(log, HandAction.ACCEPT, sequence, who, lost).state_of(urn)
        if sequence.epoch not in after.accepted_epochs:
            raise _not(urn, after, "quarantined still")
    return in_doubt.roll_back()


def abandon(store: JobStore, urn: str, who: str, committers: Mapping[str, OpensCommitter] | None = None) -> None:
    """Undoes a quarantined dataset's sequence: the next run reads its records again, from the watermark it has.

    First no run may execute it any more (REVOKING). Then the targets are asked, the last one first, as what can't take
    anything back is committed last: what a sink's committer was given is taken back by one of `committers`, by the
    sink's name. Where one refuses, those before it allow it again. Then what is staged is taken away, so that a zombie
    can't publish it later, and only then published files. Safe to call again after a crash. The model of it is
    `tests/spec/abandon_model.py`.

    Raises:
        ConflictError: if the dataset is neither quarantined nor being abandoned, or somebody has let it be tried again
            or finished it meanwhile: nothing was removed; or if one of its steps is of a kind that can't be abandoned,
            or the sink can't take back what it has committed: the dataset is quarantined as before.
        SinkUnavailableError: if its steps belong to a sink that is not among them; nothing was changed.
        DistcommitError: if a step can't be undone; the dataset stays revoking, and calling again goes on.
    """
    context = StepContext(store.fs, store.roots.staging, store.roots.output, committers or {}, store.store_id)
    with by_hand(store, store.bucket_of(urn), who) as log:
        sequence = _quarantined(log, urn, DatasetStatus.QUARANTINED, DatasetStatus.REVOKING)
        _abandon(log, sequence, context, who)


def restart(store: JobStore, urn: str, who: str, committers: Mapping[str, OpensCommitter] | None = None) -> None:
    """Abandon a quarantined dataset's sequence, and forget its watermark and what its targets have. The next run reads
    the dataset from its beginning into the target that is there then.

    For a target that is not the one that the store knows, such as a table that was dropped and recreated. If the caller
    dies between the two actions, the next run quarantines the dataset again.

    Raises:
        ConflictError, DistcommitError: as `abandon`.
    """
    abandon(store, urn, who, committers)
    set_watermark(store, urn, None, who)


def _abandon(log: CommitLog, sequence: SealedSequence, context: StepContext, who: str) -> None:
    urn = sequence.dataset_urn
    steps = list(load_steps(sequence.steps, context))[::-1]  # files are sealed first: they go last, they can't refuse
    lasting = next((step for step in steps if not step.can_be_abandoned()), None)
    if lasting is not None:
        _act(log, HandAction.RESTORED, sequence, who)
        raise ConflictError(
            "this kind of commit step can't be abandoned",
            dataset=urn,
            step=repr(lasting),
            todo="release the dataset with retry or accept, or give the step `withdraw` and `undo`",
        )
    fold = _act(log, HandAction.REVOKING, sequence, who)
    if fold.sequence(_name(sequence)) is None or fold.state_of(urn).status is not DatasetStatus.REVOKING:
        raise _not(urn, fold.state_of(urn), "quarantined still")  # a run may publish it, or has
    withdrawn: list[CommitStep] = []
    try:
        for step in steps:
            require_success(step_name(step), "withdraw", step.withdraw())
            withdrawn.append(step)
    except ConflictError:
        if _allowed(withdrawn):
            _act(log, HandAction.RESTORED, sequence, who)
        raise
    for step in steps:
        require_success(step_name(step), "undo", step.undo())
    _act(log, HandAction.ABANDONED, sequence, who)


def _allowed(withdrawn: Sequence[CommitStep]) -> bool:
    """Whether all of these may be executed again. Before RESTORED: a run that tries them is then not refused."""
    try:
        for step in reversed(withdrawn):
            require_success(step_name(step), "allow", step.allow())
    except NotImplementedError:
        return False
    return True


def set_watermark(store: JobStore, urn: str, watermark: Watermark | None, who: str) -> None:
    """Moves an idle dataset's watermark, in either direction; None forgets it. A run that has planned the dataset can't
    seal it any more. Going back publishes records again, going forward skips them: that is the person's decision.

    Raises:
        ConflictError: if the dataset has a sequence that is not done.
    """
    with by_hand(store, store.bucket_of(urn), who) as log:
        before = log.refresh().state_of(urn)
        if before.status is not DatasetStatus.IDLE:
            raise _not(urn, before, "idle")
        wanted = partial(next_record.set_watermark, before=before, watermark=watermark, who=who)
        fold = log.settle(wanted)
        after = fold.state_of(urn)
        if after.watermark != watermark or (fold.moved_to and after == before):
            require_not_moved(store, fold)
            raise _not(urn, after, "left alone meanwhile")


def set_watermarks(
    store: JobStore, wanted: Mapping[str, Watermark], before: Mapping[str, Watermark | None], who: str
) -> None:
    """Sets the watermarks of many idle datasets, those of a bucket all or none. Safe to call again after a crash.

    Args:
        store: the job's store.
        wanted: the new watermarks, by dataset.
        before: the watermarks that the person decided on; a dataset that has another one by now is left alone.
        who: the person.

    Raises:
        ConflictError: if a dataset is not idle, or has moved meanwhile: nothing was done to its bucket.
    """
    buckets: dict[int, dict[str, Watermark]] = {}
    for urn, watermark in wanted.items():
        buckets.setdefault(store.bucket_of(urn), {})[urn] = watermark
    with many_by_hand(store, who) as open_log:
        for bucket, mine in sorted(buckets.items()):
            set_mine = partial(next_record.set_watermarks, wanted=mine, before=before, who=who)
            after = open_log(bucket).settle(set_mine)
            for urn, watermark in mine.items():
                if not next_record.is_set(after, urn, watermark):
                    require_not_moved(store, after)
                    raise _not(urn, after.state_of(urn), "idle and left alone meanwhile")


def _quarantined(log: CommitLog, urn: str, *allowed: DatasetStatus) -> SealedSequence:
    state = log.refresh().state_of(urn)
    if state.sequence is None or state.status not in (allowed or (DatasetStatus.QUARANTINED,)):
        raise _not(urn, state, "quarantined")
    return state.sequence


def _require_replaced(store: JobStore, sequence: SealedSequence) -> None:
    """Makes sure that a sequence of files that takes the place of others says so, if it is to count as it is."""
    if any(batch.type_name != FsRenameCommitStep.type_name for batch in sequence.steps):
        return  # it may be of a kind that can't be abandoned
    context = StepContext(store.fs, store.roots.staging, store.roots.output)
    with suppress(UnknownStepTypeError, UnknownVersionError, CorruptError):  # what only accept can end
        for step in load_steps(sequence.steps, context):
            replaces = isinstance(step, FsRenameCommitStep) and is_tombstone(step.file.final_path)
            if replaces and step.verify() is not Verdict.DONE:
                raise ConflictError(
                    "this sequence takes the place of files, and what says so is not published",
                    dataset=sequence.dataset_urn,
                    epoch=sequence.epoch,
                    found=repr(step),
                    todo="release the dataset with abandon: its records are read again. Accepted, both would be read",
                )


def _name(sequence: SealedSequence) -> SequenceName:
    return SequenceName(sequence.dataset_urn, sequence.epoch)


def _read_again(log: CommitLog, urn: str, unread: FailedReading, who: str) -> None:
    name = SequenceName(urn, unread.epoch)
    log.settle(partial(next_record.by_hand, action=HandAction.READ_AGAIN, name=name, who=who))


def _act(
    log: CommitLog, action: HandAction, sequence: SealedSequence, who: str, skipped: tuple[SkippedRange, ...] = ()
) -> Fold:
    """Appends the action if the sequence still has the status it needs. Whether it had, the fold shows."""
    return log.settle(partial(next_record.by_hand, action=action, name=_name(sequence), who=who, skipped=skipped))


_TODO = {
    DatasetStatus.IDLE: "nothing: the dataset has no sequence that is not done",
    DatasetStatus.PENDING: "commit it: the next run does, or `distcommit recover`; if it never can be, quarantine it",
    DatasetStatus.QUARANTINED: "release it with retry, accept or abandon",
    DatasetStatus.REVOKING: "release it with abandon, which goes on; or with accept, if that can never be",
}
"""What gets a dataset out of where it stands."""
_TODO_STOPPED = "release it with retry; or set its watermark past what can't be read"


def _not(urn: str, state: DatasetState, expected: str) -> DistcommitError:
    watermark = shown_in_short(state.watermark.positions if state.watermark else {})
    return ConflictError(
        "this can't be done to the dataset as it stands",
        dataset=urn,
        expected=f"it to be {expected}",
        found=f"{'stopped' if state.is_stopped else state.status.value}, watermark {watermark}",
        todo=_TODO_STOPPED if state.is_stopped else _TODO[state.status],
    )

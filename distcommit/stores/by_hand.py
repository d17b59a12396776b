"""What a person may do to a dataset: release a quarantined sequence, or set a watermark. Each is a record in the log.

These records carry no epoch and need no fence, so that they work beside a run that is alive.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from distcommit.model.errors import ConflictError, DistcommitError
from distcommit.model.log_records import (
    ByHand,
    DatasetState,
    DatasetStatus,
    HandAction,
    Record,
    SealedSequence,
    SequenceName,
    SetWatermark,
    SetWatermarks,
)
from distcommit.model.sink import Sink
from distcommit.model.steps import StepContext
from distcommit.model.urn import bucket_of
from distcommit.model.watermark import Watermark
from distcommit.protocol.fold import Fold
from distcommit.steps.registry import load_steps
from distcommit.stores.job_store import JobStore
from distcommit.stores.log import CommitLog


def retry(store: JobStore, urn: str, who: str) -> None:
    """Lets the next run replay a quarantined dataset's sequence again, with all its attempts.

    Raises:
        ConflictError: if the dataset is not quarantined.
    """
    log, sequence = _quarantined(store, urn)
    _act(log, HandAction.RETRY, sequence, who, DatasetStatus.QUARANTINED)


def accept(store: JobStore, urn: str, who: str) -> None:
    """Declares a quarantined dataset's sequence done as it is: its watermark moves, and the sequence is marked as
    accepted by a person. What it has not published is lost.

    Raises:
        ConflictError: if the dataset is not quarantined, or not any more as this is written.
    """
    log, sequence = _quarantined(store, urn)
    after = _act(log, HandAction.ACCEPT, sequence, who, DatasetStatus.QUARANTINED).state_of(urn)
    if sequence.epoch not in after.accepted_epochs:
        raise _not(urn, after, "quarantined still")


def abandon(store: JobStore, urn: str, who: str, sink: Sink | None = None) -> None:
    """Undoes a quarantined dataset's sequence: the next run reads its records again, from the watermark it has.

    First no run may execute it any more (REVOKING), then what is staged is taken away, so that a zombie can't publish
    it later, and only then what was published. Safe to call again after a crash. What a sink of the user's own was
    given is taken back by the committer of `sink`.

    Raises:
        ConflictError: if the dataset is neither quarantined nor being abandoned, or somebody has let it be tried again
            meanwhile: nothing was removed; or if the sink can't take back what it has committed: the dataset is
            quarantined as before.
        SinkUnavailableError: if its steps belong to another sink; nothing was changed.
        DistcommitError: if a step can't be undone; the dataset stays revoking, and calling again goes on.
    """
    log, sequence = _quarantined(store, urn, DatasetStatus.QUARANTINED, DatasetStatus.REVOKING)
    context = StepContext(store.fs, store.roots.staging, store.roots.output, sink)
    steps = list(load_steps(sequence.steps, context))
    fold = _act(log, HandAction.REVOKING, sequence, who, DatasetStatus.QUARANTINED)
    if fold.sequence(_name(sequence)) is None or fold.state_of(urn).status is not DatasetStatus.REVOKING:
        raise _not(urn, fold.state_of(urn), "quarantined still")  # a run may publish it, or has
    withdrawn = False
    try:
        for step in steps:
            step.withdraw()
            withdrawn = True
    except ConflictError:
        if not withdrawn:
            _act(log, HandAction.RESTORED, sequence, who, DatasetStatus.REVOKING)
        raise
    for step in steps:
        step.undo()
    _act(log, HandAction.ABANDONED, sequence, who, DatasetStatus.REVOKING)


def set_watermark(store: JobStore, urn: str, watermark: Watermark | None, who: str) -> None:
    """Moves an idle dataset's watermark, in either direction; None forgets it. A run that has planned the dataset can't
    seal it any more. Going back publishes records again, going forward skips them: that is the person's decision.

    Raises:
        ConflictError: if the dataset has a sequence that is not done.
    """
    log = store.bucket_log(bucket_of(urn, store.buckets))
    before = log.refresh().state_of(urn)
    if before.status is not DatasetStatus.IDLE:
        raise _not(urn, before, "idle")

    def decide(fold: Fold) -> Record | None:
        now = fold.state_of(urn)
        return SetWatermark(urn, watermark, who) if now == before and not _is_set(fold, urn, watermark) else None

    after = log.settle(decide).state_of(urn)
    if after.watermark != watermark:
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
        buckets.setdefault(bucket_of(urn, store.buckets), {})[urn] = watermark
    for bucket, mine in sorted(buckets.items()):
        log = store.bucket_log(bucket)

        def decide(fold: Fold, mine: dict[str, Watermark] = mine) -> Record | None:
            left = {urn: watermark for urn, watermark in mine.items() if not _is_set(fold, urn, watermark)}
            states = map(fold.state_of, left)
            as_before = all(
                state.status is DatasetStatus.IDLE and state.watermark == before[state.dataset_urn] for state in states
            )
            return SetWatermarks(left, who) if left and as_before else None

        after = log.settle(decide)
        for urn, watermark in mine.items():
            if not _is_set(after, urn, watermark):
                raise _not(urn, after.state_of(urn), "idle and left alone meanwhile")


def _is_set(fold: Fold, urn: str, watermark: Watermark | None) -> bool:
    """Whether the dataset has this watermark, and no run that has begun can seal it any more."""
    state = fold.state_of(urn)
    return urn in fold.datasets and state.watermark == watermark and state.closed_epoch >= fold.fence_epoch


def _quarantined(store: JobStore, urn: str, *allowed: DatasetStatus) -> tuple[CommitLog, SealedSequence]:
    log = store.bucket_log(bucket_of(urn, store.buckets))
    state = log.refresh().state_of(urn)
    if state.sequence is None or state.status not in (allowed or (DatasetStatus.QUARANTINED,)):
        raise _not(urn, state, "quarantined")
    return log, state.sequence


def _name(sequence: SealedSequence) -> SequenceName:
    return SequenceName(sequence.dataset_urn, sequence.epoch)


def _act(log: CommitLog, action: HandAction, sequence: SealedSequence, who: str, needed: DatasetStatus) -> Fold:
    """Appends the action if the sequence still has the status it needs. Whether it had, the fold shows."""
    name = _name(sequence)
    decide: Callable[[Fold], Record | None] = lambda fold: (  # noqa: E731
        ByHand(action, name, who)
        if fold.sequence(name) is not None and fold.state_of(name.dataset_urn).status is needed
        else None
    )
    return log.settle(decide)


def _not(urn: str, state: DatasetState, expected: str) -> DistcommitError:
    return ConflictError(
        "this can't be done to the dataset as it stands",
        dataset=urn,
        expected=f"it to be {expected}",
        found=f"{state.status.value}, watermark {state.watermark}",
        todo="look at `distcommit status`",
    )

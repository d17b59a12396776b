"""The commit log's rules: which record may follow which state, and what it does.

`valid` is the one table of validity. The writer asks it before its put, and every fold asks it for every record; a
record that is not valid where it stands is ignored. The executable model of these rules, with the naive variants that
break, is `tests/spec/log_model.py`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import assert_never

from msgspec.structs import replace

from distcommit.model.log_records import (
    ByHand,
    Checkpoint,
    DatasetState,
    DatasetStatus,
    Decide,
    Done,
    Dropped,
    Failed,
    Fence,
    HandAction,
    Intent,
    Left,
    Rebuilt,
    Record,
    SealedSequence,
    SequenceName,
    SetWatermark,
    SetWatermarks,
)
from distcommit.model.watermark import Watermark

IDLE, PENDING = DatasetStatus.IDLE, DatasetStatus.PENDING
QUARANTINED, REVOKING = DatasetStatus.QUARANTINED, DatasetStatus.REVOKING

_BY_HAND: dict[HandAction, tuple[DatasetStatus, DatasetStatus]] = {
    HandAction.RETRY: (QUARANTINED, PENDING),
    HandAction.ACCEPT: (QUARANTINED, IDLE),
    HandAction.REVOKING: (QUARANTINED, REVOKING),
    HandAction.RESTORED: (REVOKING, QUARANTINED),
    HandAction.ABANDONED: (REVOKING, IDLE),
    HandAction.QUARANTINE: (PENDING, QUARANTINED),
    HandAction.GIVEN_UP: (REVOKING, IDLE),
}
"""What a person's action needs, and what it leads to."""


class Fold:
    """The state of one log after some records; `apply` moves it on. Not shared between threads.

    `number`: that of the newest record, valid or not. `has_ended`: a checkpoint follows the newest fence. In the job
    log that is how a run ends.
    """

    __slots__ = (
        "datasets",
        "decided_epochs",
        "fence_epoch",
        "fence_run_id",
        "has_ended",
        "ignored",
        "last_checkpoint",
        "number",
        "previous_checkpoint",
    )

    def __init__(self) -> None:
        self.number = self.fence_epoch = 0
        self.fence_run_id = ""
        self.has_ended = False
        self.decided_epochs: frozenset[int] = frozenset()
        self.datasets: dict[str, DatasetState] = {}
        self.last_checkpoint = self.previous_checkpoint = 0
        self.ignored: list[tuple[int, str]] = []

    def state_of(self, urn: str) -> DatasetState:
        """The dataset's state; a dataset never heard of is idle, without a watermark."""
        return self.datasets.get(urn) or DatasetState(urn)

    def sequence(self, name: SequenceName) -> SealedSequence | None:
        """The present sequence of that name, whatever its status."""
        sequence = self.state_of(name.dataset_urn).sequence
        return sequence if sequence is not None and sequence.epoch == name.epoch else None

    def pending(self) -> list[DatasetState]:
        """Datasets whose sequence is to be executed (or dropped, if held and never decided)."""
        return [state for state in self.datasets.values() if state.status is PENDING]

    def checkpoint(self, decided_from: int = 0) -> Checkpoint:
        """The whole fold as a record; decisions of epochs below `decided_from` are needed by nobody any more."""
        return Checkpoint(
            self.fence_epoch,
            self.fence_run_id,
            tuple(sorted(epoch for epoch in self.decided_epochs if epoch >= decided_from)),
            tuple(self.datasets[urn] for urn in sorted(self.datasets)),
            self.last_checkpoint,
        )


def valid(record: Record, fold: Fold) -> bool:
    """Whether `record` may follow a log whose fold is `fold`."""
    match record:
        case Checkpoint():
            return True
        case Fence():
            return record.epoch > fold.fence_epoch
        case Decide():
            return record.epoch == fold.fence_epoch
        case Intent():
            urns = [sequence.dataset_urn for sequence in record.sequences]
            return (
                record.epoch == fold.fence_epoch
                and len(set(urns)) == len(urns)
                and not (record.held and record.published)
                and all(_fits(sequence, record.epoch, fold) for sequence in record.sequences)
            )
        case Done():
            return record.epoch == fold.fence_epoch and _all_in(record.sequences, fold, (PENDING, QUARANTINED))
        case Failed():
            return record.epoch == fold.fence_epoch and _all_in((record.sequence,), fold, (PENDING,))
        case Left():
            names = [SequenceName(left.dataset_urn, left.epoch) for left in record.sequences]
            return record.epoch == fold.fence_epoch and _all_in(names, fold, (PENDING,))
        case Dropped():
            return (
                record.epoch == fold.fence_epoch
                and _all_in(record.sequences, fold, (PENDING,))
                and all(fold.state_of(n.dataset_urn).held and n.epoch < record.epoch for n in record.sequences)
            )
        case ByHand():
            return _all_in((record.sequence,), fold, (_BY_HAND[record.action][0],))
        case SetWatermark():
            return fold.state_of(record.dataset_urn).status is IDLE
        case SetWatermarks():
            return all(fold.state_of(urn).status is IDLE for urn in record.watermarks)
        case Rebuilt():
            rebuilt = {state.dataset_urn for state in record.datasets if state.closed_epoch <= record.epoch}
            return record.epoch == fold.fence_epoch and len(rebuilt) == len(record.datasets)
    assert_never(record)


def may_seal(fold: Fold, epoch: int, urn: str, low: Watermark | None) -> bool:
    """Whether the run of `epoch`, unless it is fenced, may seal what it has planned of a dataset on watermark `low`."""
    state = fold.state_of(urn)
    return state.status is IDLE and state.closed_epoch < epoch and state.watermark == low


def _fits(sequence: SealedSequence, epoch: int, fold: Fold) -> bool:
    return sequence.epoch == epoch and may_seal(fold, epoch, sequence.dataset_urn, sequence.low)


def _all_in(names: Iterable[SequenceName], fold: Fold, allowed: tuple[DatasetStatus, ...]) -> bool:
    """Whether these are different present sequences, each with one of these statuses."""
    listed = list(names)
    return len({n.dataset_urn for n in listed}) == len(listed) and all(
        fold.sequence(n) is not None and fold.state_of(n.dataset_urn).status in allowed for n in listed
    )


def apply(number: int, record: Record, fold: Fold) -> None:
    """Moves `fold` past the record that stands at `number`; an invalid one is noted and changes nothing else."""
    fold.number = number
    if not valid(record, fold):
        fold.ignored.append((number, type(record).__name__))
        return
    match record:
        case Checkpoint():
            fold.fence_epoch, fold.fence_run_id = record.fence_epoch, record.fence_run_id
            fold.decided_epochs = frozenset(record.decided_epochs)
            fold.datasets = {state.dataset_urn: state for state in record.datasets}
            fold.last_checkpoint, fold.previous_checkpoint = number, record.previous
            fold.has_ended = True
        case Fence():
            fold.fence_epoch, fold.fence_run_id = record.epoch, record.run_id
            fold.has_ended = False
        case Decide():
            fold.decided_epochs |= {record.epoch}
        case Intent():
            for sequence in record.sequences:
                _update(
                    fold,
                    sequence.dataset_urn,
                    status=PENDING,
                    sequence=sequence,
                    held=record.held,
                    closed_epoch=record.epoch,
                )
                if record.published:
                    _publish(fold, SequenceName(sequence.dataset_urn, sequence.epoch))
        case Done():
            for name in record.sequences:
                _publish(fold, name)
        case Failed():
            state = fold.state_of(record.sequence.dataset_urn)
            tried = tuple(sorted({*state.tried_epochs, record.epoch}))
            status = QUARANTINED if record.quarantine else PENDING
            _update(fold, state.dataset_urn, status=status, tried_epochs=tried, reason=record.reason, outage=False)
        case Left():
            for left in record.sequences:
                _update(fold, left.dataset_urn, reason=left.reason, outage=record.outage)
        case Dropped():
            for name in record.sequences:
                _forget(fold, name.dataset_urn)
        case ByHand():
            _by_hand(fold, record)
        case SetWatermark():
            _set(fold, record.dataset_urn, record.watermark)
        case SetWatermarks():
            for urn, watermark in record.watermarks.items():
                _set(fold, urn, watermark)
        case Rebuilt():
            fold.datasets.update({state.dataset_urn: state for state in record.datasets})
        case _:
            assert_never(record)


def _by_hand(fold: Fold, record: ByHand) -> None:
    urn = record.sequence.dataset_urn
    match record.action:
        case HandAction.ACCEPT | HandAction.GIVEN_UP:
            accepted = (*fold.state_of(urn).accepted_epochs, record.sequence.epoch)
            _publish(fold, record.sequence)
            _update(fold, urn, accepted_epochs=accepted)
        case HandAction.ABANDONED:
            _forget(fold, urn)
        case HandAction.RETRY:
            _update(fold, urn, status=PENDING, tried_epochs=())
        case HandAction.QUARANTINE:
            reason = fold.state_of(urn).reason or f"quarantined by {record.who}"
            _update(fold, urn, status=QUARANTINED, reason=reason)
        case HandAction.REVOKING | HandAction.RESTORED:
            _update(fold, urn, status=_BY_HAND[record.action][1])
        case _:
            assert_never(record.action)


def _publish(fold: Fold, name: SequenceName) -> None:
    state = fold.state_of(name.dataset_urn)
    sequence = state.sequence
    if sequence is None:  # `valid` has seen it
        raise AssertionError(name)
    high = sequence.high if sequence.high is not None else state.watermark
    _update(
        fold,
        name.dataset_urn,
        status=IDLE,
        sequence=None,
        held=False,
        watermark=high,
        done_epoch=max(state.done_epoch, sequence.epoch),
        tried_epochs=(),
        reason="",
        outage=False,
        origin={**sequence.start, **state.origin},
        skipped=(*state.skipped, *sequence.skipped),
        done_records=sequence.records,
        done_files=sequence.files,
        done_left_out=sequence.left_out,
    )


def _set(fold: Fold, urn: str, watermark: Watermark | None) -> None:
    _update(
        fold,
        urn,
        watermark=watermark,
        origin=dict(watermark.positions) if watermark else {},
        closed_epoch=max(fold.state_of(urn).closed_epoch, fold.fence_epoch),
    )


def _forget(fold: Fold, urn: str) -> None:
    _update(fold, urn, status=IDLE, sequence=None, held=False, tried_epochs=(), reason="", outage=False)


def _update(fold: Fold, urn: str, **changes: object) -> None:
    fold.datasets[urn] = replace(fold.state_of(urn), **changes)

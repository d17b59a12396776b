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
    return not objection(record, fold)


def objection(record: Record, fold: Fold) -> str:
    """Why `record` may not follow a log whose fold is `fold`; empty if it may."""
    match record:
        case Checkpoint():
            return ""
        case Fence():
            return "" if record.epoch > fold.fence_epoch else f"epoch {fold.fence_epoch} has fenced this log"
        case Decide():
            return _not_newest(record.epoch, fold)
        case Intent():
            return _not_newest(record.epoch, fold) or _unfit(record, fold)
        case Done():
            return _not_newest(record.epoch, fold) or _not_all(record.sequences, fold, (PENDING, QUARANTINED))
        case Failed():
            return _not_newest(record.epoch, fold) or _not_all((record.sequence,), fold, (PENDING,))
        case Left():
            names = [SequenceName(left.dataset_urn, left.epoch) for left in record.sequences]
            return _not_newest(record.epoch, fold) or _not_all(names, fold, (PENDING,))
        case Dropped():
            wrong = _not_newest(record.epoch, fold) or _not_all(record.sequences, fold, (PENDING,))
            if wrong:
                return wrong
            may_be_decided = [
                n.dataset_urn
                for n in record.sequences
                if not fold.state_of(n.dataset_urn).held or n.epoch >= record.epoch
            ]
            return f"not held by an older epoch: {may_be_decided[0]}" if may_be_decided else ""
        case ByHand():
            return _not_all((record.sequence,), fold, (_BY_HAND[record.action][0],))
        case SetWatermark():
            return _not_idle((record.dataset_urn,), fold)
        case SetWatermarks():
            return _not_idle(record.watermarks, fold)
        case Rebuilt():
            rebuilt = {state.dataset_urn for state in record.datasets if state.closed_epoch <= record.epoch}
            complete = len(rebuilt) == len(record.datasets)
            return _not_newest(record.epoch, fold) or ("" if complete else "a state is there twice, or of the future")
    assert_never(record)


def may_seal(fold: Fold, epoch: int, urn: str, low: Watermark | None) -> bool:
    """Whether the run of `epoch`, unless it is fenced, may seal what it has planned of a dataset on watermark `low`."""
    state = fold.state_of(urn)
    return state.status is IDLE and state.closed_epoch < epoch and state.watermark == low


def _unfit(record: Intent, fold: Fold) -> str:
    urns = [sequence.dataset_urn for sequence in record.sequences]
    if len(set(urns)) < len(urns):
        return "a dataset is named twice"
    if record.held and record.published:
        return "it is both held and published"
    for sequence in record.sequences:
        if sequence.epoch != record.epoch:
            return f"the sequence of {sequence.dataset_urn} is of epoch {sequence.epoch}"
        if not may_seal(fold, record.epoch, sequence.dataset_urn, sequence.low):
            state = fold.state_of(sequence.dataset_urn)
            return (
                f"{sequence.dataset_urn} is {state.status.value}, sealed by epoch {state.closed_epoch}, watermark"
                f" {state.watermark}, not {sequence.low}"
            )
    return ""


def _not_newest(epoch: int, fold: Fold) -> str:
    return "" if epoch == fold.fence_epoch else f"by epoch {epoch}, and epoch {fold.fence_epoch} has fenced this log"


def _not_idle(urns: Iterable[str], fold: Fold) -> str:
    busy = next((state for state in map(fold.state_of, urns) if state.status is not IDLE), None)
    return f"{busy.dataset_urn} is {busy.status.value}" if busy else ""


def _not_all(names: Iterable[SequenceName], fold: Fold, allowed: tuple[DatasetStatus, ...]) -> str:
    """Empty if these are different present sequences, each with one of these statuses."""
    seen: set[str] = set()
    for name in names:
        state = fold.state_of(name.dataset_urn)
        if fold.sequence(name) is None or state.status not in allowed or name.dataset_urn in seen:
            found = f"epoch {state.sequence.epoch}'s is {state.status.value}" if state.sequence else "there is none"
            return f"of {name.dataset_urn}, epoch {name.epoch}, no sequence is {' or '.join(allowed)}: {found}"
        seen.add(name.dataset_urn)
    return ""


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
        done_content_sum=sequence.content_sum,
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

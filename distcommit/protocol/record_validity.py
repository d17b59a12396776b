"""Validity: which record may follow which state of a log.

Several processes append, some of them fenced long ago, so a record's presence proves nothing. It counts only if these
rules allow it after the state of all records before it. A writer checks the rules before it appends, and every reader
checks them again. This makes fencing and compare-and-set safe without locks: of two conflicting records, the first is
valid and the second is not, for every reader.

The model, with broken variants, is `tests/spec/log_model.py`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, assert_never

from distcommit.core.records.job_log_records import Cut, Decide, Generation, Head, Heads, Rebucket
from distcommit.core.records.log_records import (
    Checkpoint,
    DatasetState,
    DatasetStatus,
    Done,
    Dropped,
    Failed,
    Fence,
    Gate,
    Intent,
    Moved,
    OperatorAction,
    OperatorDecision,
    Postponed,
    Rebuilt,
    Record,
    SetWatermark,
    SetWatermarks,
)
from distcommit.core.records.read_failure_records import ReadFailures
from distcommit.core.records.sealed_sequences import PostponedSequence, SequenceName
from distcommit.core.watermark import Watermark
from distcommit.protocol.log_state import Fold

IDLE: Final = DatasetStatus.IDLE
PENDING: Final = DatasetStatus.PENDING
QUARANTINED: Final = DatasetStatus.QUARANTINED
REVOKING: Final = DatasetStatus.REVOKING

BY_HAND: dict[OperatorAction, tuple[DatasetStatus, DatasetStatus]] = {
    OperatorAction.RETRY: (QUARANTINED, PENDING),
    OperatorAction.ACCEPT: (QUARANTINED, IDLE),
    OperatorAction.REVOKING: (QUARANTINED, REVOKING),
    OperatorAction.RESTORED: (REVOKING, QUARANTINED),
    OperatorAction.ABANDONED: (REVOKING, IDLE),
    OperatorAction.QUARANTINE: (PENDING, QUARANTINED),
    OperatorAction.GIVEN_UP: (REVOKING, IDLE),
}
"""Required and resulting status of an operator's action."""


_MAY_CLOSE = (PENDING, QUARANTINED)


def valid(record: Record, fold: Fold) -> bool:
    return not rejection_reason(record, fold)


def rejection_reason(record: Record, fold: Fold) -> str:
    """Return why `record` may not follow the state; empty if it may.

    Most rules require that the record is of the run with the newest fence, that sequences are open with a certain
    status, or that datasets are idle with the watermark that the writer saw.
    """
    if fold.moved_to:
        return f"this log continues in generation {fold.moved_to}"
    match record:
        case Checkpoint():
            return ""
        case Fence():
            return "" if record.epoch > fold.fence_epoch else f"epoch {fold.fence_epoch} has fenced this log"
        case Decide():
            return _not_newest(record.epoch, fold)
        case Intent():
            return _not_newest(record.epoch, fold) or _seal_problem(record, fold)
        case Done():
            return _not_newest(record.epoch, fold) or _not_open(record.sequences, fold, _MAY_CLOSE)
        case Failed():
            return _not_newest(record.epoch, fold) or _not_open((record.sequence,), fold, (PENDING,))
        case Postponed():
            return _not_newest(record.epoch, fold) or _postponed_problem(record.sequences, fold)
        case ReadFailures():
            return _not_newest(record.epoch, fold) or _read_failure_problem(record, fold)
        case Dropped():
            return (
                _not_newest(record.epoch, fold)
                or _not_open(record.sequences, fold, (PENDING,))
                or _not_held(record, fold)
            )
        case OperatorDecision(action=OperatorAction.READ_AGAIN):
            return _not_stopped(record.sequence, fold)
        case OperatorDecision():
            return _not_open((record.sequence,), fold, (BY_HAND[record.action][0],))
        case SetWatermark():
            return _not_idle((record.dataset_urn,), fold)
        case SetWatermarks():
            return _not_idle(record.watermarks, fold)
        case Rebuilt():
            rebuilt = {state.dataset_urn for state in record.datasets if state.closed_epoch <= record.epoch}
            complete = len(rebuilt) == len(record.datasets)
            return _not_newest(record.epoch, fold) or (
                "" if complete else "a state is repeated, or closed by a newer epoch"
            )
        case Cut():
            return _not_newest(record.epoch, fold) or _under_way(fold) or _heads_problem(record.heads, fold, at_least=0)
        case Heads():
            return _under_way(fold) or _heads_problem(record.heads, fold, at_least=1)
        case Rebucket():
            return _not_newest(record.epoch, fold) or _generation_problem(record, fold)
        case Moved():
            return _not_newest(record.epoch, fold) or _not_idle(fold.datasets, fold)
        case Generation():
            is_next = fold.under_way is not None and record.generation == fold.under_way.generation
            return _not_newest(record.epoch, fold) or ("" if is_next else "no move to this generation is under way")
    assert_never(record)


def _postponed_problem(postponed: tuple[PostponedSequence, ...], fold: Fold) -> str:
    """Return why these sequences may not be postponed; empty if they may.

    A change of steps must be the next one, so of two changes only the first counts.
    """
    for entry in postponed:
        opened = fold.state_of(entry.dataset_urn).open
        if opened is not None and entry.change not in (0, opened.changes + 1):
            return f"change {entry.change} of {entry.dataset_urn}, whose steps have been changed {opened.changes} times"
    return _not_open([SequenceName(entry.dataset_urn, entry.epoch) for entry in postponed], fold, (PENDING,))


def _not_held(record: Dropped, fold: Fold) -> str:
    for name in record.sequences:
        sequence = fold.state_of(name.dataset_urn).open
        if sequence is None or not sequence.held or name.epoch >= record.epoch:
            return f"not held by an older epoch: {name.dataset_urn}"
    return ""


def may_seal(fold: Fold, epoch: int, urn: str, low: Watermark | None) -> bool:
    """Return whether the newest run may seal a sequence planned on watermark `low`.

    The dataset must be idle, no run from `epoch` on may have sealed it, and its watermark must still be `low`. This
    comparison prevents two runs from publishing the same records. The newest run may seal a killed run's finished work,
    with that run's epoch.
    """
    state = fold.state_of(urn)
    return state.status is IDLE and state.closed_epoch < epoch and state.watermark == low


def may_close(fold: Fold, epoch: int, name: SequenceName) -> bool:
    return not (fold.moved_to or _not_newest(epoch, fold) or _not_open((name,), fold, _MAY_CLOSE))


def _seal_problem(record: Intent, fold: Fold) -> str:
    urns = [sequence.dataset_urn for sequence in record.sequences]
    if len(set(urns)) < len(urns):
        return "a dataset is named twice"
    for sequence in record.sequences:
        is_of_older_run = sequence.epoch < record.epoch and record.gate is Gate.OPEN
        if sequence.epoch != record.epoch and not is_of_older_run:
            return f"the sequence of {sequence.dataset_urn} is of epoch {sequence.epoch}"
        if not may_seal(fold, sequence.epoch, sequence.dataset_urn, sequence.low):
            return _not_as_planned(fold.state_of(sequence.dataset_urn), sequence.low)
    return ""


def _not_as_planned(state: DatasetState, low: Watermark | None) -> str:
    return (
        f"{state.dataset_urn} is {state.status.value}, sealed by epoch {state.closed_epoch}, watermark"
        f" {state.watermark}, not {low}"
    )


def _read_failure_problem(record: ReadFailures, fold: Fold) -> str:
    """Return why these read failures may not be recorded; empty if they may.

    A failure is recorded once, and not if another run has read the dataset or an operator has set its watermark since
    planning.
    """
    urns = [dataset.dataset_urn for dataset in record.datasets]
    if len(set(urns)) < len(urns):
        return "a dataset is named twice"
    for dataset in record.datasets:
        state = fold.state_of(dataset.dataset_urn)
        is_partly_done = state.done_epoch == record.epoch and bool(state.done_partial_reason)
        is_current = state.closed_epoch < record.epoch or is_partly_done
        if state.status is not IDLE or state.watermark != dataset.low or not is_current:
            return _not_as_planned(state, dataset.low)
        if state.read_failure is not None and state.read_failure.epoch >= record.epoch:
            return f"epoch {state.read_failure.epoch} has already recorded a read failure of {dataset.dataset_urn}"
    return ""


def _not_stopped(name: SequenceName, fold: Fold) -> str:
    state = fold.state_of(name.dataset_urn)
    if (
        state.status is IDLE
        and state.read_failure is not None
        and state.read_failure.stopped
        and state.read_failure.epoch == name.epoch
    ):
        return ""
    return f"{name.dataset_urn} was not stopped by epoch {name.epoch}"


def _under_way(fold: Fold) -> str:
    return f"generation {fold.under_way.generation} is under way" if fold.under_way else ""


def _heads_problem(heads: tuple[Head, ...], fold: Fold, at_least: int) -> str:
    """Return why heads are invalid: each must be of another bucket, and `at_least` segments above the bucket's last
    head."""
    if len({head.bucket for head in heads}) < len(heads):
        return "a bucket has two heads"
    for head in heads:
        last = fold.heads.get(head.bucket)
        if last is not None and head.number < last.number + at_least:
            return f"bucket {head.bucket} has a head at {last.number}, this one is at {head.number}"
    return ""


def _generation_problem(record: Rebucket, fold: Fold) -> str:
    if record.generation != fold.generation + 1 or record.buckets < 1:
        return f"generation {record.generation} of {record.buckets} buckets cannot follow generation {fold.generation}"
    if fold.under_way is None:
        return ""
    same = (record.buckets, record.settings) == (fold.under_way.buckets, fold.under_way.settings)
    return "" if same else f"a move to {fold.under_way.buckets} buckets with other settings is under way"


def _not_newest(epoch: int, fold: Fold) -> str:
    return "" if epoch == fold.fence_epoch else f"by epoch {epoch}, and epoch {fold.fence_epoch} has fenced this log"


def _not_idle(urns: Iterable[str], fold: Fold) -> str:
    busy = next((state for state in map(fold.state_of, urns) if state.status is not IDLE), None)
    return f"{busy.dataset_urn} is {busy.status.value}" if busy else ""


def _not_open(names: Iterable[SequenceName], fold: Fold, allowed: tuple[DatasetStatus, ...]) -> str:
    urns: set[str] = set()
    for name in names:
        state = fold.state_of(name.dataset_urn)
        if fold.sequence(name) is None or state.status not in allowed or name.dataset_urn in urns:
            actual = f"epoch {state.sequence.epoch} is {state.status.value}" if state.sequence else "there is none"
            return f"{name.dataset_urn} has no {' or '.join(allowed)} sequence of epoch {name.epoch}: {actual}"
        urns.add(name.dataset_urn)
    return ""

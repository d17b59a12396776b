"""The effect of each record on the state of its log.

The first state is the newest checkpoint. A record that `protocol.record_validity` rejects changes nothing, so the same
records always give the same state.
"""

from __future__ import annotations

from typing import assert_never

from msgspec.structs import replace

from distcommit.core.records.job_log_records import Cut, CutPhase, Decide, Generation, Heads, Rebucket
from distcommit.core.records.log_records import (
    Checkpoint,
    DatasetState,
    Done,
    Dropped,
    Failed,
    Fence,
    Gate,
    Intent,
    Moved,
    OpenSequence,
    OperatorAction,
    OperatorDecision,
    Postponed,
    Rebuilt,
    Record,
    SetWatermark,
    SetWatermarks,
)
from distcommit.core.records.read_failure_records import DatasetReadFailure, ReadFailure, ReadFailures
from distcommit.core.records.sealed_sequences import PostponedSequence, SealedSequence, SequenceName, TargetEpochs
from distcommit.core.watermark import Watermark
from distcommit.core.work_units import merge_ranges
from distcommit.protocol.audit_expected_positions import earlier_readings_after, reach_after_setting, reach_after_start
from distcommit.protocol.log_state import Fold
from distcommit.protocol.record_validity import BY_HAND, PENDING, QUARANTINED, valid


def apply(number: int, record: Record, fold: Fold) -> None:
    """Advance `fold` past a record; an invalid one is only added to `fold.ignored`."""
    fold.number = number
    if not valid(record, fold):
        fold.ignored.append((number, type(record).__name__))
        return
    match record:
        case Checkpoint():
            _restore(number, record, fold)
        case Fence():
            fold.fence_epoch, fold.fence_run_id = record.epoch, record.run_id
        case Decide():
            fold.decided_epochs |= {record.epoch}
        case Intent():
            for sequence in record.sequences:
                sealed = OpenSequence(PENDING, sequence, held=record.gate is Gate.HELD)
                _update(fold, sequence.dataset_urn, open=sealed, closed_epoch=sequence.epoch)
                if record.gate is Gate.PASSED:
                    _close_as_done(fold, SequenceName(sequence.dataset_urn, sequence.epoch))
        case Done():
            for name in record.sequences:
                _close_as_done(fold, name)
        case Failed():
            urn = record.sequence.dataset_urn
            tried = tuple(sorted({*_open(fold, urn).tried_epochs, record.epoch}))
            status = QUARANTINED if record.quarantine else PENDING
            _update_open(fold, urn, status=status, tried_epochs=tried, reason=record.reason, outage=False)
        case Postponed():
            for unfinished in record.sequences:
                _update_open(fold, unfinished.dataset_urn, reason=unfinished.reason, outage=record.outage)
                if unfinished.change:
                    _change_steps(fold, unfinished)
        case ReadFailures():
            for failure in record.datasets:
                read_failure = _counted(fold.state_of(failure.dataset_urn).read_failure, record.epoch, failure)
                run = failure.run or fold.state_of(failure.dataset_urn).previous_run
                _update(fold, failure.dataset_urn, read_failure=read_failure, previous_run=run)
        case Dropped():
            for name in record.sequences:
                _update(fold, name.dataset_urn, open=None)
        case OperatorDecision():
            _apply_operator_action(fold, record)
        case SetWatermark():
            _set(fold, record.dataset_urn, record.watermark, record.requested_by)
        case SetWatermarks():
            for urn, watermark in record.watermarks.items():
                _set(fold, urn, watermark, record.requested_by)
        case Rebuilt():
            fold.datasets.update({state.dataset_urn: state for state in record.datasets})
            fold.heads = {}
        case _:
            _apply_job_record(record, fold)


def _restore(number: int, record: Checkpoint, fold: Fold) -> None:
    fold.fence_epoch, fold.fence_run_id = record.fence_epoch, record.fence_run_id
    fold.decided_epochs = frozenset(record.decided_epochs)
    fold.datasets = {state.dataset_urn: state for state in record.datasets}
    fold.last_checkpoint, fold.previous_checkpoint = number, record.previous
    fold.began_epoch, fold.ended_epoch = record.cut_epochs
    fold.heads = {head.bucket: head for head in record.heads}
    fold.generation, fold.buckets, fold.under_way = record.generation, record.buckets, record.pending_rebucket


def _apply_job_record(record: Cut | Heads | Rebucket | Moved | Generation, fold: Fold) -> None:
    match record:
        case Cut():
            fold.heads |= {head.bucket: head for head in record.heads}
            if record.phase is CutPhase.BEGAN:
                fold.began_epoch = record.epoch
            else:
                fold.ended_epoch = record.epoch
        case Heads():
            fold.heads |= {head.bucket: head for head in record.heads}
        case Rebucket():
            fold.under_way = record
        case Moved():
            fold.moved_to = record.generation
        case Generation():
            if fold.under_way is not None:  # guaranteed by `valid`
                fold.generation, fold.buckets = fold.under_way.generation, fold.under_way.buckets
            fold.under_way, fold.heads = None, {}
        case _:
            assert_never(record)


def _apply_operator_action(fold: Fold, record: OperatorDecision) -> None:
    urn = record.sequence.dataset_urn
    match record.action:
        case OperatorAction.ACCEPT | OperatorAction.GIVEN_UP:
            targets = _bases_after_accept(fold.state_of(urn), _open(fold, urn).sequence)
            _close_as_done(fold, record.sequence)
            skipped = merge_ranges((*fold.state_of(urn).skipped, *record.skipped))
            _update(fold, urn, accepted_epochs=(record.sequence.epoch,), targets=targets, skipped=skipped)
        case OperatorAction.ABANDONED:
            _update(fold, urn, open=None)
        case OperatorAction.RETRY:
            _update_open(fold, urn, status=PENDING, tried_epochs=())
        case OperatorAction.QUARANTINE:
            reason = _open(fold, urn).reason or f"quarantined by {record.requested_by}"
            _update_open(fold, urn, status=QUARANTINED, reason=reason)
        case OperatorAction.READ_AGAIN:
            failure = fold.state_of(urn).read_failure
            _update(fold, urn, read_failure=replace(failure, failed_runs=0, stopped=False) if failure else None)
        case OperatorAction.REVOKING | OperatorAction.RESTORED:
            _update_open(fold, urn, status=BY_HAND[record.action][1])
        case _:
            assert_never(record.action)


def _close_as_done(fold: Fold, name: SequenceName) -> None:
    state, sequence = fold.state_of(name.dataset_urn), _open(fold, name.dataset_urn).sequence
    high = sequence.high if sequence.high is not None else state.watermark
    incarnation = high.incarnation if high is not None else ""
    origin, skipped = reach_after_start(state, sequence.start, incarnation, sequence.skipped)
    _update(
        fold,
        name.dataset_urn,
        open=None,
        watermark=high,
        done_epoch=max(state.done_epoch, sequence.epoch),
        origin=origin,
        skipped=skipped,
        unset_watermark=None if high is not None else state.unset_watermark,
        replacement=sequence.epoch if sequence.replaces else state.replacement,
        earlier_readings=earlier_readings_after(state, high),
        done_records=sequence.records,
        done_files=sequence.files,
        done_partial_reason=sequence.partial_reason,
        done_content_sum=sequence.content_sum,
        read_failure=_remaining_failure(
            state.read_failure, state.watermark, high, in_part=bool(sequence.partial_reason)
        ),
        schemas={**state.schemas, **sequence.schemas},
        targets={**state.targets, **sequence.targets},
        previous_run=sequence.run or state.previous_run,
    )


def _change_steps(fold: Fold, changed: PostponedSequence) -> None:
    sequence = _open(fold, changed.dataset_urn).sequence
    steps = tuple(changed.steps.get(index, batch) for index, batch in enumerate(sequence.steps))
    _update_open(fold, changed.dataset_urn, sequence=replace(sequence, steps=steps), changes=changed.change)


def _bases_after_accept(state: DatasetState, sequence: SealedSequence) -> TargetEpochs:
    """Return the possible epochs of targets after accept. A delayed process may still commit the sequence, so both the
    epoch before and after it are possible."""
    both = dict(state.targets)
    for branch, done in sequence.targets.items():
        before = state.bases(branch)
        both[branch] = tuple(sorted({*before, *done})) if before and done else ()
    return both


def _counted(before: ReadFailure | None, epoch: int, now: DatasetReadFailure) -> ReadFailure:
    failed_runs = (before.failed_runs if before else 0) + (0 if now.outage else 1)
    return ReadFailure(epoch, failed_runs, now.expected_high, now.reason, now.stops, now.outage)


def _remaining_failure(
    failure: ReadFailure | None, before: Watermark | None, after: Watermark | None, *, in_part: bool
) -> ReadFailure | None:
    """Return the read failure that remains after a watermark moved.

    If the whole plan was committed, none remains. Otherwise the failure of partitions that have not moved remains.
    """
    if failure is None or after == before:
        return failure
    if not in_part or before is None or after is None or after.incarnation != failure.expected_high.incarnation:
        return None
    remaining = {
        partition: high
        for partition, high in failure.expected_high.positions.items()
        if before.positions.get(partition) == after.positions.get(partition)
    }
    return replace(failure, expected_high=replace(failure.expected_high, positions=remaining)) if remaining else None


def _set(fold: Fold, urn: str, watermark: Watermark | None, user: str) -> None:
    """Set a watermark as an operator's action.

    If it is None, the epochs of targets are discarded, too, because the dataset starts over.
    """
    state = fold.state_of(urn)
    origin, skipped = state.origin, state.skipped
    if watermark is not None:
        origin, skipped = reach_after_setting(state, watermark, f"skipped: the watermark was set by hand ({user})")
    _update(
        fold,
        urn,
        watermark=watermark,
        targets=state.targets if watermark is not None else {},
        origin=origin,
        skipped=skipped,
        closed_epoch=max(state.closed_epoch, fold.fence_epoch),
        read_failure=None,
        unset_watermark=state.reached if watermark is None else None,
        earlier_readings=earlier_readings_after(state, watermark),
        previous_run=None,
    )


def _open(fold: Fold, urn: str) -> OpenSequence:
    open_sequence = fold.state_of(urn).open
    if open_sequence is None:  # guaranteed by `valid`
        raise AssertionError(f"{urn} has no open sequence")
    return open_sequence


def _update_open(fold: Fold, urn: str, **changes: object) -> None:
    _update(fold, urn, open=replace(_open(fold, urn), **changes))


def _update(fold: Fold, urn: str, **changes: object) -> None:
    fold.datasets[urn] = replace(fold.state_of(urn), **changes)

"""The next record of a log.

Each function takes the log's state, the writer's identity and the intended change. It returns the record to append, or
None if the change was made or has become impossible. A record is valid at the end of the given state, and may be
appended only if no other record came in between. Otherwise the writer reads the other records and calls the function
again, until it returns None (`stores.logs.commit_log`). The state then shows whether the change was made, and
`Fold.fence_epoch` whether the writer was fenced.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from msgspec.structs import replace

from distcommit.core.records.job_log_records import Cut, CutPhase, Decide, Generation, Head, Heads, Rebucket
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
    OperatorAction,
    OperatorDecision,
    Postponed,
    Rebuilt,
    Record,
    SetWatermark,
    SetWatermarks,
)
from distcommit.core.records.read_failure_records import DatasetReadFailure, ReadFailures
from distcommit.core.records.sealed_sequences import PostponedSequence, SealedSequence, SequenceName
from distcommit.core.watermark import Watermark
from distcommit.core.work_units import SchemaIds, SkippedRange
from distcommit.protocol.dataset_renaming import NamedNow, renamed
from distcommit.protocol.log_state import Fold
from distcommit.protocol.record_validity import may_close, valid

MAX_CHANGED_BYTES: Final = 16 * 1024 * 1024
"""Maximum size of the changed steps in a record, unless one sequence alone has more."""


def fence(fold: Fold, epoch: int, run_id: str) -> Fence | None:
    """Fence a bucket's log against runs below `epoch`."""
    return Fence(epoch, run_id) if fold.fence_epoch < epoch and not fold.moved_to else None


def next_epoch(fold: Fold) -> int:
    return max(fold.number, fold.fence_epoch) + 1


def fence_job(fold: Fold, run_id: str, begun_at: int) -> Fence | None:
    """Fence the job log, which gives the run its epoch.

    The epoch is the number of the record, or one above the newest epoch if that is higher, as after a rebuild.

    Args:
        run_id: unique id of the run.
        begun_at: the newest epoch when the run started. If the log now has a newer one, this run cannot fence it.
    """
    if fold.fence_epoch != begun_at or fold.fence_run_id == run_id:
        return None
    return Fence(next_epoch(fold), run_id)


def seal(fold: Fold, epoch: int, sequences: Iterable[SealedSequence], gate: Gate = Gate.OPEN) -> Intent | None:
    """Seal the sequences that can be sealed, in one record, before any step is executed.

    With an open gate, they can be the sequences of a killed run.
    """
    possible = tuple(sequence for sequence in sequences if valid(Intent(epoch, (sequence,), gate), fold))
    return Intent(epoch, possible, gate) if possible else None


def close(fold: Fold, epoch: int, names: Iterable[SequenceName]) -> Done | None:
    """Record that the effects of these sequences are durable. Closed sequences are left out."""
    remaining = tuple(name for name in names if may_close(fold, epoch, name))
    return Done(epoch, remaining) if remaining else None


def drop(fold: Fold, epoch: int, names: Iterable[SequenceName]) -> Dropped | None:
    """Drop pending held sequences of older runs that never decided to publish."""
    remaining = tuple(name for name in names if valid(Dropped(epoch, (name,)), fold))
    return Dropped(epoch, remaining) if remaining else None


def fail(
    fold: Fold, epoch: int, name: SequenceName, reason: str, *, for_good: bool, max_attempts: int = 1
) -> Failed | None:
    """Record a run's failed attempt once.

    After `max_attempts` failed runs, or at once with `for_good`, the sequence is quarantined.
    """
    tried = fold.state_of(name.dataset_urn).tried_epochs
    if epoch in tried and not for_good:
        return None
    record = Failed(epoch, name, for_good or len({*tried, epoch}) >= max_attempts, reason)
    return record if valid(record, fold) else None


def postpone(fold: Fold, epoch: int, postponed: Iterable[PostponedSequence], *, outage: bool) -> Postponed | None:
    """Record new reasons why sequences stay pending. With `outage`, the reason is that a target is down."""
    unrecorded = []
    for entry in postponed:
        open_now = fold.state_of(entry.dataset_urn).open
        is_recorded = open_now is not None and (open_now.reason, open_now.outage) == (entry.reason, outage)
        if not is_recorded and valid(Postponed(epoch, (entry,), outage), fold):
            unrecorded.append(entry)
    return Postponed(epoch, tuple(unrecorded), outage) if unrecorded else None


def change_steps(
    fold: Fold, epoch: int, executed: Mapping[SequenceName, SealedSequence], changed: Iterable[PostponedSequence]
) -> Postponed | None:
    """Record changed steps of pending sequences, in records of limited size.

    Args:
        executed: the sequences with the steps that were executed. If the steps have been changed since, the change is
            left out.
        changed: the changed batches; this function sets the number of the change.
    """
    next_changes: list[PostponedSequence] = []
    remaining = MAX_CHANGED_BYTES
    for entry in changed:
        opened, name = fold.state_of(entry.dataset_urn).open, SequenceName(entry.dataset_urn, entry.epoch)
        if opened is not None and opened.sequence == executed[name]:
            numbered = replace(entry, change=opened.changes + 1)
            remaining -= sum(len(batch.rows) for batch in entry.steps.values())
            if next_changes and remaining < 0:
                break
            if valid(Postponed(epoch, (numbered,)), fold):
                next_changes.append(numbered)
    return Postponed(epoch, tuple(next_changes)) if next_changes else None


def read_failures(
    fold: Fold, epoch: int, failures: Iterable[DatasetReadFailure], *, stop_after: int
) -> ReadFailures | None:
    """Record once that the run could not read these datasets.

    After `stop_after` consecutive failed runs (0: never) a dataset is stopped.
    """
    unrecorded = []
    for dataset in failures:
        if valid(ReadFailures(epoch, (dataset,)), fold):
            before = fold.state_of(dataset.dataset_urn).read_failure
            failed_runs = (before.failed_runs if before else 0) + (0 if dataset.outage else 1)
            unrecorded.append(replace(dataset, stops=0 < stop_after <= failed_runs and not dataset.outage))
    return ReadFailures(epoch, tuple(unrecorded)) if unrecorded else None


def decide(fold: Fold, epoch: int) -> Decide | None:
    """Record in the job log the decision to publish the run's held sequences."""
    return Decide(epoch) if fold.fence_epoch == epoch and epoch not in fold.decided_epochs else None


def operator_decision(
    fold: Fold, action: OperatorAction, name: SequenceName, user: str, skipped: tuple[SkippedRange, ...] = ()
) -> OperatorDecision | None:
    """Record an operator's action, if the sequence has the required status."""
    record = OperatorDecision(action, name, user, skipped)
    return record if valid(record, fold) else None


def is_set(fold: Fold, urn: str, watermark: Watermark | None) -> bool:
    """Return whether the watermark is set and no started run can seal the dataset."""
    state = fold.state_of(urn)
    return urn in fold.datasets and state.watermark == watermark and state.closed_epoch >= fold.fence_epoch


def set_watermark(fold: Fold, before: DatasetState, watermark: Watermark | None, user: str) -> SetWatermark | None:
    """Set an idle dataset's watermark, if its state is still `before`."""
    urn = before.dataset_urn
    is_needed = fold.state_of(urn) == before and not is_set(fold, urn, watermark)
    record = SetWatermark(urn, watermark, user)
    return record if is_needed and valid(record, fold) else None


def set_watermarks(
    fold: Fold, requested: Mapping[str, Watermark], before: Mapping[str, Watermark | None], user: str
) -> SetWatermarks | None:
    """Set the watermarks of idle datasets. If a present watermark differs from `before`, set none."""
    remaining = {urn: watermark for urn, watermark in requested.items() if not is_set(fold, urn, watermark)}
    record = SetWatermarks(remaining, user)
    as_before = all(fold.state_of(urn).watermark == before[urn] for urn in remaining)
    return record if remaining and as_before and valid(record, fold) else None


def is_rebuilt(fold: Fold, epoch: int, state: DatasetState) -> bool:
    """Return whether the rebuild has put this state, so that no started run can seal the dataset."""
    return fold.state_of(state.dataset_urn) == replace(state, closed_epoch=epoch)


def rebuild(
    fold: Fold, epoch: int, states: tuple[DatasetState, ...], dataset_states: Mapping[str, DatasetState], user: str
) -> Rebuilt | None:
    """Replace dataset states by the ones rebuilt from published files, so that no started run can seal the datasets.

    Because operator actions have no fence, no dataset may have changed since `dataset_states` were read.
    """
    urns = [state.dataset_urn for state in states]
    as_planned = all(fold.state_of(urn) == dataset_states.get(urn, DatasetState(urn)) for urn in urns)
    is_done = all(is_rebuilt(fold, epoch, state) for state in states)
    record = Rebuilt(epoch, tuple(replace(state, closed_epoch=epoch) for state in states), user)
    return record if as_planned and not is_done and valid(record, fold) else None


def cut(fold: Fold, epoch: int, phase: CutPhase, reported: Iterable[Head]) -> Cut | None:
    """Record the heads of bucket logs in the job log, after replay or at the end of a run.

    A head never moves back: a newer head of an operator action stays. The head of an unread bucket also stays, and is
    marked as incomplete.
    """
    by_bucket = {head.bucket: head for head in reported}
    buckets = sorted(fold.heads.keys() | by_bucket.keys())
    record = Cut(epoch, phase, tuple(_newest_head(fold.heads.get(b), by_bucket.get(b)) for b in buckets))
    is_there = epoch == (fold.began_epoch if phase is CutPhase.BEGAN else fold.ended_epoch)
    return record if not is_there and valid(record, fold) else None


def _newest_head(last: Head | None, reported: Head | None) -> Head:
    if reported is None or (last is not None and reported.number <= last.number):
        if last is None:
            raise AssertionError("a bucket must have a head or have been read")
        return replace(last, is_complete=reported is not None and reported.is_complete)
    return reported


def end(fold: Fold, epoch: int, reported: Iterable[Head], *, at_least: int, decided_from: int = 0) -> Record | None:
    """Record a run's end in the job log, then a due checkpoint unless a newer run has started. Arguments: see `cut` and
    `checkpoint`."""
    if fold.ended_epoch != epoch:
        return cut(fold, epoch, CutPhase.ENDED, reported)
    return checkpoint(fold, at_least=at_least, decided_from=decided_from) if fold.fence_epoch == epoch else None


def discard_heads(fold: Fold, epoch: int, user: str) -> Rebuilt | None:
    """Discard all heads in the job log, so that bucket logs continue from their present ends."""
    record = Rebuilt(epoch, (), user)
    return record if fold.heads and valid(record, fold) else None


def heads(fold: Fold, generation: int, reported: Iterable[Head], user: str) -> Heads | None:
    """Record higher heads in the job log after an operator action.

    The logs must be of the current generation. A bucket that is marked as incomplete stays so.
    """
    if fold.generation != generation:
        return None
    above = tuple(
        replace(head, is_complete=fold.heads[head.bucket].is_complete if head.bucket in fold.heads else True)
        for head in reported
        if valid(Heads((head,), user), fold)
    )
    return Heads(above, user) if above else None


def rebucket(fold: Fold, epoch: int, generation: int, buckets: int, settings: Mapping[str, str]) -> Rebucket | None:
    """Start a move to another generation in the job log. Until its end, no CUT and no HEADS is valid."""
    record = Rebucket(epoch, generation, buckets, dict(settings))
    return record if fold.under_way is None and valid(record, fold) else None


def move(fold: Fold, epoch: int, generation: int) -> Moved | None:
    """End a bucket's log, if all of its datasets are idle."""
    record = Moved(epoch, generation)
    return record if valid(record, fold) else None


def beginning() -> Checkpoint:
    """Return the empty checkpoint of a new log."""
    return Fold().checkpoint()


def beginnings(
    ended: Iterable[Fold],
    buckets: int,
    bucket_of: Callable[[str], int],
    named_now: NamedNow | None = None,
    schemas: Mapping[str, SchemaIds] | None = None,
) -> list[Checkpoint]:
    """Return the first record of each log of a new generation, by bucket. All writers compute the same records.

    Args:
        ended: states of all logs of the previous generation, in any order. Each log must have ended with MOVED.
        buckets: number of buckets of the new generation.
        bucket_of: returns the new bucket of a dataset.
        named_now: returns the new names of datasets, if they change.
        schemas: schema ids by converter, for datasets whose ids change.

    Raises:
        ConflictError: like `dataset_renaming.renamed`.
    """
    ids = schemas or {}
    folds = list(ended)
    newest = max(folds, key=lambda fold: (fold.fence_epoch, fold.fence_run_id))
    states = [state for fold in folds for state in fold.datasets.values()]
    within: list[list[DatasetState]] = [[] for _ in range(buckets)]
    for state in sorted(renamed(states, named_now) if named_now else states, key=lambda state: state.dataset_urn):
        urn = state.dataset_urn
        within[bucket_of(urn)].append(replace(state, schemas=ids[urn]) if urn in ids else state)
    return [
        Checkpoint(newest.fence_epoch, newest.fence_run_id, (), tuple(bucket_states), 0) for bucket_states in within
    ]


def switch(fold: Fold, epoch: int, generation: int) -> Generation | None:
    """Make a generation current in the job log."""
    record = Generation(epoch, generation)
    return record if valid(record, fold) else None


def checkpoint(fold: Fold, *, at_least: int, decided_from: int = 0) -> Checkpoint | None:
    """Return the whole state, if at least `at_least` records, and at least one, follow the newest checkpoint and the
    log has not moved."""
    above = fold.number - fold.last_checkpoint
    return fold.checkpoint(decided_from) if above >= max(1, at_least) and not fold.moved_to else None

"""The next record of a log: every writer gets the record to append from here.

Each function gets the fold of the log, the writer's identity and its intention. It returns the record to append, or
None if the effect is already in the fold or has become impossible. So a returned record is always valid at the end of
that fold. A writer appends it only if no other record was appended in between. Otherwise it folds the new records and
calls the function again (`stores.logs.log`), until the result is None. The fold then shows whether the intention was
reached; `Fold.fence_epoch` shows whether the writer was fenced.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from msgspec.structs import replace

from distcommit.core.records.job_records import Cut, CutPhase, Decide, Generation, Head, Heads, Rebucket
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
    PostponedSequence,
    Rebuilt,
    Record,
    SealedSequence,
    SequenceName,
    SetWatermark,
    SetWatermarks,
)
from distcommit.core.records.read_failures import DatasetReadFailure, ReadFailures
from distcommit.core.watermark import Watermark
from distcommit.core.work import SchemaIds, SkippedRange
from distcommit.protocol.dataset_renaming import NamedNow, renamed
from distcommit.protocol.fold import Fold
from distcommit.protocol.validity import may_close, may_seal, valid


def fence(fold: Fold, epoch: int, run_id: str) -> Fence | None:
    """Fence a bucket's log: no run below `epoch` can seal any more."""
    return Fence(epoch, run_id) if fold.fence_epoch < epoch and not fold.moved_to else None


def next_epoch(fold: Fold) -> int:
    """Return the epoch of the next run that fences the job log after this fold."""
    return max(fold.number, fold.fence_epoch) + 1


def fence_job(fold: Fold, run_id: str, begun_at: int) -> Fence | None:
    """Fence the job log, which gives the run its epoch: the record's number, or one above the newest epoch if that is
    higher (after a rebuild).

    Args:
        fold: the fold of the job log.
        run_id: the unique id of the run.
        begun_at: the newest epoch when the run started. If there is a newer one by now, the run has lost.
    """
    if fold.fence_epoch != begun_at or fold.fence_run_id == run_id:
        return None
    return Fence(next_epoch(fold), run_id)


def seal(fold: Fold, epoch: int, sequences: Iterable[SealedSequence], gate: Gate = Gate.OPEN) -> Intent | None:
    """Seal those of the sequences that may be sealed, in one record, before any of their steps is executed."""
    open_now = tuple(sequence for sequence in sequences if may_seal(fold, epoch, sequence.dataset_urn, sequence.low))
    may = fold.fence_epoch == epoch and not fold.moved_to
    return Intent(epoch, open_now, gate) if open_now and may else None


def close(fold: Fold, epoch: int, names: Iterable[SequenceName]) -> Done | None:
    """Record that the effects of these sequences are durable, for those that are not closed."""
    remaining = tuple(name for name in names if may_close(fold, epoch, name))
    return Done(epoch, remaining) if remaining else None


def drop(fold: Fold, epoch: int, names: Iterable[SequenceName]) -> Dropped | None:
    """Drop those of these held sequences of older runs that are still pending and were never decided."""
    remaining = tuple(name for name in names if valid(Dropped(epoch, (name,)), fold))
    return Dropped(epoch, remaining) if remaining else None


def fail(
    fold: Fold, epoch: int, name: SequenceName, reason: str, *, for_good: bool, max_attempts: int = 1
) -> Failed | None:
    """Record a run's failed attempt at a pending sequence, once. Quarantine the sequence after `max_attempts` runs, or
    at once if `for_good`."""
    tried = fold.state_of(name.dataset_urn).tried_epochs
    if epoch in tried and not for_good:
        return None
    record = Failed(epoch, name, for_good or len({*tried, epoch}) >= max_attempts, reason)
    return record if valid(record, fold) else None


def postpone(fold: Fold, epoch: int, postponed: Iterable[PostponedSequence], *, outage: bool) -> Postponed | None:
    """Record why sequences stay pending, for those whose recorded reason is another one."""
    unrecorded = []
    for entry in postponed:
        open_now = fold.state_of(entry.dataset_urn).open
        is_recorded = open_now is not None and (open_now.reason, open_now.outage) == (entry.reason, outage)
        if not is_recorded and valid(Postponed(epoch, (entry,), outage), fold):
            unrecorded.append(entry)
    return Postponed(epoch, tuple(unrecorded), outage) if unrecorded else None


def read_failures(
    fold: Fold, epoch: int, failures: Iterable[DatasetReadFailure], *, stop_after: int
) -> ReadFailures | None:
    """Record that the run could not read these datasets, once. Stop a dataset after `stop_after` failed runs in a row
    (0: never)."""
    unrecorded = []
    for dataset in failures:
        if valid(ReadFailures(epoch, (dataset,)), fold):
            before = fold.state_of(dataset.dataset_urn).read_failure
            failed_runs = (before.failed_runs if before else 0) + (0 if dataset.outage else 1)
            unrecorded.append(replace(dataset, stops=0 < stop_after <= failed_runs and not dataset.outage))
    return ReadFailures(epoch, tuple(unrecorded)) if unrecorded else None


def decide(fold: Fold, epoch: int) -> Decide | None:
    """In the job log: decide that the held sequences of `epoch` are published."""
    return Decide(epoch) if fold.fence_epoch == epoch and epoch not in fold.decided_epochs else None


def operator_decision(
    fold: Fold, action: OperatorAction, name: SequenceName, user: str, skipped: tuple[SkippedRange, ...] = ()
) -> OperatorDecision | None:
    """Record an operator's action on a sequence, if the sequence has the required status."""
    record = OperatorDecision(action, name, user, skipped)
    return record if valid(record, fold) else None


def is_set(fold: Fold, urn: str, watermark: Watermark | None) -> bool:
    """Return whether the dataset has this watermark, and no run that has started can seal it any more."""
    state = fold.state_of(urn)
    return urn in fold.datasets and state.watermark == watermark and state.closed_epoch >= fold.fence_epoch


def set_watermark(fold: Fold, before: DatasetState, watermark: Watermark | None, user: str) -> SetWatermark | None:
    """Set an idle dataset's watermark, if its state is still the one that the operator saw."""
    urn = before.dataset_urn
    is_needed = fold.state_of(urn) == before and not is_set(fold, urn, watermark)
    record = SetWatermark(urn, watermark, user)
    return record if is_needed and valid(record, fold) else None


def set_watermarks(
    fold: Fold, requested: Mapping[str, Watermark], before: Mapping[str, Watermark | None], user: str
) -> SetWatermarks | None:
    """Set the watermarks of idle datasets, all or none: none if one of them is not the one that the operator saw."""
    remaining = {urn: watermark for urn, watermark in requested.items() if not is_set(fold, urn, watermark)}
    record = SetWatermarks(remaining, user)
    as_before = all(fold.state_of(urn).watermark == before[urn] for urn in remaining)
    return record if remaining and as_before and valid(record, fold) else None


def is_rebuilt(fold: Fold, epoch: int, state: DatasetState) -> bool:
    """Return whether the rebuild of `epoch` has replaced the dataset's state by this one, so that no run that has
    started can seal it."""
    return fold.state_of(state.dataset_urn) == replace(state, closed_epoch=epoch)


def rebuild(
    fold: Fold, epoch: int, states: tuple[DatasetState, ...], dataset_states: Mapping[str, DatasetState], user: str
) -> Rebuilt | None:
    """Replace states by those made from the published files, closed for all runs that have started.

    An operator action has no fence, so none of these datasets may have changed since `dataset_states` was read.
    """
    urns = [state.dataset_urn for state in states]
    as_planned = all(fold.state_of(urn) == dataset_states.get(urn, DatasetState(urn)) for urn in urns)
    is_done = all(is_rebuilt(fold, epoch, state) for state in states)
    record = Rebuilt(epoch, tuple(replace(state, closed_epoch=epoch) for state in states), user)
    return record if as_planned and not is_done and valid(record, fold) else None


def cut(fold: Fold, epoch: int, phase: CutPhase, reported: Iterable[Head]) -> Cut | None:
    """In the job log: record the ends of the bucket logs, after the run has fenced and replayed them, or at its end.

    A head never goes back: if an operator action has recorded a newer one since the run read the log, it stays. The
    head of a bucket that was not read stays too, and is marked as not whole.
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
    """In the job log: record the end of a run, then a checkpoint if one is due and no newer run has started.

    Arguments like `cut` and `checkpoint`.
    """
    if fold.ended_epoch != epoch:
        return cut(fold, epoch, CutPhase.ENDED, reported)
    return checkpoint(fold, at_least=at_least, decided_from=decided_from) if fold.fence_epoch == epoch else None


def discard_heads(fold: Fold, epoch: int, user: str) -> Rebuilt | None:
    """In the job log: discard all log heads, so that the bucket logs continue from where they are."""
    record = Rebuilt(epoch, (), user)
    return record if fold.heads and valid(record, fold) else None


def heads(fold: Fold, generation: int, reported: Iterable[Head], user: str) -> Heads | None:
    """In the job log: record the ends of bucket logs of the current generation after an operator action, if they are
    above the last heads. A bucket that has lost its tail stays marked."""
    if fold.generation != generation:
        return None
    above = tuple(
        replace(head, is_complete=fold.heads[head.bucket].is_complete if head.bucket in fold.heads else True)
        for head in reported
        if valid(Heads((head,), user), fold)
    )
    return Heads(above, user) if above else None


def rebucket(fold: Fold, epoch: int, generation: int, buckets: int, settings: Mapping[str, str]) -> Rebucket | None:
    """In the job log: start the move to `generation`. Nothing else is valid until it has finished."""
    record = Rebucket(epoch, generation, buckets, dict(settings))
    return record if fold.under_way is None and valid(record, fold) else None


def move(fold: Fold, epoch: int, generation: int) -> Moved | None:
    """In a bucket's log: end it, if all of its datasets are idle."""
    record = Moved(epoch, generation)
    return record if valid(record, fold) else None


def beginning() -> Checkpoint:
    """Return the first record of a new log."""
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
        ended: the folds of all logs of the previous generation, in any order, each past its MOVED.
        buckets: the number of buckets of the new generation.
        bucket_of: returns the new bucket of a dataset.
        named_now: returns the new names of datasets, if they change.
        schemas: the schema ids by converter of datasets whose ids change.

    Raises:
        ConflictError: as `renaming.renamed`.
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
    """In the job log: make the logs of `generation` the current ones."""
    record = Generation(epoch, generation)
    return record if valid(record, fold) else None


def checkpoint(fold: Fold, *, at_least: int, decided_from: int = 0) -> Checkpoint | None:
    """Return the whole fold as a record, if at least `at_least` records (one at least) follow the newest checkpoint."""
    above = fold.number - fold.last_checkpoint
    return fold.checkpoint(decided_from) if above >= max(1, at_least) and not fold.moved_to else None

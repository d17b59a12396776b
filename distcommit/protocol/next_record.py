"""What comes next in a log: every writer takes its record from here.

Each function answers from the fold alone, for a writer that says who it is and what it wants to happen: the record to
append, or None if its effect is there, or is no longer possible. So an answer is always valid where the fold ends, and
a writer that is asked again after every put (`stores.logs.log`) stops when there is nothing left for it to do. Whether
what it wanted has come about, the fold says; a fenced writer is told by `Fold.fence_epoch`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from msgspec.structs import replace

from distcommit.core.records.job_records import Cut, CutPhase, Decide, Generation, Head, Heads, Rebucket
from distcommit.core.records.log_records import (
    ByHand,
    Checkpoint,
    DatasetState,
    Done,
    Dropped,
    Failed,
    Fence,
    Gate,
    HandAction,
    Intent,
    Left,
    LeftSequence,
    Moved,
    Rebuilt,
    Record,
    SealedSequence,
    SequenceName,
    SetWatermark,
    SetWatermarks,
)
from distcommit.core.records.read_failures import Unread, UnreadDataset
from distcommit.core.watermark import Watermark
from distcommit.core.work import SchemaIds, SkippedRange
from distcommit.protocol.fold import Fold
from distcommit.protocol.renaming import NamedNow, renamed
from distcommit.protocol.validity import may_close, may_seal, valid


def fence(fold: Fold, epoch: int, run_id: str) -> Fence | None:
    """Lets nobody below `epoch` seal any more."""
    return Fence(epoch, run_id) if fold.fence_epoch < epoch and not fold.moved_to else None


def next_epoch(fold: Fold) -> int:
    """The epoch of the run that fences the job log next, after this fold of it."""
    return max(fold.number, fold.fence_epoch) + 1


def fence_job(fold: Fold, run_id: str, begun_at: int) -> Fence | None:
    """Takes an epoch: the number of the record, or what follows the newest epoch if that is higher (after a rebuild).

    Args:
        fold: of the job log.
        run_id: the run's, which nobody else has.
        begun_at: the newest epoch when the run began; once there is a newer one the run has lost.
    """
    if fold.fence_epoch != begun_at or fold.fence_run_id == run_id:
        return None
    return Fence(next_epoch(fold), run_id)


def seal(fold: Fold, epoch: int, sequences: Iterable[SealedSequence], gate: Gate = Gate.OPEN) -> Intent | None:
    """Writes ahead those of these sequences that may be sealed, all at once."""
    open_now = tuple(sequence for sequence in sequences if may_seal(fold, epoch, sequence.dataset_urn, sequence.low))
    may = fold.fence_epoch == epoch and not fold.moved_to
    return Intent(epoch, open_now, gate) if open_now and may else None


def close(fold: Fold, epoch: int, names: Iterable[SequenceName]) -> Done | None:
    """Says of those of these sequences that are not closed that their effects are durable."""
    left = tuple(name for name in names if may_close(fold, epoch, name))
    return Done(epoch, left) if left else None


def drop(fold: Fold, epoch: int, names: Iterable[SequenceName]) -> Dropped | None:
    """Takes back those of these held sequences of older runs that are still pending; nobody decided on them."""
    left = tuple(name for name in names if valid(Dropped(epoch, (name,)), fold))
    return Dropped(epoch, left) if left else None


def fail(
    fold: Fold, epoch: int, name: SequenceName, reason: str, *, for_good: bool, max_attempts: int = 1
) -> Failed | None:
    """Counts a run's failed attempt at a pending sequence, once; quarantines it after so many, or if all is lost."""
    tried = fold.state_of(name.dataset_urn).tried_epochs
    if epoch in tried and not for_good:
        return None
    record = Failed(epoch, name, for_good or len({*tried, epoch}) >= max_attempts, reason)
    return record if valid(record, fold) else None


def leave(fold: Fold, epoch: int, left: Iterable[LeftSequence], *, outage: bool) -> Left | None:
    """Says why sequences stay pending, of those of which it is not said yet."""
    untold = []
    for one in left:
        mine = fold.state_of(one.dataset_urn).open
        is_told = mine is not None and (mine.reason, mine.outage) == (one.reason, outage)
        if not is_told and valid(Left(epoch, (one,), outage), fold):
            untold.append(one)
    return Left(epoch, tuple(untold), outage) if untold else None


def unread(fold: Fold, epoch: int, found: Iterable[UnreadDataset], *, stop_after: int) -> Unread | None:
    """Says once of datasets that the run could not read them; stops those that so many runs in a row could not (0: none
    is ever stopped)."""
    untold = []
    for one in found:
        if valid(Unread(epoch, (one,)), fold):
            before = fold.state_of(one.dataset_urn).unread
            failed_runs = (before.failed_runs if before else 0) + (0 if one.outage else 1)
            untold.append(replace(one, stops=0 < stop_after <= failed_runs and not one.outage))
    return Unread(epoch, tuple(untold)) if untold else None


def decide(fold: Fold, epoch: int) -> Decide | None:
    """In the job log: has the held sequences of `epoch` published."""
    return Decide(epoch) if fold.fence_epoch == epoch and epoch not in fold.decided_epochs else None


def by_hand(
    fold: Fold, action: HandAction, name: SequenceName, who: str, skipped: tuple[SkippedRange, ...] = ()
) -> ByHand | None:
    """A person's action on a sequence, if it has the status that the action needs."""
    record = ByHand(action, name, who, skipped)
    return record if valid(record, fold) else None


def is_set(fold: Fold, urn: str, watermark: Watermark | None) -> bool:
    """Whether the dataset has this watermark, and no run that has begun can seal it any more."""
    state = fold.state_of(urn)
    return urn in fold.datasets and state.watermark == watermark and state.closed_epoch >= fold.fence_epoch


def set_watermark(fold: Fold, before: DatasetState, watermark: Watermark | None, who: str) -> SetWatermark | None:
    """Moves an idle dataset's watermark, if it is still as the person saw it."""
    urn = before.dataset_urn
    wanted = fold.state_of(urn) == before and not is_set(fold, urn, watermark)
    record = SetWatermark(urn, watermark, who)
    return record if wanted and valid(record, fold) else None


def set_watermarks(
    fold: Fold, wanted: Mapping[str, Watermark], before: Mapping[str, Watermark | None], who: str
) -> SetWatermarks | None:
    """Sets watermarks of idle datasets, all or none: none if one of them is not as the person saw it."""
    left = {urn: watermark for urn, watermark in wanted.items() if not is_set(fold, urn, watermark)}
    record = SetWatermarks(left, who)
    as_before = all(fold.state_of(urn).watermark == before[urn] for urn in left)
    return record if left and as_before and valid(record, fold) else None


def is_rebuilt(fold: Fold, epoch: int, state: DatasetState) -> bool:
    """Whether the dataset is as the rebuild of `epoch` makes it by this state: no run that has begun can seal it."""
    return fold.state_of(state.dataset_urn) == replace(state, closed_epoch=epoch)


def rebuild(
    fold: Fold, epoch: int, states: tuple[DatasetState, ...], known: Mapping[str, DatasetState], who: str
) -> Rebuilt | None:
    """Puts states made from the published files in the place of what the log knew, closed for all runs that have begun,
    if none of these datasets has changed since: people need no fence."""
    urns = [state.dataset_urn for state in states]
    as_planned = all(fold.state_of(urn) == known.get(urn, DatasetState(urn)) for urn in urns)
    there = all(is_rebuilt(fold, epoch, state) for state in states)
    record = Rebuilt(epoch, tuple(replace(state, closed_epoch=epoch) for state in states), who)
    return record if as_planned and not there and valid(record, fold) else None


def cut(fold: Fold, epoch: int, phase: CutPhase, seen: Iterable[Head]) -> Cut | None:
    """In the job log: says where the bucket logs were when the run had fenced and replayed them, or had ended.

    No head goes back: where a person was there after the run had looked, that head stays. So does that of a bucket of
    which nothing was seen, and it is not whole.
    """
    found = {head.bucket: head for head in seen}
    buckets = sorted(fold.heads.keys() | found.keys())
    record = Cut(epoch, phase, tuple(_newest_head(fold.heads.get(b), found.get(b)) for b in buckets))
    is_there = epoch == (fold.began_epoch if phase is CutPhase.BEGAN else fold.ended_epoch)
    return record if not is_there and valid(record, fold) else None


def _newest_head(last: Head | None, seen: Head | None) -> Head:
    if seen is None or (last is not None and seen.number <= last.number):
        if last is None:
            raise AssertionError("a bucket with neither a head nor a look at it")
        return replace(last, is_whole=seen is not None and seen.is_whole)
    return seen


def end(fold: Fold, epoch: int, seen: Iterable[Head], *, at_least: int, decided_from: int = 0) -> Record | None:
    """In the job log: says that a run has ended, then what a checkpoint says, if one is due and nobody has begun since.

    Arguments as of `cut` and `checkpoint`.
    """
    if fold.ended_epoch != epoch:
        return cut(fold, epoch, CutPhase.ENDED, seen)
    return checkpoint(fold, at_least=at_least, decided_from=decided_from) if fold.fence_epoch == epoch else None


def forget_heads(fold: Fold, epoch: int, who: str) -> Rebuilt | None:
    """In the job log: lets the bucket logs go on as they stand, whatever was known of them."""
    record = Rebuilt(epoch, (), who)
    return record if fold.heads and valid(record, fold) else None


def heads(fold: Fold, generation: int, seen: Iterable[Head], who: str) -> Heads | None:
    """In the job log: says where bucket logs of the generation that counts were after what a person did, of those that
    are above their last head. One that was found to have lost its tail stays so."""
    if fold.generation != generation:
        return None
    above = tuple(
        replace(head, is_whole=fold.heads[head.bucket].is_whole if head.bucket in fold.heads else True)
        for head in seen
        if valid(Heads((head,), who), fold)
    )
    return Heads(above, who) if above else None


def rebucket(fold: Fold, epoch: int, generation: int, buckets: int, settings: Mapping[str, str]) -> Rebucket | None:
    """In the job log: lets nothing go on but the move to `generation`."""
    record = Rebucket(epoch, generation, buckets, dict(settings))
    return record if fold.under_way is None and valid(record, fold) else None


def move(fold: Fold, epoch: int, generation: int) -> Moved | None:
    """In a bucket's log: ends it, if all of its datasets are idle."""
    record = Moved(epoch, generation)
    return record if valid(record, fold) else None


def beginning() -> Checkpoint:
    """How a log begins of which nothing is known yet."""
    return Fold().checkpoint()


def beginnings(
    ended: Iterable[Fold],
    buckets: int,
    bucket_of: Callable[[str], int],
    named_now: NamedNow | None = None,
    schemas: Mapping[str, SchemaIds] | None = None,
) -> list[Checkpoint]:
    """How the logs of a generation begin, by bucket: whoever writes them writes the same.

    Args:
        ended: of all logs of the generation before, in any order, each past its MOVED.
        buckets: how many there are in the new one.
        bucket_of: which of these a dataset is in.
        named_now: names datasets, if they are named otherwise in the new one.
        schemas: ids by converter of the datasets whose schemas have others in the new one.

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
    return [Checkpoint(newest.fence_epoch, newest.fence_run_id, (), tuple(mine), 0) for mine in within]


def switch(fold: Fold, epoch: int, generation: int) -> Generation | None:
    """In the job log: has the logs of `generation` count."""
    record = Generation(epoch, generation)
    return record if valid(record, fold) else None


def checkpoint(fold: Fold, *, at_least: int, decided_from: int = 0) -> Checkpoint | None:
    """The whole fold, if so many records (one at least) stand above the newest checkpoint."""
    above = fold.number - fold.last_checkpoint
    return fold.checkpoint(decided_from) if above >= max(1, at_least) and not fold.moved_to else None

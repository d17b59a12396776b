"""Another number of buckets, or other names or groups of datasets: all logs of the generation that counts are ended,
new ones begin where they ended, and then the job log says that these count. Its executable model is
`tests/spec/generation_model.py`.

A crash anywhere is finished by doing it again, by anybody: it takes a new epoch and goes on with what is under way. Who
was fenced meanwhile can neither end a log nor switch, and what it may still begin is what everybody else begins.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from distcommit.core.errors import ConflictError, CorruptError
from distcommit.core.interfaces.steps import StepContext
from distcommit.core.records.log_records import Checkpoint, DatasetStatus
from distcommit.core.support.io_batching import Work, in_step
from distcommit.core.support.parallel import in_flight
from distcommit.core.work import SchemaIds
from distcommit.protocol import next_record
from distcommit.protocol.fold import Fold
from distcommit.protocol.renaming import NamedNow, renamed
from distcommit.stores.folders.ownership import Mark, newest_end, put_mark, read_marks
from distcommit.stores.logs.fencing import end_run, fence_job, require_fence, require_newest
from distcommit.stores.logs.generation import require_counting
from distcommit.stores.logs.log import CommitLog
from distcommit.stores.logs.log_anchors import cut_ended, heads_now, require_published, require_whole
from distcommit.stores.logs.segment import Segment
from distcommit.stores.schemas.carried_schemas import carry, to_carry
from distcommit.stores.state.fixed_settings import change_settings
from distcommit.stores.state.job_store import JobStore
from distcommit.stores.state.task_states import PastStates

logger = logging.getLogger(__name__)

_NAMED = 20


@dataclass(frozen=True, slots=True)
class Move:
    """What a job is to have.

    Attributes:
        buckets: how many.
        settings: those that datasets are named or grouped by and that become others, as the store pins them.
        named_now: names datasets, if it is they whose names change. It follows from the settings.
    """

    buckets: int
    settings: Mapping[str, str] = field(default_factory=dict)
    named_now: NamedNow | None = None


@dataclass(frozen=True, slots=True)
class Rebucketed:
    """What was done. `epoch`: 0 if there was nothing to do; `went_on`: with what an earlier command had begun."""

    store: JobStore
    epoch: int = 0
    datasets: int = 0
    went_on: bool = False


def rebucket(store: JobStore, move: Move, run_id: str, tell: Callable[[str], None]) -> Rebucketed:
    """Moves a job to another generation of logs. Costs O(buckets) operations, of both generations.

    Args:
        store: the store, as it counts; it groups datasets as they are to be.
        move: what it is to have.
        run_id: who does it; nobody else has it.
        tell: told each step as it begins.

    Returns:
        what was done, with the store as it counts then; durable.

    Raises:
        ConflictError: if a dataset is not idle, or is stopped and gets another name (no log was changed, but for
            fences), or another move is under way, or the store does not count any more.
        ConfigurationError: if the job's sink names no commit group for a dataset.
        FencedError: if somebody else has begun since: they go on, or this is to be given again.
        StaleStoreError: if the store is older than its output.
        LostTailError: if a bucket's log has lost its newest segments.
        CorruptError: if a log can't be read, or one of the new ones is there and is not what it has to be; or columns
            that a dataset with another name is to keep are gone.
    """
    fold = store.job_log().refresh()
    require_counting(store, fold, moving=True)
    _require_same(store, fold, move)
    if fold.under_way is None and store.buckets == move.buckets and not move.settings:
        return Rebucketed(store)
    require_newest(store)
    _require_whole(store, fold)
    if fold.under_way is None:  # the usual refusal, before anything is changed
        _require_movable(store, move, in_flight(store.fs.parallel_calls, CommitLog.refresh, _logs(store)))
    tell("fence")
    epoch = fence_job(store, run_id, moving=True)
    put_mark(store.fs, store.roots.output, epoch, Mark.BEGAN)
    _require_whole(store, store.job_log(epoch).refresh())
    fenced = in_step([_fencing(log, run_id) for log in _logs(store, epoch)], store.fs.parallel_buckets)
    _require_movable(store, move, fenced)
    after = _begin(store, epoch, move)
    tell("end logs")
    ended = in_step([_moving(log, after.generation) for log in _logs(store, epoch)], store.fs.parallel_buckets)
    tell("begin logs")
    began = _begin_logs(after, epoch, ended, move)
    if move.settings:
        tell("record settings")
        change_settings(store, move.settings, partial(_require_ours, store, epoch))
    tell("switch")
    _switch(store, epoch, after)
    cut_ended(after, epoch, heads_now(after))
    end_run(after, epoch, clean=True)
    return Rebucketed(after, epoch, began, went_on=fold.under_way is not None)


def _require_whole(store: JobStore, job_fold: Fold) -> None:
    """What has lost its tail would begin anew as if it were all there is, and nobody could tell any more that the
    output is older."""
    require_counting(store, job_fold, moving=True)  # heads are of the generation that counts
    context = StepContext(store.fs, store.roots.staging, store.roots.output)
    ended, past = newest_end(read_marks(store.fs, store.roots.output)), PastStates(store.fs, store.roots.store)
    for bucket, log in enumerate(_logs(store)):
        fold = require_whole(store, job_fold, bucket, log, past)
        if job_fold.began_epoch:
            require_published(context, log, fold, ended)


def _logs(store: JobStore, epoch: int = 0) -> list[CommitLog]:
    return [store.bucket_log(bucket, epoch) for bucket in range(store.buckets)]


def _require_same(store: JobStore, fold: Fold, move: Move) -> None:
    under_way = fold.under_way
    if under_way is not None and (under_way.buckets, under_way.settings) != (move.buckets, dict(move.settings)):
        raise ConflictError(
            "the job is on its way to another number of buckets than this, or to other settings",
            store=store.roots.store,
            expected=_shown(under_way.buckets, under_way.settings),
            found=_shown(move.buckets, move.settings),
            todo=f"`distcommit store rebucket JOB.yaml --buckets {under_way.buckets}`, with these settings in the job"
            " file, finishes it; then give this again",
        )


def _shown(buckets: int, settings: Mapping[str, str]) -> str:
    return ", ".join([f"{buckets} buckets", *(f"{name}: {value}" for name, value in sorted(settings.items()))])


def _require_movable(store: JobStore, move: Move, folds: Sequence[Fold]) -> None:
    states = [state for fold in folds for state in fold.datasets.values()]
    busy = sorted(f"{s.dataset_urn} ({s.status.value})" for s in states if s.status is not DatasetStatus.IDLE)
    if busy:
        raise ConflictError(
            "the job can't be moved to other logs while sequences are not done",
            store=store.roots.store,
            expected="all datasets to be idle",
            found=_first(busy),
            todo="`distcommit recover` it, or release what is quarantined, then give this again; nothing was changed",
        )
    stopped = sorted(state.dataset_urn for state in states if state.is_stopped) if move.named_now else []
    if stopped:
        raise ConflictError(
            "datasets that are stopped can't get other names",
            store=store.roots.store,
            expected="none of them to be stopped",
            found=_first(stopped),
            todo="`distcommit dataset release JOB.yaml DATASET retry`, and run it as it was configured before, then"
            " give this again; nothing was changed",
        )
    after = renamed(states, move.named_now) if move.named_now else states
    for state in after:
        store.bucket_of(state.dataset_urn)  # raises while nothing is changed, where the sink names no group for it
    if move.named_now:
        to_carry(store, states, after, move.named_now, epoch=0)  # so does this, where one can't be read


def _first(names: Sequence[str]) -> str:
    return ", ".join(names[:_NAMED]) + (f" and {len(names) - _NAMED} more" if len(names) > _NAMED else "")


def _fencing(log: CommitLog, run_id: str) -> Work[Fold]:
    """Fences a log, unless it has ended already."""
    fold = yield from log.settling(partial(next_record.fence, epoch=log.epoch, run_id=run_id))
    if not fold.moved_to:
        require_fence(fold, log.epoch, log.folder)
    return fold


def _begin(store: JobStore, epoch: int, move: Move) -> JobStore:
    """Lets nothing go on but this; returns the store as it is to be."""
    log, generation = store.job_log(epoch), store.generation + 1
    begun = partial(
        next_record.rebucket, epoch=epoch, generation=generation, buckets=move.buckets, settings=move.settings
    )
    fold = log.settle(begun)
    require_fence(fold, epoch, log.folder)
    _require_same(store, fold, move)
    return replace(store, generation=generation, buckets=move.buckets)


def _require_ours(store: JobStore, epoch: int) -> None:
    log = store.job_log(epoch)
    require_fence(log.refresh(), epoch, log.folder)


def _moving(log: CommitLog, generation: int) -> Work[Fold]:
    """Ends a log: from here on nothing is valid in it."""
    fold = yield from log.settling(partial(next_record.move, epoch=log.epoch, generation=generation))
    if not fold.moved_to:
        require_fence(fold, log.epoch, log.folder)
        raise ConflictError("a bucket's log can't be ended", log=log.folder, todo="give this again")
    return fold


def _begin_logs(after: JobStore, epoch: int, ended: Sequence[Fold], move: Move) -> int:
    """Makes the new logs, durably, and sees that each is what it has to be: what a backup or another program may have
    left there would count from the switch on. How many datasets are in them."""
    logs = _logs(after, epoch)
    begun = partial(next_record.beginnings, ended, after.buckets, after.bucket_of, move.named_now)
    wanted = begun()
    if move.named_now:
        wanted = begun(_carried_schemas(after, ended, wanted, move.named_now))

    def make(one: tuple[CommitLog, Checkpoint]) -> str:
        log, beginning = one
        log.create(beginning)
        found = [segment.record if isinstance(segment, Segment) else segment for _, segment in log.segments()]
        return "" if found == [beginning] else log.folder

    found = in_flight(after.fs.parallel_calls, make, list(zip(logs, wanted, strict=True)))
    wrong = [folder for folder in found if folder]
    if wrong:
        job_log = after.job_log(epoch)
        require_fence(job_log.refresh(), epoch, job_log.folder)  # who has switched writes in them
        raise CorruptError(
            "a log of the generation that is to be made is there, and is another one",
            path=wrong[0],
            expected="its beginning, as this writes it",
            todo=f"see what has left it there, move {wrong[0].rpartition('/')[0]} away and give this again",
        )
    after.fs.sync([log.folder for log in logs], after.roots.store)
    return sum(len(beginning.datasets) for beginning in wanted)


def _carried_schemas(
    after: JobStore, ended: Sequence[Fold], wanted: list[Checkpoint], named_now: NamedNow
) -> dict[str, SchemaIds]:
    """The ids that schemas have under the new names of these beginnings; they are there then. Their numbers are of the
    newest epoch in the logs that have ended, as these are, so that whoever goes on with it puts the same."""
    before = [state for fold in ended for state in fold.datasets.values()]
    renamed_to = [state for beginning in wanted for state in beginning.datasets]
    return carry(after, to_carry(after, before, renamed_to, named_now, wanted[0].fence_epoch))


def _switch(store: JobStore, epoch: int, after: JobStore) -> None:
    log = store.job_log(epoch)
    fold = log.settle(partial(next_record.switch, epoch=epoch, generation=after.generation))
    require_fence(fold, epoch, log.folder)
    logger.info(
        "the job has %d buckets", after.buckets, extra={"generation": after.generation, "store": store.roots.store}
    )

"""The recover job: each partition fences its own buckets, replays what older runs sealed, and sweeps what they left."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass

import msgspec

from distcommit.engine.committer import BucketCommitter
from distcommit.engine.counts import CommitCounts, RecoverCounts
from distcommit.engine.losers import sweep_lost
from distcommit.engine.reports import Report, Tally
from distcommit.engine.sealing import step_context
from distcommit.engine.settings import RunSettings
from distcommit.model.errors import DistcommitError, FencedError, StaleStoreError, TransientError
from distcommit.model.lockstep import Work, in_step
from distcommit.protocol.fold import Fold
from distcommit.stores.anchors import require_published, require_whole
from distcommit.stores.claims import newest_end, read_marks
from distcommit.stores.fencing import fencing_bucket, require_fence
from distcommit.stores.retention import KEPT_RUNS, forget_runs
from distcommit.stores.staging import staged_buckets, staged_epochs, swept_epochs

logger = logging.getLogger(__name__)


class RecoverReport(msgspec.Struct, frozen=True):
    """What one partition, or one bucket, recovered. `oldest_held_epoch`: of sequences that were held, 0 if none was."""

    report: Report[RecoverCounts]
    oldest_held_epoch: int = 0


def recover_partition(settings: RunSettings, partition: int) -> RecoverReport:
    """Fences, replays and sweeps the partition's buckets. A bucket that can't be read is reported; the others go on."""
    tally = Tally(RecoverCounts())
    found: list[RecoverReport] = []
    store = settings.store
    try:
        seen = _Seen(
            _job_fold(settings),
            staged_epochs(store.fs, store.roots.staging),
            newest_end(read_marks(store.fs, store.roots.output)),
        )
        works = [_recover_bucket(settings, seen, bucket) for bucket in settings.buckets_of(partition)]
        found = in_step(works, store.fs.parallel_buckets)
        for bucket in found:
            tally.include(bucket.report)
        if partition == 0 and store.generation:
            tally.add(RecoverCounts(files_swept=_sweep_other_generations(settings, seen.staged)))
        forget_runs(store.fs, store.roots.store, [head.bucket for head in tally.heads], store.buckets, KEPT_RUNS)
    except FencedError as error:
        tally.fenced = str(error)
    except (DistcommitError, OSError) as error:
        tally.explain(f"partition {partition}", type(error).__name__, str(error))
    return RecoverReport(tally.report(partition), oldest_held(found))


def oldest_held(reports: Iterable[RecoverReport]) -> int:
    """The oldest epoch of which a sequence was held, 0 if none was."""
    return min((report.oldest_held_epoch for report in reports if report.oldest_held_epoch), default=0)


@dataclass(frozen=True, slots=True)
class _Seen:
    """What a partition has seen before it looks at its buckets: the job log, the epochs that are staged, and the newest
    run that has marked its end in the output."""

    job_fold: Fold
    staged: list[int]
    ended_epoch: int


def _job_fold(settings: RunSettings) -> Fold:
    """A view of the job log that contains this run's own fence: only then is it sure that what is not decided in it
    never will be.

    Raises:
        FencedError: if a newer run has fenced the job log.
        TransientError: if this executor's view of the log is older than the run.
    """
    log = settings.store.job_log(settings.epoch)
    fold = log.refresh()
    require_fence(fold, settings.epoch, log.folder)
    if (fold.fence_epoch, fold.fence_run_id) != (settings.epoch, settings.run_id):
        raise TransientError(
            "this executor sees an older job log than the driver",
            log=log.folder,
            expected=f"the fence of epoch {settings.epoch}",
            found=f"epoch {fold.fence_epoch}",
            todo="mount the store so that executors see new files at once (no stale folder listings)",
        )
    return fold


def _recover_bucket(settings: RunSettings, seen: _Seen, bucket: int) -> Work[RecoverReport]:
    """One bucket. That it has lost its tail, or the output is older than it, is told before anything is done."""
    store, tally = settings.store, Tally(RecoverCounts())
    committer: BucketCommitter | None = None
    oldest = 0
    try:
        log = store.bucket_log(bucket, settings.epoch)
        fold = require_whole(store, seen.job_fold, bucket, log)
        if seen.job_fold.began_epoch:  # else older programs have written all of it
            require_published(step_context(settings), log, fold, seen.ended_epoch)
        fold = yield from fencing_bucket(log, settings.epoch, settings.run_id)
        tally.heads = (log.head(bucket),)
        held = [s.open.sequence.epoch for s in fold.datasets.values() if s.open is not None and s.open.held]
        oldest = min(held, default=0)
        tally.add(RecoverCounts(buckets=1))
        if fold.pending():
            committer = BucketCommitter(settings, bucket, tally)
            yield from committer.replay(seen.job_fold.decided_epochs)
            fold = log.refresh()
        for epoch in swept_epochs(seen.staged, settings.epoch, fold):
            tally.add(RecoverCounts(files_swept=sweep_lost(settings, epoch, bucket)))
        for number, kind in fold.ignored:
            logger.info("record ignored, not valid where it stands: %s %s", number, kind, extra={"log": log.folder})
        yield from log.checkpointing()
        tally.heads = (log.head(bucket),)
    except FencedError:
        raise
    except StaleStoreError as error:
        tally.stale = str(error)
    except Exception as error:
        logger.exception("bucket could not be recovered", extra={"bucket": bucket})
        tally.explain(f"bucket {bucket}", type(error).__name__, str(error))
    if committer is not None:
        tally.include(_replayed(committer.tally))
    return RecoverReport(tally.report(), oldest)


def _sweep_other_generations(settings: RunSettings, staged: list[int]) -> int:
    """Deletes what older runs left in task output of buckets above those that there are now: every dataset was idle
    when their number was changed. Returns how many files went."""
    fs, root = settings.store.fs, settings.store.roots.staging
    older = [epoch for epoch in staged if epoch < settings.epoch]
    gone = [(epoch, b) for epoch in older for b in staged_buckets(fs, root, epoch) if b >= settings.store.buckets]
    return sum(sweep_lost(settings, epoch, bucket) for epoch, bucket in gone)


def _replayed(done: Tally[CommitCounts]) -> Report[RecoverCounts]:
    """What a committer has done, as a part of recovery."""
    counts = RecoverCounts(
        sequences_replayed=done.counts.datasets_committed,
        sequences_left=done.counts.executions_failed,
        sequences_dropped=done.counts.sequences_dropped,
        datasets_quarantined=done.counts.datasets_quarantined,
        steps_executed=done.counts.steps_executed,
        files_swept=done.counts.files_swept,
    )
    return Report(counts, done.reasons)

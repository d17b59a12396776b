"""The recover job: each partition fences its own buckets, replays what older runs sealed, and sweeps what they left."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import msgspec

from distcommit.core.errors import DistcommitError, FencedError, StaleStoreError, TransientError
from distcommit.core.ports import OutsideRootError
from distcommit.core.records.log_records import DatasetState, DatasetStatus
from distcommit.core.support.io_batching import Work, in_step, with_ids
from distcommit.engine.committing.aborted_attempts import sweep_lost
from distcommit.engine.committing.committer import BucketCommitter
from distcommit.engine.committing.sealing import step_context
from distcommit.engine.committing.snapshot_writer import seen_bucket
from distcommit.engine.driver.counts import CommitCounts, RecoverCounts
from distcommit.engine.driver.reports import Report, Tally
from distcommit.engine.maintenance.superseded_files import delete_retired
from distcommit.engine.reading.task_events import SequenceDone, TaskEvent, TaskObserver
from distcommit.engine.reading.task_times import TaskTimes
from distcommit.engine.settings import RunSettings
from distcommit.protocol.fold import Fold
from distcommit.stores.folders.ownership import newest_end, read_marks
from distcommit.stores.folders.staging import staged_buckets, staged_epochs, swept_epochs
from distcommit.stores.history.run_datasets import RunDataset, put_run_datasets
from distcommit.stores.logs.fencing import fencing_bucket, require_fence
from distcommit.stores.logs.log import CHECKPOINT_EVERY, checkpoint_every
from distcommit.stores.logs.log_anchors import require_published, require_whole
from distcommit.stores.snapshots.snapshots import CutRoot, root_to_go_on
from distcommit.stores.state.task_states import PastStates

logger = logging.getLogger(__name__)


class _Replayed:
    """Is told what a bucket's committer does: passes it on, and notes what was done for the run's table."""

    def __init__(self, bucket: int, told: TaskObserver) -> None:
        self._bucket, self._told = bucket, told
        self.rows: list[RunDataset] = []

    def observe(self, event: TaskEvent) -> None:
        if isinstance(event, SequenceDone):
            self.rows.append(RunDataset(event.dataset, self._bucket, "replayed", event.records, event.files))
        self._told.observe(event)

    def left(self, fold: Fold) -> None:
        """Notes what is left open."""
        for state in fold.datasets.values():
            if state.open is not None:
                word = "left" if state.status is DatasetStatus.PENDING else "quarantined"
                kind = f"left {state.status.value}"
                self.rows.append(RunDataset(state.dataset_urn, self._bucket, word, kind=kind, reason=state.open.reason))


class RecoverReport(msgspec.Struct, frozen=True):
    """What one partition, or one bucket, recovered. `oldest_held_epoch`: of sequences that were held, 0 if none was."""

    report: Report[RecoverCounts]
    oldest_held_epoch: int = 0


def recover_partition(settings: RunSettings, partition: int) -> RecoverReport:
    """Fences, replays and sweeps the partition's buckets. A bucket that can't be read is reported; the others go on."""
    tally = Tally(RecoverCounts())
    found: list[RecoverReport] = []
    store, times = settings.store, TaskTimes(settings, "recover", partition)
    try:
        job_fold = _job_fold(settings)
        seen = _Seen(
            job_fold,
            staged_epochs(store.fs, store.roots.staging),
            newest_end(read_marks(store.fs, store.roots.output)),
            root_to_go_on(store, job_fold),
            PastStates(store.fs, store.roots.store),
        )
        rows: list[RunDataset] = []
        works = [
            with_ids(_recover_bucket(settings, seen, bucket, rows, times), bucket=bucket)
            for bucket in settings.buckets_of(partition)
        ]
        with times.committing():
            found = in_step(works, store.fs.parallel_buckets)
        put_run_datasets(store.fs, store.roots.store, settings.run_id, "recover", partition, rows)
        times.keep()
        for bucket in found:
            tally.include(bucket.report)
        if partition == 0 and store.generation:
            tally.add(RecoverCounts(files_swept=_sweep_other_generations(settings, seen)))
    except FencedError as error:
        tally.fenced = str(error)
    except (DistcommitError, OSError) as error:
        tally.explain(f"partition {partition}", type(error).__name__, str(error))
    return RecoverReport(tally.report(partition), oldest_held(found))


def delete_retired_files(settings: RunSettings, partition: int) -> RecoverReport:
    """Delete the published files of the partition's datasets that others have replaced, after the run's CUT 1."""
    tally = Tally(RecoverCounts())
    states: dict[int, Mapping[str, DatasetState]] = {}
    for bucket in settings.buckets_of(partition):
        try:
            log = settings.store.bucket_log(bucket, settings.epoch)
            fold = log.refresh()
            require_fence(fold, settings.epoch, log.folder)
        except FencedError as error:
            tally.fenced = str(error)
            return RecoverReport(tally.report(partition))
        except (DistcommitError, OSError) as error:
            tally.note(f"bucket {bucket}", "retired files stay", str(error))
            continue
        if fold.fence_epoch == settings.epoch:
            states[bucket] = fold.datasets
    for urn, why in delete_retired(settings.store, states):
        tally.note(urn, "retired files stay", why)
    return RecoverReport(tally.report(partition))


def oldest_held(reports: Iterable[RecoverReport]) -> int:
    """The oldest epoch of which a sequence was held, 0 if none was."""
    return min((report.oldest_held_epoch for report in reports if report.oldest_held_epoch), default=0)


@dataclass(frozen=True, slots=True)
class _Seen:
    """What a partition has seen before it looks at its buckets: the job log, the epochs that are staged, the newest run
    that has marked its end in the output, and the root of the cut before; and what past runs have reported, as far as
    that is asked for."""

    job_fold: Fold
    staged: list[int]
    ended_epoch: int
    before: CutRoot | None
    past: PastStates


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


def _recover_bucket(
    settings: RunSettings, seen: _Seen, bucket: int, rows: list[RunDataset], times: TaskTimes
) -> Work[RecoverReport]:
    """One bucket. That it has lost its tail, or the output is older than it, is told before anything is done. What
    becomes of its datasets is added to `rows`."""
    store, tally = settings.store, Tally(RecoverCounts())
    committer: BucketCommitter | None = None
    oldest = 0
    try:
        log = store.bucket_log(bucket, settings.epoch)
        fold = require_whole(store, seen.job_fold, bucket, log, seen.past)
        if seen.job_fold.began_epoch:  # else the job log has no CUT yet
            require_published(step_context(settings), log, fold, seen.ended_epoch)
        nobody_died = fold.fence_epoch <= min(seen.ended_epoch, seen.job_fold.ended_epoch)
        fold = yield from fencing_bucket(log, settings.epoch, settings.run_id)
        tally.heads = (log.head(bucket),)
        held = [s.open.sequence.epoch for s in fold.datasets.values() if s.open is not None and s.open.held]
        oldest = min(held, default=0)
        tally.add(RecoverCounts(buckets=1))
        if fold.pending():
            replayed = _Replayed(bucket, tally)
            committer = BucketCommitter(settings, bucket, times.telling(replayed))
            yield from committer.replay(seen.job_fold.decided_epochs)
            fold = log.refresh()
            replayed.left(fold)
            rows += replayed.rows
        for epoch in swept_epochs(seen.staged, settings.epoch, fold):
            tally.add(RecoverCounts(files_swept=_swept(settings, epoch, bucket, seen.past)))
        for number, kind in fold.ignored:
            logger.info("record ignored, not valid where it stands: %s %s", number, kind, extra={"log": log.folder})
        # Of runs that died it is looked for what their records say they have done: these stay longer.
        yield from log.checkpointing(at_least=checkpoint_every(fold) if nobody_died else CHECKPOINT_EVERY)
        tally.heads = (log.head(bucket),)
        yield from seen_bucket(store, seen.before, bucket, log, seen.job_fold.decided_epochs, tally)
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


def _sweep_other_generations(settings: RunSettings, seen: _Seen) -> int:
    """Deletes what older runs left in task output of buckets above those that there are now: every dataset was idle
    when their number was changed. Returns how many files went."""
    fs, root = settings.store.fs, settings.store.roots.staging
    older = [epoch for epoch in seen.staged if epoch < settings.epoch]
    gone = [(epoch, b) for epoch in older for b in staged_buckets(fs, root, epoch) if b >= settings.store.buckets]
    return sum(_swept(settings, epoch, bucket, seen.past) for epoch, bucket in gone)


def _swept(settings: RunSettings, epoch: int, bucket: int, past: PastStates) -> int:
    """Sweep as `sweep_lost`. What a link or a mount leads out of staging stays, and its bucket goes on."""
    try:
        return sweep_lost(settings, epoch, bucket, past)
    except OutsideRootError as error:
        logger.warning("orphaned files are not swept: %s", error, extra={"bucket": bucket, "epoch": epoch})
        return 0


def _replayed(done: Tally[CommitCounts]) -> Report[RecoverCounts]:
    """What a committer has done, as a part of recovery."""
    counts = RecoverCounts(
        sequences_replayed=done.counts.datasets_committed,
        sequences_left=done.counts.executions_failed,
        sequences_dropped=done.counts.sequences_dropped,
        datasets_quarantined=done.counts.datasets_quarantined,
        files_swept=done.counts.files_swept,
        **done.counts.executed(),
    )
    return Report(counts, done.reasons)

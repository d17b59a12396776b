"""The recover job: partitions fence their buckets, replay older sequences, and sweep staging."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import msgspec
from msgspec.structs import replace

from distcommit.core.errors import DistcommitError, FencedError, StaleStoreError, TransientError, kind_of
from distcommit.core.interfaces.file_system import OutsideRootError
from distcommit.core.records.log_records import DatasetState
from distcommit.core.records.run_counts import EXECUTION_COUNTS, RunCounts
from distcommit.core.support.io_batching import BatchedWork, run_batched, with_ids
from distcommit.engine.committing.abort_and_sweep_attempts import abort_unsealed, sweep_aborted
from distcommit.engine.committing.bucket_committer import BucketCommitter
from distcommit.engine.committing.dataset_outcomes import outcomes_of_open
from distcommit.engine.committing.resume_killed_run import (
    KilledRun,
    find_killed_run,
    resumed_epoch,
    seal_finished_work,
)
from distcommit.engine.committing.write_bucket_snapshot import write_bucket_snapshot
from distcommit.engine.driver.task_reports import Report, Tally
from distcommit.engine.node_failures import NodeFailedError, hand_back
from distcommit.engine.reading.task_recorder import TaskRecorder
from distcommit.engine.run_events import Event, Observer, SequenceDone
from distcommit.engine.run_settings import RunSettings, step_context
from distcommit.pipeline.maintenance.delete_superseded_files import delete_superseded
from distcommit.protocol.log_state import Fold
from distcommit.stores.folders.run_markers import newest_end, read_markers
from distcommit.stores.folders.staging import staged_buckets, staged_epochs, swept_epochs
from distcommit.stores.history.run_table import DatasetOutcome, TableRow, outcome_row
from distcommit.stores.logs.commit_log import CHECKPOINT_EVERY, checkpoint_every
from distcommit.stores.logs.fencing import fence_bucket, require_fence
from distcommit.stores.logs.log_anchors import require_intact, require_published
from distcommit.stores.snapshots.snapshot_manifests import SnapshotManifest, parent_manifest
from distcommit.stores.state.task_states import PastStates

logger = logging.getLogger(__name__)


class _ReplayObserver:
    """Observer that collects outcomes of replayed sequences, and forwards events."""

    def __init__(self, bucket: int, observer: Observer) -> None:
        self._bucket, self._observer = bucket, observer
        self.rows: list[TableRow] = []

    def observe(self, event: Event) -> None:
        if isinstance(event, SequenceDone):
            counts = RunCounts(records_published=event.records, files_published=event.files)
            self.rows.append(outcome_row(event.dataset, self._bucket, DatasetOutcome.REPLAYED, counts))
        self._observer.observe(event)


class RecoverReport(msgspec.Struct, frozen=True):
    """Report on the recovery of a bucket, a partition, or all partitions."""

    report: Report
    """Counts and reasons."""
    oldest_held_epoch: int = 0
    """Oldest epoch of a held sequence; 0 if there is none."""
    dead_epoch: int = 0
    """Epoch of the previous run if the job log lacks its end; else 0."""


def recover_partition(settings: RunSettings, partition: int) -> RecoverReport:
    """Fence, replay and sweep a partition's buckets. An unreadable bucket is only reported."""
    tally = Tally()
    reports: list[RecoverReport] = []
    store, recorder = settings.store, TaskRecorder(settings, "recover", partition)
    try:
        job_fold = _job_fold(settings)
        recovery = _RecoveryContext(
            job_fold,
            staged_epochs(store.fs, store.roots.staging),
            newest_end(read_markers(store.fs, store.roots.output)),
            parent_manifest(store, job_fold),
            PastStates(store.fs, store.roots.store),
            find_killed_run(settings, job_fold),
        )
        recoveries = [
            with_ids(_recover_bucket(settings, recovery, bucket, recorder), bucket=bucket)
            for bucket in settings.buckets_of(partition)
        ]
        with recorder.committing():
            reports = run_batched(recoveries, store.fs.parallel_buckets)
        recorder.write()
        for bucket in reports:
            tally.merge(bucket.report)
        if partition == 0 and store.generation:
            tally.add(RunCounts(files_swept=_sweep_other_generations(settings, recovery)))
    except FencedError as error:
        tally.fenced = str(error)
    except (DistcommitError, OSError) as error:
        hand_back(settings, error)
        tally.add_reason(f"partition {partition}", kind_of(error), str(error))
    return RecoverReport(tally.report(partition), oldest_held(reports))


def delete_superseded_files(settings: RunSettings, partition: int) -> RecoverReport:
    """Delete superseded files in the buckets of a Spark partition. Call it once the job log has this run's first
    snapshot (record CUT).
    """
    tally = Tally()
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
            tally.note(f"bucket {bucket}", "superseded files stay", str(error))
            continue
        if fold.fence_epoch == settings.epoch:
            states[bucket] = fold.datasets
    for urn, reason in delete_superseded(settings.store, states):
        tally.note(urn, "superseded files stay", reason)
    return RecoverReport(tally.report(partition))


def oldest_held(reports: Iterable[RecoverReport]) -> int:
    return min((report.oldest_held_epoch for report in reports if report.oldest_held_epoch), default=0)


@dataclass(frozen=True, slots=True)
class _RecoveryContext:
    """Inputs that a partition reads once, before it recovers its buckets.

    Attributes:
        job_fold: state of the job log, which includes this run's fence.
        staged: epochs that have staged files.
        ended_epoch: epoch of the newest run that has marked its end in the output.
        manifest: manifest of the previous snapshot.
        past: task states of past runs, read on demand.
        killed: the killed run whose finished work units this run seals; None if there is none.
    """

    job_fold: Fold
    staged: list[int]
    ended_epoch: int
    manifest: SnapshotManifest | None
    past: PastStates
    killed: KilledRun | None


def _job_fold(settings: RunSettings) -> Fold:
    """Return the state of the job log, which must include this run's fence.

    Only then is it certain that an older run without a decision in the log can never decide to publish.

    Raises:
        FencedError: if a newer run has fenced the job log.
        TransientError: if this executor reads a job log without this run's fence.
    """
    log = settings.store.job_log(settings.epoch)
    fold = log.refresh()
    require_fence(fold, settings.epoch, log.folder)
    if (fold.fence_epoch, fold.fence_run_id) != (settings.epoch, settings.run_id):
        raise TransientError(
            "this executor sees an older job log than the driver",
            id="EXECUTOR_READS_OLD_STORE",
            log=log.folder,
            expected=f"the fence of epoch {settings.epoch}",
            found=f"epoch {fold.fence_epoch}",
            todo="mount the store so that executors see new files at once (no stale folder listings)",
        )
    return fold


def _recover_bucket(
    settings: RunSettings, recovery: _RecoveryContext, bucket: int, recorder: TaskRecorder
) -> BatchedWork[RecoverReport]:
    """Recover a bucket, and record outcomes.

    Lost segments and an older output are detected before anything changes.
    """
    store, tally = settings.store, Tally()
    committer: BucketCommitter | None = None
    oldest = 0
    try:
        log = store.bucket_log(bucket, settings.epoch)
        fold = require_intact(store, recovery.job_fold, bucket, log, recovery.past)
        if recovery.job_fold.began_epoch:  # else the job log has no CUT yet
            require_published(step_context(settings), log, fold, recovery.ended_epoch)
        ended_normally = fold.fence_epoch <= min(recovery.ended_epoch, recovery.job_fold.ended_epoch)
        fold = yield from fence_bucket(log, settings.epoch, settings.run_id)
        tally.heads = (log.head(bucket),)
        held_epochs = [s.open.sequence.epoch for s in fold.datasets.values() if s.open is not None and s.open.held]
        oldest = min(held_epochs, default=0)
        tally.add(RunCounts(buckets=1))
        if recovery.killed is not None:
            fold = yield from seal_finished_work(settings, recovery.killed, bucket, log, recovery.past, tally)
        if fold.pending():
            replayed = _ReplayObserver(bucket, tally)
            committer = BucketCommitter(settings, bucket, recorder.recording(replayed))
            yield from committer.replay(recovery.job_fold.decided_epochs)
            fold = log.refresh()
            recorder.add_outcomes((*replayed.rows, *outcomes_of_open(fold, bucket)))
        tally.add(RunCounts(files_swept=_sweep_older(settings, recovery, bucket, fold)))
        for number, kind in fold.ignored:
            logger.info("invalid record ignored: %s %s", number, kind, extra={"log": log.folder})
        # After a crash the records of dead runs are needed longer: they name what must be in the output.
        yield from log.checkpoint(at_least=checkpoint_every(fold) if ended_normally else CHECKPOINT_EVERY)
        tally.heads = (log.head(bucket),)
        yield from write_bucket_snapshot(store, recovery.manifest, bucket, log, recovery.job_fold.decided_epochs, tally)
    except (FencedError, NodeFailedError):
        raise
    except StaleStoreError as error:
        tally.stale = str(error)
    except Exception as error:
        hand_back(settings, error)
        logger.exception("bucket could not be recovered", extra={"bucket": bucket})
        tally.add_reason(f"bucket {bucket}", kind_of(error), str(error))
    if committer is not None:
        tally.merge(_as_recovery(committer.tally))
    return RecoverReport(tally.report(), oldest)


def _sweep_other_generations(settings: RunSettings, recovery: _RecoveryContext) -> int:
    """Delete older task output in buckets that no longer exist; return the number of files.

    Buckets change only while every dataset is idle, so no sequence needs these files.
    """
    fs, root = settings.store.fs, settings.store.roots.staging
    older = [epoch for epoch in recovery.staged if epoch < settings.epoch]
    removed_buckets = [
        (epoch, b) for epoch in older for b in staged_buckets(fs, root, epoch) if b >= settings.store.buckets
    ]
    return sum(_sweep(settings, epoch, bucket, recovery.past) for epoch, bucket in removed_buckets)


def _sweep_older(settings: RunSettings, recovery: _RecoveryContext, bucket: int, fold: Fold) -> int:
    """Abort older attempts in a bucket that no open sequence contains, and delete staged files of runs without open
    sequences. Return the number of deleted files.

    A resumed run's files stay. If killed runs are resumed, a recovery task after CUT 1 deletes nothing.
    """
    resumed = resumed_epoch(settings, recovery.job_fold)
    if resumed == settings.epoch:
        return 0
    older = [epoch for epoch in recovery.staged if epoch < settings.epoch and epoch != resumed]
    swept = swept_epochs(older, settings.epoch, fold)
    return sum(_sweep(settings, epoch, bucket, recovery.past, None if epoch in swept else fold) for epoch in older)


def _sweep(settings: RunSettings, epoch: int, bucket: int, past: PastStates, open_in: Fold | None = None) -> int:
    """Call `abort_unsealed` if there are open sequences, otherwise `sweep_aborted`. A link or mount out of
    the staging root stops only this bucket."""
    try:
        if open_in is not None:
            abort_unsealed(settings, epoch, bucket, past, open_in)
            return 0
        return sweep_aborted(settings, epoch, bucket, past)
    except OutsideRootError as error:
        logger.warning("orphaned files are not swept: %s", error, extra={"bucket": bucket, "epoch": epoch})
        return 0


def _as_recovery(done: Tally) -> Report:
    counts = replace(
        done.counts.only(*EXECUTION_COUNTS, "sequences_dropped", "datasets_quarantined", "files_swept"),
        sequences_replayed=done.counts.datasets_committed,
        sequences_postponed=done.counts.executions_failed,
    )
    return Report(counts, done.reasons)

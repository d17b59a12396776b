"""The drain: finish the sequences that remain after ingest."""

from __future__ import annotations

import logging
from contextlib import suppress
from dataclasses import dataclass, field

from distcommit.core.errors import DistcommitError, FencedError, kind_of
from distcommit.core.records.run_counts import EXECUTION_COUNTS
from distcommit.core.support.io_batching import BatchedWork, run_batched, with_ids
from distcommit.engine.committing.bucket_committer import BucketCommitter
from distcommit.engine.committing.write_bucket_snapshot import write_bucket_snapshot
from distcommit.engine.driver.task_progress import ProgressFile
from distcommit.engine.driver.task_reports import Report, Tally
from distcommit.engine.node_failures import NodeFailedError, hand_back
from distcommit.engine.reading.task_recorder import TaskRecorder
from distcommit.engine.run_events import Progressed
from distcommit.engine.run_settings import RunSettings
from distcommit.protocol.log_state import Fold
from distcommit.stores.folders.staging import remove_empty_bucket, remove_empty_epoch
from distcommit.stores.history.run_table import TableRow
from distcommit.stores.snapshots.snapshot_manifests import SnapshotManifest, parent_manifest
from distcommit.stores.state.run_plans import PlanReader, read_manifest
from distcommit.stores.state.task_states import TaskStateTables, ingest_ended

logger = logging.getLogger(__name__)


def drain_partition(settings: RunSettings, partition: int) -> Report:
    """Seal, execute and close a partition's remaining sequences. An all-or-none job only seals them."""
    return _finish(settings, partition, seal=True)


def publish_partition(settings: RunSettings, partition: int) -> Report:
    """Execute and close a partition's held sequences after the driver's decision."""
    return _finish(settings, partition, seal=False)


_TRIES = 3


def _finish(settings: RunSettings, partition: int, *, seal: bool) -> Report:
    tally, phase = Tally(), "drain" if seal else "publish"
    recorder = TaskRecorder(settings, phase, partition)
    try:
        manifest = read_manifest(settings.store.fs, settings.store.roots.store, settings.run_id)
        buckets = [bucket for bucket in settings.buckets_of(partition) if bucket in manifest.files]
        job_fold = settings.store.job_log(settings.epoch).refresh()
        anchor = _SnapshotBase(job_fold, parent_manifest(settings.store, job_fold))
        plans = PlanReader(settings.store.fs, settings.store.roots.store, manifest)
        ended = ingest_ended(settings.store.fs, settings.store.roots.store, settings.run_id)
        tables = _PartitionInputs(plans, settings.task_states({*buckets}), ended)
        with ProgressFile(settings, "drain", partition, lambda: Progressed(counts=tally.counts)) as progress:
            for attempt in range(_TRIES):
                drains = [
                    with_ids(_finish_bucket(settings, tables, bucket, anchor, recorder, seal=seal), bucket=bucket)
                    for bucket in buckets
                ]
                with recorder.committing():
                    results = dict(zip(buckets, run_batched(drains, settings.store.fs.parallel_buckets), strict=True))
                is_last = attempt == _TRIES - 1
                to_retry = [bucket for bucket, result in results.items() if not (result.is_complete or is_last)]
                for bucket, result in results.items():
                    tally.merge(result.work)
                    if bucket not in to_retry:
                        tally.merge(result.outcome)
                        recorder.add_outcomes(result.rows)
                progress.tick()
                if not to_retry:
                    break
                buckets = to_retry
                settings.clock.sleep(0.2 * 4**attempt)
        with suppress(OSError):  # the next run sweeps it
            remove_empty_epoch(settings.store.fs, settings.store.roots.staging, settings.epoch)
        recorder.write()
    except FencedError as error:
        tally.fenced = str(error)
    except (DistcommitError, OSError) as error:
        hand_back(settings, error)
        tally.add_reason(f"partition {partition}", kind_of(error), str(error))
    return tally.report(partition)


@dataclass(frozen=True, slots=True)
class _BucketResult:
    """The result of draining a bucket once.

    Attributes:
        work: report of this call.
        outcome: counted outcomes of the bucket's datasets.
        is_complete: whether this run has finished all that it can finish.
        rows: outcomes of the bucket's datasets as rows.
    """

    work: Report
    outcome: Report
    is_complete: bool
    rows: list[TableRow] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _SnapshotBase:
    """Job log and previous manifest, on which heads and deltas are based."""

    job_fold: Fold
    manifest: SnapshotManifest | None


@dataclass(frozen=True, slots=True)
class _PartitionInputs:
    """Inputs of all buckets. `ended`: whether ingest has ended, which is read before the task states."""

    plans: PlanReader
    task_states: TaskStateTables
    ended: bool


def _finish_bucket(
    settings: RunSettings,
    tables: _PartitionInputs,
    bucket: int,
    anchor: _SnapshotBase,
    recorder: TaskRecorder,
    *,
    seal: bool,
) -> BatchedWork[_BucketResult]:
    """Seal and publish a bucket's remaining sequences. Report its head, unless the log lacks the recorded one."""
    last = anchor.job_fold.heads.get(bucket)
    store, committer = settings.store, None
    work, outcome = Tally(), Tally()
    rows: list[TableRow] = []
    try:
        plans = tables.plans.of(bucket)
        committer = BucketCommitter(settings, bucket, recorder.recording(work), plans, tables.task_states)
        yield from committer.commit_ready(ended=tables.ended)
        if settings.job_level and seal:
            rows = committer.count_held(plans, outcome)
        else:
            yield from committer.publish(take_over=True)
            rows = committer.count_outcomes(plans, outcome)
            remove_empty_bucket(store.fs, store.roots.staging, settings.epoch, bucket)
        if seal:
            yield from committer.record_read_failures(plans, outcome)
        yield from committer.log.make_durable()
        if last is None or committer.log.has(last):
            outcome.heads = (committer.log.head(bucket),)
            decided = anchor.job_fold.decided_epochs
            yield from write_bucket_snapshot(store, anchor.manifest, bucket, committer.log, decided, outcome)
    except (FencedError, NodeFailedError):
        raise
    except Exception as error:
        hand_back(settings, error)
        logger.warning("bucket %d could not be drained", bucket, exc_info=True)
        outcome = Tally()
        outcome.add_reason(f"bucket {bucket}", kind_of(error), str(error))
        is_complete = False
    else:
        is_complete = not outcome.counts.sequences_postponed
    if committer is not None:  # outcomes are counted apart, as other tasks may have committed datasets
        work.add(committer.tally.counts.only(*EXECUTION_COUNTS, "datasets_committed", "files_swept"))
    return _BucketResult(work.report(), outcome.report(), is_complete, rows)

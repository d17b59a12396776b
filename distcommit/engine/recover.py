"""The recover job: each partition fences its own buckets, replays what older runs sealed, and sweeps what they left."""

from __future__ import annotations

import logging

from distcommit.engine.committer import BucketCommitter
from distcommit.engine.reports import Report
from distcommit.engine.settings import RunSettings
from distcommit.model.errors import DistcommitError, FencedError, TransientError
from distcommit.model.lockstep import Work, in_step
from distcommit.stores.fencing import fencing_bucket, require_fence
from distcommit.stores.retention import KEPT_RUNS, forget_runs
from distcommit.stores.staging import staged_epochs, sweep_epoch, swept_epochs

logger = logging.getLogger(__name__)


def recover_partition(settings: RunSettings, partition: int) -> Report:
    """Fences, replays and sweeps the partition's buckets. A bucket that can't be read is reported; the others go on."""
    report = Report()
    report.stamp(partition)
    store = settings.store
    try:
        decided = _decided_epochs(settings)
        staged = staged_epochs(store.fs, store.roots.staging)
        works = [_recover_bucket(settings, decided, staged, bucket) for bucket in settings.buckets_of(partition)]
        for found in in_step(works, store.fs.parallel_buckets):
            report.include(found)
        forget_runs(store.fs, store.roots.store, settings.buckets_of(partition), KEPT_RUNS)
    except FencedError as error:
        report.fenced = str(error)
    except (DistcommitError, OSError) as error:
        report.explain(f"partition {partition}", type(error).__name__, str(error))
    return report


def _decided_epochs(settings: RunSettings) -> frozenset[int]:
    """Epochs whose held sequences are to be published, from a view of the job log that contains this run's own fence:
    only then is what is not decided sure never to be.

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
    return fold.decided_epochs


def _recover_bucket(
    settings: RunSettings, decided_epochs: frozenset[int], staged: list[int], bucket: int
) -> Work[Report]:
    store, report = settings.store, Report()
    try:
        log = store.bucket_log(bucket, settings.epoch)
        fold = yield from fencing_bucket(log, settings.epoch, settings.run_id)
        held = [s.sequence.epoch for s in fold.datasets.values() if s.held and s.sequence is not None]
        report.oldest_held_epoch = min(held, default=0)
        report.buckets += 1
        if fold.pending():
            yield from BucketCommitter(settings, bucket, report).replay(decided_epochs)
            fold = log.refresh()
        for epoch in swept_epochs(staged, settings.epoch, fold):
            report.files_swept += sweep_epoch(store.fs, store.roots.staging, epoch, bucket)
        for number, kind in fold.ignored:
            logger.info("record ignored, not valid where it stands: %s %s", number, kind, extra={"log": log.folder})
        yield from log.checkpointing()
    except FencedError:
        raise
    except Exception as error:
        logger.exception("bucket could not be recovered", extra={"bucket": bucket})
        report.explain(f"bucket {bucket}", type(error).__name__, str(error))
    return report

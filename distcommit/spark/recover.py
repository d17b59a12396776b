"""The recover job: each partition fences its own buckets, replays what older runs sealed, and sweeps what they left."""

from __future__ import annotations

import logging

from distcommit.ingest.staging import staged_epochs, sweep_epoch
from distcommit.model.errors import DistcommitError, FencedError
from distcommit.spark.committer import BucketCommitter
from distcommit.spark.reports import Report
from distcommit.spark.settings import RunSettings
from distcommit.stores.fencing import fence_bucket

logger = logging.getLogger(__name__)


def recover_partition(settings: RunSettings, partition: int) -> Report:
    """Fences, replays and sweeps the partition's buckets. A bucket that can't be read is reported; the others go on."""
    report = Report()
    report.stamp(partition)
    try:
        job_fold = settings.store.job_log(settings.epoch).refresh()
        epochs = [e for e in staged_epochs(settings.store.fs, settings.store.roots.staging) if e < settings.epoch]
        for bucket in settings.buckets_of(partition):
            _recover_bucket(settings, bucket, job_fold.decided_epochs, epochs, report)
    except FencedError as error:
        report.fenced = str(error)
    return report


def _recover_bucket(
    settings: RunSettings, bucket: int, decided_epochs: frozenset[int], epochs: list[int], report: Report
) -> None:
    store = settings.store
    try:
        log = store.bucket_log(bucket, settings.epoch)
        fold = fence_bucket(log, settings.epoch, settings.run_id)
        report.buckets += 1
        if fold.pending():
            BucketCommitter(settings, bucket, report).replay(decided_epochs)
            fold = log.refresh()
        kept = {state.sequence.epoch for state in fold.datasets.values() if state.sequence is not None}
        for epoch in epochs:
            if epoch not in kept:
                report.files_swept += sweep_epoch(store.fs, store.roots.staging, epoch, bucket)
        held = [s.sequence.epoch for s in fold.datasets.values() if s.held and s.sequence is not None]
        report.oldest_held_epoch = min([*held, *filter(None, [report.oldest_held_epoch])], default=0)
        for number, kind in fold.ignored:
            logger.info("record ignored, not valid where it stands: %s %s", number, kind, extra={"log": log.folder})
        log.checkpoint()
    except FencedError:
        raise
    except (DistcommitError, OSError) as error:
        logger.exception("bucket could not be recovered", extra={"bucket": bucket})
        report.explain(f"bucket {bucket}", type(error).__name__, str(error))

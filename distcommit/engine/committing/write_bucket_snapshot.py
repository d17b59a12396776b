"""Writing of a bucket's part of the next snapshot."""

from __future__ import annotations

import logging
from collections.abc import Collection

from distcommit.core.errors import DistcommitError
from distcommit.core.support.io_batching import BatchedWork
from distcommit.engine.driver.task_reports import Tally
from distcommit.stores.logs.commit_log import CommitLog
from distcommit.stores.snapshots.snapshot_deltas import write_snapshot_entry
from distcommit.stores.snapshots.snapshot_manifests import SnapshotManifest
from distcommit.stores.state.job_store import JobStore

logger = logging.getLogger(__name__)


def write_bucket_snapshot(
    store: JobStore,
    before: SnapshotManifest | None,
    bucket: int,
    log: CommitLog,
    decided: Collection[int],
    tally: Tally,
) -> BatchedWork[None]:
    """Write the bucket's snapshot delta, and set the tally's snapshot entry to it.

    If the delta cannot be written, readers keep the previous snapshot, and the run continues. If a newer run has
    fenced the bucket, the tally gets no entry.

    Args:
        before: manifest of the previous snapshot.
        decided: epochs whose held sequences are decided.
        tally: receives the entry, or a note about the failure.
    """
    former = before.buckets.get(bucket) if before is not None else None
    try:
        entry = yield from write_snapshot_entry(store, former.snapshot if former else None, bucket, log, decided)
    except (DistcommitError, OSError) as error:
        logger.warning("readers do not see new data: %s", error, extra={"bucket": bucket})
        tally.note(f"bucket {bucket}", "not in the snapshot", str(error))
        return
    if log.latest().fence_epoch == log.epoch:  # else the entry is of a newer run's fold
        tally.seen = (entry,)

"""What a bucket's owner tells of it for the run's next cut."""

from __future__ import annotations

import logging
from collections.abc import Collection

from distcommit.core.errors import DistcommitError
from distcommit.core.support.io_batching import Work
from distcommit.engine.driver.reports import PhaseCounts, Tally
from distcommit.stores.logs.log import CommitLog
from distcommit.stores.snapshots.snapshot_deltas import seeing
from distcommit.stores.snapshots.snapshots import CutRoot
from distcommit.stores.state.job_store import JobStore

logger = logging.getLogger(__name__)


def seen_bucket(
    store: JobStore,
    before: CutRoot | None,
    bucket: int,
    log: CommitLog,
    decided: Collection[int],
    tally: Tally[PhaseCounts],
) -> Work[None]:
    """Adds it to what is reported. Where it can't be made, readers go on with what they have: nothing else waits for
    that. Arguments as of `seeing`; `before` is the root of the cut before."""
    former = before.buckets.get(bucket) if before is not None else None
    try:
        found = yield from seeing(store, former.seen if former else None, bucket, log, decided)
    except (DistcommitError, OSError) as error:
        logger.warning("readers do not see what is new: %s", error, extra={"bucket": bucket})
        tally.note(f"bucket {bucket}", "not in the cut", str(error))
        return
    if log.latest().fence_epoch == log.epoch:  # the very fold that it was found in
        tally.seen = (found,)

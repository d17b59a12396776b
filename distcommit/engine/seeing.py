"""What a bucket's owner tells of it for the run's next cut."""

from __future__ import annotations

import logging
from collections.abc import Collection

from distcommit.engine.reports import PhaseCounts, Tally
from distcommit.model.errors import DistcommitError
from distcommit.model.lockstep import Work
from distcommit.stores.cut_pieces import seeing
from distcommit.stores.cuts import CutRoot
from distcommit.stores.job_store import JobStore
from distcommit.stores.log import CommitLog

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

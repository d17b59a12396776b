"""What a committer takes away of what it, or one that died, has left. What can't be, the next run takes away."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from distcommit.core.interfaces.steps import StepContext
from distcommit.core.support.io_batching import Request
from distcommit.core.work import DatasetPlan
from distcommit.engine.committing.aborted_attempts import discard_ended
from distcommit.engine.settings import RunSettings
from distcommit.protocol.paths.temporary import probed_bucket
from distcommit.stores.folders.staging import list_attempts, remove_attempts

logger = logging.getLogger(__name__)


class RemoveProbes(Request):
    """Takes away what committers left that died as they tried the output, together with those of other buckets: the
    folders that such files are in may be large.

    A bucket's sequence was pending then, so it is enough to look before such a sequence is taken over; a live committer
    takes its probe's loss for an outage, and waits.
    """

    def __init__(self, context: StepContext, bucket: int) -> None:
        self._context, self._bucket = context, bucket

    @classmethod
    def answer_all(cls, requests: Sequence[RemoveProbes]) -> list[None]:
        context, buckets = requests[0]._context, {each._bucket for each in requests}
        for root in (context.output_root, context.staging_root):
            try:
                for entry in context.fs.list_folder(root):
                    if probed_bucket(entry.name) in buckets:
                        context.fs.delete(f"{root}/{entry.name}")
                # Also what was deleted as the output failed: its sync may have failed, too.
                context.fs.sync([root], root)
            except OSError as error:  # whoever takes the sequences over next tries again
                logger.warning("%s could not be listed: %s", root, error, extra={"buckets": sorted(buckets)})
        return [None] * len(requests)


def remove_task_output(settings: RunSettings, bucket: int, plans: Sequence[DatasetPlan]) -> int:
    """Removes what attempts at these datasets left in task output, whose sequences were read as DONE. Returns how many
    files that were."""
    if not plans:
        return 0
    fs, staging = settings.store.fs, settings.store.roots.staging
    units = {unit.work_unit_id for plan in plans for unit in plan.work_units}
    try:
        stay = discard_ended(settings, bucket, units)
        attempts = list_attempts(fs, staging, settings.epoch, bucket)
        gone = [folder for unit in units for folder in attempts.get(unit, ()) if folder not in stay]
        return remove_attempts(fs, staging, gone)
    except OSError as error:  # the next run sweeps it
        logger.warning("task output could not be cleaned up: %s", error, extra={"bucket": bucket})
        return 0

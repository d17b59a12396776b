"""Deletion of output probes and task output. If it fails, the next run repeats it."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from distcommit.core.interfaces.commit_step import StepContext
from distcommit.core.support.io_batching import IoRequest
from distcommit.core.work_units import DatasetPlan
from distcommit.engine.committing.abort_and_sweep_attempts import abort_ended
from distcommit.engine.run_settings import RunSettings
from distcommit.protocol.paths.temporary_and_probes import probed_bucket
from distcommit.stores.folders.staging import list_attempts, remove_attempts

logger = logging.getLogger(__name__)


class RemoveProbes(IoRequest):
    """Delete the output probes of dead committers, by one listing for many buckets.

    An output probe is a file that a committer writes to staging and renames into the output, to check both. Send this
    before a pending sequence is taken over. A live committer without its probe reports an outage and tries again.
    """

    def __init__(self, context: StepContext, bucket: int) -> None:
        self._context, self._bucket = context, bucket

    @classmethod
    def answer_batch(cls, requests: Sequence[RemoveProbes]) -> list[None]:
        context, buckets = requests[0]._context, {remove_probes._bucket for remove_probes in requests}
        for root in (context.output_root, context.staging_root):
            try:
                for entry in context.fs.list_folder(root):
                    if probed_bucket(entry.name) in buckets:
                        context.fs.delete(f"{root}/{entry.name}")
                # Even if nothing was deleted: an earlier delete may have failed before its sync.
                context.fs.sync([root], root)
            except OSError as error:  # the next process that takes over the sequences tries again
                logger.warning("%s cannot be listed: %s", root, error, extra={"buckets": sorted(buckets)})
        return [None] * len(requests)


def remove_task_output(settings: RunSettings, bucket: int, plans: Sequence[DatasetPlan]) -> int:
    """Delete the task output of DONE datasets; return the number of deleted files.

    Folders of attempts that have not ended, or with data at a target, stay. Errors of the file system are only logged.
    """
    if not plans:
        return 0
    fs, staging = settings.store.fs, settings.store.roots.staging
    units = {unit.work_unit_id for plan in plans for unit in plan.work_units}
    try:
        kept_folders = abort_ended(settings, bucket, units)
        attempts = list_attempts(fs, staging, settings.epoch, bucket)
        settled = [folder for unit in units for folder in attempts.get(unit, ()) if folder not in kept_folders]
        return remove_attempts(fs, staging, settled)
    except OSError as error:  # the next run sweeps it
        logger.warning("task output cannot be cleaned up: %s", error, extra={"bucket": bucket})
        return 0

"""What a committer takes away of what it, or one that died, has left. What can't be, the next run takes away."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from distcommit.engine.losers import discard_ended
from distcommit.engine.settings import RunSettings
from distcommit.model.steps import StepContext
from distcommit.model.work import DatasetPlan
from distcommit.protocol.paths import OUTPUT_PROBE, TEMPORARY
from distcommit.stores.staging import list_attempts, remove_attempts

logger = logging.getLogger(__name__)


def probe_prefix(bucket: int) -> str:
    """How names of files begin with which committers of that bucket try the output."""
    return f"{OUTPUT_PROBE}{bucket}"


def remove_probes(context: StepContext, bucket: int) -> None:
    """Takes away what a committer left that died as it tried the output. Its sequence was pending then, so it is enough
    to look before such a sequence is taken over; a live one takes its probe's loss for an outage, and waits."""
    probe = probe_prefix(bucket)
    for root in (context.output_root, context.staging_root):
        try:
            for entry in context.fs.list_folder(root):
                name = entry.name.removeprefix(TEMPORARY)
                if name == probe or name.startswith(f"{probe}-"):
                    context.fs.delete(f"{root}/{entry.name}")
            context.fs.sync([root], root)  # also what was deleted as the output failed: its sync may have failed too
        except OSError as error:  # whoever takes the sequence over next tries again
            logger.warning("%s could not be listed: %s", root, error, extra={"bucket": bucket})


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

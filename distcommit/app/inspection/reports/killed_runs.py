"""The consequences of a run whose driver died."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import msgspec

from distcommit.app.inspection.job_status import WAITING, NextRun, StatusResult
from distcommit.app.inspection.recorded_runs import RunRow


class KilledRun(msgspec.Struct, frozen=True):
    """What remains open after a run whose driver died, and what ends it."""

    next_epoch: int
    """Epoch of the first recorded run after it; 0 if there is none."""
    open_commits: dict[NextRun, int]
    """Datasets with a sealed commit of the killed run that is not published yet, by what the next run does with it."""
    waiting: int
    """Datasets with a sealed commit of the killed run for which an operator must decide."""
    command: str
    """The command that starts the next run."""


def describe_killed_run(run: RunRow, epochs: Iterable[int], status: StatusResult, command: str) -> KilledRun:
    """Return the consequences of a run that died.

    Args:
        run: the run.
        epochs: all recorded epochs of the job.
        status: of the job; idle datasets may be missing.
        command: starts the next run.
    """
    rows = [row for row in status.datasets if row.pending_epoch == run.epoch]
    return KilledRun(
        next_epoch=min((epoch for epoch in epochs if epoch > run.epoch), default=0),
        open_commits=dict(Counter(row.next_run for row in rows if row.next_run is not NextRun.NOTHING)),
        waiting=sum(1 for row in rows if row.status in WAITING),
        command=command,
    )

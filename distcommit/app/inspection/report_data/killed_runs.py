"""Describes the open work of a run whose driver died."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import msgspec

from distcommit.app.inspection.job_status import WAITING, NextRun, StatusResult
from distcommit.app.inspection.recorded_runs import RunRow


class KilledRun(msgspec.Struct, frozen=True):
    """The open work of a run whose driver died, and how it is finished."""

    next_epoch: int
    """Epoch of the first run that began after the killed run; 0 if none has begun."""
    open_commits: dict[NextRun, int]
    """Number of datasets whose sealed commit the killed run did not publish, by the effect of the next run."""
    waiting: int
    """Number of datasets with a sealed commit of the killed run that an operator must release."""
    command: str
    """The command that starts the next run."""


def describe_killed_run(run: RunRow, epochs: Iterable[int], status: StatusResult, command: str) -> KilledRun:
    """Return the open work of a killed run.

    Args:
        status: the job's status; idle datasets may be missing.
    """
    rows = [row for row in status.datasets if row.pending_epoch == run.epoch]
    return KilledRun(
        next_epoch=min((epoch for epoch in epochs if epoch > run.epoch), default=0),
        open_commits=dict(Counter(row.next_run for row in rows if row.next_run is not NextRun.NOTHING)),
        waiting=sum(1 for row in rows if row.status in WAITING),
        command=command,
    )

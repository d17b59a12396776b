"""Errors of readers of snapshots and of recorded runs."""

from __future__ import annotations

from distcommit.core.error_catalogue.entry import ErrorEntry

_READER_ENDS = "The read ends without a result. Runs are not affected."

ENTRIES = (
    ErrorEntry(
        id="SNAPSHOT_NOT_READY",
        error="NotSettledError",
        title="The requested snapshot does not exist yet",
        cause="No run has written a snapshot yet, or none that covers the requested time.",
        impact=_READER_ENDS,
        action="Run the job or recover it, then read again; or request the newest snapshot.",
        command="recover JOB.yaml",
    ),
    ErrorEntry(
        id="RUN_NOT_SETTLED",
        error="NotSettledError",
        title="The requested run has open commits",
        cause="A commit of the run is pending or quarantined, so that its snapshot is not final.",
        impact=_READER_ENDS,
        action="Wait for the run, or recover the job. Release the quarantined datasets that `distcommit status` names.",
        command="recover JOB.yaml",
    ),
    ErrorEntry(
        id="SNAPSHOT_EXPIRED",
        error="SnapshotExpiredError",
        title="The snapshot has expired",
        cause="A later run deleted the snapshot.",
        impact="Results that were read from the snapshot must be discarded.",
        action="Read a newer snapshot. To keep snapshots longer, raise readers.kept_snapshots.",
    ),
    ErrorEntry(
        id="RUN_UNKNOWN",
        error="ConfigurationError",
        title="The run is not recorded",
        cause="No run has this epoch, its record has expired, or no run was recorded yet.",
        impact=_READER_ENDS,
        action="Give an epoch (the number of a run) that `distcommit runs` lists.",
        command="runs JOB.yaml",
    ),
)

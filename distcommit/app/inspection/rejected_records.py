"""The rejected records of the newest run that rejected any."""

from __future__ import annotations

import msgspec

from distcommit.app.inspection.recorded_runs import read_datasets, read_runs
from distcommit.core.interfaces.clock import Clock
from distcommit.protocol.paths.output import REJECTED_FOLDER
from distcommit.stores.state.job_store import JobStore

REPROCESS_ALL = "reprocess --all"
"""The recorded command of a run that reprocesses the rejected records of all datasets."""
_NEWEST_RUNS, _NAMED = 20, 5


class RejectedRecords(msgspec.Struct, frozen=True):
    """The records that a run rejected, in all attempts."""

    epoch: int
    """The epoch of the run."""
    records: int
    """Number of rejected records, of all attempts."""
    datasets: int
    """Number of datasets with rejected records."""
    largest: dict[str, int]
    """Rejected records of the datasets with the most, largest number first."""
    folder: str
    """Folder of the error files."""


def newest_rejected(store: JobStore, clock: Clock) -> RejectedRecords | None:
    """Return the rejected records of the newest run that rejected any. Return None if no run of the last 20 did, or if
    all rejected records were reprocessed since.
    """
    rows = read_runs(store, clock, newest=_NEWEST_RUNS).runs
    row = next((row for row in rows if row.records_rejected or row.command == REPROCESS_ALL), None)
    if row is None or not row.records_rejected:
        return None
    counts = {urn: dataset.counts.records_rejected for urn, dataset in read_datasets(store, row.run_id)[0].items()}
    largest = sorted((urn for urn, count in counts.items() if count), key=lambda urn: (-counts[urn], urn))
    named = {urn: counts[urn] for urn in largest[:_NAMED]}
    folder = f"{store.roots.output}/{REJECTED_FOLDER}"
    return RejectedRecords(row.epoch, row.records_rejected, len(largest), named, folder)

"""The rejected records of the newest run that rejected any, and the datasets that rejected most of their records."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from itertools import islice

import msgspec

from distcommit.app.inspection.recorded_runs import RunsResult, RunStatus, read_datasets, read_runs
from distcommit.app.job_file.sections.flow_settings import UNREADABLE_ROWS
from distcommit.core.interfaces.clock import Clock
from distcommit.core.records.run_counts import FlowCounts, RunCounts
from distcommit.core.work_units import ERRORS, INPUT_PROBLEM
from distcommit.pipeline.branches.error_columns import ERROR_COLUMNS
from distcommit.protocol.paths.output import REJECTED_FOLDER, is_published_name, published_epoch, published_folder
from distcommit.sinks.files.footer import read_batches
from distcommit.stores.folders.folder_trees import files_below
from distcommit.stores.history.run_records import read_record
from distcommit.stores.state.job_store import JobStore

REPROCESS_ALL = "reprocess --all"
"""The recorded command of a run that reprocesses the rejected records of all datasets."""
_NEWEST_RUNS, _NAMED, _MOST_COUNTED = 20, 5, 10_000
_MOST_BYTES, _MOST_FILES = 16 << 20, 20
"""The most bytes and error files that are read for the most frequent reason."""
_JUDGED_RUNS = 5
"""The most runs whose datasets are judged by their share of rejected records."""


class RejectedRecords(msgspec.Struct, frozen=True):
    """The records that a run rejected, in all attempts."""

    epoch: int
    """The epoch of the run."""
    records: int
    """Number of rejected records, of all attempts."""
    datasets: int
    """Number of datasets with rejected records."""
    largest: dict[str, int]
    """Number of rejected records by dataset URN, of the five datasets with the most; largest number first."""
    folder: str
    """Folder of the error files."""
    unreadable: int = 0
    """Rejected rows that the source could not parse. `dataset reprocess` cannot read them."""
    reason: str = ""
    """Most frequent reason in the newest error files of the dataset with the most rejected records; empty if they
    can't be read."""
    reason_records: int = 0
    """Number of records with this reason, in the error files that were read."""
    reason_of: int = 0
    """Number of records in the error files that were read."""


class MostlyRejected(msgspec.Struct, frozen=True):
    """A dataset that rejected most records of its newest commit.

    Attributes:
        dataset: the dataset's URN.
        epoch: epoch of the run that made this commit.
        records: number of records written or rejected, in all attempts and branches.
        rejected: number of rejected records, in all attempts and branches.
    """

    dataset: str
    epoch: int
    records: int
    rejected: int


def newest_rejected(store: JobStore, clock: Clock) -> RejectedRecords | None:
    """Return the rejected records of the newest run that rejected any. Return None if none of the last 20 runs did, or
    if a later `dataset reprocess --all` was committed without rejections.
    """
    rows = read_runs(store, clock, newest=_NEWEST_RUNS).runs
    row = next(
        (
            row
            for row in rows
            if row.records_rejected or (row.command == REPROCESS_ALL and row.status == RunStatus.COMMITTED)
        ),
        None,
    )
    if row is None or not row.records_rejected:
        return None
    counts = {urn: dataset.counts.records_rejected for urn, dataset in read_datasets(store, row.run_id)[0].items()}
    largest = sorted((urn for urn, count in counts.items() if count), key=lambda urn: (-counts[urn], urn))
    named = {urn: counts[urn] for urn in largest[:_NAMED]}
    folder = f"{store.roots.output}/{REJECTED_FOLDER}"
    record = read_record(store.fs, store.roots.store, row.epoch)
    unreadable = unreadable_rows(record.totals.flow) if record is not None else 0
    reasons = _reasons(store, largest[0], row.epoch) if largest else Counter()
    reason, count = max(reasons.items(), key=lambda item: item[1], default=("", 0))
    return RejectedRecords(
        row.epoch, row.records_rejected, len(largest), named, folder, unreadable, reason, count, reasons.total()
    )


def _reasons(store: JobStore, urn: str, epoch: int) -> Counter[str]:
    """Count the reasons in a dataset's error files of a run: of at most 20 files of 16 MiB in all, and of about 10,000
    records.
    """
    reasons, left_bytes = Counter[str](), _MOST_BYTES
    with suppress(Exception):  # of any file system; the reason is only shown
        paths = files_below(store.fs, f"{store.roots.output}/{published_folder(urn, ERRORS)}")
        for path in islice((path for path in paths if _is_of_epoch(path, epoch)), _MOST_FILES):
            status = store.fs.status(path)
            if status is None or status.size_bytes > left_bytes:
                continue
            left_bytes -= status.size_bytes
            for batch in read_batches(store.fs, path, {ERROR_COLUMNS[2]}):
                reasons.update(map(str, batch.column(ERROR_COLUMNS[2]).to_pylist()))
                if reasons.total() >= _MOST_COUNTED:
                    return reasons
    return reasons


def _is_of_epoch(path: str, epoch: int) -> bool:
    name = path.rpartition("/")[2]
    return is_published_name(name) and published_epoch(name) == epoch


def unreadable_rows(flow: FlowCounts) -> int:
    """Return the number of rejected rows that the source could not parse."""
    return sum(counts.rejected for counts in flow.constructs if counts.construct == UNREADABLE_ROWS)


def unreadable_files(flow: FlowCounts) -> int:
    """Return the number of files that the source could not read, in all attempts."""
    return sum(counts.noted for counts in flow.constructs if counts.construct == INPUT_PROBLEM)


def datasets_with_unreadable_files(store: JobStore, run_id: str) -> int:
    datasets = read_datasets(store, run_id)[0].values()
    return len([dataset for dataset in datasets if INPUT_PROBLEM in dataset.counts.flow.failed_checks])


def mostly_rejected(store: JobStore, runs: RunsResult) -> list[MostlyRejected]:
    """Return the datasets that rejected most records of their newest commit, within the last five runs that published.

    Args:
        runs: newest runs, newest first.
    """
    published = [row for row in runs.runs if row.datasets_published][:_JUDGED_RUNS]
    while published and not published[-1].records_rejected:
        published.pop()
    newest: dict[str, tuple[int, RunCounts]] = {}
    for row in published:
        for urn, dataset in read_datasets(store, row.run_id)[0].items():
            if dataset.counts.records_published:
                newest.setdefault(urn, (row.epoch, dataset.counts))
    return [
        MostlyRejected(urn, epoch, counts.records_out, counts.records_rejected)
        for urn, (epoch, counts) in sorted(newest.items())
        if counts.is_mostly_rejected
    ]

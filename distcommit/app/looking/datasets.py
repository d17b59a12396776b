"""Datasets one by one: where each stands, how far behind it is, what its last run made of it."""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

import msgspec

from distcommit.app.looking.status import WORST_FIRST, DatasetStatusRow, StatusResult, standing
from distcommit.model.errors import DistcommitError
from distcommit.model.freshness import NO_TARGETS, Freshness
from distcommit.model.notebook import Shown
from distcommit.model.source import Lag
from distcommit.stores.attempt_counts import AttemptCounts, attempts_of
from distcommit.stores.job_store import JobStore
from distcommit.stores.run_datasets import RunDataset, read_run_datasets
from distcommit.stores.run_records import read_record


class Status(StrEnum):
    """Where a dataset may stand; `unread`: idle, and the last run could not read it."""

    IDLE = "idle"
    UNREAD = "unread"
    PENDING = "pending"
    QUARANTINED = "quarantined"
    REVOKING = "revoking"
    STOPPED = "stopped"


class SortBy(StrEnum):
    """What datasets are listed by: by name, or what is most first (of `status`, what is worst)."""

    NAME = "name"
    STATUS = "status"
    LAG = "lag"
    SECONDS = "seconds"
    RECORDS = "records"
    REJECTED = "rejected"
    FAILED = "failed"
    AGE = "age"
    BEHIND = "behind"


@dataclass(frozen=True, slots=True)
class Query:
    """Which datasets are listed. `statuses`: of these alone; `match`: whose names match this shell pattern; `most`: so
    many, 0 for all; `read`: with what the newest run has read of each."""

    statuses: tuple[str, ...] = ()
    match: str = "*"
    sort: SortBy = SortBy.NAME
    most: int = 0
    read: bool = False


class DatasetRow(msgspec.Struct, frozen=True):
    """One dataset. `committed_ms`: when the run that committed it last had ended, 0 if that is not kept. `lag_records`
    and `lag_seconds`: how far it is behind its source, None if nobody asked, or the source can't tell; `target_s`: how
    many seconds it may be, 0 if nothing says so. `outcome` and `attempts`: of the newest run of which tables are kept,
    if it had anything to do with it."""

    state: DatasetStatusRow
    committed_ms: int = 0
    lag_records: int | None = None
    lag_seconds: float | None = None
    lag_problem: str = ""
    outcome: RunDataset | None = None
    attempts: AttemptCounts | None = None
    target_s: float = 0

    @property
    def times_behind(self) -> float:
        """How many times its freshness target it is behind its source; 0 if that is not known, or it has none."""
        return (self.lag_seconds or 0) / self.target_s if self.target_s else 0.0


class DatasetsResult(Shown, msgspec.Struct, frozen=True):
    """Datasets as they were asked for. `matching`: how many there are of them, also those that are not listed;
    `last_epoch`: of the run that `outcome` and `attempts` are of. `lag_unknown`: why no lag is known, if it was
    asked."""

    job: str
    datasets: list[DatasetRow]
    matching: int
    unreadable: dict[str, str]
    last_epoch: int = 0
    lag_unknown: str = ""


def list_datasets(
    store: JobStore,
    status: StatusResult,
    query: Query,
    ask_lag: Callable[[Iterable[str]], Iterable[Lag]] | None = None,
    freshness: Freshness = NO_TARGETS,
) -> DatasetsResult:
    """Datasets as `query` wants them.

    Args:
        store: the job's.
        status: how it stands.
        query: which datasets.
        ask_lag: asks the source how far these datasets are behind; None: nobody does.
        freshness: targets of datasets.
    """
    rows = [row for row in status.datasets if _is_asked(row, query)]
    lags: Mapping[str, Lag] = {}
    unknown = ""
    if ask_lag is not None:
        try:
            lags = {lag.dataset_urn: lag for lag in ask_lag([row.dataset for row in rows])}
            unknown = "" if lags or not rows else "the source tells nothing of these datasets"
        except DistcommitError as error:
            unknown = str(error)
    outcomes, attempts = _of_last_run(store, status) if query.read else ({}, {})
    ended = _ends(store, {row.done_epoch for row in rows})
    found = [
        _row(
            row,
            ended.get(row.done_epoch, 0),
            lags.get(row.dataset),
            outcomes,
            attempts,
            freshness.target_of(row.dataset),
        )
        for row in rows
    ]
    found.sort(key=lambda row: row.state.dataset)
    found.sort(key=_KEYS[query.sort])
    shown = found[: query.most] if query.most else found
    epoch = status.runs[0].epoch if query.read and status.runs else 0
    return DatasetsResult(status.job, shown, len(found), status.unreadable, epoch, unknown)


def _is_asked(row: DatasetStatusRow, query: Query) -> bool:
    asked = not query.statuses or row.status in query.statuses or standing(row) in query.statuses
    return asked and fnmatch.fnmatchcase(row.dataset, query.match)


_KEYS: dict[SortBy, Callable[[DatasetRow], float]] = {
    SortBy.NAME: lambda row: 0,
    SortBy.STATUS: lambda row: WORST_FIRST.index(standing(row.state)),
    SortBy.LAG: lambda row: -(row.lag_records or 0),
    SortBy.SECONDS: lambda row: -(row.lag_seconds or 0),
    SortBy.RECORDS: lambda row: -row.state.done_records,
    SortBy.REJECTED: lambda row: -(row.attempts.records_rejected if row.attempts else 0),
    SortBy.FAILED: lambda row: -row.state.failed_runs,
    SortBy.AGE: lambda row: row.committed_ms,
    SortBy.BEHIND: lambda row: -row.times_behind,
}


def _row(
    state: DatasetStatusRow,
    committed_ms: int,
    lag: Lag | None,
    outcomes: Mapping[str, RunDataset],
    attempts: Mapping[str, AttemptCounts],
    target_s: float,
) -> DatasetRow:
    return DatasetRow(
        state,
        committed_ms,
        lag.records if lag else None,
        lag.seconds if lag else None,
        lag.problem if lag else "",
        outcomes.get(state.dataset),
        attempts.get(state.dataset),
        target_s,
    )


def _ends(store: JobStore, epochs: Iterable[int]) -> dict[int, int]:
    """When these runs had ended, of those that are kept."""
    found: dict[int, int] = {}
    for epoch in epochs:
        try:
            record = read_record(store.fs, store.roots.store, epoch) if epoch else None
        except (DistcommitError, OSError):
            continue
        if record is not None:
            found[epoch] = record.ended_ms
    return found


def _of_last_run(store: JobStore, status: StatusResult) -> tuple[dict[str, RunDataset], dict[str, AttemptCounts]]:
    fs, root, run_id = store.fs, store.roots.store, status.runs[0].run_id if status.runs else ""
    outcomes: dict[str, RunDataset] = {}
    if not run_id:
        return {}, {}
    try:
        for rows in read_run_datasets(fs, root, run_id):
            outcomes = {row.dataset: row for row in rows} | outcomes
        return outcomes, attempts_of(fs, root, run_id)
    except (DistcommitError, OSError):  # `runs EPOCH` says why
        return outcomes, {}

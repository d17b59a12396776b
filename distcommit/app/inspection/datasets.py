"""Datasets one by one: where each stands, how far behind it is, what its last run made of it."""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

import msgspec

from distcommit.app.inspection.status import WORST_FIRST, DatasetStatusRow, StatusResult, standing
from distcommit.core.errors import DistcommitError
from distcommit.core.interfaces.source import Lag
from distcommit.core.records.freshness import NO_TARGETS, Freshness
from distcommit.core.support.notebook import Shown
from distcommit.stores.history.attempt_counts import AttemptCounts, attempts_of
from distcommit.stores.history.run_datasets import RunDataset, read_run_datasets
from distcommit.stores.history.run_records import read_record
from distcommit.stores.state.job_store import JobStore


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
        return _times_behind(self.lag_seconds, self.target_s)


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
    known = _Known(store, lags, outcomes, attempts, freshness)
    if query.sort is not SortBy.NAME:
        rows.sort(key=lambda row: _KEYS[query.sort](known, row))  # those of one kind as they were: by name
    shown = rows[: query.most] if query.most else rows
    epoch = status.runs[0].epoch if query.read and status.runs else 0
    return DatasetsResult(status.job, list(map(known.row, shown)), len(rows), status.unreadable, epoch, unknown)


def _is_asked(row: DatasetStatusRow, query: Query) -> bool:
    asked = not query.statuses or row.status in query.statuses or standing(row) in query.statuses
    return asked and fnmatch.fnmatchcase(row.dataset, query.match)


@dataclass(frozen=True, slots=True)
class _Known:
    """What is known of datasets beside where they stand. A row is made of those alone that are shown."""

    store: JobStore
    lags: Mapping[str, Lag]
    outcomes: Mapping[str, RunDataset]
    attempts: Mapping[str, AttemptCounts]
    freshness: Freshness
    _ended: dict[int, int] = field(default_factory=dict)

    def row(self, state: DatasetStatusRow) -> DatasetRow:
        """The dataset, with all that is known of it."""
        urn = state.dataset
        lag = self.lags.get(urn)
        return DatasetRow(
            state,
            self.committed_ms(state),
            lag.records if lag else None,
            lag.seconds if lag else None,
            lag.problem if lag else "",
            self.outcomes.get(urn),
            self.attempts.get(urn),
            self.freshness.target_of(urn),
        )

    def committed_ms(self, state: DatasetStatusRow) -> int:
        """When the run that committed it last had ended; 0 if that is not kept."""
        epoch = state.done_epoch
        if epoch not in self._ended:
            self._ended[epoch] = self._read_end(epoch) if epoch else 0
        return self._ended[epoch]

    def _read_end(self, epoch: int) -> int:
        try:
            record = read_record(self.store.fs, self.store.roots.store, epoch)
        except (DistcommitError, OSError):
            return 0
        return record.ended_ms if record is not None else 0

    def times_behind(self, state: DatasetStatusRow) -> float:
        """See `DatasetRow`."""
        lag = self.lags.get(state.dataset, _NO_LAG)
        return _times_behind(lag.seconds, self.freshness.target_of(state.dataset))


_NO_LAG, _NO_ATTEMPTS = Lag("", None, None), AttemptCounts()
_KEYS: dict[SortBy, Callable[[_Known, DatasetStatusRow], float]] = {
    SortBy.STATUS: lambda _, row: WORST_FIRST.index(standing(row)),
    SortBy.LAG: lambda known, row: -(known.lags.get(row.dataset, _NO_LAG).records or 0),
    SortBy.SECONDS: lambda known, row: -(known.lags.get(row.dataset, _NO_LAG).seconds or 0),
    SortBy.RECORDS: lambda _, row: -row.done_records,
    SortBy.REJECTED: lambda known, row: -known.attempts.get(row.dataset, _NO_ATTEMPTS).records_rejected,
    SortBy.FAILED: lambda _, row: -row.failed_runs,
    SortBy.AGE: lambda known, row: known.committed_ms(row),
    SortBy.BEHIND: lambda known, row: -known.times_behind(row),
}


def _times_behind(lag_seconds: float | None, target_s: float) -> float:
    return (lag_seconds or 0) / target_s if target_s else 0.0


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

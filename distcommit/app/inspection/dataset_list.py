"""Lists the datasets of a job with their states, their lag, and their outcome in the newest run."""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

import msgspec

from distcommit.app.inspection.job_status import WORST_FIRST_STATUSES, DatasetStatusRow, StatusResult, status_of
from distcommit.app.inspection.recorded_runs import RunDatasetRow, read_datasets
from distcommit.core.errors import DistcommitError
from distcommit.core.interfaces.source import Lag
from distcommit.core.records.freshness_targets import NO_TARGETS, Freshness
from distcommit.core.support.notebook_tables import NotebookTable
from distcommit.stores.history.run_records import read_record
from distcommit.stores.state.job_store import JobStore


class Status(StrEnum):
    """The status of a dataset, as users filter by it."""

    IDLE = "idle"
    READ_FAILED = "read-failed"
    """The dataset is idle, and the newest run could not read it."""
    PENDING = "pending"
    QUARANTINED = "quarantined"
    REVOKING = "revoking"
    STOPPED = "stopped"


class SortBy(StrEnum):
    """A sort key of datasets. `name` sorts ascending, `status` by severity, the others the largest value first."""

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
    """A selection and order of datasets.

    Attributes:
        statuses: statuses to include, see `Status`; empty for all.
        match: pattern of dataset URNs in which `*` and `?` are wildcards; case-sensitive.
        sort: sort key of the rows.
        max_rows: maximum number of rows; 0 for no limit.
        read: whether rows include the dataset's outcome in the newest run.
    """

    statuses: tuple[str, ...] = ()
    match: str = "*"
    sort: SortBy = SortBy.NAME
    max_rows: int = 0
    read: bool = False


class DatasetRow(msgspec.Struct, frozen=True):
    """A dataset with its state and, if requested, its lag.

    Attributes:
        state: state in the bucket log.
        committed_ms: end of the run that last committed the dataset, in milliseconds since 1970; 0 if unknown.
        lag_records: unread records at the source; None if unknown or not requested.
        lag_seconds: age of the first unread record in seconds; None if unknown or not requested.
        lag_problem: why the source could not report the lag of this dataset.
        last_run: outcome in the newest run; None if not requested, not in that run, or expired.
        target_s: freshness target in seconds; 0 if the dataset has none.
    """

    state: DatasetStatusRow
    committed_ms: int = 0
    lag_records: int | None = None
    lag_seconds: float | None = None
    lag_problem: str = ""
    last_run: RunDatasetRow | None = None
    target_s: float = 0

    @property
    def times_behind(self) -> float:
        """The lag divided by the freshness target; 0 if either is unknown."""
        return _times_behind(self.lag_seconds, self.target_s)


class DatasetsResult(NotebookTable, msgspec.Struct, frozen=True):
    """The datasets that match a query.

    Attributes:
        job: name of the job.
        datasets: matching datasets, in the order of the query.
        matching: number of matching datasets, including those beyond `max_rows`.
        unreadable: error of each unreadable log or file, by its name; datasets of such a log are missing.
        last_epoch: epoch of the run that `last_run` of the rows describes; 0 if not requested.
        lag_unknown: why the source reported no lag at all; empty if it reported some, or was not asked.
    """

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
    """Return the datasets that match a query.

    Args:
        status: the job's status with all datasets.
        ask_lag: asks the source for the lags of datasets; None leaves lags unknown.
    """
    rows = [row for row in status.datasets if _matches(row, query)]
    lags, unknown = lags_of(ask_lag, [row.dataset for row in rows]) if ask_lag is not None else ({}, "")
    run_id = status.runs[0].run_id if query.read and status.runs else ""
    last_run = read_datasets(store, run_id)[0] if run_id else {}  # `runs EPOCH` shows what cannot be read
    inputs = _ProcessState(store, lags, last_run, freshness)
    if query.sort is not SortBy.NAME:
        rows.sort(key=lambda row: _KEYS[query.sort](inputs, row))  # stable: equal ones stay sorted by name
    shown = rows[: query.max_rows] if query.max_rows else rows
    epoch = status.runs[0].epoch if query.read and status.runs else 0
    return DatasetsResult(status.job, list(map(inputs.row, shown)), len(rows), status.unreadable, epoch, unknown)


def lags_of(ask: Callable[[Iterable[str]], Iterable[Lag]], urns: Sequence[str]) -> tuple[Mapping[str, Lag], str]:
    """Return the lags that a source reports, by dataset, and why it reports none; empty if it reports some."""
    try:
        lags = {lag.dataset_urn: lag for lag in ask(urns)}
    except DistcommitError as error:
        return {}, str(error)
    return lags, "" if lags or not urns else "the source reports no lag for these datasets"


def _matches(row: DatasetStatusRow, query: Query) -> bool:
    is_selected = not query.statuses or row.status in query.statuses or status_of(row) in query.statuses
    return is_selected and fnmatch.fnmatchcase(row.dataset, query.match)


@dataclass(frozen=True, slots=True)
class _ProcessState:
    store: JobStore
    lags: Mapping[str, Lag]
    last_run: Mapping[str, RunDatasetRow]
    freshness: Freshness
    _ended: dict[int, int] = field(default_factory=dict)

    def row(self, state: DatasetStatusRow) -> DatasetRow:
        urn = state.dataset
        lag = self.lags.get(urn)
        return DatasetRow(
            state,
            self.committed_ms(state),
            lag.records if lag else None,
            lag.seconds if lag else None,
            lag.problem if lag else "",
            self.last_run.get(urn),
            self.freshness.target_of(urn),
        )

    def committed_ms(self, state: DatasetStatusRow) -> int:
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

    def records_rejected(self, state: DatasetStatusRow) -> int:
        row = self.last_run.get(state.dataset)
        return row.counts.records_rejected if row is not None else 0

    def times_behind(self, state: DatasetStatusRow) -> float:
        lag = self.lags.get(state.dataset, _NO_LAG)
        return _times_behind(lag.seconds, self.freshness.target_of(state.dataset))


_NO_LAG = Lag("", None, None)
_KEYS: dict[SortBy, Callable[[_ProcessState, DatasetStatusRow], float]] = {
    SortBy.STATUS: lambda _, row: WORST_FIRST_STATUSES.index(status_of(row)),
    SortBy.LAG: lambda inputs, row: -(inputs.lags.get(row.dataset, _NO_LAG).records or 0),
    SortBy.SECONDS: lambda inputs, row: -(inputs.lags.get(row.dataset, _NO_LAG).seconds or 0),
    SortBy.RECORDS: lambda _, row: -row.done_records,
    SortBy.REJECTED: lambda inputs, row: -inputs.records_rejected(row),
    SortBy.FAILED: lambda _, row: -row.failed_runs,
    SortBy.AGE: lambda inputs, row: inputs.committed_ms(row),
    SortBy.BEHIND: lambda inputs, row: -inputs.times_behind(row),
}


def _times_behind(lag_seconds: float | None, target_s: float) -> float:
    return (lag_seconds or 0) / target_s if target_s else 0.0

"""The jobs that `distcommit ui` shows, and a summary of each for the index page."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path

import msgspec

from distcommit.app.inspection.dataset_list import DatasetRow, DatasetsResult, Query
from distcommit.app.inspection.job_status import WORST_FIRST_STATUSES, StatusResult, status_of
from distcommit.app.inspection.problems.problem_kind import Problem, Severity
from distcommit.app.inspection.recorded_runs import RunRow, RunStatus
from distcommit.app.job_file.load_job_file import job_files_in
from distcommit.app.jobs.stored_job import StoredJob
from distcommit.cli.web.background_reads import BackgroundReads
from distcommit.core.errors import ConfigurationError, DistcommitError, error_text
from distcommit.core.interfaces.source import Lag

logger = logging.getLogger(__name__)

MOST_JOBS = 500
"""Rows of the index page; further jobs are counted."""
WAIT_S = 10.0
"""Seconds that a page waits for a job whose storage does not answer."""
_LAG_WAIT_S, _LAG_AGE_S = 2.0, 15.0
"""Seconds that a page waits for a source, and after which a source is asked again."""
_ERROR_LENGTH = 600


class JobState(StrEnum):
    """The state of a job on the index page, worst first."""

    UNREADABLE = "UNREADABLE"
    CRITICAL = "CRITICAL"
    ERROR = "ERROR"
    WARNING = "WARNING"
    RUNNING = "RUNNING"
    NEVER_RUN = "NEVER RUN"
    OK = "OK"


@dataclass(frozen=True, slots=True)
class JobLag:
    """How far a job is behind its source.

    Attributes:
        records: unread records of all datasets; None if unknown.
        seconds: largest age of an unread record, in seconds; None if unknown.
        behind_target: datasets that are further behind than their freshness targets.
        unknown: why the lag is unknown; empty if it is known.
        by_dataset: lag of each dataset, by URN.
    """

    records: int | None = None
    seconds: float | None = None
    behind_target: int = 0
    unknown: str = ""
    by_dataset: Mapping[str, Lag] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class JobSummary:
    """A job on the index page.

    Attributes:
        name: name of the job file.
        status: the job's status without idle datasets; None if it can't be read.
        lag: lag of the job; None if the source was not asked.
        error: why `status` is None; empty otherwise.
        is_new: whether there is no store yet.
    """

    name: str
    status: StatusResult | None = None
    lag: JobLag | None = None
    error: str = ""
    is_new: bool = False

    @property
    def newest_run(self) -> RunRow | None:
        return next(iter(self.status.runs), None) if self.status is not None else None

    @property
    def severities(self) -> dict[str, int]:
        """Problems by severity, the worst first."""
        counts = Counter(problem.severity for problem in self.problems)
        return {severity.value: counts[severity] for severity in Severity if counts[severity]}

    @property
    def problems(self) -> Sequence[Problem]:
        return self.status.problems if self.status is not None else ()

    @property
    def state(self) -> JobState:
        """The state of the job: its worst problem, or whether it runs."""
        if self.status is None:
            return JobState.NEVER_RUN if self.is_new else JobState.UNREADABLE
        worst = JobState[next(iter(self.severities)).upper()] if self.problems else None
        if worst in (JobState.CRITICAL, JobState.ERROR):
            return worst
        if any(run.status in (RunStatus.PENDING, RunStatus.RUNNING) for run in self.status.runs):
            return JobState.RUNNING
        return worst or (JobState.OK if self.status.runs else JobState.NEVER_RUN)


class ServedJobs:
    """The job files that are shown: one file, or all files of a folder. The folder is listed again for each page.

    Args:
        path: a job file, or a folder of job files.
        overrides: overrides of settings, for each job.
        asks_lag: whether sources are asked how far datasets are behind.

    Raises:
        ConfigurationError: if a folder has no job file or can't be read.
    """

    def __init__(self, path: Path, overrides: Sequence[str] = (), *, asks_lag: bool = False) -> None:
        self.path, self.asks_lag, self._overrides = path, asks_lag, tuple(overrides)
        self.is_folder = path.is_dir()
        self._summaries = BackgroundReads(self._summary)
        self._lags = BackgroundReads(self._lag)
        if self.is_folder and not self.files():
            raise ConfigurationError(
                "the folder has no job file",
                id="SERVED_JOBS_INVALID",
                path=path,
                expected="files that end in .yaml or .yml",
                todo="start the command again with a folder that has job files",
            )

    def files(self) -> Mapping[str, Path]:
        """Return the job files by name. Raises ConfigurationError if the folder can't be read."""
        return {path.name: path for path in (job_files_in(self.path) if self.is_folder else [self.path])}

    def open(self, name: str) -> StoredJob:
        """Return the job of a file. Only names of listed files are accepted, so that a name from a URL reaches no other
        file.

        Raises:
            ConfigurationError: if there is no such file, or it is invalid.
        """
        path = self.files().get(name)
        if path is None:
            raise ConfigurationError(
                "the job file does not exist or is not served",
                id="ARGUMENT_INVALID",
                file=name[:200],
                expected=f"a job file in {self.path}" if self.is_folder else self.path.name,
                todo="reload the list of jobs, and choose a job there",
            )
        return StoredJob.from_file(path, self._overrides, needs_variables=False)

    def summaries(self, names: Sequence[str], *, wait_s: float = WAIT_S) -> list[JobSummary]:
        """Return the summary of each job. A job whose storage does not answer within `wait_s` has an error."""
        readings = self._summaries.newest(names, wait_s=wait_s)
        lags = self.lags(names)
        result = []
        for name, reading in readings.items():
            summary = reading.value
            if summary is None or reading.waited_s >= wait_s:
                waited_s = f"{max(reading.waited_s, wait_s):,.0f} s"
                summary = JobSummary(name, error=f"its storage has not answered for {waited_s}")
            result.append(replace(summary, lag=lags.get(name)))
        return result

    def lags(self, names: Sequence[str]) -> dict[str, JobLag]:
        """Return the lag of each job; none if sources are not asked. Sources are waited for up to two seconds."""
        if not self.asks_lag:
            return {}
        readings = self._lags.newest(names, wait_s=_LAG_WAIT_S, max_age_s=_LAG_AGE_S)
        return {
            name: reading.value or JobLag(unknown=f"the source has not answered for {reading.waited_s:,.0f} s")
            for name, reading in readings.items()
        }

    def _summary(self, name: str) -> JobSummary:
        try:
            return JobSummary(name, self.open(name).status(idle=False))
        except BaseException as error:
            is_new = isinstance(error, ConfigurationError) and error.id == "STORE_NOT_FOUND"
            if not isinstance(error, DistcommitError | OSError):
                logger.warning("the state of a job can't be read", exc_info=True, extra={"job_file": name})
            return JobSummary(name, error=error_text(error, _ERROR_LENGTH), is_new=is_new)

    def _lag(self, name: str) -> JobLag:
        try:
            result = self.open(name).datasets(lag=True)
        except BaseException as error:  # noqa: BLE001 - whatever a custom class raises, other jobs are shown
            return JobLag(unknown=error_text(error, _ERROR_LENGTH))
        by_dataset = {
            row.state.dataset: Lag(row.state.dataset, row.lag_records, row.lag_seconds, row.lag_problem)
            for row in result.datasets
        }
        records = [lag.records for lag in by_dataset.values() if lag.records is not None]
        seconds = [lag.seconds for lag in by_dataset.values() if lag.seconds is not None]
        return JobLag(
            sum(records) if records else None,
            max(seconds, default=None),
            sum(1 for row in result.datasets if row.times_behind > 1),
            result.lag_unknown,
            by_dataset,
        )


def list_with_lag(job: StoredJob, lag: JobLag | None) -> DatasetsResult:
    """Return all datasets of a job, the worst status first, and within a status the largest lag."""
    result = job.datasets(Query(read=True))
    by_dataset = lag.by_dataset if lag is not None else {}
    rows = [_with_lag(row, by_dataset.get(row.state.dataset)) for row in result.datasets]
    rows.sort(key=_sort_key)
    return msgspec.structs.replace(result, datasets=rows, lag_unknown=lag.unknown if lag is not None else "")


def _with_lag(row: DatasetRow, lag: Lag | None) -> DatasetRow:
    if lag is None:
        return row
    return msgspec.structs.replace(row, lag_records=lag.records, lag_seconds=lag.seconds, lag_problem=lag.problem)


def _sort_key(row: DatasetRow) -> tuple[int, float, int]:
    rank = WORST_FIRST_STATUSES.index(status_of(row.state))
    return rank, -(row.lag_seconds or 0), -(row.lag_records or 0)

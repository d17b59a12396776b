"""Creates the report of a run: task times, latencies, failures, and the outcome of each dataset."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from distcommit.app.inspection.dataset_list import lags_of
from distcommit.app.inspection.job_status import StatusResult
from distcommit.app.inspection.problems.problem_kind import Problem
from distcommit.app.inspection.recorded_runs import RecordedRun, RunDatasetRow, RunRow, RunStatus, read_run
from distcommit.app.inspection.report_data.distributions import Skew, Spread, skew_of, spread_of
from distcommit.app.inspection.report_data.killed_runs import KilledRun, describe_killed_run
from distcommit.app.inspection.report_data.task_timelines import TaskTimeline, timelines_of
from distcommit.core.interfaces.clock import Clock
from distcommit.core.interfaces.source import Lag
from distcommit.engine.driver.task_progress import progress_folder, read_progress
from distcommit.engine.run_events import Progressed
from distcommit.stores.history.attempt_counts import Attempt
from distcommit.stores.history.run_records import RunBeginning, RunRecord, recorded_epochs
from distcommit.stores.history.run_table import RowKind, TableRow, TaskRows
from distcommit.stores.state.job_store import JobStore

MOST_DATASETS, MOST_TIMELINES, SLOWEST = 5000, 64, 10
"""The most datasets, task timelines and slow entries in a report. Omitted datasets and timelines are counted."""


class Slow(msgspec.Struct, frozen=True):
    """A slow dataset or work unit.

    Attributes:
        subject: dataset URN.
        ms: duration in milliseconds.
        count: number of records in the dataset or work unit.
        part: id of the work unit; empty for a whole dataset.
    """

    subject: str
    ms: int
    count: int
    part: str = ""


class ReportedDataset(msgspec.Struct, frozen=True):
    """The outcome and the times of a dataset in a run.

    Attributes:
        dataset: dataset URN.
        outcome: outcome in the run, see `DatasetOutcome`.
        records: published records.
        files: published files.
        bytes_read: payload bytes read in all attempts.
        rejected: records rejected to error branches in all attempts.
        attempts: number of attempts at work units.
        failed: number of attempts that failed completely or in part.
        read_ms: duration of all attempts together, in milliseconds.
        commit_ms: milliseconds from seal to publication; None if unknown.
        visible_ms: milliseconds from the end of the last work unit to publication; None if unknown.
        requests: number of file system requests; 0 if unknown.
        lag_records: unread records at the source now; None if unknown or not requested.
        lag_seconds: age of the first unread record in seconds; None if unknown or not requested.
        kind: kind of the failure that `reason` describes; empty without a failure.
        reason: why the dataset was not published; empty if it was.
        checks_failed: number of failed attempts by task checker.
    """

    dataset: str
    outcome: str
    records: int
    files: int
    bytes_read: int
    rejected: int
    attempts: int
    failed: int
    read_ms: int
    commit_ms: int | None = None
    visible_ms: int | None = None
    requests: int = 0
    lag_records: int | None = None
    lag_seconds: float | None = None
    kind: str = ""
    reason: str = ""
    checks_failed: dict[str, int] = {}


class RunReport(msgspec.Struct, frozen=True):
    """The report of a run.

    Attributes:
        job: name of the job.
        store: path of the store.
        created_ms: time of the report in milliseconds since 1970.
        run: summary of the run.
        beginning: begin record; None if it is missing or unreadable.
        record: end record; None if it is missing or unreadable.
        began_ms: left end of the time axis, in milliseconds since 1970.
        ended_ms: right end of the time axis, in milliseconds since 1970.
        task_timelines: timelines of the busiest tasks.
        task_timelines_omitted: number of tasks that are not in `task_timelines`.
        visible: times from the end of a dataset's last work unit to its publication; None if unknown.
        waited: times from the start of a dataset's first work unit to its publication; None if unknown.
        slowest_reads: attempts at work units with the longest duration.
        slowest_commits: datasets with the longest time from seal to publication.
        slowest_visible: datasets with the longest times of `visible`.
        skew: largest value beside the median, for each measure that has two values or more.
        outcomes: number of datasets by outcome.
        bytes_read: payload bytes read in all attempts.
        rejected: records rejected to error branches in all attempts.
        requests: number of file system requests of all tasks.
        requests_unattributed: number of requests that served several datasets at once; included in `requests`.
        datasets: datasets with a failure, then the others; in both groups, datasets with the most bytes read first.
        datasets_omitted: number of datasets that are not in `datasets`.
        missing_datasets_reason: why `datasets` is empty or incomplete; empty if it is complete.
        missing_times_reason: why task times are missing; empty if they are not.
        lag_unknown: why the source reported no lag; empty if it reported some, or was not asked.
        is_lag_requested: whether the source was asked for lags.
        progress: progress counters of a running run; None if the run has ended or recorded none.
        problems: present problems of the job; empty unless this is its newest run.
        killed: open work of the run; None unless its driver died.
    """

    job: str
    store: str
    created_ms: int
    run: RunRow
    beginning: RunBeginning | None
    record: RunRecord | None
    began_ms: int
    ended_ms: int
    task_timelines: list[TaskTimeline]
    task_timelines_omitted: int
    visible: Spread | None
    waited: Spread | None
    slowest_reads: list[Slow]
    slowest_commits: list[Slow]
    slowest_visible: list[Slow]
    skew: list[Skew]
    outcomes: dict[str, int]
    bytes_read: int
    rejected: int
    requests: int
    requests_unattributed: int
    datasets: list[ReportedDataset]
    datasets_omitted: int
    missing_datasets_reason: str = ""
    missing_times_reason: str = ""
    lag_unknown: str = ""
    is_lag_requested: bool = False
    progress: Progressed | None = None
    problems: list[Problem] = []
    killed: KilledRun | None = None


def make_report(
    store: JobStore, epoch: int, clock: Clock, ask_lag: Callable[[Iterable[str]], Iterable[Lag]] | None = None
) -> RunReport:
    """Return the report of the run of an epoch.

    Args:
        ask_lag: asks the source for the lags of datasets; None leaves lags unknown.

    Raises:
        ConfigurationError: if nothing is recorded of a run of this epoch.
    """
    attempts: list[Attempt] = []
    tasks: list[TaskRows] = []
    recorded = read_run(store, epoch, clock, attempts.append, tasks.append)
    moments = _Moments(attempts, tasks)
    timelines = timelines_of(attempts, tasks)
    datasets = [_dataset(row, moments) for row in recorded.datasets]
    shown, lag_unknown = _shown(datasets), ""
    lags: Mapping[str, Lag] = {}
    if ask_lag is not None:
        lags, lag_unknown = lags_of(ask_lag, [row.dataset for row in shown])
    busiest = sorted(timelines, key=lambda timeline: -timeline.busy_ms)[:MOST_TIMELINES]
    began_ms, ended_ms = _bounds(recorded.run, timelines)
    lives = recorded.run.status is RunStatus.RUNNING
    return RunReport(
        job=store.job,
        store=store.roots.store,
        created_ms=clock.now_ms(),
        run=recorded.run,
        beginning=recorded.beginning,
        record=recorded.record,
        began_ms=began_ms,
        ended_ms=ended_ms,
        task_timelines=[timeline for timeline in timelines if timeline in busiest],
        task_timelines_omitted=len(timelines) - len(busiest),
        visible=spread_of(ms for row in datasets if (ms := row.visible_ms) is not None),
        waited=spread_of(moments.waited_ms()),
        slowest_reads=_slowest_reads(attempts),
        slowest_commits=_slowest(datasets, lambda row: row.commit_ms),
        slowest_visible=_slowest(datasets, lambda row: row.visible_ms),
        skew=_skew(timelines, attempts, datasets),
        outcomes=dict(Counter(row.outcome for row in datasets).most_common()),
        bytes_read=sum(row.bytes_read for row in datasets),
        rejected=sum(row.rejected for row in datasets),
        requests=moments.requests.total(),
        requests_unattributed=moments.requests[""],
        datasets=[_with_lag(row, lags.get(row.dataset)) for row in shown],
        datasets_omitted=len(datasets) - len(shown),
        missing_datasets_reason=recorded.missing_datasets_reason,
        missing_times_reason=_missing_times_reason(recorded, attempts, timelines),
        lag_unknown=lag_unknown,
        is_lag_requested=ask_lag is not None,
        progress=read_progress(store.fs, progress_folder(store.roots.store, recorded.run.run_id)) if lives else None,
    )


def add_job_status(report: RunReport, store: JobStore, status: StatusResult, command: str) -> RunReport:
    """Return the report with the job's problems if its run is the newest, and the open work if its driver died.

    Args:
        status: the job's status; idle datasets may be missing.
    """
    epochs = recorded_epochs(store.fs, store.roots.store)
    killed = describe_killed_run(report.run, epochs, status, command) if report.run.is_dead else None
    problems = status.problems if report.run.epoch >= max(epochs, default=0) else []
    return msgspec.structs.replace(report, problems=problems, killed=killed)


class _Moments:
    """The times at which a run's tasks read, sealed and published datasets, without replays of older runs.

    `requests` counts file system requests by dataset; "" stands for several datasets at once.
    """

    def __init__(self, attempts: Iterable[Attempt], tasks: Iterable[TaskRows]) -> None:
        self._first: dict[str, int] = {}
        self._last: dict[str, int] = {}
        self._sealed: dict[str, int] = {}
        self._published: dict[str, int] = {}
        self.requests: Counter[str] = Counter()
        for attempt in attempts:
            urn, started_ms = attempt.dataset, attempt.started_ms
            self._first[urn] = min(self._first.get(urn, started_ms), started_ms)
            if not attempt.has_failed:
                self._last[urn] = max(self._last.get(urn, 0), attempt.finished_ms)
        for rows in tasks:
            for row in rows.rows:
                self._add(row, is_replay=rows.task.phase == "recover")

    def _add(self, row: TableRow, *, is_replay: bool) -> None:
        self.requests[row.dataset] += row.counts.storage_requests
        if is_replay or row.row_kind is not RowKind.DATASET:
            return
        if row.began_ms:
            self._sealed[row.dataset] = min(self._sealed.get(row.dataset, row.began_ms), row.began_ms)
        if row.ended_ms:  # twins record it twice
            self._published[row.dataset] = min(self._published.get(row.dataset, row.ended_ms), row.ended_ms)

    def commit_ms(self, urn: str) -> int | None:
        return self._until_published(urn, self._sealed)

    def visible_ms(self, urn: str) -> int | None:
        return self._until_published(urn, self._last)

    def waited_ms(self) -> list[int]:
        waits = (self._until_published(urn, self._first) for urn in self._published)
        return [ms for ms in waits if ms is not None]

    def _until_published(self, urn: str, since: Mapping[str, int]) -> int | None:
        """Return the milliseconds until publication, never negative, although clocks may differ."""
        if urn not in self._published or urn not in since:
            return None
        return max(0, self._published[urn] - since[urn])


def _missing_times_reason(kept: RecordedRun, attempts: list[Attempt], timelines: Iterable[TaskTimeline]) -> str:
    if kept.unreadable:
        return kept.unreadable
    if any(timeline.phase for timeline in timelines):
        return ""
    if kept.run.status is RunStatus.RUNNING:
        return "tasks record their commit times when they end"
    return "its tasks died before they recorded their commit times" if attempts else ""


def _dataset(row: RunDatasetRow, moments: _Moments) -> ReportedDataset:
    counts = row.counts
    return ReportedDataset(
        dataset=row.dataset,
        outcome=row.outcome,
        records=counts.records_published,
        files=counts.files_published,
        bytes_read=counts.bytes_read,
        rejected=counts.records_rejected,
        attempts=counts.attempts,
        failed=counts.attempts_failed,
        read_ms=counts.attempt_ms,
        commit_ms=moments.commit_ms(row.dataset),
        visible_ms=moments.visible_ms(row.dataset),
        requests=moments.requests[row.dataset],
        kind=row.kind,
        reason=row.reason,
        checks_failed=counts.flow.failed_checks,
    )


def _shown(datasets: Iterable[ReportedDataset]) -> list[ReportedDataset]:
    return sorted(datasets, key=lambda row: (not row.kind, -row.bytes_read, -row.records, row.dataset))[:MOST_DATASETS]


def _with_lag(row: ReportedDataset, lag: Lag | None) -> ReportedDataset:
    if lag is None:
        return row
    return msgspec.structs.replace(row, lag_records=lag.records, lag_seconds=lag.seconds)


def _bounds(run: RunRow, timelines: Iterable[TaskTimeline]) -> tuple[int, int]:
    timeline_list = [*timelines]
    began_ms = min(filter(None, (run.began_ms, *(timeline.began_ms for timeline in timeline_list))), default=0)
    return began_ms, max((run.ended_ms, began_ms, *(timeline.ended_ms for timeline in timeline_list)))


def _slowest_reads(attempts: Iterable[Attempt]) -> list[Slow]:
    slowest = sorted(attempts, key=lambda attempt: attempt.started_ms - attempt.finished_ms)[:SLOWEST]
    return [
        Slow(attempt.dataset, attempt.finished_ms - attempt.started_ms, attempt.counts.records_read, attempt.work_unit)
        for attempt in slowest
    ]


def _slowest(datasets: Iterable[ReportedDataset], ms_of: Callable[[ReportedDataset], int | None]) -> list[Slow]:
    durations = [Slow(row.dataset, ms, row.records) for row in datasets if (ms := ms_of(row)) is not None]
    return sorted(durations, key=lambda slow: -slow.ms)[:SLOWEST]


def _skew(
    timelines: Sequence[TaskTimeline], attempts: Iterable[Attempt], datasets: Iterable[ReportedDataset]
) -> list[Skew]:
    reading = [timeline for timeline in timelines if timeline.reads]
    by_executor: Counter[str] = Counter()
    for timeline in timelines:
        if timeline.executor:
            by_executor[timeline.executor] += timeline.busy_ms
    skews = (
        skew_of("an executor", "ms busy", by_executor.items()),
        skew_of("a task", "ms busy", ((timeline.name, timeline.busy_ms) for timeline in reading)),
        skew_of("a task", "records", ((timeline.name, timeline.records) for timeline in reading)),
        skew_of("a work unit", "ms", ((item.dataset, item.finished_ms - item.started_ms) for item in attempts)),
        skew_of("a dataset", "records", ((row.dataset, row.records) for row in datasets if row.records)),
        skew_of("a dataset", "bytes read", ((row.dataset, row.bytes_read) for row in datasets if row.bytes_read)),
    )
    return [item for item in skews if item is not None]

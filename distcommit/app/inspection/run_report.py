"""A run as one page shows it: when its tasks read and committed, how soon datasets were visible, what was slow, what
failed, and what became of each dataset."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from distcommit.app.inspection.measures import Skew, Spread, skew_of, spread_of
from distcommit.app.inspection.runs import RunDatasetRow, RunResultKept, RunRow, RunStatus, read_run
from distcommit.app.inspection.task_lanes import Lane, lanes_of
from distcommit.core.errors import DistcommitError
from distcommit.core.interfaces.source import Lag
from distcommit.core.ports import Clock
from distcommit.engine.driver.events import Progress
from distcommit.engine.driver.progress import progress_folder, read_progress
from distcommit.stores.history.attempt_counts import Attempt
from distcommit.stores.history.run_records import RunBeginning, RunRecord
from distcommit.stores.history.run_times import RunTime, TimeKind, read_run_times
from distcommit.stores.state.job_store import JobStore

MOST_DATASETS, MOST_LANES, SLOWEST = 5000, 64, 10
"""How many of each a report names; of the others it says how many there are."""


class Slow(msgspec.Struct, frozen=True):
    """Something that took long. `subject`: a dataset, or a work unit of one; `count`: the records of it."""

    subject: str
    ms: int
    count: int
    part: str = ""


class ReportedDataset(msgspec.Struct, frozen=True):
    """A dataset in the run. `read_ms`: of all attempts; `commit_ms`: from its seal to its being published, and
    `visible_ms`: from the end of its last work unit to that; None where that is not known. `requests`: of file systems,
    0 if nothing is known of them. `lag_records`,
    `lag_seconds`: how far it is behind its source now, None if nobody asked, or nobody knows."""

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
    not_passed: dict[str, int] = {}


class RunReport(msgspec.Struct, frozen=True):
    """All that a page shows of a run.

    `lanes`: its tasks, the busiest; `began_ms` and `ended_ms`: what they are drawn between. `visible`: how soon
    datasets were, from the end of their last work unit; `waited`: from the beginning of their first. `outcomes`:
    datasets by what became of them; `requests`: of file systems, by its tasks, `requests_of_none` among them which were
    no single dataset's; `datasets`: those that did not go through, then the largest. `not_kept` and
    `no_times`: why there is nothing, or not all, of datasets, and of times. `progress`: how far it is, while it lives.
    """

    job: str
    store: str
    made_ms: int
    run: RunRow
    beginning: RunBeginning | None
    record: RunRecord | None
    began_ms: int
    ended_ms: int
    lanes: list[Lane]
    lanes_left_out: int
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
    requests_of_none: int
    datasets: list[ReportedDataset]
    datasets_left_out: int
    not_kept: str = ""
    no_times: str = ""
    lag_unknown: str = ""
    lag_asked: bool = False
    progress: Progress | None = None


def make_report(
    store: JobStore, epoch: int, clock: Clock, ask_lag: Callable[[Iterable[str]], Iterable[Lag]] | None = None
) -> RunReport:
    """What is kept of the run of an epoch, as a page shows it. Reads only.

    Args:
        store: the job's.
        epoch: the run's.
        clock: for whether it lives.
        ask_lag: asks the source how far these datasets are behind; None: nobody does.

    Raises:
        ConfigurationError: if nothing is kept of such a run.
    """
    attempts: list[Attempt] = []
    kept = read_run(store, epoch, clock, attempts.append)
    times, no_times = _times_of(store, kept.run.run_id)
    moments = _Moments(attempts, (row for rows in times.values() for row in rows))
    lanes = lanes_of(attempts, times)
    datasets = [_dataset(row, moments) for row in kept.datasets]
    shown, lag_unknown = _shown(datasets), ""
    lags: dict[str, Lag] = {}
    if ask_lag is not None:
        lags, lag_unknown = _lags(ask_lag, [row.dataset for row in shown])
    busiest = sorted(lanes, key=lambda lane: -lane.busy_ms)[:MOST_LANES]
    began_ms, ended_ms = _bounds(kept.run, lanes)
    lives = kept.run.status is RunStatus.RUNNING
    return RunReport(
        job=store.job,
        store=store.roots.store,
        made_ms=clock.now_ms(),
        run=kept.run,
        beginning=kept.beginning,
        record=kept.record,
        began_ms=began_ms,
        ended_ms=ended_ms,
        lanes=[lane for lane in lanes if lane in busiest],
        lanes_left_out=len(lanes) - len(busiest),
        visible=spread_of(ms for row in datasets if (ms := row.visible_ms) is not None),
        waited=spread_of(moments.waited_ms()),
        slowest_reads=_slowest_reads(attempts),
        slowest_commits=_slowest(datasets, lambda row: row.commit_ms),
        slowest_visible=_slowest(datasets, lambda row: row.visible_ms),
        skew=_skew(lanes, attempts, datasets),
        outcomes=dict(Counter(row.outcome for row in datasets).most_common()),
        bytes_read=sum(row.bytes_read for row in datasets),
        rejected=sum(row.rejected for row in datasets),
        requests=moments.requests.total(),
        requests_of_none=moments.requests[""],
        datasets=[_with_lag(row, lags.get(row.dataset)) for row in shown],
        datasets_left_out=len(datasets) - len(shown),
        not_kept=kept.not_kept,
        no_times=no_times or _why_no_times(kept, attempts, times),
        lag_unknown=lag_unknown,
        lag_asked=ask_lag is not None,
        progress=read_progress(store.fs, progress_folder(store.roots.store, kept.run.run_id)) if lives else None,
    )


class _Moments:
    """When datasets were read in a run, sealed and published: by its own tasks, and not for an older run. `requests`:
    that each took, and, by no name, that are no single dataset's."""

    def __init__(self, attempts: Iterable[Attempt], times: Iterable[RunTime]) -> None:
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
        for row in times:
            if row.kind is TimeKind.REQUESTS:
                self.requests[row.dataset] += row.count
                continue
            if row.phase == "recover" or row.kind in (TimeKind.TASK, TimeKind.COMMITS):
                continue
            if row.began_ms:
                self._sealed[row.dataset] = min(self._sealed.get(row.dataset, row.began_ms), row.began_ms)
            if row.kind is TimeKind.PUBLISHED:  # twins tell it twice
                known = self._published.get(row.dataset, row.ended_ms)
                self._published[row.dataset] = min(known, row.ended_ms)

    def commit_ms(self, urn: str) -> int | None:
        return self._until_published(urn, self._sealed)

    def visible_ms(self, urn: str) -> int | None:
        return self._until_published(urn, self._last)

    def waited_ms(self) -> list[int]:
        found = (self._until_published(urn, self._first) for urn in self._published)
        return [ms for ms in found if ms is not None]

    def _until_published(self, urn: str, since: Mapping[str, int]) -> int | None:
        """Clocks of two machines may differ: less than nothing is nothing."""
        if urn not in self._published or urn not in since:
            return None
        return max(0, self._published[urn] - since[urn])


def _times_of(store: JobStore, run_id: str) -> tuple[dict[str, list[RunTime]], str]:
    found: dict[str, list[RunTime]] = {}
    try:
        found.update(read_run_times(store.fs, store.roots.store, run_id))  # those before one that can't be read
    except (DistcommitError, OSError) as error:
        return found, str(error)
    return found, ""


def _why_no_times(kept: RunResultKept, attempts: list[Attempt], times: Mapping[str, list[RunTime]]) -> str:
    if times:
        return ""
    if kept.run.status is RunStatus.RUNNING:
        return "tasks tell when they committed as they end"
    return "its tasks have not told when they committed: they died" if attempts else ""


def _dataset(row: RunDatasetRow, moments: _Moments) -> ReportedDataset:
    outcome, read = row.outcome, row.attempts
    return ReportedDataset(
        dataset=outcome.dataset,
        outcome=outcome.outcome,
        records=outcome.records,
        files=outcome.files,
        bytes_read=read.bytes_read,
        rejected=read.records_rejected,
        attempts=read.attempts,
        failed=read.failed,
        read_ms=read.ms,
        commit_ms=moments.commit_ms(outcome.dataset),
        visible_ms=moments.visible_ms(outcome.dataset),
        requests=moments.requests[outcome.dataset],
        kind=outcome.kind,
        reason=outcome.reason,
        not_passed=read.not_passed,
    )


def _shown(datasets: Iterable[ReportedDataset]) -> list[ReportedDataset]:
    """Those that did not go through first, then those of which most was read."""
    return sorted(datasets, key=lambda row: (not row.kind, -row.bytes_read, -row.records, row.dataset))[:MOST_DATASETS]


def _lags(ask: Callable[[Iterable[str]], Iterable[Lag]], urns: list[str]) -> tuple[dict[str, Lag], str]:
    try:
        found = {lag.dataset_urn: lag for lag in ask(urns)}
    except DistcommitError as error:
        return {}, str(error)
    return found, "" if found or not urns else "the source tells nothing of these datasets"


def _with_lag(row: ReportedDataset, lag: Lag | None) -> ReportedDataset:
    if lag is None:
        return row
    return msgspec.structs.replace(row, lag_records=lag.records, lag_seconds=lag.seconds)


def _bounds(run: RunRow, lanes: Iterable[Lane]) -> tuple[int, int]:
    known = [*lanes]
    began_ms = min(filter(None, (run.began_ms, *(lane.began_ms for lane in known))), default=0)
    return began_ms, max((run.ended_ms, began_ms, *(lane.ended_ms for lane in known)))


def _slowest_reads(attempts: Iterable[Attempt]) -> list[Slow]:
    slowest = sorted(attempts, key=lambda each: each.started_ms - each.finished_ms)[:SLOWEST]
    return [
        Slow(each.dataset, each.finished_ms - each.started_ms, each.records_read, each.work_unit) for each in slowest
    ]


def _slowest(datasets: Iterable[ReportedDataset], ms_of: Callable[[ReportedDataset], int | None]) -> list[Slow]:
    known = [Slow(row.dataset, ms, row.records) for row in datasets if (ms := ms_of(row)) is not None]
    return sorted(known, key=lambda each: -each.ms)[:SLOWEST]


def _skew(lanes: Sequence[Lane], attempts: Iterable[Attempt], datasets: Iterable[ReportedDataset]) -> list[Skew]:
    reading = [lane for lane in lanes if lane.reads]
    by_executor: Counter[str] = Counter()
    for lane in lanes:
        if lane.executor:
            by_executor[lane.executor] += lane.busy_ms
    found = (
        skew_of("an executor", "ms busy", by_executor.items()),
        skew_of("a task", "ms busy", ((lane.name, lane.busy_ms) for lane in reading)),
        skew_of("a task", "records", ((lane.name, lane.records) for lane in reading)),
        skew_of("a work unit", "ms", ((each.dataset, each.finished_ms - each.started_ms) for each in attempts)),
        skew_of("a dataset", "records", ((row.dataset, row.records) for row in datasets if row.records)),
        skew_of("a dataset", "bytes read", ((row.dataset, row.bytes_read) for row in datasets if row.bytes_read)),
    )
    return [each for each in found if each is not None]

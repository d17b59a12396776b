"""Reads the recorded runs of a job: their statuses, and the outcome of each dataset."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator
from enum import StrEnum
from typing import TypeVar

import msgspec

from distcommit.core.errors import ConfigurationError, DistcommitError
from distcommit.core.interfaces.clock import Clock
from distcommit.core.records.run_counts import COMMIT_COUNTS, RunCounts
from distcommit.core.records.run_outcome import RunOutcome
from distcommit.core.support.notebook_tables import NotebookTable
from distcommit.protocol.log_state import Fold
from distcommit.stores.history.attempt_counts import Attempt, count_attempts
from distcommit.stores.history.run_records import RunBeginning, RunRecord, read_beginning, read_record, recorded_epochs
from distcommit.stores.history.run_table import DatasetOutcome, TableRow, TaskRows, read_run_table
from distcommit.stores.state.job_lock import LockRecord, holders, is_alive, is_renewal_late
from distcommit.stores.state.job_store import JobStore

Stored = TypeVar("Stored")
DIED = "it died"


class RunStatus(StrEnum):
    """The status of a run."""

    PENDING = "PENDING"
    """The driver is alive and Spark starts; the run has no epoch yet."""
    RUNNING = "RUNNING"
    """The driver is alive and has not recorded the end of the run."""
    SUCCESSFUL = "SUCCESSFUL"
    """Everything planned was read, but some commits are not done. The next run replays them."""
    COMMITTED = "COMMITTED"
    FAILED = "FAILED"
    """The run could not continue, was fenced, died, or did not publish all datasets."""
    CANCELLED = "CANCELLED"


class RunRow(msgspec.Struct, frozen=True):
    """A recorded run.

    Attributes:
        epoch: epoch of the run; 0 if it has none yet, or died before it had one.
        run_id: id of the run, which sorts by time; empty if neither its begin record nor its end record can be read.
        status: status of the run.
        command: command that started the run, such as `expire 90d`; empty if unknown.
        requested_by: user or service that started the run; empty if unknown.
        host: host name of the driver; empty if unknown.
        began_ms: start in milliseconds since 1970; 0 if unknown.
        ended_ms: end in milliseconds since 1970; 0 while the run is alive, or if it died.
        datasets_published: number of datasets that the run published.
        datasets_unpublished: number of datasets that failed, were skipped, held back or postponed.
        records_published: records in published datasets.
        records_rejected: records rejected to error branches, in all attempts; 0 while the run is alive, or if it died.
        reason: why the run has its status; empty if the status explains itself.
        is_renewal_late: whether the run counts as alive although its lease was not renewed in time.
        is_dead: whether the driver is dead and has not recorded the end of the run.
        unreadable: whether the run's record is unreadable, so that its outcome is unknown.
    """

    epoch: int
    run_id: str
    status: RunStatus
    command: str = ""
    requested_by: str = ""
    host: str = ""
    began_ms: int = 0
    ended_ms: int = 0
    datasets_published: int = 0
    datasets_unpublished: int = 0
    records_published: int = 0
    records_rejected: int = 0
    reason: str = ""
    is_renewal_late: bool = False
    is_dead: bool = False
    unreadable: bool = False


class RunsResult(NotebookTable, msgspec.Struct, frozen=True):
    """The recorded runs of a job, newest first.

    Attributes:
        job: name of the job.
        store: path of the store.
        runs: runs without an epoch, then the others.
        failed_in_a_row: number of failed runs since the last run that did not fail; cancelled and live runs do not
            count.
    """

    job: str
    store: str
    runs: list[RunRow]
    failed_in_a_row: int


class RunDatasetRow(msgspec.Struct, frozen=True):
    """The outcome of a dataset in a run.

    Attributes:
        dataset: dataset URN.
        bucket: number of the bucket; -1 if the run recorded no outcome.
        outcome: outcome in the run; `read` if the run recorded none.
        counts: counters of the dataset, summed over all attempts.
        kind: kind of the failure that `reason` describes; empty without a failure.
        reason: why the dataset was not published; empty if it was.
    """

    dataset: str
    bucket: int
    outcome: DatasetOutcome
    counts: RunCounts
    kind: str = ""
    reason: str = ""


class RecordedRun(msgspec.Struct, frozen=True):
    """Everything that is recorded of a run.

    Attributes:
        run: summary of the run.
        beginning: begin record; None if it is missing or unreadable.
        record: end record; None if it is missing or unreadable.
        datasets: datasets of the run, those with a failure first.
        missing_datasets_reason: why `datasets` is empty or incomplete; empty if it is complete.
        unreadable: error of the first unreadable file of the run's table or task states; empty if all are readable.
    """

    run: RunRow
    beginning: RunBeginning | None
    record: RunRecord | None
    datasets: list[RunDatasetRow]
    missing_datasets_reason: str = ""
    unreadable: str = ""


def read_runs(store: JobStore, clock: Clock, *, newest: int = 0) -> RunsResult:
    """Return the recorded runs (with `newest`, only this number of them) and the runs without an epoch. Two small files
    are read for each run.
    """
    rows = list(_rows(store, clock, recorded_epochs(store.fs, store.roots.store)[-newest:]))
    return RunsResult(store.job, store.roots.store, rows, failed_in_a_row(rows))


def filter_runs(result: RunsResult, statuses: Collection[RunStatus], most: int) -> RunsResult:
    """Return the runs with the given statuses (empty: all runs), limited to the `most` newest (0: no limit)."""
    rows = [row for row in result.runs if not statuses or row.status in statuses]
    return msgspec.structs.replace(result, runs=rows[:most] if most else rows)


def failed_in_a_row(rows: Iterable[RunRow]) -> int:
    """Count the failed runs since the last run that did not fail. Live, cancelled and unreadable runs are skipped.

    Args:
        rows: the runs, newest first.
    """
    count = 0
    for row in rows:
        if row.status is RunStatus.FAILED and not row.unreadable:
            count += 1
        elif row.status in (RunStatus.COMMITTED, RunStatus.SUCCESSFUL):
            break
    return count


def read_run(
    store: JobStore,
    epoch: int,
    clock: Clock,
    on_attempt: Callable[[Attempt], None] = lambda _: None,
    on_task: Callable[[TaskRows], None] = lambda _: None,
) -> RecordedRun:
    """Return everything that is recorded of the run of an epoch.

    Args:
        on_attempt: called with each attempt at a work unit.
        on_task: called with the table rows of each task attempt.

    Raises:
        ConfigurationError: if nothing is recorded of a run of this epoch.
    """
    epochs = recorded_epochs(store.fs, store.roots.store)
    row = next((row for row in _rows(store, clock, epochs) if row.epoch == epoch and epoch > 0), None)
    if row is None:
        raise _unknown_run(store, epoch, epochs)
    fs, root = store.fs, store.roots.store
    beginning = _or_none(lambda: read_beginning(fs, root, epoch))
    record = _or_none(lambda: read_record(fs, root, epoch))
    datasets, unreadable = read_datasets(store, row.run_id, on_attempt, on_task)
    rows = sorted(datasets.values(), key=lambda row: (not row.kind, row.dataset))
    missing = "" if rows else "the run recorded none, or retention has deleted them"
    return RecordedRun(row, beginning, record, rows, unreadable or missing, unreadable)


def read_datasets(
    store: JobStore,
    run_id: str,
    on_attempt: Callable[[Attempt], None] = lambda _: None,
    on_task: Callable[[TaskRows], None] = lambda _: None,
) -> tuple[dict[str, RunDatasetRow], str]:
    """Return the datasets of a run by name, and the error of the first unreadable file; empty if all are readable.
    The callbacks are those of `read_run`.
    """
    fs, root = store.fs, store.roots.store
    outcomes, attempts = dict[str, TableRow](), dict[str, RunCounts]()
    commits, problems = defaultdict[str, RunCounts](RunCounts), list[str]()
    try:
        for rows in read_run_table(fs, root, run_id, lambda error: problems.append(str(error))):
            on_task(rows)
            for outcome in rows.outcomes:
                outcomes.setdefault(outcome.dataset, outcome)
            for row in rows.datasets:
                commits[row.dataset] += row.counts.only(*COMMIT_COUNTS)
        attempts = count_attempts(fs, root, run_id, on_attempt)
    except (DistcommitError, OSError) as error:
        problems.append(str(error))
    counts = {urn: attempts.get(urn, RunCounts()) + commits[urn] for urn in (*attempts, *outcomes)}
    datasets = {
        urn: RunDatasetRow(urn, row.bucket, row.outcome, row.counts + counts[urn], row.kind, row.reason)
        for urn, row in outcomes.items()
    }
    read_only = {urn: RunDatasetRow(urn, -1, DatasetOutcome.READ, counts[urn]) for urn in attempts}
    return read_only | datasets, next(iter(problems), "")


def newest_epoch(store: JobStore, clock: Clock) -> int:
    """Return the epoch of the newest recorded run. Raises ConfigurationError if no run is recorded."""
    rows = read_runs(store, clock, newest=1).runs
    result = next((row.epoch for row in rows if row.epoch), 0)
    if not result:
        raise ConfigurationError(
            "no run of the job is recorded",
            id="RUN_UNKNOWN",
            job=store.job,
            found="one that has no epoch yet" if rows else "none",
            todo="run the job, then give the command again",
        )
    return result


def _rows(store: JobStore, clock: Clock, epochs: list[int]) -> Iterable[RunRow]:
    """Return the runs without an epoch, then the runs with an epoch, newest first."""
    fs, root = store.fs, store.roots.store
    holders_by_run = holders(fs, root)
    living = {run_id: holder for run_id, holder in holders_by_run.items() if is_alive(holder, clock)}
    fold = _or_none(lambda: store.job_log().refresh())
    late = {run_id: holder for run_id, holder in living.items() if is_renewal_late(holder, clock)}
    rows = [_row(store, epoch, living, fold) for epoch in reversed(epochs)]
    if fold is not None and fold.fence_run_id in living and fold.fence_epoch not in epochs:
        # a rebuild, or a run that has not recorded its beginning yet
        holder = living[fold.fence_run_id]
        rows.insert(0, _without_record(RunRow(fold.fence_epoch, fold.fence_run_id, RunStatus.RUNNING), holder))
    run_ids = {row.run_id for row in rows}
    waiting = [holder for run_id, holder in living.items() if run_id not in run_ids]
    pending = [_without_record(RunRow(0, holder.run_id, RunStatus.PENDING), holder) for holder in waiting]
    pending += _dead_before_beginning(
        (holder for holder in holders_by_run.values() if holder.run_id not in living), rows, fold
    )
    return [
        msgspec.structs.replace(row, is_renewal_late=True, reason=_late_renewal_note(late[row.run_id], clock))
        if row.run_id in late and row.status in (RunStatus.RUNNING, RunStatus.PENDING)
        else row
        for row in (*pending, *rows)
    ]


def _without_record(row: RunRow, holder: LockRecord) -> RunRow:
    return msgspec.structs.replace(row, host=holder.host, reason=f"process {holder.pid} on {holder.host}")


def _dead_before_beginning(dead: Iterable[LockRecord], rows: Iterable[RunRow], fold: Fold | None) -> Iterator[RunRow]:
    """Yield runs that died before they had an epoch, if no later run has begun. Run ids sort by time."""
    newest = max((row.run_id for row in rows), default="")
    fenced = fold.fence_run_id if fold is not None else ""
    for holder in dead:
        if not holder.released and holder.run_id > newest and holder.run_id != fenced:
            reason = f"{DIED} before it had an epoch (process {holder.pid} on {holder.host}): it has sealed nothing"
            yield RunRow(0, holder.run_id, RunStatus.FAILED, host=holder.host, reason=reason, is_dead=True)


def _late_renewal_note(holder: LockRecord, clock: Clock) -> str:
    since_s = (clock.now_ms() - holder.renewed_ms) / 1000
    return (
        f"process {holder.pid} on {holder.host} has not renewed its lease for {since_s:,.0f} s, although renewal is due"
        f" after {holder.lease_ttl_s / 3:,.0f} s; it blocks other runs for {holder.lease_ttl_s - since_s:,.0f} s more"
    )


def _row(store: JobStore, epoch: int, living: dict[str, LockRecord], fold: Fold | None) -> RunRow:
    fs, root, problem = store.fs, store.roots.store, ""
    beginning, record = None, None
    try:
        beginning = read_beginning(fs, root, epoch)
        record = read_record(fs, root, epoch)
    except (DistcommitError, OSError) as error:
        problem = str(error)
    if record is None:
        run_id = beginning.run_id if beginning else ""
        status, reason = _of_unended(epoch, run_id, living, fold)
        row = RunRow(epoch, run_id, status, reason=reason, is_dead=status is RunStatus.FAILED)
        if problem and row.is_dead:
            row = msgspec.structs.replace(row, reason=problem, is_dead=False, unreadable=True)
    else:
        status, reason = _of_ended(record)
        row = RunRow(
            epoch,
            record.run_id,
            status,
            record.command,
            record.requested_by,
            began_ms=record.began_ms,
            ended_ms=record.ended_ms,
            datasets_published=record.totals.datasets_published,
            datasets_unpublished=_not_published(record.totals),
            records_published=record.totals.records_published,
            records_rejected=record.totals.records_rejected,
            reason=problem or reason,
        )
    if beginning is None:
        return row
    started = {"command": beginning.command, "requested_by": beginning.requested_by, "began_ms": beginning.began_ms}
    return msgspec.structs.replace(row, host=beginning.facts.host, **started)


def _not_published(counts: RunCounts) -> int:
    return counts.datasets_failed + counts.datasets_skipped + counts.datasets_held + counts.sequences_postponed


_REASONS_OF_MISSING_COMMITS = {"outage", "left pending", "left unpublished"}


def _of_unended(epoch: int, run_id: str, living: dict[str, LockRecord], fold: Fold | None) -> tuple[RunStatus, str]:
    newer = fold.fence_epoch if fold is not None and fold.fence_epoch > epoch else 0
    if run_id in living:
        return RunStatus.RUNNING, f"fenced by epoch {newer}: it can seal nothing more" if newer else ""
    return RunStatus.FAILED, f"{DIED}: it is not alive, and has recorded no end"


def _of_ended(record: RunRecord) -> tuple[RunStatus, str]:
    match record.outcome:
        case RunOutcome.SUCCEEDED:
            return RunStatus.COMMITTED, record.error
        case RunOutcome.INTERRUPTED:
            return RunStatus.CANCELLED, record.error or "by a signal"
        case RunOutcome.INCOMPLETE if _all_was_read(record):
            return RunStatus.SUCCESSFUL, record.error or "not all could be committed: the next run replays it"
        case RunOutcome.HELD_BACK:
            return RunStatus.FAILED, record.error or "not all datasets of the all-or-nothing job could be published"
        case RunOutcome.FENCED:
            return RunStatus.FAILED, "a newer run took over"
    reasons = record.reasons.entries
    first = f"{reasons[0].subject}: {reasons[0].kind}: {reasons[0].text}" if reasons else ""
    published = record.totals.datasets_published
    committed_note = (
        f"{published:,} {'dataset was' if published == 1 else 'datasets were'} committed; " if published else ""
    )
    return RunStatus.FAILED, record.error or f"{committed_note}{first}"


def _all_was_read(record: RunRecord) -> bool:
    counts = record.totals
    failures = counts.datasets_failed + counts.datasets_skipped + counts.datasets_partial
    return (
        counts.datasets_planned > 0
        and counts.sequences_postponed > 0
        and not failures + counts.datasets_quarantined + counts.datasets_held
        and not record.error
        and not record.reasons.omitted_count
        and all(reason.kind in _REASONS_OF_MISSING_COMMITS for reason in record.reasons.entries)
    )


def _unknown_run(store: JobStore, epoch: int, kept: list[int]) -> ConfigurationError:
    newest = store.job_log().refresh().fence_epoch
    expected = "an epoch that `distcommit runs JOB.yaml` lists"
    if kept and 0 < epoch < kept[0]:
        actual = f"none: records begin with epoch {kept[0]}; retention has deleted older ones"
    elif epoch > newest:
        actual = f"none: the newest epoch is {newest}"
    else:
        actual = "none: the epoch was not a run's, or its run could not write one"
    return ConfigurationError(
        "there is no record of that run", id="RUN_UNKNOWN", epoch=epoch, expected=expected, found=actual
    )


def _or_none(read: Callable[[], Stored | None]) -> Stored | None:
    try:
        return read()
    except (DistcommitError, OSError):
        return None

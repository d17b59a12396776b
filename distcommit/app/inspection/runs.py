"""The recorded runs of a job, and the outcome of each dataset in a run."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from enum import StrEnum
from typing import TypeVar

import msgspec

from distcommit.core.errors import ConfigurationError, DistcommitError
from distcommit.core.ports import Clock
from distcommit.core.run_outcome import RunOutcome
from distcommit.core.support.notebook import NotebookTable
from distcommit.protocol.fold import Fold
from distcommit.stores.history.attempt_counts import Attempt, AttemptCounts, count_attempts
from distcommit.stores.history.run_datasets import RunDataset, read_run_datasets
from distcommit.stores.history.run_records import RunBeginning, RunRecord, read_beginning, read_record, recorded_epochs
from distcommit.stores.state.job_lock import LockRecord, holders, is_alive, is_overdue
from distcommit.stores.state.job_store import JobStore

Kept = TypeVar("Kept")
DIED = "it died"


class RunStatus(StrEnum):
    """The status of a run."""

    PENDING = "PENDING"
    """It is alive and has no epoch yet: Spark starts."""
    RUNNING = "RUNNING"
    """It is alive and has not recorded its end."""
    SUCCESSFUL = "SUCCESSFUL"
    """All that it planned was read, but not all was committed. The next run replays the rest."""
    COMMITTED = "COMMITTED"
    """All that it planned is committed."""
    FAILED = "FAILED"
    """It could not continue, was fenced, died, or not all datasets were published."""
    CANCELLED = "CANCELLED"
    """A signal or an operator ended it."""


class RunRow(msgspec.Struct, frozen=True):
    """One run."""

    epoch: int
    """0 if it has none."""
    run_id: str
    status: RunStatus
    command: str = ""
    who: str = ""
    host: str = ""
    began_ms: int = 0
    """0 if unknown."""
    ended_ms: int = 0
    """0 if unknown, or while it is alive."""
    datasets_published: int = 0
    datasets_not: int = 0
    """How many datasets were not published."""
    records_published: int = 0
    reason: str = ""
    """Of its status, or why its record can't be read."""
    overdue: bool = False
    """Whether it counts as alive although its lease was not renewed in time."""
    died: bool = False
    """Whether it is not alive and has not recorded its end."""
    unreadable: bool = False
    """Whether its record can't be read, so that its outcome is unknown."""


class RunsResult(NotebookTable, msgspec.Struct, frozen=True):
    """The recorded runs of a job, newest first."""

    job: str
    store: str
    runs: list[RunRow]
    failed_in_a_row: int
    """How many of the newest runs failed, without counting cancelled ones."""


class RunDatasetRow(msgspec.Struct, frozen=True):
    """The outcome of a dataset in a run, and what its attempts read."""

    outcome: RunDataset
    attempts: AttemptCounts


class RecordedRun(msgspec.Struct, frozen=True):
    """The records of one run."""

    run: RunRow
    beginning: RunBeginning | None
    record: RunRecord | None
    datasets: list[RunDatasetRow]
    not_kept: str = ""
    """Why nothing is recorded of its datasets."""


def read_runs(store: JobStore, clock: Clock, *, newest: int = 0) -> RunsResult:
    """Return all recorded runs, or the `newest`. Two small files are read for each."""
    rows = list(_rows(store, clock, recorded_epochs(store.fs, store.roots.store)[-newest:]))
    return RunsResult(store.job, store.roots.store, rows, failed_in_a_row(rows))


def filter_runs(result: RunsResult, statuses: Collection[RunStatus], most: int) -> RunsResult:
    """Return the runs of these statuses (of all if none is given), `most` at most (0: all)."""
    rows = [row for row in result.runs if not statuses or row.status in statuses]
    return msgspec.structs.replace(result, runs=rows[:most] if most else rows)


def failed_in_a_row(rows: Iterable[RunRow]) -> int:
    """Count the failed runs since the last one that did not fail. Live and cancelled runs, and those with an unreadable
    record, are skipped.

    Args:
        rows: newest first.
    """
    count = 0
    for row in rows:
        if row.status is RunStatus.FAILED and not row.unreadable:
            count += 1
        elif row.status in (RunStatus.COMMITTED, RunStatus.SUCCESSFUL):
            break
    return count


def read_run(
    store: JobStore, epoch: int, clock: Clock, noted: Callable[[Attempt], None] = lambda _: None
) -> RecordedRun:
    """Return the records of the run of an epoch.

    Args:
        store: the job's.
        epoch: the run's.
        clock: to determine whether it is alive.
        noted: called with each attempt at one of its work units.

    Raises:
        ConfigurationError: if nothing is recorded of such a run.
    """
    kept = recorded_epochs(store.fs, store.roots.store)
    row = next((row for row in _rows(store, clock, kept) if row.epoch == epoch and epoch > 0), None)
    if row is None:
        raise _no_such_run(store, epoch, kept)
    fs, root = store.fs, store.roots.store
    beginning = _or_none(lambda: read_beginning(fs, root, epoch))
    record = _or_none(lambda: read_record(fs, root, epoch))
    datasets: dict[str, RunDataset] = {}
    not_kept = ""
    try:
        for rows in read_run_datasets(fs, root, row.run_id):
            datasets = {found.dataset: found for found in rows} | datasets
        attempts = count_attempts(fs, root, row.run_id, noted)
    except DistcommitError as error:
        not_kept, attempts = str(error), {}
    if not datasets and not attempts and not not_kept:
        not_kept = "the run recorded none, or retention has deleted them"
    nothing = AttemptCounts()
    read_only = {urn: RunDataset(urn, -1, "read") for urn in attempts if urn not in datasets}
    rows_of = [RunDatasetRow(each, attempts.get(urn, nothing)) for urn, each in (datasets | read_only).items()]
    rows_of.sort(key=lambda each: (not each.outcome.kind, each.outcome.dataset))
    return RecordedRun(row, beginning, record, rows_of, not_kept)


def newest_epoch(store: JobStore, clock: Clock) -> int:
    """Return the epoch of the newest recorded run.

    Raises:
        ConfigurationError: if there is none.
    """
    rows = read_runs(store, clock, newest=1).runs
    found = next((row.epoch for row in rows if row.epoch), 0)
    if not found:
        raise ConfigurationError(
            "no run of the job is recorded",
            id="RUN_UNKNOWN",
            job=store.job,
            found="one that has no epoch yet" if rows else "none",
            todo="run the job, then give the command again",
        )
    return found


def _rows(store: JobStore, clock: Clock, epochs: list[int]) -> Iterable[RunRow]:
    """Return runs without an epoch that are alive or died, then a row for each epoch, newest first."""
    fs, root = store.fs, store.roots.store
    held = holders(fs, root)
    living = {run_id: holder for run_id, holder in held.items() if is_alive(holder, clock)}
    fold = _or_none(lambda: store.job_log().refresh())
    overdue = {run_id: _overdue(holder, clock) for run_id, holder in living.items() if is_overdue(holder, clock)}
    found = [_row(store, epoch, living, fold) for epoch in reversed(epochs)]
    if fold is not None and fold.fence_run_id in living and fold.fence_epoch not in epochs:
        # a rebuild, or a run that has not recorded its beginning yet
        holder = living[fold.fence_run_id]
        found.insert(0, _without_record(RunRow(fold.fence_epoch, fold.fence_run_id, RunStatus.RUNNING), holder))
    known = {row.run_id for row in found}
    waiting = [holder for run_id, holder in living.items() if run_id not in known]
    pending = [_without_record(RunRow(0, holder.run_id, RunStatus.PENDING), holder) for holder in waiting]
    pending += _died_early((holder for holder in held.values() if holder.run_id not in living), found, fold)
    return [
        msgspec.structs.replace(row, overdue=True, reason=overdue[row.run_id])
        if row.run_id in overdue and row.status in (RunStatus.RUNNING, RunStatus.PENDING)
        else row
        for row in (*pending, *found)
    ]


def _without_record(row: RunRow, holder: LockRecord) -> RunRow:
    """Name the process by the lock's record."""
    return msgspec.structs.replace(row, host=holder.host, reason=f"process {holder.pid} on {holder.host}")


def _died_early(dead: Iterable[LockRecord], found: Iterable[RunRow], fold: Fold | None) -> Iterator[RunRow]:
    """Yield runs that died before they had an epoch and after which no other has begun. Run ids sort by time."""
    newest = max((row.run_id for row in found), default="")
    fenced = fold.fence_run_id if fold is not None else ""
    for holder in dead:
        if not holder.released and holder.run_id > newest and holder.run_id != fenced:
            reason = f"{DIED} before it had an epoch (process {holder.pid} on {holder.host}): it has sealed nothing"
            yield RunRow(0, holder.run_id, RunStatus.FAILED, host=holder.host, reason=reason, died=True)


def _overdue(holder: LockRecord, clock: Clock) -> str:
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
        row = RunRow(epoch, run_id, status, reason=reason, died=status is RunStatus.FAILED)
        if problem and row.died:
            row = msgspec.structs.replace(row, reason=problem, died=False, unreadable=True)
    else:
        status, reason = _of_ended(record)
        row = RunRow(
            epoch,
            record.run_id,
            status,
            record.command,
            record.who,
            began_ms=record.began_ms,
            ended_ms=record.ended_ms,
            datasets_published=record.totals.get("datasets_published", 0),
            datasets_not=sum(record.totals.get(name, 0) for name in _NOT_PUBLISHED),
            records_published=record.totals.get("records_published", 0),
            reason=problem or reason,
        )
    if beginning is None:
        return row
    begun = {"command": beginning.command, "who": beginning.who, "began_ms": beginning.began_ms}
    return msgspec.structs.replace(row, host=beginning.facts.host, **begun)


_NOT_PUBLISHED = ("datasets_failed", "datasets_skipped", "datasets_held", "sequences_left")
_ONLY_LEFT = {"outage", "left pending", "left unpublished"}


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
            return (
                RunStatus.FAILED,
                record.error or "not all datasets of the all-or-nothing job could be published",
            )
        case RunOutcome.FENCED:
            return RunStatus.FAILED, "a newer run took over"
    reasons = record.reasons.kept
    first = f"{reasons[0].subject}: {reasons[0].kind}: {reasons[0].text}" if reasons else ""
    published = record.totals.get("datasets_published", 0)
    others = f"{published:,} {'dataset was' if published == 1 else 'datasets were'} committed; " if published else ""
    return RunStatus.FAILED, record.error or f"{others}{first}"


def _all_was_read(record: RunRecord) -> bool:
    """Return whether only commits are missing of what the run had planned."""
    failures = ("datasets_failed", "datasets_skipped", "datasets_partial", "datasets_quarantined", "datasets_held")
    counts = record.totals
    return (
        counts.get("datasets_planned", 0) > 0
        and counts.get("sequences_left", 0) > 0
        and not any(counts.get(name, 0) for name in failures)
        and not record.error
        and not record.reasons.left_out
        and all(reason.kind in _ONLY_LEFT for reason in record.reasons.kept)
    )


def _no_such_run(store: JobStore, epoch: int, kept: list[int]) -> ConfigurationError:
    newest = store.job_log().refresh().fence_epoch
    expected = "an epoch that `distcommit runs JOB.yaml` lists"
    if kept and 0 < epoch < kept[0]:
        found = f"none: records begin with epoch {kept[0]}; retention has deleted older ones"
    elif epoch > newest:
        found = f"none: the newest epoch is {newest}"
    else:
        found = "none: the epoch was not a run's, or its run could not write one"
    return ConfigurationError(
        "there is no record of that run", id="RUN_UNKNOWN", epoch=epoch, expected=expected, found=found
    )


def _or_none(read: Callable[[], Kept | None]) -> Kept | None:
    try:
        return read()
    except (DistcommitError, OSError):
        return None

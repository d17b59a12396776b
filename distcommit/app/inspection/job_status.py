"""Computes the status of a job from its logs: the newest run, and the state of each dataset."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

import msgspec

from distcommit.app.inspection.problems.problem_kind import Problem
from distcommit.app.inspection.recorded_runs import RunRow
from distcommit.app.inspection.work_unit_rows import WorkUnitRow, rows_of_previous_run
from distcommit.core.errors import DistcommitError
from distcommit.core.interfaces.source_table import Extract
from distcommit.core.records.log_records import DatasetState, DatasetStatus
from distcommit.core.support.notebook_tables import NotebookTable
from distcommit.core.support.parallel import run_parallel
from distcommit.core.watermark import Position
from distcommit.core.work_units import SchemaIds, describe_lost_ranges, positions_lost
from distcommit.protocol.log_state import Fold
from distcommit.stores.history.run_records import RunRecord, read_record
from distcommit.stores.logs.log_anchors import require_head
from distcommit.stores.snapshots.expiry_requests import ExpiryRequest
from distcommit.stores.state.damaged_files import is_damaged, unreadable_files
from distcommit.stores.state.job_store import JobStore


class NextRun(StrEnum):
    """The effect of the next run on the sealed sequence of a dataset."""

    NOTHING = ""
    REPLAYS = "replays"
    DROPS = "drops"
    """The run that sealed the sequence did not decide to publish it. The next run reads its records again."""
    UNDECIDED = "drops unless decided"
    """Like DROPS, but the run that sealed the sequence may be alive and may still decide to publish it."""
    UNKNOWN = "unknown"
    """The sequence was held, and the job log, which would record the decision, is unreadable."""


class DatasetStatusRow(msgspec.Struct, frozen=True):
    """The state of a dataset in its bucket log.

    Attributes:
        dataset: dataset URN.
        status: `stopped` if too many runs in a row could not read the dataset; otherwise the status in the bucket log.
        positions: committed positions by partition; empty if nothing was committed.
        incarnation: incarnation of `positions`, such as a Kafka topic id; empty if the source has none.
        done_epoch: epoch of the newest published sequence; 0 without one.
        pending_epoch: epoch of the sealed sequence that is not closed; 0 without one.
        pending_records: records in that sequence.
        failed_runs: runs that could not replay the sealed sequence; without a sequence, runs that could not read the
            dataset.
        reason: why the sequence is not closed, or the dataset could not be read; empty if neither applies.
        positions_lost: number of positions that were skipped as lost.
        outage: whether `reason` is an outage of the target or source. Outages do not count as failed runs.
        next_run: effect of the next run on the sealed sequence.
        published_in: location of the dataset's records; empty if the sink reports none.
        schemas: ids of the current schemas, by converter.
        extract: table that the dataset is an extract of, as the job file describes it; None for other datasets.
        done_records: records in the sequence of `done_epoch`.
        done_files: files in the sequence of `done_epoch`.
        is_set_since_run: whether, since the newest run began, an operator has set the watermark or abandoned the
            sequence.
        skipped: first hundred ranges of positions that were skipped as lost, each with the reason.
        previous_epoch: epoch of the newest run that committed the dataset or failed to read it; 0 if it is unknown.
        work_units: results of the first fifty work units of that run, with the properties that they recorded. Work
            units that were not committed come first.
        work_units_omitted: number of further work units of that run.
    """

    dataset: str
    status: str
    positions: dict[str, Position]
    incarnation: str
    done_epoch: int
    pending_epoch: int
    pending_records: int
    failed_runs: int
    reason: str
    positions_lost: int
    outage: bool = False
    next_run: NextRun = NextRun.NOTHING
    published_in: str = ""
    schemas: SchemaIds = {}
    extract: Extract | None = None
    done_records: int = 0
    done_files: int = 0
    is_set_since_run: bool = False
    skipped: list[str] = []
    previous_epoch: int = 0
    work_units: list[WorkUnitRow] = []
    work_units_omitted: int = 0


class StatusResult(NotebookTable, msgspec.Struct, frozen=True):
    """The status of a job.

    Attributes:
        job: name of the job.
        store: path of the store.
        buckets: number of buckets in the current generation.
        epoch: epoch of the newest run; 0 before the first run, or if the job log is unreadable.
        run_id: id of the newest run; empty if `epoch` is 0.
        datasets: all datasets; if idle ones are not requested, only those that are not idle, could not be read, or were
            changed by an operator since the newest run began.
        unreadable: errors by the name of a log or file: unreadable ones, and logs that lost their newest segments.
        last_run: end record of the newest run; None if it is missing or unreadable.
        no_record: why `last_run` is None although a run has begun; empty otherwise.
        generation: generation of the bucket logs, which starts at 0 and grows with each move to other buckets.
        moving_to: number of buckets to which an unfinished `distcommit store rebucket` moves the job; 0 otherwise.
        is_job_level: whether a run publishes all datasets or none.
        counts: number of datasets by status, including those that are not listed.
        positions_lost: number of positions that were skipped as lost, of all datasets.
        runs: newest recorded runs, newest first.
        failed_in_a_row: number of failed runs since the last run that did not fail, of the newest 20.
        problems: present problems of the job, the most blocking first.
        datasets_omitted: number of datasets that are not idle, or could not be read, and are missing in `datasets`.
        is_unfinished: whether the newest run has no end record because it has not ended.
        damaged: names in `unreadable` whose files exist and are damaged.
        paused_by: user who suspended scheduled runs; empty if they are not suspended.
        expiry_request: newest request to expire files; None without one.
        datasets_unreadable: number of idle datasets that the newest run could not read.
    """

    job: str
    store: str
    buckets: int
    epoch: int
    run_id: str
    datasets: list[DatasetStatusRow]
    unreadable: dict[str, str]
    last_run: RunRecord | None = None
    no_record: str = ""
    generation: int = 0
    moving_to: int = 0
    is_job_level: bool = False
    counts: dict[str, int] = {}
    positions_lost: int = 0
    runs: list[RunRow] = []
    failed_in_a_row: int = 0
    problems: list[Problem] = []
    datasets_omitted: int = 0
    is_unfinished: bool = False
    damaged: list[str] = []
    paused_by: str = ""
    expiry_request: ExpiryRequest | None = None
    datasets_unreadable: int = 0


JOB_LOG = "job log"
BUCKET = "bucket "
"""The name of a bucket log is this prefix and the number of the bucket."""
WORST_FIRST_STATUSES = ("quarantined", "revoking", "stopped", "pending", "read-failed", "idle")
"""All statuses of datasets, the most severe first."""
WAITING = ("quarantined", "revoking", "stopped")
"""Statuses in which no run plans a dataset until an operator releases it."""


def status_of(row: DatasetStatusRow) -> str:
    """Return the status of a dataset to show: `read-failed` if it is idle and could not be read, otherwise
    `row.status`.
    """
    return "read-failed" if row.status == "idle" and row.reason else row.status


def waiting(result: StatusResult) -> list[list[DatasetStatusRow]]:
    """Return the datasets that an operator must release, grouped by status and reason."""
    groups: dict[tuple[str, str], list[DatasetStatusRow]] = {}
    for row in result.datasets:
        if row.status in WAITING:
            groups.setdefault((row.status, row.reason.replace(row.dataset, "*")), []).append(row)
    return list(groups.values())


def listed(result: StatusResult, *, show_all: bool, most: int) -> StatusResult:
    """Return the status with the datasets that a terminal shows. Datasets that are not idle, or could not be read, come
    first.

    Args:
        show_all: include all datasets.
        most: without `show_all`, the maximum number of datasets; idle ones that could be read are left out.
    """
    busy = sorted(
        (row for row in result.datasets if status_of(row) != "idle"),
        key=lambda row: WORST_FIRST_STATUSES.index(status_of(row)),
    )
    if not show_all:
        return msgspec.structs.replace(result, datasets=busy[:most], datasets_omitted=max(0, len(busy) - most))
    idle = [row for row in result.datasets if status_of(row) == "idle"]
    return msgspec.structs.replace(result, datasets=[*busy, *idle])


def read_status(
    store: JobStore,
    published_in: Callable[[str], str] = lambda _: "",
    extract_of: Callable[[str], Extract | None] = lambda _: None,
    *,
    whole_job: bool = False,
    idle: bool = True,
) -> StatusResult:
    """Return the status of a job from its logs, without recorded runs, problems and requests. This takes O(buckets)
    reads, whatever the length of the history.

    Args:
        published_in: returns the location of a dataset's records.
        extract_of: returns the database table from which a dataset is extracted.
        whole_job: whether a run publishes all datasets or none.
        idle: include idle datasets that could be read; otherwise only count them.
    """
    unreadable: dict[str, str] = {}
    job_fold: Fold | None = None
    is_damaged_log = False
    try:
        job_fold = store.job_log().refresh()
    except (DistcommitError, OSError) as error:
        unreadable[JOB_LOG], is_damaged_log = str(error), is_damaged(error)
    reader = _BucketReader(store, job_fold, published_in, extract_of, idle)
    buckets = run_parallel(store.fs.parallel_buckets, reader.read, range(store.buckets))
    rows = [row for bucket in buckets for row in bucket.rows]
    damaged = [JOB_LOG] if job_fold is None and is_damaged_log else []
    for file in unreadable_files(store):
        unreadable[file.name] = file.error
        damaged += [file.name] if file.is_damaged else []
    unreadable |= {f"{BUCKET}{number}": bucket.unreadable for number, bucket in enumerate(buckets) if bucket.unreadable}
    counts = Counter(row.status for row in rows)
    counts["idle"] += sum(bucket.not_listed for bucket in buckets)
    last_run, no_record = _last_run(store, job_fold)
    return StatusResult(
        job=store.job,
        store=store.roots.store,
        buckets=store.buckets,
        epoch=job_fold.fence_epoch if job_fold else 0,
        run_id=job_fold.fence_run_id if job_fold else "",
        datasets=sorted(rows, key=lambda row: row.dataset),
        unreadable=unreadable,
        last_run=last_run,
        no_record=no_record,
        generation=store.generation,
        moving_to=job_fold.under_way.buckets if job_fold and job_fold.under_way else 0,
        is_job_level=whole_job,
        counts={status: count for status, count in counts.items() if count},
        datasets_unreadable=sum(1 for row in rows if status_of(row) == "read-failed"),
        positions_lost=sum(bucket.positions_lost for bucket in buckets),
        damaged=[*damaged, *(f"{BUCKET}{number}" for number, bucket in enumerate(buckets) if bucket.is_damaged)],
        is_unfinished=job_fold is not None and job_fold.fence_epoch > 0 and last_run is None and not job_fold.has_ended,
    )


@dataclass(slots=True)
class _Bucket:
    rows: list[DatasetStatusRow]
    not_listed: int = 0
    positions_lost: int = 0
    unreadable: str = ""
    is_damaged: bool = False


@dataclass(frozen=True, slots=True)
class _BucketReader:
    """A reader of the bucket logs. `job_fold` is None if the job log is unreadable."""

    store: JobStore
    job_fold: Fold | None
    published_in: Callable[[str], str]
    extract_of: Callable[[str], Extract | None]
    idle: bool

    def read(self, bucket: int) -> _Bucket:
        seen, job_fold = _Bucket([]), self.job_fold
        try:
            log = self.store.bucket_log(bucket)
            for urn, state in log.refresh().datasets.items():
                seen.positions_lost += positions_lost(state.skipped) if state.skipped else 0
                if self.idle or not _is_plain(state, job_fold):
                    seen.rows.append(_row(state, job_fold, self.published_in(urn), self.extract_of(urn)))
                else:
                    seen.not_listed += 1
            if job_fold is not None and job_fold.generation == self.store.generation:
                require_head(job_fold, bucket, log)
        except (DistcommitError, OSError) as error:
            seen.unreadable = str(error) or type(error).__name__
            seen.is_damaged = is_damaged(error)
        return seen


def _is_plain(state: DatasetState, job_fold: Fold | None) -> bool:
    return state.open is None and state.read_failure is None and not _is_set_since_run(state, job_fold)


def _is_set_since_run(state: DatasetState, job_fold: Fold | None) -> bool:
    newest_epoch = job_fold.fence_epoch if job_fold else 0
    return state.open is None and state.done_epoch < state.closed_epoch == newest_epoch


def _last_run(store: JobStore, job_fold: Fold | None) -> tuple[RunRecord | None, str]:
    if job_fold is None or not job_fold.fence_epoch:
        return None, ""
    try:
        record = read_record(store.fs, store.roots.store, job_fold.fence_epoch)
    except (DistcommitError, OSError) as error:
        return None, str(error)
    if record is not None:
        return record, ""
    return None, "it ended, and left none" if job_fold.has_ended else "it is under way, or it died"


def _next_run(state: DatasetState, job_fold: Fold | None) -> NextRun:
    if state.open is None or state.status is not DatasetStatus.PENDING:
        return NextRun.NOTHING
    if not state.open.held:
        return NextRun.REPLAYS
    if job_fold is None:
        return NextRun.UNKNOWN
    if state.open.sequence.epoch in job_fold.decided_epochs:
        return NextRun.REPLAYS
    newest = state.open.sequence.epoch >= job_fold.fence_epoch  # above it: a run that began after the job log was read
    may_decide = newest and not (state.open.sequence.epoch == job_fold.fence_epoch and job_fold.has_ended)
    return NextRun.UNDECIDED if may_decide else NextRun.DROPS


def _row(state: DatasetState, job_fold: Fold | None, published_in: str, extract: Extract | None) -> DatasetStatusRow:
    watermark, sealed, previous = state.watermark, state.open, state.previous_run
    failure = state.read_failure if sealed is None else None
    return DatasetStatusRow(
        dataset=state.dataset_urn,
        status="stopped" if state.is_stopped else state.status.value,
        positions=dict(watermark.positions) if watermark else {},
        incarnation=watermark.incarnation if watermark else "",
        done_epoch=state.done_epoch,
        pending_epoch=sealed.sequence.epoch if sealed else 0,
        pending_records=sealed.sequence.records if sealed else 0,
        failed_runs=failure.failed_runs if failure else len(state.tried_epochs),
        reason=failure.reason if failure else state.reason,
        positions_lost=positions_lost(state.skipped),
        outage=sealed.outage if sealed else failure is not None and failure.outage,
        next_run=_next_run(state, job_fold),
        published_in=published_in,
        schemas=state.schemas,
        done_records=state.done_records,
        done_files=state.done_files,
        extract=extract,
        is_set_since_run=_is_set_since_run(state, job_fold),
        skipped=describe_lost_ranges(state.skipped),
        previous_epoch=previous.epoch if previous else 0,
        work_units=rows_of_previous_run(state.dataset_urn, previous),
        work_units_omitted=previous.omitted_count if previous else 0,
    )

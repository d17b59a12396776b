"""What is stored of a job: its runs' newest epoch, and each dataset's state."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

import msgspec

from distcommit.app.inspection.runs import RunRow
from distcommit.core.errors import DistcommitError
from distcommit.core.interfaces.extract import Extract
from distcommit.core.records.log_records import DatasetState, DatasetStatus
from distcommit.core.support.notebook import Shown
from distcommit.core.support.parallel import in_flight
from distcommit.core.watermark import Position
from distcommit.core.work import SchemaIds, lost_ranges, positions_lost
from distcommit.protocol.fold import Fold
from distcommit.stores.history.run_records import RunRecord, read_record
from distcommit.stores.logs.log_anchors import require_head
from distcommit.stores.snapshots.expiry_cutoffs import RetentionHorizon
from distcommit.stores.state.damaged_files import is_damaged, unreadable_files
from distcommit.stores.state.job_store import JobStore


class NextRun(StrEnum):
    """What the next run does with the sequence that a dataset has.

    NOTHING: a person does, or there is none. DROPS: it was held back with its whole run, which has not decided to
    publish it; its records are read again. UNDECIDED: the same, but its run may be alive and may still decide. UNKNOWN:
    it was held back, and the job log, which says whether it was decided, can't be read.
    """

    NOTHING = ""
    REPLAYS = "replays"
    DROPS = "drops"
    UNDECIDED = "drops unless decided"
    UNKNOWN = "unknown"


class DatasetStatusRow(msgspec.Struct, frozen=True):
    """One dataset: where it stands, how far it is, why it does not go on, and how much its source had lost.

    `status` is `stopped` if no run plans it, since too many could not read it. `failed_runs`: how many could not replay
    its sequence or, where it has none, read it. `outage`: the reason is one of its target, or source, which counts as
    nobody's failed run. `published_in`: where its records are, if its sink says. `schemas`: the ids of their schemas,
    by the converter that they are known to. `done_records`, `done_files`: what was committed last. `extract`: the table
    that it is an extract of, as the job file says it. `set_since`: whether a person has set its watermark, or undone
    its sequence, since the newest run began. `skipped`: the first hundred ranges of positions that were
    given up, and why.
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
    set_since: bool = False
    skipped: list[str] = []


class Trouble(msgspec.Struct, frozen=True):
    """`what` is wrong, and the `command` that resolves it or, if only a person can say what is to be done, shows more.
    `datasets`: how many it is about, 0 if it is about the job. `mend`: what `distcommit store repair` does about it: an
    action (rebucket, rebuild, abandon, recover), with its words; empty: that is a person's, or the next
    run's."""

    what: str
    command: str
    datasets: int = 0
    mend: tuple[str, ...] = ()


class StatusResult(Shown, msgspec.Struct, frozen=True):
    """A job's state. `datasets`: all of them, or all but those that are idle and of which there is nothing to be said.
    `unreadable` names logs that can't be read, or that have lost their newest segments, and files beside them, with the
    error; `damaged` those of them that are there, and not as they were written. Without the job log `epoch` is 0.

    `last_run`: what the run of that epoch left of itself when it ended, and `no_record`: why there is nothing of it;
    `unended`: whether that is because it has not come to its end.
    `whole_job`: whether a run publishes all datasets or none. `generation`: of the bucket logs; `moving_to`: how many
    buckets there are to be, if a move to that is under way. `counts`: datasets by status; `unread`: how many of
    the idle ones could not be read; `positions_lost`: of all. `runs`: the newest ones that are kept; `failed_in_a_row`:
    of the newest, counted no further back than twenty.
    `troubles`: what is wrong. `left_out`: of rows that are not idle, as many as are not among `datasets`.
    `paused_by`: who lets no service run the job by its schedule, empty if nobody. `retained`: what retention was asked
    for last.
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
    whole_job: bool = False
    counts: dict[str, int] = {}
    positions_lost: int = 0
    runs: list[RunRow] = []
    failed_in_a_row: int = 0
    troubles: list[Trouble] = []
    left_out: int = 0
    unended: bool = False
    damaged: list[str] = []
    paused_by: str = ""
    retained: RetentionHorizon | None = None
    unread: int = 0


JOB_LOG = "job log"
BUCKET = "bucket "
"""What the name of a bucket's log begins with; behind it comes the bucket's number."""
WORST_FIRST = ("quarantined", "revoking", "stopped", "pending", "unread", "idle")
"""How datasets may stand, as `standing` has it."""
WAITING = ("quarantined", "revoking", "stopped")
"""Those that no run goes on with, until a person says how."""


def standing(row: DatasetStatusRow) -> str:
    """Its status; `unread` of one that is idle, and could not be read."""
    return "unread" if row.status == "idle" and row.reason else row.status


def waiting(result: StatusResult) -> list[list[DatasetStatusRow]]:
    """Datasets that wait for a person, those with one status and reason together."""
    groups: dict[tuple[str, str], list[DatasetStatusRow]] = {}
    for row in result.datasets:
        if row.status in WAITING:
            groups.setdefault((row.status, row.reason.replace(row.dataset, "*")), []).append(row)
    return list(groups.values())


def listed(result: StatusResult, *, show_all: bool, most: int) -> StatusResult:
    """The same with the rows that people look at: of datasets that are not idle, or could not be read, the worst; with
    `show_all` all, these in front."""
    busy = sorted(
        (row for row in result.datasets if standing(row) != "idle"), key=lambda row: WORST_FIRST.index(standing(row))
    )
    if not show_all:
        return msgspec.structs.replace(result, datasets=busy[:most], left_out=max(0, len(busy) - most))
    idle = [row for row in result.datasets if standing(row) == "idle"]
    return msgspec.structs.replace(result, datasets=[*busy, *idle])


def read_status(
    store: JobStore,
    published_in: Callable[[str], str] = lambda _: "",
    extract_of: Callable[[str], Extract | None] = lambda _: None,
    *,
    whole_job: bool = False,
    idle: bool = True,
) -> StatusResult:
    """Folds all logs: O(buckets) reads, whatever the history.

    Args:
        store: the job's.
        published_in: says where a dataset's records are, and
        extract_of: of what it is an extract.
        whole_job: whether a run publishes all datasets or none.
        idle: whether datasets are listed of which there is nothing to be said; else they are counted alone.
    """
    unreadable: dict[str, str] = {}
    job_fold: Fold | None = None
    is_damaged_log = False
    try:
        job_fold = store.job_log().refresh()
    except (DistcommitError, OSError) as error:
        unreadable[JOB_LOG], is_damaged_log = str(error), is_damaged(error)
    look = _Look(store, job_fold, published_in, extract_of, idle)
    buckets = in_flight(store.fs.parallel_buckets, look.at, range(store.buckets))
    rows = [row for each in buckets for row in each.rows]
    damaged = [JOB_LOG] if job_fold is None and is_damaged_log else []
    for file in unreadable_files(store):
        unreadable[file.name] = file.error
        damaged += [file.name] if file.is_damaged else []
    unreadable |= {f"{BUCKET}{number}": each.unreadable for number, each in enumerate(buckets) if each.unreadable}
    counts = Counter(row.status for row in rows)
    counts["idle"] += sum(each.not_listed for each in buckets)
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
        whole_job=whole_job,
        counts={status: count for status, count in counts.items() if count},
        unread=sum(1 for row in rows if standing(row) == "unread"),
        positions_lost=sum(each.positions_lost for each in buckets),
        damaged=[*damaged, *(f"{BUCKET}{number}" for number, each in enumerate(buckets) if each.is_damaged)],
        unended=job_fold is not None and job_fold.fence_epoch > 0 and last_run is None and not job_fold.has_ended,
    )


@dataclass(slots=True)
class _Bucket:
    """What is seen of a bucket. `not_listed`: idle datasets that have no row."""

    rows: list[DatasetStatusRow]
    not_listed: int = 0
    positions_lost: int = 0
    unreadable: str = ""
    is_damaged: bool = False


@dataclass(frozen=True, slots=True)
class _Look:
    """A look at the buckets of a store, after one at its job log: None if that can't be read."""

    store: JobStore
    job_fold: Fold | None
    published_in: Callable[[str], str]
    extract_of: Callable[[str], Extract | None]
    idle: bool

    def at(self, bucket: int) -> _Bucket:
        found, job_fold = _Bucket([]), self.job_fold
        try:
            log = self.store.bucket_log(bucket)
            for urn, state in log.refresh().datasets.items():
                found.positions_lost += positions_lost(state.skipped) if state.skipped else 0
                if self.idle or not _is_plain(state, job_fold):
                    found.rows.append(_row(state, job_fold, self.published_in(urn), self.extract_of(urn)))
                else:
                    found.not_listed += 1
            if job_fold is not None and job_fold.generation == self.store.generation:
                require_head(job_fold, bucket, log)
        except (DistcommitError, OSError) as error:
            found.unreadable = str(error) or type(error).__name__
            found.is_damaged = is_damaged(error)
        return found


def _is_plain(state: DatasetState, job_fold: Fold | None) -> bool:
    """Whether it is idle, could be read, and nobody has set its watermark since the newest run began."""
    return state.open is None and state.unread is None and not _set_since(state, job_fold)


def _set_since(state: DatasetState, job_fold: Fold | None) -> bool:
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
    watermark, mine = state.watermark, state.open
    unread = state.unread if mine is None else None
    return DatasetStatusRow(
        dataset=state.dataset_urn,
        status="stopped" if state.is_stopped else state.status.value,
        positions=dict(watermark.positions) if watermark else {},
        incarnation=watermark.incarnation if watermark else "",
        done_epoch=state.done_epoch,
        pending_epoch=mine.sequence.epoch if mine else 0,
        pending_records=mine.sequence.records if mine else 0,
        failed_runs=unread.failed_runs if unread else len(state.tried_epochs),
        reason=unread.reason if unread else state.reason,
        positions_lost=positions_lost(state.skipped),
        outage=mine.outage if mine else unread is not None and unread.outage,
        next_run=_next_run(state, job_fold),
        published_in=published_in,
        schemas=state.schemas,
        done_records=state.done_records,
        done_files=state.done_files,
        extract=extract,
        set_since=_set_since(state, job_fold),
        skipped=lost_ranges(state.skipped),
    )

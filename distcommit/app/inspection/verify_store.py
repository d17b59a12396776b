"""Verifies a store: each log against the rules of the protocol, and the records of runs against the logs."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import msgspec

from distcommit.core.errors import ConfigurationError, DistcommitError
from distcommit.core.records.log_records import Checkpoint, DatasetState, Fence
from distcommit.core.support.notebook_tables import NotebookTable
from distcommit.core.support.parallel import run_parallel
from distcommit.protocol.log_state import Fold
from distcommit.protocol.record_effects import apply
from distcommit.protocol.record_validity import rejection_reason
from distcommit.stores.history.run_records import RunBeginning, RunRecord, read_beginning, read_record, recorded_epochs
from distcommit.stores.history.run_table import PUBLISHED_OUTCOMES, read_run_table
from distcommit.stores.logs.commit_log import CommitLog
from distcommit.stores.logs.log_anchors import require_head
from distcommit.stores.state.damaged_files import unreadable_files
from distcommit.stores.state.job_store import JobStore

_NAMED = 100


class StoreProblem(msgspec.Struct, frozen=True):
    """A violation of a rule.

    Attributes:
        location: name of the log, file or run that violates the rule.
        finding: the violation, with the expected and the actual state.
    """

    location: str
    finding: str


class VerifyResult(NotebookTable, msgspec.Struct, frozen=True):
    """The violations in a store, and the extent of the verification.

    Attributes:
        job: name of the job.
        store: path of the store.
        logs: number of logs.
        records: number of records in the logs.
        ignored: number of records without an effect, which zombies and late twins wrote.
        datasets: number of datasets in readable bucket logs.
        runs: number of recorded runs.
        problems: first hundred violations.
        problems_count: number of all violations.
    """

    job: str
    store: str
    logs: int
    records: int
    ignored: int
    datasets: int
    runs: int
    problems: list[StoreProblem]
    problems_count: int

    @property
    def is_well(self) -> bool:
        return not self.problems_count


class _ReadLog:
    def __init__(self) -> None:
        self.problems: list[str] = []
        self.records = self.ignored = 0
        self.fold: Fold | None = None
        self.fences: dict[int, str] = {}


def verify_store(store: JobStore) -> VerifyResult:
    """Verify all segments of the current logs, and the records of runs. A log with a violation is read again, because a
    live run may have extended it. Raises DistcommitError or OSError if a log's folder can't be listed.
    """
    problems: list[StoreProblem] = []
    recorded_runs = [
        _RecordedRun(store, epoch) for epoch in recorded_epochs(store.fs, store.roots.store)
    ]  # before the logs grow
    job = _verify_twice(store, None)
    found_in = run_parallel(store.fs.parallel_buckets, partial(_verify_twice, store), range(store.buckets))
    problems += [StoreProblem(file.name, file.error) for file in unreadable_files(store)]
    looks = {"job log": job} | {f"bucket {bucket}": seen for bucket, seen in enumerate(found_in)}
    for location, seen in looks.items():
        problems += [StoreProblem(location, problem) for problem in seen.problems]
    states = {urn: s for seen in looks.values() if seen.fold for urn, s in seen.fold.datasets.items()}
    is_complete = all(seen.fold is not None for seen in looks.values())
    for run in recorded_runs:
        run_problems = _of_run(store, run, job, states if is_complete else None)
        problems += [StoreProblem(f"run of epoch {run.epoch}", problem) for problem in run_problems]
    return VerifyResult(
        job=store.job,
        store=store.roots.store,
        logs=len(looks),
        records=sum(seen.records for seen in looks.values()),
        ignored=sum(seen.ignored for seen in looks.values()),
        datasets=len(states),
        runs=len(recorded_runs),
        problems=problems[:_NAMED],
        problems_count=len(problems),
    )


def _verify_twice(store: JobStore, bucket: int | None) -> _ReadLog:
    read_log = _verify(store, bucket)
    return _verify(store, bucket) if read_log.problems else read_log


def _verify(store: JobStore, bucket: int | None) -> _ReadLog:
    job_fold = None
    if bucket is not None:
        try:  # before the bucket's log, which then has at least its heads
            job_fold = store.job_log().refresh()
        except (DistcommitError, OSError):
            job_fold = None  # reported for the job log itself
    log, read_log = store.job_log() if bucket is None else store.bucket_log(bucket), _ReadLog()
    _read(log, read_log)
    if read_log.fold is not None and bucket is not None:
        read_log.problems += _of_bucket(store, bucket, read_log.fold, job_fold)
        try:
            if job_fold is not None and job_fold.generation == store.generation:
                require_head(job_fold, bucket, store.bucket_log(bucket))
        except (DistcommitError, OSError) as error:
            read_log.problems.append(str(error))
    return read_log


def _read(log: CommitLog, read_log: _ReadLog) -> None:
    fold: Fold | None = None
    last = 0
    for number, segment in log.segments():
        if last and number != last + 1:
            read_log.problems.append(f"segments {last + 1} to {number - 1} are missing")
            fold = None
        last = number
        if isinstance(segment, DistcommitError):
            read_log.problems.append(f"segment {number}: {segment}")
            fold = None
            continue
        record = segment.record
        read_log.records += 1
        if fold is None:
            if not isinstance(record, Checkpoint):
                continue  # its meaning depends on missing records, which are reported
            fold = Fold()
        elif isinstance(record, Checkpoint):
            read_log.problems += [f"checkpoint {number}: {problem}" for problem in _differs(record, fold)]
        if rejection_reason(record, fold):
            read_log.ignored += 1
        elif isinstance(record, Fence):
            read_log.fences[record.epoch] = record.run_id
        apply(number, record, fold)
    read_log.fold = fold
    if fold is None and not read_log.problems:
        read_log.problems.append("the log has no checkpoint to begin with")


def _differs(checkpoint: Checkpoint, fold: Fold) -> Iterator[str]:
    if checkpoint.fence_epoch != fold.fence_epoch:
        yield f"epoch {checkpoint.fence_epoch}, after records of epoch {fold.fence_epoch}"
    recorded = {state.dataset_urn: state for state in checkpoint.datasets}
    for urn in sorted(recorded.keys() | fold.datasets.keys()):
        recorded_state, before = recorded.get(urn), fold.datasets.get(urn)
        if recorded_state is None or before is None or _essence(recorded_state) != _essence(before):
            yield f"{urn} is {_essence(recorded_state)}, after records by which it is {_essence(before)}"


def _essence(state: DatasetState | None) -> tuple[object, ...] | None:
    if state is None:
        return None
    sealed = state.open.sequence.epoch if state.open else 0
    return state.status.value, state.watermark, sealed, state.closed_epoch, state.done_epoch


def _of_bucket(store: JobStore, bucket: int, fold: Fold, job_fold: Fold | None) -> Iterator[str]:
    if job_fold is not None and fold.fence_epoch > job_fold.fence_epoch:
        yield f"its fence is of epoch {fold.fence_epoch}, above the newest epoch of the job log, {job_fold.fence_epoch}"
    for urn in fold.datasets:
        try:
            belongs = store.bucket_of(urn)
        except ConfigurationError:  # its sink names no commit group for it any more
            continue
        if belongs != bucket:
            yield f"it contains {urn}, which belongs to bucket {belongs}"


class _RecordedRun:
    def __init__(self, store: JobStore, epoch: int) -> None:
        fs, root = store.fs, store.roots.store
        self.epoch, self.problem = epoch, ""
        self.beginning: RunBeginning | None = None
        self.record: RunRecord | None = None
        try:
            self.beginning, self.record = read_beginning(fs, root, epoch), read_record(fs, root, epoch)
        except (DistcommitError, OSError) as error:
            self.problem = str(error)


def _of_run(store: JobStore, run: _RecordedRun, job: _ReadLog, states: dict[str, DatasetState] | None) -> Iterator[str]:
    """Yield how the records of a run differ from the logs. Without an end record, compare only the fence."""
    beginning, record = run.beginning, run.record
    if run.problem:
        yield run.problem
        return
    run_id = record.run_id if record else beginning.run_id if beginning else ""
    fenced = job.fences.get(run.epoch, run_id)
    if run_id and fenced != run_id:
        yield f"its record names run {run_id}, but its fence in the job log names run {fenced}"
    if record is None or states is None:
        return
    try:
        yield from _of_table(store, record, states)
    except (DistcommitError, OSError) as error:
        yield str(error)


def _of_table(store: JobStore, record: RunRecord, states: dict[str, DatasetState]) -> Iterator[str]:
    published: dict[str, int] = {}
    seen_names: set[str] = set()
    for rows in read_run_table(store.fs, store.roots.store, record.run_id):
        for row in rows.outcomes:
            if row.dataset not in seen_names and row.outcome in PUBLISHED_OUTCOMES:
                published[row.dataset] = row.counts.records_published
            seen_names.add(row.dataset)
    if not seen_names:
        return  # its table is not kept
    for name, counted in (("datasets_published", len(published)), ("records_published", sum(published.values()))):
        recorded = getattr(record.totals, name)
        if recorded != counted:
            yield f"its record counts {recorded:,} {name.replace('_', ' ')}, but its table {counted:,}"
    for urn in sorted(published):
        state = states.get(urn)
        if state is None or state.done_epoch < record.epoch:
            newest = state.done_epoch if state else 0
            yield f"its table has {urn} as published, but the newest done epoch in the log is {newest}"

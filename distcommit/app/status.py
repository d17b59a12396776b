"""What is stored of a job: its runs' newest epoch, and each dataset's state."""

from __future__ import annotations

import msgspec

from distcommit.model.errors import DistcommitError
from distcommit.model.log_records import DatasetState
from distcommit.model.watermark import Position
from distcommit.model.work import positions_lost
from distcommit.protocol.fold import Fold
from distcommit.stores.job_store import JobStore


class DatasetStatusRow(msgspec.Struct, frozen=True):
    """One dataset: where it stands, how far it is, why it does not go on, and how much its source had lost."""

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


class StatusResult(msgspec.Struct, frozen=True):
    """A job's state. `unreadable` names logs that can't be read, with the error; without the job log `epoch` is 0."""

    job: str
    store: str
    buckets: int
    epoch: int
    run_id: str
    datasets: list[DatasetStatusRow]
    unreadable: dict[str, str]


def read_status(store: JobStore) -> StatusResult:
    """Folds all logs. Costs O(buckets) reads, whatever the history."""
    rows: list[DatasetStatusRow] = []
    unreadable: dict[str, str] = {}
    job_fold = Fold()
    try:
        job_fold = store.job_log().refresh()
    except (DistcommitError, OSError) as error:
        unreadable["job log"] = str(error)
    for bucket in range(store.buckets):
        try:
            rows += map(_row, store.bucket_log(bucket).refresh().datasets.values())
        except (DistcommitError, OSError) as error:
            unreadable[f"bucket {bucket}"] = str(error)
    return StatusResult(
        job=store.job,
        store=store.roots.store,
        buckets=store.buckets,
        epoch=job_fold.fence_epoch,
        run_id=job_fold.fence_run_id,
        datasets=sorted(rows, key=lambda row: row.dataset),
        unreadable=unreadable,
    )


def _row(state: DatasetState) -> DatasetStatusRow:
    watermark, sequence = state.watermark, state.sequence
    return DatasetStatusRow(
        dataset=state.dataset_urn,
        status=state.status.value,
        positions=dict(watermark.positions) if watermark else {},
        incarnation=watermark.incarnation if watermark else "",
        done_epoch=state.done_epoch,
        pending_epoch=sequence.epoch if sequence else 0,
        pending_records=sequence.records if sequence else 0,
        failed_runs=len(state.tried_epochs),
        reason=state.reason,
        positions_lost=positions_lost(state.skipped),
    )

"""A store of very many datasets, written by the product's own store classes: `python -m tests.jobs.large_store FOLDER
N`.

Of each hundred datasets one is pending, one quarantined and one was not read; each idle one has 2 partitions.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from itertools import groupby
from pathlib import Path

from msgspec import structs

from distcommit.app.jobs.job import Job
from distcommit.core.records.job_log_records import CutPhase
from distcommit.core.records.log_records import Done, Failed, Fence, Intent, Record
from distcommit.core.records.read_failure_records import DatasetReadFailure, ReadFailures
from distcommit.core.records.run_counts import RunCounts
from distcommit.core.records.run_outcome import RunOutcome
from distcommit.core.records.sealed_sequences import SealedSequence, SequenceName
from distcommit.core.support.io_batching import run_alone
from distcommit.core.watermark import Watermark
from distcommit.protocol.log_state import Fold
from distcommit.stores.folders.run_markers import Marker, put_run_marker
from distcommit.stores.history.run_records import put_beginning, put_record
from distcommit.stores.history.run_table import DatasetOutcome, TaskIdentity, TaskRows, outcome_row, put_task_rows
from distcommit.stores.logs.commit_log import CommitLog
from distcommit.stores.logs.fencing import take_ownership_of_folders
from distcommit.stores.logs.log_anchors import durable_heads, record_cut_ended
from distcommit.stores.snapshots.snapshot_deltas import write_snapshot_entry
from distcommit.stores.snapshots.snapshot_manifests import prepare_snapshots, put_snapshot
from distcommit.stores.state.job_store import JobStore
from tests.golden import samples

JOB = """\
job: large
source: {type: kafka, brokers: "127.0.0.1:1", topic_patterns: [".*"]}
paths: {store: store, staging: staging, output: output}
commit: {durability: none}
"""


def make_large_store(folder: Path, datasets: int) -> Path:
    """Create the store of a job with that many datasets in a folder, and return its job file."""
    folder.mkdir(parents=True, exist_ok=True)
    job_file = folder / "job.yaml"
    job_file.write_text(JOB)
    store = Job.from_file(job_file).open_store(create=True)
    run_id = samples.RUN_ID
    _append(store.job_log(1), Fence(1, run_id))
    epoch = store.job_log().refresh().fence_epoch
    names = sorted((store.bucket_of(f"topic-{n:06d}"), n) for n in range(datasets))
    for bucket, numbers in groupby(names, key=lambda pair: pair[0]):
        _fill(store, store.bucket_log(bucket, epoch), bucket, epoch, [number for _, number in numbers])
    record = structs.replace(samples.RUN_RECORD, epoch=epoch, outcome=RunOutcome.INCOMPLETE)
    put_beginning(store, structs.replace(samples.RUN_BEGINNING, epoch=epoch))
    put_record(store, record)
    _cut(store, epoch)
    return job_file


def _cut(store: JobStore, epoch: int) -> None:
    """Put the snapshot that the run leaves for readers at its end."""
    take_ownership_of_folders(store)
    put_run_marker(store.fs, store.roots.output, epoch, Marker.BEGAN)
    prepare_snapshots(store)
    logs = {bucket: store.bucket_log(bucket, epoch) for bucket in range(store.buckets)}
    snapshots = [run_alone(write_snapshot_entry(store, None, bucket, log, ())) for bucket, log in logs.items()]
    put_snapshot(store, epoch, samples.RUN_ID, CutPhase.ENDED, snapshots, now_ms=1)
    record_cut_ended(store, epoch, durable_heads(store))
    put_run_marker(store.fs, store.roots.output, epoch, Marker.ENDED)


def _fill(store: JobStore, log: CommitLog, bucket: int, epoch: int, numbers: Iterable[int]) -> None:
    urns = {number: f"topic-{number:06d}" for number in numbers}
    low = Watermark({"0": 0, "1": 0})
    sequences = [
        SealedSequence(urn, epoch, None, Watermark({"0": 1000 + n, "1": n}), (), {"0": 0, "1": 0}, records=1000 + 2 * n)
        for n, urn in urns.items()
        if n % 100 != 3
    ]
    pending = {urn for n, urn in urns.items() if n % 100 in (1, 2)}
    _append(log, Fence(epoch, samples.RUN_ID))
    _append(log, Intent(epoch, tuple(sequences)))
    _append(
        log, Done(epoch, tuple(SequenceName(s.dataset_urn, epoch) for s in sequences if s.dataset_urn not in pending))
    )
    for number, urn in urns.items():
        if number % 100 == 2:
            _append(log, Failed(epoch, SequenceName(urn, epoch), quarantine=True, reason="a staged file is gone"))
    failure = [DatasetReadFailure(urn, None, low, "SourceError: no answer") for n, urn in urns.items() if n % 100 == 3]
    if failure:
        _append(log, ReadFailures(epoch, tuple(failure)))
    rows = [
        outcome_row(
            sequence.dataset_urn,
            bucket,
            DatasetOutcome.PUBLISHED,
            RunCounts(records_published=sequence.records, files_published=2),
        )
        for sequence in sequences
    ]
    drained = TaskRows(TaskIdentity("drain", bucket, f"{bucket:032x}"), rows)
    put_task_rows(store.fs, store.roots.store, samples.RUN_ID, drained)


def _append(log: CommitLog, record: Record) -> None:
    open_records = [record]

    def decide(fold: Fold) -> Record | None:
        return open_records.pop() if open_records else None

    run_alone(log.settle(decide))


if __name__ == "__main__":
    print(make_large_store(Path(sys.argv[1]), int(sys.argv[2])))  # noqa: T201

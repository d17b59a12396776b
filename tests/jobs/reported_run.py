"""A run with everything that a report shows, written by the product's own store classes, with hostile names and
messages.

`python -m tests.jobs.reported_run FOLDER DATASETS` creates the store, for a view of the page.
"""

from __future__ import annotations

import random
import sys
from pathlib import Path

from msgspec import structs

from distcommit.app.jobs.job import Job
from distcommit.core.interfaces.file_system import FileSystem
from distcommit.core.records.log_records import Done, Fence, Intent, Record
from distcommit.core.records.run_counts import CheckCounts, FlowCounts, RunCounts, SinkCounter, SinkCounts
from distcommit.core.records.run_outcome import RunOutcome
from distcommit.core.records.run_reasons import Reason, Reasons
from distcommit.core.records.sealed_sequences import SealedSequence, SequenceName
from distcommit.core.support.io_batching import run_alone
from distcommit.core.watermark import Watermark
from distcommit.core.work_units import MAIN_BRANCH, BranchResult, CheckOutcome, ConstructCounts, TaskOutcome, TaskState
from distcommit.protocol.log_state import Fold
from distcommit.stores.history.run_records import RecordedPhase, RunRecord, put_beginning, put_record
from distcommit.stores.history.run_table import (
    DatasetOutcome,
    RowKind,
    TableRow,
    TaskIdentity,
    TaskRows,
    outcome_row,
    put_task_rows,
)
from distcommit.stores.logs.commit_log import CommitLog
from distcommit.stores.state.job_store import JobStore
from distcommit.stores.state.task_states import TaskStateWriter, prepare_run
from tests.golden import samples

JOB = """\
job: orders
source: {type: kafka, brokers: "127.0.0.1:1", topic_patterns: [".*"]}
paths: {store: store, staging: staging, output: output}
commit: {buckets: 8, durability: none}
"""
HOSTILE = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(2)>',
    "' onmouseover='alert(3)",
    "</style></script><script>alert(4)</script>",
    "{{ 7 * 7 }}{% raw %}",
    "\x1b[31mred\x07\r\nforged",
    "invoice\u202egpj.exe\u2066x",
    "a\u2028b\u2029c\x85d\x00e",
    "&lt;b&gt; &amp;#60; \\u003cscript\\u003e",
    "javascript:alert(5)",
)
HOSTILE_FILE = "<img src=x onerror=alert(6)>"
BEGAN_MS = 1_764_000_000_000
TASKS, BUCKETS = 8, 8
EPOCH = 1


def make_reported_job(folder: Path, datasets: int = 60, *, ended: bool = True) -> Path:
    """Create a job with one run of that many datasets, and return its job file.

    One dataset is large, the first have hostile names, and every twentieth has failed. Without `ended` the run died.
    """
    folder.mkdir(parents=True, exist_ok=True)
    job_file = folder / "job.yaml"
    job_file.write_text(JOB)
    store = Job.from_file(job_file).open_store(create=True)
    _append(store.job_log(EPOCH), Fence(EPOCH, samples.RUN_ID))
    rng = random.Random(7)
    names = [*HOSTILE, *(f"shop-{n % 7}.orders-{n:04d}" for n in range(len(HOSTILE), datasets))][:datasets]
    _write_states(store, names, ended=ended)
    fs, root, run_id = store.fs, store.roots.store, samples.RUN_ID
    for partition in range(BUCKETS):
        prepare_run(fs, root, run_id, partition, BUCKETS)
    rows: list[TableRow] = []
    ends: list[int] = []
    for task in range(TASKS):
        own = [(n, name) for n, name in enumerate(names) if n % TASKS == task]
        times, ended_ms = _task(
            rng, task, own, TaskStateWriter(fs, root, run_id, BUCKETS), store_of=(fs, root), died=not ended
        )
        rows += times
        ends.append(ended_ms)
    if ended:
        put_task_rows(fs, root, run_id, TaskRows(TaskIdentity("drain", 0, f"{0:032x}"), rows))
    beginning = structs.replace(samples.RUN_BEGINNING, job="orders", epoch=EPOCH, began_ms=BEGAN_MS)
    put_beginning(store, structs.replace(beginning, requested_by=HOSTILE[0], command="run"))
    if ended:
        put_record(store, _record(rows, max(ends)))
    return job_file


def make_job_folder(folder: Path) -> Path:
    """Create a folder of six job files: two jobs with a run that ended, one with a run that died, a job without a
    store, an invalid job file, and a job with a damaged store. The names of two files are hostile."""
    for name, ended in {"ended": True, "killed": False, HOSTILE_FILE: True, "damaged": True}.items():
        make_reported_job(folder / "data" / name, 60, ended=ended)
    for name in ("ended", "killed", HOSTILE_FILE, "damaged", "new"):
        text = JOB.replace("{store: store, staging: staging, output: output}", _paths_below(f"data/{name}"))
        (folder / f"{name}.yaml").write_text(text)
    (folder / "damaged.yaml").rename(folder / "damaged #1?.yml")
    (folder / "data" / "damaged" / "store" / "store.json").write_text("{")
    (folder / "invalid.yaml").write_text(f"job: broken\nsource: {{type: '{HOSTILE[0]}'}}\n")
    (folder / ".hidden.yaml").write_text("")
    (folder / "notes.txt").write_text("")
    return folder


def _append(log: CommitLog, record: Record) -> None:
    records = [record]

    def decide(fold: Fold) -> Record | None:
        return records.pop() if records else None

    run_alone(log.settle(decide))


def _write_states(store: JobStore, names: list[str], *, ended: bool) -> None:
    """Write the commits of datasets. If the run died, every seventh is sealed and not published."""
    sealed = [(n, urn) for n, urn in enumerate(names) if n % 20 != 11]
    for bucket in sorted({store.bucket_of(urn) for _, urn in sealed}):
        log = store.bucket_log(bucket, EPOCH)
        _append(log, Fence(EPOCH, samples.RUN_ID))
        own = [(n, urn) for n, urn in sealed if store.bucket_of(urn) == bucket]
        high = Watermark({"0": 1000})
        _append(
            log,
            Intent(
                EPOCH, tuple(SealedSequence(urn, EPOCH, None, high, (), {"0": 0}, records=1000 + n) for n, urn in own)
            ),
        )
        done = tuple(SequenceName(urn, EPOCH) for n, urn in own if ended or n % 7)
        if done:
            _append(log, Done(EPOCH, done))


def _paths_below(folder: str) -> str:
    return "{" + ", ".join(f'{part}: "{folder}/{part}"' for part in ("store", "staging", "output")) + "}"


def _task(
    rng: random.Random,
    task: int,
    own: list[tuple[int, str]],
    writer: TaskStateWriter,
    *,
    store_of: tuple[FileSystem, str],
    died: bool,
) -> tuple[list[TableRow], int]:
    fs, root = store_of
    now_ms = BEGAN_MS + 2500 + rng.randrange(400)
    identity = TaskIdentity("ingest", task, writer.writer, f"worker-{task % 2}", 4000 + task, 3000 + task % 4)
    began_ms = now_ms
    rows: list[TableRow] = []
    times: list[TableRow] = []
    waiting: list[tuple[str, int]] = []
    for place, (number, name) in enumerate(own):
        size = rng.randrange(200, 4000) * (12 if number % 41 == 5 else 1)
        took_ms, failed = 5 + size // 8, number % 20 == 11
        state = _state(name, f"{task:05d}_{place:06d}", size, now_ms, took_ms, failed=failed)
        writer.append({task: [state]})
        now_ms += took_ms
        if failed:
            rows.append(
                outcome_row(
                    name, task, DatasetOutcome.FAILED, RunCounts(), "failed", f"1 of 1 work units failed: {HOSTILE[1]}"
                )
            )
        else:
            waiting.append((name, size))
        if len(waiting) == 4 or place == len(own) - 1:
            commits_ms = now_ms
            for waited, records in waiting:
                published = RunCounts(records_published=records, files_published=1 + records // 2000)
                counts = structs.replace(published, datasets_committed=1, storage_requests=24 + records // 1000)
                times.append(TableRow(RowKind.DATASET, waited, -1, commits_ms + 20, now_ms + 160, counts=counts))
                rows.append(outcome_row(waited, task, DatasetOutcome.PUBLISHED, published))
                now_ms += rng.randrange(10, 90)
            if waiting:
                counts = RunCounts(datasets_committed=len(waiting))
                times.append(TableRow(RowKind.COMMITS, "", -1, commits_ms, now_ms + 160, counts=counts))
            now_ms, waiting = now_ms + 170, []
    if not died:
        counts = RunCounts(work_units=len(own), storage_requests=17)
        times.insert(0, TableRow(RowKind.TASK, "", -1, began_ms, now_ms, counts=counts))
        put_task_rows(fs, root, samples.RUN_ID, TaskRows(identity, times))
    return rows, now_ms


def _state(name: str, unit: str, size: int, began_ms: int, took_ms: int, *, failed: bool) -> TaskState:
    checks = (CheckOutcome("row_count", not failed, True, "expected 1 or more, found 0" if failed else ""),)
    rejected = size // 400
    branch = BranchResult(MAIN_BRANCH, "files", (), (), size, rejected, checks=checks)
    return structs.replace(
        samples.TASK_STATES[0],
        dataset_urn=name,
        epoch=EPOCH,
        work_unit_id=unit,
        attempt=f"{abs(hash((name, unit))):032x}"[:32],
        outcome=TaskOutcome.FAILED if failed else TaskOutcome.SUCCEEDED,
        low=Watermark({"0": 0}),
        expected_high=Watermark({"0": size}),
        actual_high=Watermark({"0": size}),
        branches=(branch,),
        records_read=size,
        bytes_read=size * 300,
        error="QualityError: too few records" if failed else "",
        started_ms=began_ms,
        finished_ms=began_ms + took_ms,
    )


def _record(rows: list[TableRow], ended_ms: int) -> RunRecord:
    failed = [row for row in rows if row.kind]
    totals = RunCounts(
        datasets_planned=len(rows),
        datasets_published=len(rows) - len(failed),
        datasets_failed=len(failed),
        records_published=sum(row.counts.records_published for row in rows),
        records_rejected=900,
        files_published=sum(row.counts.files_published for row in rows),
        commit_attempts=70,
        commit_successes=61,
        commit_retries=8,
        commit_failures=1,
        commit_in_doubt=2,
        target_ms=4_200,
        flow=FlowCounts(
            (
                ConstructCounts("", "json", 240_000, 239_100, 900, 0, 0, 3.2),
                ConstructCounts("lake", "sql <amount > 0>", 239_100, 230_000, 0, 9_100, 0, 0.8),
            ),
            (CheckCounts("lake", "row_count", True, len(rows) - len(failed), len(failed)),),
            sinks=(SinkCounts("lake", "iceberg <a>", 230_000, 0, 70, 61, 8, 1, 2, 4_200),),
            counters=(SinkCounter("lake", "iceberg <a>", "snapshots", 61),),
        ),
    )
    recorded_reasons = tuple(Reason(row.dataset, row.kind, row.reason) for row in failed[:100])
    return structs.replace(
        samples.RUN_RECORD,
        job="orders",
        epoch=EPOCH,
        began_ms=BEGAN_MS,
        ended_ms=ended_ms + 900,
        outcome=RunOutcome.INCOMPLETE,
        error="",
        phases=(
            RecordedPhase("recover", 1.25, True, RunCounts(buckets=BUCKETS)),
            RecordedPhase("plan", 0.5, True, RunCounts(datasets_planned=len(rows))),
            RecordedPhase("ingest", (ended_ms - BEGAN_MS) / 1000 - 1.75, True, RunCounts()),
            RecordedPhase("drain", 0.9, True, RunCounts()),
        ),
        totals=totals,
        quarantined=Reasons((Reason(HOSTILE[6], "quarantined", HOSTILE[5]),), 0),
        held=Reasons(),
        reasons=Reasons(recorded_reasons, len(failed) - len(recorded_reasons)),
        notes=Reasons((Reason("shop-3.orders-0010", "check", f"lake: nulls: {HOSTILE[2]}"),), 3),
    )


if __name__ == "__main__":
    print(make_reported_job(Path(sys.argv[1]), int(sys.argv[2])))  # noqa: T201

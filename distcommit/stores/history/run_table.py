"""The table of a run: rows on its tasks and datasets, for operators and for programs that read Parquet.

<store>/run_tables/run=<run id>/<phase>-<task>-<32 hex>.parquet

Each attempt at a task writes one file when it ends, if it has rows. A killed attempt leaves no file. If two attempts
at a task record the outcome of a dataset, the first row that is read counts. Reading times are in the task states,
whose files have the same 32 digits. The protocol does not depend on this table.
"""

from __future__ import annotations

import logging
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import StrEnum
from itertools import accumulate
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from distcommit.core.errors import CorruptError, DistcommitError, UnknownVersionError, plain_text, reason_text
from distcommit.core.interfaces.file_system import FileSystem
from distcommit.core.records.run_counts import COMMIT_COUNTS, RunCounts
from distcommit.protocol.paths.store import RUN_TABLES, run_name, run_table_name, run_table_phase
from distcommit.stores.state.table_schemas import RUN_TABLE_SCHEMA, VERSION_KEY

logger = logging.getLogger(__name__)

PHASES = ("recover", "plan", "ingest", "drain", "publish")
"""Phases with rows, in order."""
_COUNT_COLUMNS = (
    "work_units",
    "datasets_committed",
    "records_published",
    "files_published",
    "positions_lost",
    "storage_requests",
    *COMMIT_COUNTS,
)
_CODES = {pa.int32(): "i", pa.int64(): "q"}
_WHAT = "a file of a run's table"
_TEXT = 1000
_NO_COUNTS = RunCounts()


class RowKind(StrEnum):
    TASK = "task"
    """An attempt at a task, with file-system requests that belong to no single dataset."""
    COMMITS = "commits"
    """A commit pass of the attempt, with its committed datasets."""
    DATASET = "dataset"
    """A dataset from seal (start, or 0) to publication (end, or 0), with its commits and its share of requests."""
    OUTCOME = "outcome"
    """A dataset's outcome in the run. If several phases recorded one, the outcome of the last phase counts."""


class DatasetOutcome(StrEnum):
    NONE = ""
    """The row records no outcome."""
    REPLAYED = "replayed"
    """An older run's sequence was published."""
    PUBLISHED = "published"
    """All planned work units are published."""
    PARTLY_PUBLISHED = "partly published"
    """Some planned work units are published."""
    UNCHANGED = "unchanged"
    """The dataset had no new records."""
    HELD = "held"
    """The dataset is not published, because the job publishes all or none."""
    FAILED = "failed"
    """Nothing was committed, because of a failure."""
    POSTPONED = "postponed"
    """The dataset's sequence is pending."""
    QUARANTINED = "quarantined"
    """The dataset's sequence is quarantined."""
    SKIPPED = "skipped"
    """The dataset was not planned."""
    READ = "read"
    """The dataset was read, and its outcome is unknown. Never stored."""


PUBLISHED_OUTCOMES = frozenset({DatasetOutcome.PUBLISHED, DatasetOutcome.PARTLY_PUBLISHED})
"""Outcomes of datasets that the run has planned and published."""


class TaskIdentity(msgspec.Struct, frozen=True):
    phase: str
    """Phase of the run."""
    task: int
    """Number of the task in the phase."""
    writer: str
    """Id of the task attempt, 32 hexadecimal digits, with which the names of its task-state files begin."""
    host: str = ""
    """Host of the task."""
    pid: int = 0
    """Process id of the Python worker."""
    daemon_pid: int = 0
    """Process id of the worker's parent, of which each executor has one."""


class TableRow(msgspec.Struct, frozen=True):
    """A row of the table. Times are milliseconds since 1970, by the clock of the task's machine."""

    row_kind: RowKind
    """Kind of the row."""
    dataset: str = ""
    """URN of the dataset; empty for a task or a commit pass."""
    bucket: int = -1
    """Bucket of the dataset, in an OUTCOME row; otherwise -1."""
    began_ms: int = 0
    """Start; 0 if unknown."""
    ended_ms: int = 0
    """End; 0 if unknown."""
    outcome: DatasetOutcome = DatasetOutcome.NONE
    """Outcome of the dataset in the run."""
    kind: str = ""
    """Kind of the problem, such as `failed`; empty if there is none."""
    reason: str = ""
    """Reason of the problem."""
    counts: RunCounts = RunCounts()
    """Only work units, committed datasets, published records and files, lost positions, storage requests and commits
    are stored."""


class TaskRows(msgspec.Struct, frozen=True):
    task: TaskIdentity
    """The attempt."""
    rows: list[TableRow]
    """The rows, at least one."""

    @property
    def outcomes(self) -> list[TableRow]:
        return [row for row in self.rows if row.row_kind is RowKind.OUTCOME]

    @property
    def datasets(self) -> list[TableRow]:
        return [row for row in self.rows if row.row_kind is RowKind.DATASET]


def outcome_row(
    urn: str, bucket: int, outcome: DatasetOutcome, counts: RunCounts = _NO_COUNTS, kind: str = "", reason: str = ""
) -> TableRow:
    return TableRow(RowKind.OUTCOME, urn, bucket, outcome=outcome, kind=kind, reason=reason, counts=counts)


def run_table_folder(store_root: str, run_id: str) -> str:
    return f"{store_root}/{RUN_TABLES}/{run_name(run_id)}"


def put_task_rows(fs: FileSystem, store_root: str, run_id: str, rows: TaskRows) -> None:
    """Put an attempt's rows; a failure is only logged."""
    folder, task = run_table_folder(store_root, run_id), rows.task
    try:
        fs.make_folders(folder)
        fs.put_if_absent(f"{folder}/{run_table_name(task.phase, task.task, task.writer)}", encode_task_rows(rows))
    except OSError as error:
        logger.warning("rows of a task were not written: %s", error, extra={"phase": task.phase, "task": task.task})


def read_run_table(
    fs: FileSystem, store_root: str, run_id: str, on_error: Callable[[DistcommitError], None] | None = None
) -> Iterator[TaskRows]:
    """Yield each attempt's rows, the last phase first. If a dataset has several outcomes, the first one counts.

    Args:
        on_error: called with the error of each unreadable file, which is then skipped. If None, the UnknownVersionError
            or CorruptError is raised.
    """
    folder = run_table_folder(store_root, run_id)
    names = [entry.name for entry in fs.list_folder(folder) if run_table_phase(entry.name) in PHASES]
    for name in sorted(names, key=lambda name: (-PHASES.index(run_table_phase(name)), name)):
        path = f"{folder}/{name}"
        try:
            rows = decode_task_rows(fs.read(path), path)
        except DistcommitError as error:
            if on_error is None:
                raise
            on_error(error)
        else:
            yield rows


def encode_task_rows(rows: TaskRows) -> bytes:
    """Return rows as Parquet.

    Arrays are made from buffers, because Python lists make Arrow import pandas (0.2 s).
    """
    task, number = rows.task, len(rows.rows)
    columns: dict[str, Sequence[Any]] = {
        "phase": [task.phase] * number,
        "task": [task.task] * number,
        "writer": [task.writer] * number,
        "host": [plain_text(task.host)] * number,
        "pid": [task.pid] * number,
        "daemon_pid": [task.daemon_pid] * number,
        "row_kind": [row.row_kind.value for row in rows.rows],
        "dataset": [plain_text(row.dataset) for row in rows.rows],
        "bucket": [row.bucket for row in rows.rows],
        "began_ms": [row.began_ms for row in rows.rows],
        "ended_ms": [row.ended_ms for row in rows.rows],
        "outcome": [row.outcome.value for row in rows.rows],
        "kind": [plain_text(row.kind, _TEXT) for row in rows.rows],
        "reason": [row.reason and reason_text(row.reason, _TEXT) for row in rows.rows],
    }
    for name in _COUNT_COLUMNS:
        columns[name] = [getattr(row.counts, name) for row in rows.rows]
    arrays = [_array(field.type, columns[field.name]) for field in RUN_TABLE_SCHEMA]
    sink = pa.BufferOutputStream()
    table = pa.Table.from_arrays(arrays, schema=RUN_TABLE_SCHEMA)
    pq.write_table(table, sink, compression="snappy", write_page_checksum=True)
    return bytes(sink.getvalue())


def _array(kind: pa.DataType, values: Sequence[Any]) -> pa.Array:
    if kind != pa.string():
        return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(array(_CODES[kind], values))])
    texts = [value.encode() for value in values]
    ends = array(_CODES[pa.int32()], accumulate(map(len, texts), initial=0))
    return pa.Array.from_buffers(kind, len(texts), [None, pa.py_buffer(ends), pa.py_buffer(b"".join(texts))])


def decode_task_rows(data: bytes, path: str) -> TaskRows:
    """Return the rows in a file. Raise UnknownVersionError or CorruptError."""
    try:
        table = pq.ParquetFile(pa.BufferReader(data), page_checksum_verification=True).read(use_threads=False)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise _corrupt(path, str(error)) from error
    version, supported = (table.schema.metadata or {}).get(VERSION_KEY, b""), RUN_TABLE_SCHEMA.metadata[VERSION_KEY]
    if version.isdigit() and version != supported:
        raise UnknownVersionError(
            f"{_WHAT} has an unknown format version",
            path=path,
            expected=supported.decode(),
            found=version.decode(),
            todo="run the version of distcommit that wrote it",
        )
    has_nulls = any(column.null_count for column in table.itercolumns())
    if not table.schema.equals(RUN_TABLE_SCHEMA) or has_nulls or not table.num_rows:
        raise _corrupt(path, f"{table.num_rows} rows of columns {table.schema.names}")
    try:
        rows = table.to_pylist()
        identity = {name: rows[0][name] for name in TaskIdentity.__struct_fields__}
        return TaskRows(TaskIdentity(**identity), [*map(_row, rows)])
    except ValueError as error:  # text that is not UTF-8, or an unknown kind of row or outcome
        raise _corrupt(path, str(error)) from error


def _row(row: Mapping[str, Any]) -> TableRow:
    return TableRow(
        row_kind=RowKind(row["row_kind"]),
        dataset=row["dataset"],
        bucket=row["bucket"],
        began_ms=row["began_ms"],
        ended_ms=row["ended_ms"],
        outcome=DatasetOutcome(row["outcome"]),
        kind=row["kind"],
        reason=row["reason"],
        counts=RunCounts(**{name: row[name] for name in _COUNT_COLUMNS}),
    )


def _corrupt(path: str, actual: str) -> CorruptError:
    return CorruptError(
        f"{_WHAT} is corrupt",
        id="RUN_STATISTICS_CORRUPT",
        path=path,
        found=actual[:500],
        todo="delete the file: no run depends on it",
    )

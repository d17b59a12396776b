"""Times of the commits of a run's tasks: a Parquet table, for operators and for programs that read such tables.

<store>/run_times/run=<run id>/<phase>-<task>-<32 hex>.parquet

Each attempt at a task that has read or committed anything writes one file when it ends, so that each process needs
memory for its own part alone. A killed attempt leaves none. Times of reading are in the task states, whose files have
the same 32 digits. Nothing depends on this table. Times are milliseconds since 1970, by the clock of the task's
machine.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from enum import StrEnum

import msgspec

from distcommit.core.errors import CorruptError, plain_text
from distcommit.core.ports import FileSystem
from distcommit.protocol.paths.store import RUN_TIMES, run_name, run_times_name, run_times_writer
from distcommit.stores.history.run_tables import decode_rows, encode_rows
from distcommit.stores.state.table_schemas import RUN_TIMES_SCHEMA

logger = logging.getLogger(__name__)

_WHAT = "a table of times of tasks"


class TimeKind(StrEnum):
    """The kind of a row.

    TASK: the task; `count` is its work units. COMMITS: one round over its buckets that published `count` datasets.
    PUBLISHED: a dataset, from its seal (0 if another process has sealed it) to its publication; `count` is its records.
    SEALED: a dataset that the task has sealed and not published. REQUESTS: `count` file-system requests for a dataset:
    its own reads and writes, and its share of joint commits; without a dataset, all other requests of the task.
    """

    TASK = "task"
    COMMITS = "commits"
    PUBLISHED = "published"
    SEALED = "sealed"
    REQUESTS = "requests"


class RunTime(msgspec.Struct, frozen=True):
    """A row of the table.

    Attributes:
        phase: phase of the run.
        task: number of the task in the phase.
        host: host of the task.
        pid: process id of the Python worker.
        daemon_pid: process id of its parent, which is one per executor.
        kind: kind of the row.
        dataset: the dataset, if the row is about one.
        began_ms: its begin.
        ended_ms: its end.
        count: a number, by kind.
    """

    phase: str
    task: int
    host: str
    pid: int
    daemon_pid: int
    kind: TimeKind
    dataset: str = ""
    began_ms: int = 0
    ended_ms: int = 0
    count: int = 0


def put_run_times(
    fs: FileSystem, store_root: str, run_id: str, phase: str, task: int, writer: str, rows: Sequence[RunTime]
) -> None:
    """Put the times of an attempt at a task. A failure is only logged."""
    folder = f"{store_root}/{RUN_TIMES}/{run_name(run_id)}"
    try:
        fs.make_folders(folder)
        fs.put_if_absent(f"{folder}/{run_times_name(phase, task, writer)}", encode_run_times(rows))
    except OSError as error:
        logger.warning("times of a task were not written: %s", error, extra={"phase": phase, "task": task})


def encode_run_times(rows: Sequence[RunTime]) -> bytes:
    """Return the rows as a Parquet file."""
    columns = {name: [getattr(row, name) for row in rows] for name in RUN_TIMES_SCHEMA.names}
    for name in ("host", "dataset"):
        columns[name] = [*map(plain_text, columns[name])]
    columns["kind"] = [row.kind.value for row in rows]
    return encode_rows(RUN_TIMES_SCHEMA, columns)


def decode_run_times(data: bytes, path: str) -> list[RunTime]:
    """The rows of a file.

    Raises:
        UnknownVersionError, CorruptError: if the file is not one that `encode_run_times` wrote.
    """
    rows = decode_rows(data, RUN_TIMES_SCHEMA, _WHAT, path)
    try:
        return [
            RunTime(phase, task, host, pid, daemon_pid, TimeKind(kind), *rest)
            for phase, task, host, pid, daemon_pid, kind, *rest in rows
        ]
    except ValueError as error:
        raise CorruptError(
            f"{_WHAT} is corrupt",
            id="RUN_STATISTICS_CORRUPT",
            path=path,
            found=str(error),
            todo="delete it: nothing depends on it",
        ) from error


def read_run_times(fs: FileSystem, store_root: str, run_id: str) -> Iterator[tuple[str, list[RunTime]]]:
    """Yield for each attempt at a task its 32 digits and its rows.

    Raises:
        UnknownVersionError, CorruptError: if a file cannot be read.
    """
    folder = f"{store_root}/{RUN_TIMES}/{run_name(run_id)}"
    for name in sorted(entry.name for entry in fs.list_folder(folder)):
        if writer := run_times_writer(name):
            path = f"{folder}/{name}"
            yield writer, decode_run_times(fs.read(path), path)

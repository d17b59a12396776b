"""When the tasks of a run committed what: a Parquet table, for people and for the programs that read such tables.

<store>/run_times/run=<run id>/<phase>-<task>-<32 hex>.parquet

Each attempt at a task that had read or committed anything leaves one as it ends, so that no process ever holds more
than its own part; one that dies leaves none. When work units were read is in the task states, whose files of one
attempt at a task have the same 32 digits. Nothing depends on it. Times are milliseconds since 1970, by the clock of the
task's machine.
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

_WHAT = "a table of what tasks did when"


class TimeKind(StrEnum):
    """What a row is about.

    TASK: the task, `count` its work units. COMMITS: one time that it went over its buckets and published `count`
    datasets. PUBLISHED: a dataset, from its seal (0: another process has sealed it) to its being published, `count` its
    records. SEALED: a dataset that it has sealed, and not published itself. REQUESTS: `count` requests of file systems
    that a dataset took: those that read and wrote it, and its share of those that published it with others; of no
    dataset: all others of the task.
    """

    TASK = "task"
    COMMITS = "commits"
    PUBLISHED = "published"
    SEALED = "sealed"
    REQUESTS = "requests"


class RunTime(msgspec.Struct, frozen=True):
    """A row; `phase`, `task`, `host`, `pid` and `daemon_pid` are those of its task: of the Python process that ran it,
    and of the one that this was forked from, of which each executor has its own."""

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
    """Leaves what an attempt at a task did when. Where that fails it is only told."""
    folder = f"{store_root}/{RUN_TIMES}/{run_name(run_id)}"
    try:
        fs.make_folders(folder)
        fs.put_if_absent(f"{folder}/{run_times_name(phase, task, writer)}", encode_run_times(rows))
    except OSError as error:
        logger.warning("when a task committed can't be kept: %s", error, extra={"phase": phase, "task": task})


def encode_run_times(rows: Sequence[RunTime]) -> bytes:
    """The rows as a Parquet file."""
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
            f"{_WHAT} is corrupt", path=path, found=str(error), todo="delete it: nothing depends on it"
        ) from error


def read_run_times(fs: FileSystem, store_root: str, run_id: str) -> Iterator[tuple[str, list[RunTime]]]:
    """What is kept of a run's times, by attempt at a task: its 32 digits, and its rows.

    Raises:
        UnknownVersionError, CorruptError: if a file can't be read.
    """
    folder = f"{store_root}/{RUN_TIMES}/{run_name(run_id)}"
    for name in sorted(entry.name for entry in fs.list_folder(folder)):
        if writer := run_times_writer(name):
            path = f"{folder}/{name}"
            yield writer, decode_run_times(fs.read(path), path)

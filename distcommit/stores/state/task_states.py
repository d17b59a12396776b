"""Task states: outcomes of task attempts, in append-only Parquet tables by run and partition.

Bucket b belongs to partition b mod the number of partitions. A task puts one file for each partition; the owner of the
partition reads it once.
"""

from __future__ import annotations

import uuid
from collections.abc import Container, Mapping, Sequence
from contextlib import suppress
from itertools import count
from threading import Lock

from distcommit.core.errors import CorruptError
from distcommit.core.interfaces.file_system import FileSystem
from distcommit.core.work_units import TaskState
from distcommit.protocol.paths.shared_names import bucket_of_work_unit
from distcommit.protocol.paths.store import (
    INGEST_ENDED,
    TASK_STATES,
    holds_bucket,
    is_table,
    partition_name,
    run_id_of,
    run_name,
    task_states_start,
)
from distcommit.stores.state.plan_and_task_state_encoding import (
    check_table,
    decode_task_states,
    encode_task_states,
    table_name,
)


def run_folder(store_root: str, run_id: str) -> str:
    return f"{store_root}/{TASK_STATES}/{run_name(run_id)}"


def prepare_run(fs: FileSystem, store_root: str, run_id: str, partition: int, partitions: int) -> None:
    folder = f"{run_folder(store_root, run_id)}/{partition_name(partition, partitions)}"
    fs.make_folders(folder)
    fs.sync([folder], store_root)


def record_ingest_ended(fs: FileSystem, store_root: str, run_id: str) -> None:
    """Record durably that no more task states will come: missing attempts count as failed.

    Raises:
        FileNotFoundError: if a newer run has swept the folder.
    """
    fs.put_if_absent(f"{run_folder(store_root, run_id)}/{INGEST_ENDED}", b"")


def ingest_ended(fs: FileSystem, store_root: str, run_id: str) -> bool:
    """Return whether `record_ingest_ended` was called. Call it before polling."""
    return fs.status(f"{run_folder(store_root, run_id)}/{INGEST_ENDED}") is not None


class PastStates:
    """Task states of past runs. Each file is read once. Thread-safe. Corrupt files and deleted runs have no rows."""

    def __init__(self, fs: FileSystem, store_root: str) -> None:
        self._fs, self._root = fs, store_root
        self._reading, self._read = Lock(), dict[str, dict[int | None, list[TaskState]]]()
        self._epochs = dict[str, int]()

    def of_epoch(self, epoch: int, bucket: int) -> list[TaskState]:
        runs = [entry.name for entry in self._fs.list_folder(f"{self._root}/{TASK_STATES}") if entry.is_folder]
        with self._reading:
            run = next((run for run in sorted(runs, reverse=True) if self._epoch_of(run) == epoch), None)
        return self.of(run_id_of(run), bucket) if run is not None else []

    def _epoch_of(self, run: str) -> int:
        if run not in self._epochs:
            folder = f"{self._root}/{TASK_STATES}/{run}"
            tables = (
                f"{folder}/{part.name}/{entry.name}"
                for part in self._fs.list_folder(folder)
                if part.is_folder
                for entry in self._fs.list_folder(f"{folder}/{part.name}")
                if is_table(entry.name)
            )
            self._epochs[run] = next((state.epoch for path in tables for state in self._rows(path)), 0)
        return self._epochs[run]

    def of(self, run_id: str, bucket: int) -> list[TaskState]:
        run = run_folder(self._root, run_id)
        with self._reading:
            names = [
                entry.name
                for entry in self._fs.list_folder(run)
                if entry.is_folder and holds_bucket(entry.name, bucket)
            ]
            return [state for name in names for state in self._in_folder(f"{run}/{name}").get(bucket, ())]

    def _in_folder(self, folder: str) -> dict[int | None, list[TaskState]]:
        if folder not in self._read:
            rows_by_bucket: dict[int | None, list[TaskState]] = {}
            for entry in self._fs.list_folder(folder):
                if is_table(entry.name):
                    for state in self._rows(f"{folder}/{entry.name}"):
                        rows_by_bucket.setdefault(bucket_of_work_unit(state.work_unit_id), []).append(state)
            self._read[folder] = rows_by_bucket
        return self._read[folder]

    def _rows(self, path: str) -> list[TaskState]:
        with suppress(CorruptError, FileNotFoundError):
            return decode_task_states(check_table(self._fs.read(path), path), path)
        return []


class TaskStateWriter:
    """Writer of a run's task states, with one file for each partition that owns buckets.

    Args:
        partitions: number of partitions that own buckets.

    Attributes:
        writer: id of the writer, 32 hexadecimal digits, with which its file names begin.
    """

    def __init__(self, fs: FileSystem, store_root: str, run_id: str, partitions: int) -> None:
        self._fs, self._folder, self._partitions = fs, run_folder(store_root, run_id), partitions
        self.writer, self._number = uuid.uuid4().hex, 0

    def append(self, states: Mapping[int, Sequence[TaskState]]) -> dict[int, str | OSError]:
        """Put rows by bucket. Return the name of each bucket's durable file, or the error. Readers see all rows of a
        file or none."""
        owned: dict[int, list[int]] = {}
        for bucket in states:
            owned.setdefault(bucket % self._partitions, []).append(bucket)
        files: list[tuple[str, bytes]] = []
        for partition, buckets in owned.items():
            self._number += 1
            data = encode_task_states([state for bucket in buckets for state in states[bucket]])
            name = table_name(task_states_start(self.writer, self._number), data)
            files.append((f"{self._folder}/{partition_name(partition, self._partitions)}/{name}", data))
        answers = self._fs.put_all_if_absent(files)
        return {
            bucket: answer if isinstance(answer, OSError) else path.rpartition("/")[2]
            for buckets, (path, _), answer in zip(owned.values(), files, answers, strict=True)
            for bucket in buckets
        }


class TaskStateTables:
    """The task-state files of one run, for the readers of some buckets. Each file is read once. Thread-safe.

    Args:
        partitions: number of partitions that own buckets.
        buckets: buckets with readers. Rows of other buckets are skipped.
    """

    def __init__(self, fs: FileSystem, store_root: str, run_id: str, partitions: int, buckets: Container[int]) -> None:
        self._fs, self._folder, self._buckets = fs, run_folder(store_root, run_id), buckets
        self._owners = [_PartitionFiles(partition_name(owner, partitions)) for owner in range(partitions)]

    def add_states(self, name: str, bucket: int, states: Sequence[TaskState]) -> None:
        """Add rows that this process has written to a file, so that the file is not read. Add the rows of all its
        buckets before the next read."""
        owner = self._partition_of(bucket)
        with owner.reading:
            owner.seen.add(name)
            owner.untaken.setdefault(bucket, []).extend(states)

    def take(self, bucket: int, *, from_start: bool) -> tuple[list[TaskState], Sequence[CorruptError]]:
        """Return a bucket's rows in new files, or with `from_start` in all files, that exist now.

        The second value contains the errors of corrupt files.

        Raises:
            OSError: if files cannot be read; no row is lost.
        """
        owner = self._partition_of(bucket)
        call_moment = next(owner.moments)
        with owner.reading:
            if owner.read_at < call_moment:  # else another thread has read while this one waited
                read_moment = next(owner.moments)
                self._read_new_files(owner)
                owner.read_at = read_moment
            rows = owner.untaken.get(bucket, [])
            if from_start and bucket in owner.taken:
                rows = self._read_again(owner, bucket)
            owner.untaken.pop(bucket, None)
            owner.taken.add(bucket)
            return rows, tuple(owner.corrupt)

    def _partition_of(self, bucket: int) -> _PartitionFiles:
        return self._owners[bucket % len(self._owners)]

    def _read_new_files(self, owner: _PartitionFiles) -> None:
        for entry in self._fs.list_folder(f"{self._folder}/{owner.name}"):
            if entry.name in owner.seen or not is_table(entry.name):
                continue
            try:
                states = self._read(owner, entry.name)
            except CorruptError as error:
                owner.corrupt.append(error)
                states = []
            owner.seen.add(entry.name)
            for state in states:
                bucket = bucket_of_work_unit(state.work_unit_id)
                if bucket is not None and bucket in self._buckets:
                    owner.untaken.setdefault(bucket, []).append(state)

    def _read_again(self, owner: _PartitionFiles, bucket: int) -> list[TaskState]:
        """Return all rows for a reader that starts over. Rows are cached, because after an outage all readers do so."""
        if owner.reread_at != len(owner.seen) or bucket not in owner.reread:
            reread: dict[int | None, list[TaskState]] = {selected: [] for selected in owner.taken}
            for name in sorted(owner.seen):
                with suppress(CorruptError):  # reported already
                    for state in self._read(owner, name):
                        if (rows := reread.get(bucket_of_work_unit(state.work_unit_id))) is not None:
                            rows.append(state)
            owner.reread, owner.reread_at = reread, len(owner.seen)
        return owner.reread.pop(bucket)

    def _read(self, owner: _PartitionFiles, name: str) -> list[TaskState]:
        path = f"{self._folder}/{owner.name}/{name}"
        return decode_task_states(check_table(self._fs.read(path), path), path)


class _PartitionFiles:
    """The files of a partition, as read so far. `reread` caches rows while `seen` has `reread_at` names."""

    def __init__(self, name: str) -> None:
        self.name, self.reading = name, Lock()
        self.moments, self.read_at = count(1), 0
        self.seen, self.taken = set[str](), set[int]()
        self.untaken: dict[int, list[TaskState]] = {}
        self.reread, self.reread_at = dict[int | None, list[TaskState]](), 0
        self.corrupt: list[CorruptError] = []


class TaskStateReader:
    """Reader of one bucket's task states. Each `poll` returns the new ones."""

    def __init__(self, tables: TaskStateTables, bucket: int) -> None:
        self._tables, self._bucket, self._reported, self._has_begun = tables, bucket, 0, False
        self._unpolled: list[TaskState] = []

    def add_states(self, name: str, states: Sequence[TaskState]) -> None:
        self._tables.add_states(name, self._bucket, states)

    def poll(self) -> list[TaskState]:
        """Return the rows of new files.

        Raises:
            CorruptError: if a file is corrupt; the next call returns the rows of the other files.
            OSError: if files cannot be read; the next call reads them again.
        """
        states, corrupt = self._tables.take(self._bucket, from_start=not self._has_begun)
        self._has_begun = True
        self._unpolled += states
        if len(corrupt) > self._reported:
            self._reported = len(corrupt)
            raise corrupt[-1]
        rows, self._unpolled = self._unpolled, []
        return rows

"""The TaskStateStore: what task attempts report, as append-only Parquet tables by run and partition.

A partition owns buckets (bucket b belongs to partition b mod their number), and all that is reported of these lies in
one folder: a task that puts states of many buckets puts one file, and who commits them reads it once.
"""

from __future__ import annotations

import uuid
from collections.abc import Container, Mapping, Sequence
from contextlib import suppress
from itertools import count
from threading import Lock

from distcommit.core.errors import CorruptError
from distcommit.core.ports import FileSystem
from distcommit.core.work import TaskState
from distcommit.protocol.paths.parts import bucket_of_work_unit
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
from distcommit.stores.state.stored_tables import check_table, decode_task_states, encode_task_states, table_name


def run_folder(store_root: str, run_id: str) -> str:
    """Where a run's task states are."""
    return f"{store_root}/{TASK_STATES}/{run_name(run_id)}"


def prepare_run(fs: FileSystem, store_root: str, run_id: str, partition: int, partitions: int) -> None:
    """Makes a partition's folder for a run, durably. Idempotent."""
    folder = f"{run_folder(store_root, run_id)}/{partition_name(partition, partitions)}"
    fs.make_folders(folder)
    fs.sync([folder], store_root)


def record_ingest_ended(fs: FileSystem, store_root: str, run_id: str) -> None:
    """Records durably that no more task states are awaited: what is missing counts as failed from here on.

    Raises:
        FileNotFoundError: if the run's folder is gone: a newer run has swept it.
    """
    fs.put_if_absent(f"{run_folder(store_root, run_id)}/{INGEST_ENDED}", b"")


def ingest_ended(fs: FileSystem, store_root: str, run_id: str) -> bool:
    """Whether `record_ingest_ended` was called. Ask before polling, not after."""
    return fs.status(f"{run_folder(store_root, run_id)}/{INGEST_ENDED}") is not None


class PastStates:
    """What runs that are over have left, however many partitions they had, for who asks for many buckets: each file is
    read once. Threads may share it. Files that are corrupt tell nothing, and neither does a run that was forgotten.

    Args:
        fs: where the store is.
        store_root: its folder.
    """

    def __init__(self, fs: FileSystem, store_root: str) -> None:
        self._fs, self._root = fs, store_root
        self._reading, self._read = Lock(), dict[str, dict[int | None, list[TaskState]]]()
        self._epochs = dict[str, int]()

    def of_epoch(self, epoch: int, bucket: int) -> list[TaskState]:
        """The rows of a bucket of the run that has this epoch."""
        runs = [entry.name for entry in self._fs.list_folder(f"{self._root}/{TASK_STATES}") if entry.is_folder]
        with self._reading:
            run = next((run for run in sorted(runs, reverse=True) if self._epoch_of(run) == epoch), None)
        return self.of(run_id_of(run), bucket) if run is not None else []

    def _epoch_of(self, run: str) -> int:
        """That of a run's rows, 0 if there are none; of its files one is read for that."""
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
        """The rows of a bucket."""
        run = run_folder(self._root, run_id)
        with self._reading:
            names = [
                entry.name
                for entry in self._fs.list_folder(run)
                if entry.is_folder and holds_bucket(entry.name, bucket)
            ]
            return [state for name in names for state in self._in_folder(f"{run}/{name}").get(bucket, ())]

    def _in_folder(self, folder: str) -> dict[int | None, list[TaskState]]:
        """Its rows by bucket, kept for the next one that asks."""
        if folder not in self._read:
            found: dict[int | None, list[TaskState]] = {}
            for entry in self._fs.list_folder(folder):
                if is_table(entry.name):
                    for state in self._rows(f"{folder}/{entry.name}"):
                        found.setdefault(bucket_of_work_unit(state.work_unit_id), []).append(state)
            self._read[folder] = found
        return self._read[folder]

    def _rows(self, path: str) -> list[TaskState]:
        with suppress(CorruptError, FileNotFoundError):
            return decode_task_states(check_table(self._fs.read(path), path), path)
        return []


class TaskStateWriter:
    """Appends rows for buckets of one run, a whole file for each partition that owns some of them.

    Args:
        fs: where the store is.
        store_root: its folder.
        run_id: the run.
        partitions: how many of it own buckets.

    Attributes:
        writer: 32 hexadecimal digits that the names of its files begin with.
    """

    def __init__(self, fs: FileSystem, store_root: str, run_id: str, partitions: int) -> None:
        self._fs, self._folder, self._partitions = fs, run_folder(store_root, run_id), partitions
        self.writer, self._number = uuid.uuid4().hex, 0

    def append(self, states: Mapping[int, Sequence[TaskState]]) -> dict[int, str | OSError]:
        """Puts rows by bucket, and returns the name of each bucket's file once it is durable, or why it could not
        be written. Readers see all rows of a file or none."""
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
    """Follows the files of one run, for the readers of these buckets: each file is read once for all of its partition.

    Threads may share it.

    Args:
        fs: where the store is.
        store_root: its folder.
        run_id: the run.
        partitions: how many of it own buckets.
        buckets: those that there are readers of; rows of others are passed over.
    """

    def __init__(self, fs: FileSystem, store_root: str, run_id: str, partitions: int, buckets: Container[int]) -> None:
        self._fs, self._folder, self._buckets = fs, run_folder(store_root, run_id), buckets
        self._owners = [_Owner(partition_name(owner, partitions)) for owner in range(partitions)]

    def know(self, name: str, bucket: int, states: Sequence[TaskState]) -> None:
        """Takes the rows of one bucket that this process has put itself in that file, which is not read again: each
        bucket in it has to be made known before the next look."""
        owner = self._owner_of(bucket)
        with owner.looking:
            owner.seen.add(name)
            owner.found.setdefault(bucket, []).extend(states)

    def take(self, bucket: int, *, anew: bool) -> tuple[list[TaskState], Sequence[CorruptError]]:
        """The rows of a bucket that nobody has taken yet, or with `anew` all of them, of all files that were there when
        this was called; and why files could not be used, of the whole partition, from the first on.

        Raises:
            OSError: if files can't be read. No row is lost by that.
        """
        owner = self._owner_of(bucket)
        called_at = next(owner.moments)
        with owner.looking:
            if owner.looked_at < called_at:  # else somebody has looked while this waited
                looked_at = next(owner.moments)
                self._look(owner)
                owner.looked_at = looked_at
            found = owner.found.get(bucket, [])
            if anew and bucket in owner.taken:
                found = self._read_again(owner, bucket)
            owner.found.pop(bucket, None)
            owner.taken.add(bucket)
            return found, tuple(owner.corrupt)

    def _owner_of(self, bucket: int) -> _Owner:
        return self._owners[bucket % len(self._owners)]

    def _look(self, owner: _Owner) -> None:
        """Reads files that were not there last time, found by set difference."""
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
                    owner.found.setdefault(bucket, []).append(state)

    def _read_again(self, owner: _Owner, bucket: int) -> list[TaskState]:
        """All rows of a bucket, for somebody who begins with it once more. In an outage that is who works at any other
        bucket, too: their rows are kept for them until there are new files."""
        if owner.again_of != len(owner.seen) or bucket not in owner.again:
            again: dict[int | None, list[TaskState]] = {each: [] for each in owner.taken}
            for name in sorted(owner.seen):
                with suppress(CorruptError):  # it is among the known ones
                    for state in self._read(owner, name):
                        if (found := again.get(bucket_of_work_unit(state.work_unit_id))) is not None:
                            found.append(state)
            owner.again, owner.again_of = again, len(owner.seen)
        return owner.again.pop(bucket)

    def _read(self, owner: _Owner, name: str) -> list[TaskState]:
        path = f"{self._folder}/{owner.name}/{name}"
        return decode_task_states(check_table(self._fs.read(path), path), path)


class _Owner:
    """What is known of one partition's files: those that were seen, rows that nobody has taken yet, by bucket, and the
    buckets of which rows were taken; and, as of so many files, all rows of buckets that may be begun with again."""

    def __init__(self, name: str) -> None:
        self.name, self.looking = name, Lock()
        self.moments, self.looked_at = count(1), 0
        self.seen, self.taken = set[str](), set[int]()
        self.found: dict[int, list[TaskState]] = {}
        self.again, self.again_of = dict[int | None, list[TaskState]](), 0
        self.corrupt: list[CorruptError] = []


class TaskStateReader:
    """Follows one bucket of one run, by the files of the partition that owns it."""

    def __init__(self, tables: TaskStateTables, bucket: int) -> None:
        self._tables, self._bucket, self._told, self._has_begun = tables, bucket, 0, False
        self._found: list[TaskState] = []

    def know(self, name: str, states: Sequence[TaskState]) -> None:
        """Takes rows that this process has put itself as read; the next `poll` gives them."""
        self._tables.know(name, self._bucket, states)

    def poll(self) -> list[TaskState]:
        """Rows of files that were not there last time.

        Raises:
            CorruptError: if a file is corrupt; the others are given by the next call.
            OSError: if the files can't be read; the next call takes them up again.
        """
        states, corrupt = self._tables.take(self._bucket, anew=not self._has_begun)
        self._has_begun = True
        self._found += states
        if len(corrupt) > self._told:
            self._told = len(corrupt)
            raise corrupt[-1]
        found, self._found = self._found, []
        return found

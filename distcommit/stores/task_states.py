"""The TaskStateStore: what task attempts report, as append-only Parquet tables by run and bucket."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress

from distcommit.model.errors import CorruptError
from distcommit.model.ports import FileSystem
from distcommit.model.work import TaskState
from distcommit.protocol.paths import INGEST_ENDED, bucket_name, run_id_of, run_name
from distcommit.stores.tables import check_table, decode_task_states, encode_task_states, table_name


def run_folder(store_root: str, run_id: str) -> str:
    """Where a run's task states are."""
    return f"{store_root}/task_states/{run_name(run_id)}"


def prepare_run(fs: FileSystem, store_root: str, run_id: str, bucket: int) -> None:
    """Makes a bucket's folder for a run, durably. Idempotent."""
    folder = f"{run_folder(store_root, run_id)}/{bucket_name(bucket)}"
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


def states_of(
    fs: FileSystem, store_root: str, epoch: int, bucket: int, attempts: Collection[str]
) -> dict[str, TaskState]:
    """What is known of these attempts of a run in a bucket, by attempt. Files that are corrupt, and runs that were
    forgotten, tell nothing."""
    found: dict[str, TaskState] = {}
    root = f"{store_root}/task_states"
    for run in sorted((entry.name for entry in fs.list_folder(root) if entry.is_folder), reverse=True):
        reader = TaskStateReader(fs, store_root, run_id_of(run), bucket)
        states: list[TaskState] = []
        with suppress(CorruptError):
            states += reader.poll()
        with suppress(CorruptError):
            states += reader.poll()
        found |= {state.attempt: state for state in states if state.epoch == epoch and state.attempt in attempts}
        if any(state.epoch == epoch for state in states):
            break
    return found


class TaskStateWriter:
    """Appends rows for buckets of one run, a whole file each time.

    Args:
        fs: where the store is.
        store_root: its folder.
        run_id: the run.

    Attributes:
        writer: 32 hexadecimal digits that the names of its files begin with.
    """

    def __init__(self, fs: FileSystem, store_root: str, run_id: str) -> None:
        self._fs, self._folder = fs, run_folder(store_root, run_id)
        self.writer, self._number = uuid.uuid4().hex, 0

    def append(self, states: Mapping[int, Sequence[TaskState]]) -> dict[int, str | OSError]:
        """Publishes rows by bucket, and returns the name of each bucket's file once it is durable, or why it could not
        be written. Readers see all rows of a file or none."""
        names: dict[int, str] = {}
        files: list[tuple[str, bytes]] = []
        for bucket, rows in states.items():
            self._number += 1
            data = encode_task_states(rows)
            names[bucket] = table_name(f"{self.writer}-{self._number:06d}", data)
            files.append((f"{self._folder}/{bucket_name(bucket)}/{names[bucket]}", data))
        answers = self._fs.put_all_if_absent(files)
        return {
            bucket: answer if isinstance(answer, OSError) else name
            for (bucket, name), answer in zip(names.items(), answers, strict=True)
        }


class TaskStateReader:
    """Follows one bucket of one run."""

    def __init__(self, fs: FileSystem, store_root: str, run_id: str, bucket: int) -> None:
        self._fs, self._folder = fs, f"{run_folder(store_root, run_id)}/{bucket_name(bucket)}"
        self._seen: set[str] = set()
        self._found: list[TaskState] = []

    def know(self, name: str, states: Sequence[TaskState]) -> None:
        """Takes rows that this process has put itself as read; the next `poll` gives them."""
        self._seen.add(name)
        self._found += states

    def poll(self) -> list[TaskState]:
        """Rows of files that were not there last time, found by set difference.

        Raises:
            CorruptError: if a file is corrupt; the others are given by the next call.
        """
        corrupt: CorruptError | None = None
        for entry in self._fs.list_folder(self._folder):
            if entry.name in self._seen or not entry.name.endswith(".parquet") or entry.name.startswith("."):
                continue
            path = f"{self._folder}/{entry.name}"
            data = self._fs.read(path)
            self._seen.add(entry.name)
            try:
                self._found += decode_task_states(check_table(data, path), path)
            except CorruptError as error:
                corrupt = error
        if corrupt is not None:
            raise corrupt
        found, self._found = self._found, []
        return found

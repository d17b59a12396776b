"""Retention: how much history of ended runs is kept, and the deletion of the rest."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from distcommit.core.interfaces.file_system import FileSystem
from distcommit.protocol.paths.store import (
    LOCK,
    PLANS,
    PROGRESS,
    READING,
    RUN_TABLES,
    RUNS,
    TASK_STATES,
    holds_bucket,
    is_run_name,
    partition_of,
    record_of,
    run_id_of,
    run_name,
)
from distcommit.protocol.paths.temporary_and_probes import is_temporary
from distcommit.stores.folders.folder_trees import delete_tree
from distcommit.stores.state.task_states import PastStates


@dataclass(frozen=True, slots=True)
class Retention:
    """How much history is kept.

    Attributes:
        runs: number of older runs whose records are kept.
        tables: number of older runs whose plans, task states and run tables are kept.
    """

    runs: int = 100
    tables: int = 10


DEFAULT_RETENTION = Retention()

_TABLES = (PLANS, TASK_STATES, RUN_TABLES)


def expire_history(
    fs: FileSystem,
    store_root: str,
    run_id: str,
    partition: int,
    partitions: int,
    retention: Retention,
    refused: Collection[int] = (),
) -> None:
    """Delete the expired history of runs before this one.

    Each partition deletes the table folders with its number, even if their run had another number of buckets or
    partitions, and empty run folders. Partition 0 also deletes run records, and the progress, signs of life and work
    unit notes of dead runs.

    Runs are ordered by their ids, which sort by time. The history of runs with a higher id than this run's is kept,
    because they may be newer and need it to recover buckets.

    Args:
        run_id: id of the run that deletes.
        partition: number of the partition that deletes.
        retention: how much is kept.
        refused: buckets that could not be recovered. Their task states are kept, because they show whether a log has
            lost its newest segments.

    Raises:
        OSError, UnknownVersionError: if a file cannot be read or deleted. A later run deletes the rest.
    """
    own, past = run_name(run_id), PastStates(fs, store_root)

    def is_needed(table: str, run: str, folder: str) -> bool:
        buckets = [bucket for bucket in refused if table == TASK_STATES and holds_bucket(folder, bucket)]
        return any(past.of(run_id_of(run), bucket) for bucket in buckets)

    for table in _TABLES:
        entries = fs.list_folder(f"{store_root}/{table}")
        runs = sorted(entry.name for entry in entries if entry.is_folder and entry.name < own)
        for run in runs[: -retention.tables]:
            folder = f"{store_root}/{table}/{run}"
            for entry in fs.list_folder(folder):
                owner = partition_of(entry.name) if entry.is_folder else None
                is_own = owner is not None and owner[0] % partitions == partition
                if is_own and not is_needed(table, run, entry.name):
                    delete_tree(fs, f"{folder}/{entry.name}")
            if not any(entry.is_folder for entry in fs.list_folder(folder)):
                delete_tree(fs, folder)
    if partition == 0:
        _delete_old_records(fs, f"{store_root}/{RUNS}", retention.runs)
        _delete_old_folders(fs, f"{store_root}/{LOCK}", own, retention.runs)
        _delete_old_folders(
            fs, f"{store_root}/{PROGRESS}", own, retention.tables
        )  # of dead runs: live ones delete their own
        _delete_old_folders(fs, f"{store_root}/{READING}", own, retention.tables)


def _delete_old_folders(fs: FileSystem, folder: str, own: str, keep: int) -> None:
    past = sorted(e.name for e in fs.list_folder(folder) if e.is_folder and is_run_name(e.name) and e.name < own)
    for run in past[:-keep]:
        delete_tree(fs, f"{folder}/{run}")


def _delete_old_records(fs: FileSystem, folder: str, keep: int) -> None:
    entries = fs.list_folder(folder)
    epochs = {
        entry.name: epoch_and_kind[0] for entry in entries if (epoch_and_kind := record_of(entry.name)) is not None
    }
    oldest_kept = sorted(set(epochs.values()))[-keep - 1 :][:1]
    past = [name for name, epoch in epochs.items() if oldest_kept and epoch < oldest_kept[0]]
    temporary = [entry.name for entry in entries if is_temporary(entry.name)]
    for name in (*past, *temporary):
        fs.delete(f"{folder}/{name}")

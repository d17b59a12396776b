"""Plans, task states, outcomes by dataset, times and records of past runs are kept for people to look at; nothing else
needs them once a run is over."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from distcommit.core.ports import FileSystem
from distcommit.protocol.paths.store import (
    LOCK,
    PLANS,
    PROGRESS,
    RUN_DATASETS,
    RUN_TIMES,
    RUNS,
    TASK_STATES,
    holds_bucket,
    is_run_name,
    partition_of,
    record_of,
    run_id_of,
    run_name,
)
from distcommit.protocol.paths.temporary import is_temporary
from distcommit.stores.folders.deletion import delete_tree
from distcommit.stores.state.task_states import PastStates


@dataclass(frozen=True, slots=True)
class Retention:
    """How many runs are kept beside the newest: their records (`runs`), and their tables (`tables`)."""

    runs: int = 100
    tables: int = 10


USUALLY_KEPT = Retention()

_TABLES = (PLANS, TASK_STATES, RUN_DATASETS, RUN_TIMES)


def forget_runs(
    fs: FileSystem,
    store_root: str,
    run_id: str,
    partition: int,
    partitions: int,
    kept: Retention,
    refused: Collection[int] = (),
) -> None:
    """Deletes what runs before this one have left in tables: each partition the folders with its number, whatever the
    number of buckets or partitions was then, and folders in which there is no other; and, partition 0, the records of
    such runs and how far those were that died.

    Run ids sort by time. What every sequence needs is in its log, so a run that is still pending loses nothing. A run
    whose id is above this one's loses nothing either: a process that slept since it recovered does not know what newer
    ones could not recover, and a clock that was set back makes this run's own id the lower one.

    Args:
        fs: where the store is.
        store_root: its folder.
        run_id: the run that does it.
        partition: which of its partitions, and
        partitions: of how many.
        kept: of how many runs everything stays.
        refused: buckets that could not be recovered. What was reported of them stays, which tells whether their logs
            have lost their newest segments.

    Raises:
        OSError, UnknownVersionError: if something can't be looked at or deleted; a later run goes on with it.
    """
    own, past = run_name(run_id), PastStates(fs, store_root)

    def is_needed(table: str, run: str, folder: str) -> bool:
        asked = [bucket for bucket in refused if table == TASK_STATES and holds_bucket(folder, bucket)]
        return any(past.of(run_id_of(run), bucket) for bucket in asked)

    for table in _TABLES:
        entries = fs.list_folder(f"{store_root}/{table}")
        runs = sorted(entry.name for entry in entries if entry.is_folder and entry.name < own)
        for run in runs[: -kept.tables]:
            folder = f"{store_root}/{table}/{run}"
            for entry in fs.list_folder(folder):
                owner = partition_of(entry.name) if entry.is_folder else None
                is_mine = owner is not None and owner[0] % partitions == partition
                if is_mine and not is_needed(table, run, entry.name):
                    delete_tree(fs, f"{folder}/{entry.name}")
            if not any(entry.is_folder for entry in fs.list_folder(folder)):
                delete_tree(fs, folder)
    if partition == 0:
        _forget_records(fs, f"{store_root}/{RUNS}", kept.runs)
        _forget_folders(fs, f"{store_root}/{LOCK}", own, kept.runs)
        _forget_folders(fs, f"{store_root}/{PROGRESS}", own, kept.tables)  # of runs that died: others take theirs away


def _forget_folders(fs: FileSystem, folder: str, own: str, keep: int) -> None:
    """Deletes the folders of runs before this one, but for so many."""
    past = sorted(e.name for e in fs.list_folder(folder) if e.is_folder and is_run_name(e.name) and e.name < own)
    for run in past[:-keep]:
        delete_tree(fs, f"{folder}/{run}")


def _forget_records(fs: FileSystem, folder: str, keep: int) -> None:
    """Also what a run left that died as it put its record; one that is about to puts it again."""
    entries = fs.list_folder(folder)
    found = {entry.name: known[0] for entry in entries if (known := record_of(entry.name)) is not None}
    oldest_kept = sorted(set(found.values()))[-keep - 1 :][:1]
    past = [name for name, epoch in found.items() if oldest_kept and epoch < oldest_kept[0]]
    unput = [entry.name for entry in entries if is_temporary(entry.name)]
    for name in (*past, *unput):
        fs.delete(f"{folder}/{name}")

"""Plans and task states of past runs are kept for people to look at; nothing else needs them once a run is over."""

from __future__ import annotations

from collections.abc import Iterable

from distcommit.model.ports import FileSystem
from distcommit.protocol.paths import bucket_name

KEPT_RUNS = 10
_TABLES = ("plans", "task_states")


def forget_runs(fs: FileSystem, store_root: str, buckets: Iterable[int], keep: int) -> None:
    """Deletes what runs before the newest `keep` have left in the tables of these buckets, then folders that are empty.

    Run ids sort by time. What every sequence needs is in its log, so a run that is still pending loses nothing.
    """
    names = list(map(bucket_name, buckets))
    for table in _TABLES:
        runs = sorted(entry.name for entry in fs.list_folder(f"{store_root}/{table}") if entry.is_folder)
        for run in runs[:-keep]:
            folder = f"{store_root}/{table}/{run}"
            for name in names:
                _empty(fs, f"{folder}/{name}")
            if not any(entry.is_folder for entry in fs.list_folder(folder)):
                _empty(fs, folder)


def _empty(fs: FileSystem, folder: str) -> None:
    for entry in fs.list_folder(folder):
        if not entry.is_folder:
            fs.delete(f"{folder}/{entry.name}")
    fs.delete_folder(folder)

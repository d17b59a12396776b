"""Plans, task states and records of past runs are kept for people to look at; nothing else needs them once a run is
over."""

from __future__ import annotations

from collections.abc import Iterable

from distcommit.model.ports import FileSystem
from distcommit.protocol.paths import RUNS, TEMPORARY, bucket_name, bucket_number, record_epoch, record_name
from distcommit.stores.deletion import delete_tree

KEPT_RUNS = 10
_TABLES = ("plans", "task_states")


def forget_runs(fs: FileSystem, store_root: str, owned: Iterable[int], buckets: int, keep: int) -> None:
    """Deletes what runs before the newest `keep` have left in the tables of these buckets, then folders that are empty;
    and, for bucket 0, the records of such runs, and what they left of buckets above the `buckets` that there are now.

    Run ids sort by time. What every sequence needs is in its log, so a run that is still pending loses nothing.
    """
    owned = list(owned)
    names = list(map(bucket_name, owned))
    for table in _TABLES:
        runs = sorted(entry.name for entry in fs.list_folder(f"{store_root}/{table}") if entry.is_folder)
        for run in runs[:-keep]:
            folder = f"{store_root}/{table}/{run}"
            for name in [*names, *(_above(fs, folder, buckets) if 0 in owned else ())]:
                delete_tree(fs, f"{folder}/{name}")
            if not any(entry.is_folder for entry in fs.list_folder(folder)):
                delete_tree(fs, folder)
    if 0 in owned:
        _forget_records(fs, f"{store_root}/{RUNS}", keep)


def _above(fs: FileSystem, folder: str, buckets: int) -> list[str]:
    """Folders of buckets that there are no more."""
    numbers = (bucket_number(entry.name) for entry in fs.list_folder(folder) if entry.is_folder)
    return [bucket_name(number) for number in numbers if number is not None and number >= buckets]


def _forget_records(fs: FileSystem, folder: str, keep: int) -> None:
    """Also what a run left that died as it put its record; one that is about to puts it again."""
    entries = fs.list_folder(folder)
    epochs = sorted(epoch for entry in entries if (epoch := record_epoch(entry.name)) is not None)
    unput = [entry.name for entry in entries if entry.name.startswith(TEMPORARY)]
    for name in (*map(record_name, epochs[:-keep]), *unput):
        fs.delete(f"{folder}/{name}")

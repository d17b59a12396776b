"""Detects orphaned files in staging, and whether the next run deletes them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from distcommit.core.interfaces.file_system import FolderEntry
from distcommit.protocol.log_state import Fold
from distcommit.protocol.next_log_record import next_epoch
from distcommit.protocol.paths.shared_names import OWNERSHIP_FOLDER, bucket_number, epoch_name
from distcommit.protocol.paths.staging import SPOOL_FOLDER, noted_attempt
from distcommit.protocol.paths.temporary_and_probes import is_probe
from distcommit.stores.folders.folder_trees import files_below
from distcommit.stores.folders.staging import epoch_of, swept_epochs
from distcommit.stores.state.job_store import JobStore


@dataclass(frozen=True, slots=True)
class OrphanedFile:
    """A file in staging, or an attempt's folder or note, that no sequence needs.

    Attributes:
        path: path relative to the staging root.
        reason: why the next run keeps it; empty if the next run deletes it.
    """

    path: str
    reason: str = ""


def orphaned_files(store: JobStore, folds: Mapping[int, Fold]) -> Iterator[OrphanedFile]:
    """Yield the files that no sequence needs. Files of buckets without a fold are skipped.

    Raises:
        DistcommitError, OSError: if the job log or the staging folder can't be read.
    """
    epoch = next_epoch(store.job_log().refresh())
    for entry in sorted(store.fs.list_folder(store.roots.staging), key=lambda entry: entry.name):
        staged = epoch_of(entry)
        if staged is not None:
            yield from _of_epoch(store, folds, staged, epoch)
        elif entry.name not in (OWNERSHIP_FOLDER, SPOOL_FOLDER) and not is_probe(entry.name):
            yield from _foreign(store, entry, entry.name)


def _of_epoch(store: JobStore, folds: Mapping[int, Fold], staged: int, epoch: int) -> Iterator[OrphanedFile]:
    for entry in store.fs.list_folder(f"{store.roots.staging}/{epoch_name(staged)}"):
        path = f"{epoch_name(staged)}/{entry.name}"
        bucket = bucket_number(entry.name)
        is_ours = bucket is not None and (bucket < store.buckets or store.generation > 0)
        if not entry.is_folder or bucket is None or not is_ours:
            yield from _foreign(store, entry, path)
            continue
        fold = folds.get(bucket)
        for below in store.fs.list_folder(f"{store.roots.staging}/{path}"):
            if not below.is_folder and noted_attempt(below.name) is None:
                yield from _foreign(store, below, f"{path}/{below.name}")
            elif staged >= epoch:
                yield OrphanedFile(f"{path}/{below.name}", f"the next run, epoch {epoch}, deletes older attempts only")
            # of another generation: all was idle when that ended
            elif bucket >= store.buckets or (fold is not None and swept_epochs([staged], epoch, fold)):
                yield OrphanedFile(f"{path}/{below.name}")


def _foreign(store: JobStore, entry: FolderEntry, path: str) -> Iterator[OrphanedFile]:
    root = f"{store.roots.staging}/"
    for file in files_below(store.fs, root + path) if entry.is_folder else [root + path]:
        yield OrphanedFile(file.removeprefix(root), "no attempt of this job stages files at this path")

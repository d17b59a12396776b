"""Deletion of superseded files and tombstones."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress

from distcommit.core.dataset_urn import folder_of
from distcommit.core.errors import CorruptError, DistcommitError
from distcommit.core.interfaces.file_system import FileSystem
from distcommit.core.records.log_records import DatasetState
from distcommit.protocol.paths.output import REJECTED_FOLDER, is_tombstone
from distcommit.steps.guarded_folders import GuardedFolders
from distcommit.stores.folders.run_markers import newest_end, read_markers
from distcommit.stores.folders.tombstones import SupersededFile, Tombstone, read_tombstone
from distcommit.stores.snapshots.snapshot_retention import OldestSnapshot
from distcommit.stores.state.job_store import JobStore

logger = logging.getLogger(__name__)


def delete_superseded(store: JobStore, states: Mapping[int, Mapping[str, DatasetState]]) -> Iterator[tuple[str, str]]:
    """Delete the files that tombstones of these datasets name, then the tombstones, except the newest replacement. A
    crash leaves work that the next call resumes.

    Call it after the run's CUT 1, because from then on a log that lost the end of the tombstone's sequence is detected.
    Call it after the deletion of older snapshots, because their readers need the files.

    Only tombstones up to the newest run that marked its end are used. After a crash the next run checks that all files
    of the dead run exist, so they must not be deleted before.

    Args:
        states: stored states of datasets, by bucket.

    Yields:
        datasets whose files or tombstones could not all be deleted, with the reason.
    """
    fs, roots, oldest = store.fs, store.roots, OldestSnapshot(store)
    try:
        error_folders = {entry.name for entry in fs.list_folder(f"{roots.output}/{REJECTED_FOLDER}") if entry.is_folder}
        ended = newest_end(read_markers(fs, roots.output)) if error_folders else 0
    except OSError as error:  # a later run deletes the files
        logger.warning("error branches cannot be listed: %s", error)
        return
    for bucket, state in _states_by_bucket(states) if error_folders else ():
        if (folder := folder_of(state.dataset_urn)) not in error_folders:
            continue
        try:
            newest_epoch = min(state.done_epoch, ended, oldest.done_epoch(bucket, state.dataset_urn))
            tombstones = _tombstones_up_to(fs, f"{roots.output}/{REJECTED_FOLDER}/{folder}", newest_epoch)
            _delete_all(fs, roots.output, tombstones)
        except (DistcommitError, OSError) as error:
            logger.warning("superseded files stay: %s", error, extra={"dataset": state.dataset_urn})
            yield state.dataset_urn, str(error)


def lacks_merged_files(store: JobStore, states: Iterable[DatasetState]) -> bool:
    """Return whether a done compaction lacks its merged file although inputs exist. Unreadable tombstones do not count.
    Raises OSError if a folder cannot be listed."""
    fs, output = store.fs, store.roots.output
    for state in states:
        folder = f"{output}/{REJECTED_FOLDER}/{folder_of(state.dataset_urn)}"
        with suppress(DistcommitError):
            if _without_merged_files(fs, output, _tombstones_up_to(fs, folder, state.done_epoch)):
                return True
    return False


def _states_by_bucket(states: Mapping[int, Mapping[str, DatasetState]]) -> Iterator[tuple[int, DatasetState]]:
    for bucket, dataset_states in states.items():
        for state in dataset_states.values():
            yield bucket, state


def _tombstones_up_to(fs: FileSystem, folder: str, newest_epoch: int) -> list[Tombstone]:
    names = [entry.name for entry in fs.list_folder(folder) if is_tombstone(entry.name)]
    tombstones = [read_tombstone(fs, f"{folder}/{name}") for name in sorted(names)]
    return [tombstone for tombstone in tombstones if tombstone.epoch <= newest_epoch]


def _delete_all(fs: FileSystem, output: str, tombstones: Sequence[Tombstone]) -> None:
    """Delete the files that these tombstones name, then the tombstones. A replacement is deleted only once its files
    are gone and a newer replacement names it, so that the newest stays.

    Raises:
        CorruptError: if the merged file of a compaction is missing. Its compacted files stay; all others are deleted.
    """
    present = {tombstone.path for tombstone in tombstones}
    superseded = {file.path for tombstone in tombstones for file in tombstone.files}
    unbacked = _without_merged_files(fs, output, tombstones)
    for tombstone in tombstones:
        if tombstone in unbacked:
            continue
        is_deleted = not tombstone.is_replacement or tombstone.path in superseded
        records = [file for file in tombstone.files if not is_tombstone(file.path)]
        older_tombstones = [file for file in tombstone.files if is_tombstone(file.path)]
        if not _delete(fs, output, tombstone, records, for_good=is_deleted):
            continue
        if any(file.path in present for file in older_tombstones) or not _delete(
            fs, output, tombstone, older_tombstones, for_good=is_deleted
        ):
            continue
        present.remove(tombstone.path)
        if not tombstone.is_replacement:
            fs.delete(f"{output}/{tombstone.path}")
    if unbacked:
        raise CorruptError(
            "a merged file is missing, and the files that were compacted into it are kept",
            id="MERGED_FILE_MISSING",
            path=f"{output}/{unbacked[0].published[0]}",
            expected="the merged file, because its tombstone supersedes the other copy of its records",
            found=f"no file, and the tombstone {unbacked[0].path}",
            todo="restore the merged file from a backup; without one, run `distcommit store rebuild`, which sets the"
            " tombstone aside, so that the kept files are read again",
        )


def _without_merged_files(fs: FileSystem, output: str, tombstones: Sequence[Tombstone]) -> list[Tombstone]:
    """Return compactions, newest first, whose merged file is missing although inputs exist. A merged file may be
    missing only if a newer tombstone names it, other than that of such a compaction."""
    unbacked, superseded = list[Tombstone](), set[str]()
    for tombstone in sorted(tombstones, key=lambda tombstone: tombstone.epoch, reverse=True):
        paths = [path for path in tombstone.published if path not in superseded]
        if tombstone.publish != "compact" or all(fs.status(f"{output}/{path}") is not None for path in paths):
            superseded.update(file.path for file in tombstone.files)
        elif any(fs.status(f"{output}/{file.path}") is not None for file in tombstone.files):
            unbacked.append(tombstone)
    return unbacked


def _delete(
    fs: FileSystem, output: str, tombstone: Tombstone, files: Sequence[SupersededFile], *, for_good: bool
) -> bool:
    """Delete files; return whether all are gone, with `for_good` durably."""
    folders, touched, foreign = GuardedFolders(fs, output), set[str](), list[SupersededFile]()
    for file in files:
        target = f"{output}/{file.path}"
        folder = target.rpartition("/")[0]
        folders.check(folder)
        status = fs.status(target)
        if status is not None and not file.matches(fs, target, status):
            foreign.append(file)
            continue
        if status is not None:
            fs.delete(target)
        elif not for_good:
            continue
        if not fs.has_folders or fs.status(folder) is not None:
            touched.add(folder)  # even if the file is gone: the process that deleted it may have died before the sync
    fs.sync(touched, output)  # before the tombstone is deleted: else the files could reappear as live
    for folder in touched:
        _remove_empty(fs, folder, output)
    if foreign:
        logger.warning("%s is not the file that %s retires: both stay", foreign[0].path, tombstone.path)
    return not foreign


def _remove_empty(fs: FileSystem, folder: str, output: str) -> None:
    """Remove empty folders up to the dataset's; publishers recreate theirs."""
    depth = (
        len(output) + len(f"/{REJECTED_FOLDER}") if folder.startswith(f"{output}/{REJECTED_FOLDER}/") else len(output)
    )
    with suppress(OSError):  # an empty folder does no harm
        while "/" in folder[depth + 1 :] and fs.delete_folder(folder):
            folder = folder.rpartition("/")[0]

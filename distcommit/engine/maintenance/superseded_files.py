"""Deleting published files that others have taken the place of."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress

from distcommit.core.errors import DistcommitError
from distcommit.core.ports import FileSystem
from distcommit.core.records.log_records import DatasetState
from distcommit.core.urn import folder_of
from distcommit.protocol.paths.output import REJECTED_FOLDER, is_tombstone
from distcommit.steps.folders import GuardedFolders
from distcommit.stores.folders.ownership import newest_end, read_marks
from distcommit.stores.folders.tombstones import RetiredFile, Tombstone, read_tombstone
from distcommit.stores.snapshots.snapshots import OldestCut
from distcommit.stores.state.job_store import JobStore

logger = logging.getLogger(__name__)


def delete_retired(store: JobStore, states: Mapping[int, Mapping[str, DatasetState]]) -> Iterator[tuple[str, str]]:
    """Deletes what tombstones of these datasets name, and then the tombstones, but for the newest replacement. What a
    crash leaves of it the next call deletes.

    To be called after the run's CUT 1, which holds the logs to what they say here: that the tombstone's sequence is
    done, and after older cuts were deleted: what is retired in the oldest that is kept no reader needs. And only what a
    run has ended upon is deleted, the tombstone's or a later one: of one that died, the next run looks whether all is
    there that it has published.

    Args:
        store: the store.
        states: of datasets, by bucket.

    Yields:
        datasets of which something could not be deleted, and why.
    """
    fs, roots, oldest = store.fs, store.roots, OldestCut(store)
    try:
        there = {entry.name for entry in fs.list_folder(f"{roots.output}/{REJECTED_FOLDER}") if entry.is_folder}
        ended = newest_end(read_marks(fs, roots.output)) if there else 0
    except OSError as error:  # a later run deletes them: nothing waits for that
        logger.warning("error branches can't be listed: %s", error)
        return
    for bucket, state in _each(states) if there else ():
        if (folder := folder_of(state.dataset_urn)) not in there:
            continue
        try:
            newest_epoch = min(state.done_epoch, ended, oldest.done_epoch(bucket, state.dataset_urn))
            stones = _followed(fs, f"{roots.output}/{REJECTED_FOLDER}/{folder}", newest_epoch)
            _delete_all(fs, roots.output, stones)
        except (DistcommitError, OSError) as error:
            logger.warning("retired files stay: %s", error, extra={"dataset": state.dataset_urn})
            yield state.dataset_urn, str(error)


def _each(states: Mapping[int, Mapping[str, DatasetState]]) -> Iterator[tuple[int, DatasetState]]:
    for bucket, known in states.items():
        for state in known.values():
            yield bucket, state


def _followed(fs: FileSystem, folder: str, newest_epoch: int) -> list[Tombstone]:
    """The tombstones in a folder that are of that epoch or an older one, the oldest first."""
    names = [entry.name for entry in fs.list_folder(folder) if is_tombstone(entry.name)]
    stones = [read_tombstone(fs, f"{folder}/{name}") for name in sorted(names)]
    return [stone for stone in stones if stone.epoch <= newest_epoch]


def _delete_all(fs: FileSystem, output: str, stones: Sequence[Tombstone]) -> None:
    """What these name, one after the other, and then those that are no replacements. One of these goes once what it
    names is gone and the next one, which names it, stands; the newest stays."""
    kept = {stone.path for stone in stones}
    retired = {file.path for stone in stones for file in stone.files}
    for stone in stones:
        goes = not stone.is_replacement or stone.path in retired
        records = [file for file in stone.files if not is_tombstone(file.path)]
        before = [file for file in stone.files if is_tombstone(file.path)]
        if not _delete(fs, output, stone, records, for_good=goes):
            continue
        if any(file.path in kept for file in before) or not _delete(fs, output, stone, before, for_good=goes):
            continue
        kept.remove(stone.path)
        if not stone.is_replacement:
            fs.delete(f"{output}/{stone.path}")


def _delete(fs: FileSystem, output: str, stone: Tombstone, files: Sequence[RetiredFile], *, for_good: bool) -> bool:
    """Whether all of these files are gone; with `for_good` durably, whoever has deleted them."""
    folders, touched, stays = GuardedFolders(fs, output), set[str](), list[RetiredFile]()
    for file in files:
        target = f"{output}/{file.path}"
        folder = target.rpartition("/")[0]
        folders.check(folder)
        found = fs.status(target)
        if found is not None and not file.is_it(fs, target, found):
            stays.append(file)
            continue
        if found is not None:
            fs.delete(target)
        elif not for_good:
            continue
        if not fs.has_folders or fs.status(folder) is not None:
            touched.add(folder)  # also where it is gone: who deleted it may have died before the sync
    fs.sync(touched, output)  # before the tombstone goes: else they could be live again
    for folder in touched:
        _remove_empty(fs, folder, output)
    if stays:
        logger.warning("%s is not the file that %s retires: both stay", stays[0].path, stone.path)
    return not stays


def _remove_empty(fs: FileSystem, folder: str, output: str) -> None:
    """Removes a folder in which nothing is left, and those above it, but for the dataset's own. Whoever publishes into
    it at the same time makes it again; and a power loss may bring it back, empty."""
    depth = (
        len(output) + len(f"/{REJECTED_FOLDER}") if folder.startswith(f"{output}/{REJECTED_FOLDER}/") else len(output)
    )
    with suppress(OSError):  # what can't be removed stays, empty
        while "/" in folder[depth + 1 :] and fs.delete_folder(folder):
            folder = folder.rpartition("/")[0]

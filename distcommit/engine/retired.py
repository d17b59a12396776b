"""Deleting published files that others have taken the place of."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator

from distcommit.model.errors import DistcommitError
from distcommit.model.log_records import DatasetState
from distcommit.model.ports import FileSystem
from distcommit.model.urn import folder_of
from distcommit.protocol.paths import REJECTED_FOLDER, is_tombstone
from distcommit.steps.folders import GuardedFolders
from distcommit.stores.claims import newest_end, read_marks
from distcommit.stores.job_store import Roots
from distcommit.stores.tombstones import RetiredFile, Tombstone, read_tombstone

logger = logging.getLogger(__name__)


def delete_retired(fs: FileSystem, roots: Roots, states: Iterable[DatasetState]) -> Iterator[tuple[str, str]]:
    """Deletes what tombstones of these datasets name, and then the tombstones. What a crash leaves of it the next call
    deletes.

    To be called after the run's CUT 1, which holds the logs to what they say here: that the tombstone's sequence is
    done. And only what a run has ended upon is deleted, the tombstone's or a later one: of one that died, the next run
    looks whether all is there that it has published.

    Yields:
        datasets of which something could not be deleted, and why.
    """
    try:
        there = {entry.name for entry in fs.list_folder(f"{roots.output}/{REJECTED_FOLDER}") if entry.is_folder}
        ended = newest_end(read_marks(fs, roots.output)) if there else 0
    except OSError as error:  # a later run deletes them: nothing waits for that
        logger.warning("error branches can't be listed: %s", error)
        return
    for state in states if there else ():
        if (folder := folder_of(state.dataset_urn)) not in there:
            continue
        try:
            newest_epoch = min(state.done_epoch, ended)
            for path, stone in _followed(fs, f"{roots.output}/{REJECTED_FOLDER}/{folder}", newest_epoch):
                _delete(fs, roots.output, path, stone)
        except (DistcommitError, OSError) as error:
            logger.warning("retired files stay: %s", error, extra={"dataset": state.dataset_urn})
            yield state.dataset_urn, str(error)


def _followed(fs: FileSystem, folder: str, newest_epoch: int) -> Iterator[tuple[str, Tombstone]]:
    """The tombstones in a folder that are of that epoch or an older one."""
    for entry in fs.list_folder(folder):
        if is_tombstone(entry.name):
            stone = read_tombstone(fs, f"{folder}/{entry.name}")
            if stone.epoch <= newest_epoch:
                yield f"{folder}/{entry.name}", stone


def _delete(fs: FileSystem, output: str, path: str, stone: Tombstone) -> None:
    folders, touched, stays = GuardedFolders(fs, output), set[str](), list[RetiredFile]()
    for file in stone.files:
        target = f"{output}/{file.path}"
        folder = target.rpartition("/")[0]
        folders.check(folder)
        found = fs.status(target)
        if found is not None and not file.is_it(fs, target, found):
            stays.append(file)
            continue
        if found is not None:
            fs.delete(target)
        if not fs.has_folders or fs.status(folder) is not None:
            touched.add(folder)  # also where it is gone: who deleted it may have died before the sync
    fs.sync(touched, output)  # before the tombstone goes: else they could be live again
    if stays:
        logger.warning("%s is not the file that %s retires: both stay", stays[0].path, path)
        return
    fs.delete(path)

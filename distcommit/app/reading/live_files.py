"""Lists the files of a dataset that a snapshot shows."""

from __future__ import annotations

from collections.abc import Iterable

from distcommit.core.interfaces.file_system import FileSystem
from distcommit.core.work_units import ERRORS
from distcommit.protocol.paths.output import is_published_name, is_tombstone, published_epoch, published_folder
from distcommit.protocol.paths.shared_names import OWNERSHIP_FOLDER
from distcommit.sinks.files.footer import read_published_footer
from distcommit.stores.folders.folder_trees import files_below
from distcommit.stores.folders.tombstones import Tombstone, read_tombstone, superseded_by


def keeps_names_apart(fs: FileSystem, output: str) -> bool:
    """Return whether the output's file system distinguishes `A` from `a`. Otherwise two datasets may share a folder."""
    return fs.status(f"{output}/{OWNERSHIP_FOLDER.upper()}") is None


def published_files(fs: FileSystem, urn: str, paths: Iterable[str]) -> list[str]:
    """Return the paths of files whose footers name the dataset, and of files that no longer exist.

    Raises:
        CorruptError: if a published file has no footer, or a footer can't be read.
    """
    found: list[str] = []
    for path in paths:
        try:
            footer = read_published_footer(fs, path)
        except FileNotFoundError:
            found.append(path)
            continue
        if footer is not None and footer.dataset_urn == urn:
            found.append(path)
    return found


def live_files(fs: FileSystem, output: str, urn: str, done_epoch: int, branch: str) -> list[str]:
    """Return the paths of the live files of a dataset's branch at `done_epoch`, sorted by name.

    Tombstones are read first, because they are deleted after the files that they name. Files are deleted once no kept
    snapshot shows them, so the caller must verify afterwards that the snapshot still exists.

    Raises:
        UnknownVersionError, CorruptError: if a tombstone can't be read.
    """
    stones: list[Tombstone] = []
    beside = f"{output}/{published_folder(urn, ERRORS)}"
    for entry in fs.list_folder(beside):
        if is_tombstone(entry.name) and published_epoch(entry.name) <= done_epoch:
            try:
                stones.append(read_tombstone(fs, f"{beside}/{entry.name}"))
            except FileNotFoundError:  # all that it named is gone
                continue
    superseded = superseded_by(stones, done_epoch)
    return [
        path
        for path in files_below(fs, f"{output}/{published_folder(urn, branch)}")
        if is_published_name(name := path.rpartition("/")[2])
        and published_epoch(name) <= done_epoch
        and path.removeprefix(f"{output}/") not in superseded
    ]

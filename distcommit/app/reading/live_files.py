"""The files of a dataset that a cut shows."""

from __future__ import annotations

from collections.abc import Iterable

from distcommit.core.ports import FileSystem
from distcommit.core.work import ERRORS
from distcommit.protocol.paths.output import is_published_name, is_tombstone, published_epoch, published_folder
from distcommit.protocol.paths.parts import CLAIM_FOLDER
from distcommit.sinks.files.footer import read_footer
from distcommit.stores.folders.tombstones import Tombstone, read_tombstone, retired_by
from distcommit.stores.folders.trees import files_below


def keeps_names_apart(fs: FileSystem, output: str) -> bool:
    """Whether the output is on a file system that takes `A` and `a` for two names. One that does not may give two
    datasets one folder."""
    return fs.status(f"{output}/{CLAIM_FOLDER.upper()}") is None


def own_files(fs: FileSystem, urn: str, paths: Iterable[str]) -> list[str]:
    """Those of published files that are of the dataset, as they say themselves; and those that are gone by now.

    Raises:
        CorruptError: if one can't be read.
    """
    found: list[str] = []
    for path in paths:
        try:
            footer = read_footer(fs, path)
        except FileNotFoundError:
            found.append(path)
            continue
        if footer is not None and footer.dataset_urn == urn:
            found.append(path)
    return found


def live_files(fs: FileSystem, output: str, urn: str, done_epoch: int, branch: str) -> list[str]:
    """What is published of a branch of the dataset up to that epoch, and not retired by then, in the order of names.

    Whether all of that is there still, whoever asks has to make sure of afterwards: files go once no kept cut shows
    them. Tombstones are read first: they go after what they name.

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
    retired = retired_by(stones, done_epoch)
    return [
        path
        for path in files_below(fs, f"{output}/{published_folder(urn, branch)}")
        if is_published_name(name := path.rpartition("/")[2])
        and published_epoch(name) <= done_epoch
        and path.removeprefix(f"{output}/") not in retired
    ]

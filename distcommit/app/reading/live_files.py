"""The files of a dataset that a cut shows."""

from __future__ import annotations

from distcommit.model.ports import FileSystem
from distcommit.model.work import ERRORS
from distcommit.protocol.paths import is_published_name, is_tombstone, published_epoch, published_folder
from distcommit.stores.listing import files_below
from distcommit.stores.tombstones import Tombstone, read_tombstone, retired_by


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

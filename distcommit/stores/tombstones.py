"""Tombstones: files of the output that say which published files others have taken the place of.

A tombstone is staged, sealed and published as any file of its sequence, and counts once that is done: from then on the
files that it names are retired, whether they are deleted or not. `tests/spec/replace_model.py` is the model of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from distcommit.model.errors import ConfigurationError, CorruptError
from distcommit.model.ports import FileStatus, FileSystem
from distcommit.model.sink import StagingArea
from distcommit.model.urn import folder_of
from distcommit.model.work import StagedFile
from distcommit.protocol.paths import REJECTED_FOLDER, check_relative, tombstone_path
from distcommit.stores.documents import decode_document, encode_document

TOMBSTONE_VERSION = 1


class RetiredFile(msgspec.Struct, frozen=True):
    """A published file that others take the place of. `path` is below the output root, `checksum` the xxh3-64 of its
    bytes as 16 hexadecimal digits, `records` how many it has."""

    path: str
    size_bytes: int
    checksum: str
    records: int

    def is_it(self, fs: FileSystem, path: str, found: FileStatus) -> bool:
        """Whether what was found at the absolute `path` is this very file."""
        return (
            not found.is_folder and found.size_bytes == self.size_bytes and f"{fs.checksum(path):016x}" == self.checksum
        )


class Tombstone(msgspec.Struct, frozen=True):
    """What an attempt at a maintenance unit retires: error files that it has fed again.

    `base`: the dataset's done epoch that it was planned on, and so the newest epoch of what it retires. `branch`: the
    one that had turned the records away; empty: all. Of the records that it `fed` so many were written again by the
    branches (several may have come of one), and so many turned away again.
    """

    version: int
    dataset_urn: str
    epoch: int
    run_id: str
    work_unit_id: str
    attempt: str
    base: int
    branch: str
    fed: int
    written: int
    rejected: int
    files: tuple[RetiredFile, ...]

    def objection(self) -> str:
        """Why nobody may act on what it says; empty if all files that it names are error files of its own dataset."""
        folder = f"{REJECTED_FOLDER}/{folder_of(self.dataset_urn)}/"
        try:
            strangers = [file.path for file in self.files if not check_relative(file.path).startswith(folder)]
        except ConfigurationError as error:
            return str(error)
        return f"it names what is no error file of dataset {self.dataset_urn}: {strangers[0]}" if strangers else ""


def stage_tombstone(area: StagingArea, tombstone: Tombstone) -> StagedFile:
    """Writes it to a folder of its own in the attempt's area; the caller syncs the tree."""
    folder_name = folder_of(tombstone.dataset_urn)
    final_path = tombstone_path(folder_name, tombstone.epoch, tombstone.work_unit_id, tombstone.attempt)
    below = "tombstone/" + final_path.rpartition("/")[2]
    area.fs.make_folder(f"{area.folder}/tombstone")
    file = area.fs.create(f"{area.folder}/{below}", f"{area.output_root}/{final_path}")
    file.write(encode_document(tombstone))
    checksum = file.checksum
    status = file.close_file(sync=False)
    return StagedFile(
        staged_path=f"{area.prefix}/{below}",
        final_path=final_path,
        size_bytes=status.size_bytes,
        checksum=checksum,
        file_id=status.file_id,
        mtime_ns=status.mtime_ns,
    )


def read_tombstone(fs: FileSystem, path: str) -> Tombstone:
    """A published tombstone.

    Raises:
        FileNotFoundError: if it is gone.
        UnknownVersionError: if a later version of this program wrote it.
        CorruptError: if it can't be read, lies elsewhere than it says, or names what is no error file of its dataset.
    """
    found = decode_document(fs.read(path), Tombstone, TOMBSTONE_VERSION, "a tombstone", path)
    own = tombstone_path(folder_of(found.dataset_urn), found.epoch, found.work_unit_id, found.attempt)
    why = found.objection() if path.endswith(f"/{own}") else f"it says that it is {own}"
    if why:
        raise CorruptError(
            "a tombstone can't be followed",
            path=path,
            expected="error files of the dataset in whose folder it lies",
            found=why,
            todo="restore it from a backup; what it names stays as it is until then",
        )
    return found


def retired_by(tombstones: Iterable[Tombstone], done_epoch: int) -> Mapping[str, list[Tombstone]]:
    """The files that are retired, by their paths below the output, and by which of the tombstones: one each, if all is
    well.

    Args:
        tombstones: of one dataset.
        done_epoch: the dataset's. What a newer epoch's says does not count.
    """
    found: dict[str, list[Tombstone]] = {}
    for tombstone in tombstones:
        if tombstone.epoch <= done_epoch:
            for file in tombstone.files:
                found.setdefault(file.path, []).append(tombstone)
    return found

"""Tombstones: files of the output that say which published files others have taken the place of.

A tombstone is staged, sealed and published as any file of its sequence, and counts once that is done: from then on the
files that it names are retired, whether they are deleted or not. `tests/spec/replace_model.py` is the model of it.

There are three kinds. One names error files whose records were fed again, and goes with them. A *replacement* is of a
sequence whose publisher replaces: it names files of records too, and the replacement before it, and keeps what is known
of the input records of all these. So the newest one is there for good, and the audit tells by it what was replaced from
what is missing. What *retention* has taken is said as a replacement says it: the files of records that went, with
nothing in their place.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal

import msgspec

from distcommit.core.errors import ConfigurationError, CorruptError
from distcommit.core.interfaces.sink import AttemptIdentity, Publish, StagingArea
from distcommit.core.ports import FileStatus, FileSystem
from distcommit.core.urn import folder_of
from distcommit.core.work import StagedFile
from distcommit.protocol.path_checks import check_relative
from distcommit.protocol.paths.output import REJECTED_FOLDER, tombstone_path
from distcommit.stores.state.documents import decode_document, encode_document

TOMBSTONE_VERSION = 1


class RetiredFile(msgspec.Struct, frozen=True):
    """A published file that others take the place of. `path` is below the output root, `checksum` the xxh3-64 of its
    bytes as 16 hexadecimal digits, `records` how many it has. Without a checksum, where nobody has read the file, it is
    known by its path, which names its epoch and attempt, and by its size."""

    path: str
    size_bytes: int
    checksum: str
    records: int

    def is_it(self, fs: FileSystem, path: str, found: FileStatus) -> bool:
        """Whether what was found at the absolute `path` is this very file."""
        return (
            not found.is_folder
            and found.size_bytes == self.size_bytes
            and self.checksum in ("", f"{fs.checksum(path):016x}" if self.checksum else "")
        )


Retires = Publish | Literal["retain"]
"""How what a sequence publishes stands to what it retires; `retain`: nothing is published, what is old just goes."""


class ReplacedRecords(msgspec.Struct, frozen=True, omit_defaults=True):
    """Input records of which nobody is to look for anything any more: files that had them, or said why not, are
    replaced. `offsets`: by branch, as text of `OffsetSets`, in positions of that `incarnation`; `branches`: all that
    the flow had when they were read. `retained`: they went by retention, and nothing took their place."""

    incarnation: str
    branches: tuple[str, ...]
    offsets: dict[str, str]
    retained: bool = False


class Tombstone(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a sequence retires: error files that an attempt at a maintenance unit has fed again; or, as a replacement,
    what its new files take the place of.

    `base`: the dataset's done epoch that it was planned on, and so the newest epoch of what it retires. `branch`: the
    one that had turned the records away; empty: all. Of the records that it `fed` so many were written again by the
    branches (several may have come of one), and so many turned away again.

    Of a replacement these are empty or 0, and `publish` says how it replaces, `published` which files its sequence has
    beside it, by their paths below the output, and `replaced` what is known of the input records of all that it, and
    those before it, have retired. It is staged by who seals, for one of the winning attempts' work units, as an attempt
    of its own.
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
    publish: Retires = "append"
    published: tuple[str, ...] = ()
    replaced: tuple[ReplacedRecords, ...] = ()

    @property
    def is_replacement(self) -> bool:
        """Whether it is of a publisher that replaces."""
        return self.publish != "append"

    @property
    def path(self) -> str:
        """Its own, below the output."""
        return tombstone_path(folder_of(self.dataset_urn), self.epoch, self.work_unit_id, self.attempt)

    def objection(self) -> str:
        """Why nobody may act on what it says; empty if all files that it names are of its own dataset, and error files
        if it is no replacement."""
        folder = folder_of(self.dataset_urn)
        folders = (f"{REJECTED_FOLDER}/{folder}/", *((f"{folder}/",) if self.is_replacement else ()))
        try:
            strangers = [file.path for file in self.files if not check_relative(file.path).startswith(folders)]
        except ConfigurationError as error:
            return str(error)
        what = "file" if self.is_replacement else "error file"
        return f"it names what is no {what} of dataset {self.dataset_urn}: {strangers[0]}" if strangers else ""


def replacement_of(
    identity: AttemptIdentity,
    publish: Retires,
    base: int,
    published: Iterable[str],
    files: Iterable[RetiredFile],
    replaced: Iterable[ReplacedRecords],
) -> Tombstone:
    """What retires those files for a sequence that publishes others, or none."""
    return Tombstone(
        version=TOMBSTONE_VERSION,
        dataset_urn=identity.dataset_urn,
        epoch=identity.epoch,
        run_id=identity.run_id,
        work_unit_id=identity.work_unit_id,
        attempt=identity.attempt,
        base=base,
        branch="",
        fed=0,
        written=0,
        rejected=0,
        files=tuple(files),
        publish=publish,
        published=tuple(published),
        replaced=tuple(replaced),
    )


def stage_tombstone(area: StagingArea, tombstone: Tombstone) -> StagedFile:
    """Writes it to a folder of its own in the attempt's area; the caller syncs the tree."""
    final_path = tombstone.path
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
        UnknownVersionError: if it is of another format version.
        CorruptError: if it can't be read, lies elsewhere than it says, or names what is not for it to retire.
    """
    found = decode_document(fs.read(path), Tombstone, TOMBSTONE_VERSION, "a tombstone", path)
    why = found.objection() if path.endswith(f"/{found.path}") else f"it says that it is {found.path}"
    if why:
        raise CorruptError(
            "a tombstone can't be followed",
            path=path,
            expected="files of the dataset in whose folder it lies",
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


def newest_replacements(tombstones: Iterable[Tombstone], done_epoch: int) -> list[Tombstone]:
    """The replacements that no other retires, which say what was replaced: one, if there is any and all is well.
    Arguments as of `retired_by`."""
    done = [each for each in tombstones if each.epoch <= done_epoch]
    retired = retired_by(done, done_epoch)
    return [each for each in done if each.is_replacement and each.path not in retired]

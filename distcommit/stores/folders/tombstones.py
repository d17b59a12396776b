"""Tombstones: files in the output that list superseded published files.

A tombstone is staged, sealed and published like any file of its sequence. Once the sequence is done, the listed files
are superseded, even before they are deleted. The model is `tests/spec/replace_model.py`.

There are four kinds. A *reprocessing* tombstone lists reprocessed error files, a *compaction* tombstone merged data
files; both are deleted with these files. A *replacement*, of a publisher that replaces files, lists data files and the
previous replacement, and describes their input records. The newest replacement is kept forever, so that the audit can
distinguish replaced records from missing ones. A *retention* tombstone is a replacement that lists expired data files.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal

import msgspec

from distcommit.core.dataset_urn import folder_of
from distcommit.core.errors import ConfigurationError, CorruptError
from distcommit.core.interfaces.file_system import FileStatus, FileSystem
from distcommit.core.interfaces.sink import AttemptIdentity, Publish, StagingArea
from distcommit.core.work_units import StagedFile
from distcommit.protocol.path_checks import check_relative
from distcommit.protocol.paths.output import REJECTED_FOLDER, tombstone_path
from distcommit.stores.state.checksummed_json import decode_document, encode_document

TOMBSTONE_VERSION = 1


class SupersededFile(msgspec.Struct, frozen=True):
    """A superseded file.

    Attributes:
        path: path below the output root.
        size_bytes: size of the file.
        checksum: xxh3-64 of the bytes as 16 hexadecimal digits. Empty if the file was never read; the path, which
            contains epoch and attempt, and the size then identify the file.
        records: number of records in the file.
    """

    path: str
    size_bytes: int
    checksum: str
    records: int

    def matches(self, fs: FileSystem, path: str, file_status: FileStatus) -> bool:
        """Return whether the file at an absolute path has this size and, if one is recorded, this checksum."""
        return (
            not file_status.is_folder
            and file_status.size_bytes == self.size_bytes
            and self.checksum in ("", f"{fs.checksum(path):016x}" if self.checksum else "")
        )


Publishing = Publish | Literal["expire", "compact"]
"""How a sequence's files relate to superseded ones: `expire` publishes none, `compact` publishes the same records."""


class ReplacedRecords(msgspec.Struct, frozen=True, omit_defaults=True):
    """Input records whose files are replaced or expired. The audit does not expect these records in the output.

    Attributes:
        incarnation: incarnation of the positions.
        branches: all branches of the flow when the records were read.
        offsets: positions by branch, as text of `OffsetSets`.
        is_expired: whether the records expired, so that no other files contain them.
    """

    incarnation: str
    branches: tuple[str, ...]
    offsets: dict[str, str]
    is_expired: bool = False


class Tombstone(msgspec.Struct, frozen=True, omit_defaults=True):
    """The files that a sequence supersedes.

    Attributes:
        version: format version.
        dataset_urn: the dataset.
        epoch: epoch of the sequence.
        run_id: run of the sequence.
        work_unit_id: work unit of the attempt. In a replacement, the work unit of one of the winning attempts.
        attempt: id of the attempt. In a replacement, an attempt id of the committer that staged it.
        base: the dataset's done epoch when this was planned, which is the newest epoch of the superseded files.
        branch: the branch that had rejected the reprocessed records; empty for all. Empty in a replacement.
        records_reprocessed: number of reprocessed records; 0 in a replacement.
        records_written: records that the branches wrote for the reprocessed ones. One record may result in several. 0
            in a replacement.
        records_rejected: records that were rejected again; 0 in a replacement.
        files: the superseded files.
        publish: how new files replace the listed ones; "append" if their records were reprocessed.
        published: paths below the output root of the new files: in a replacement, of all other files of the sequence;
            in a compaction, of the merged file. Empty if records were reprocessed or expired.
        replaced: the input records whose files this replacement and the previous ones have superseded: one entry for
            each incarnation and set of branches. Empty if this is not a replacement.
    """

    version: int
    dataset_urn: str
    epoch: int
    run_id: str
    work_unit_id: str
    attempt: str
    base: int
    branch: str
    records_reprocessed: int
    records_written: int
    records_rejected: int
    files: tuple[SupersededFile, ...]
    publish: Publishing = "append"
    published: tuple[str, ...] = ()
    replaced: tuple[ReplacedRecords, ...] = ()

    @property
    def is_replacement(self) -> bool:
        return self.publish not in ("append", "compact")

    @property
    def path(self) -> str:
        """Path below the output root."""
        return tombstone_path(
            folder_of(self.dataset_urn),
            self.epoch,
            self.work_unit_id,
            self.attempt,
            is_compaction=self.publish == "compact",
        )

    def rejection_reason(self) -> str:
        """Return why the tombstone is invalid, or an empty text.

        All files must belong to its dataset. A compaction lists data files, a replacement also error files, others only
        error files.
        """
        folder = folder_of(self.dataset_urn)
        errors, data = f"{REJECTED_FOLDER}/{folder}/", f"{folder}/"
        folders = (errors, data) if self.is_replacement else (data,) if self.publish == "compact" else (errors,)
        try:
            foreign_paths = [file.path for file in self.files if not check_relative(file.path).startswith(folders)]
        except ConfigurationError as error:
            return str(error)
        kind = "a file" if self.is_replacement else "a data file" if self.publish == "compact" else "an error file"
        return (
            f"it names {foreign_paths[0]}, which is not {kind} of dataset {self.dataset_urn}" if foreign_paths else ""
        )


def build_tombstone(
    identity: AttemptIdentity,
    publish: Publishing,
    base: int,
    published: Iterable[str],
    files: Iterable[SupersededFile],
    replaced: Iterable[ReplacedRecords],
) -> Tombstone:
    """Return the tombstone of a sequence that publishes `published` instead of `files`."""
    return Tombstone(
        version=TOMBSTONE_VERSION,
        dataset_urn=identity.dataset_urn,
        epoch=identity.epoch,
        run_id=identity.run_id,
        work_unit_id=identity.work_unit_id,
        attempt=identity.attempt,
        base=base,
        branch="",
        records_reprocessed=0,
        records_written=0,
        records_rejected=0,
        files=tuple(files),
        publish=publish,
        published=tuple(published),
        replaced=tuple(replaced),
    )


def stage_tombstone(area: StagingArea, tombstone: Tombstone) -> StagedFile:
    """Write the tombstone to its own folder in the area; the caller syncs the tree."""
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
    """Return a published tombstone.

    Raises:
        FileNotFoundError: if it does not exist.
        UnknownVersionError: if it is of another format version.
        CorruptError: if it cannot be read, is not at its own path, or lists files that it must not supersede.
    """
    tombstone = decode_document(fs.read(path), Tombstone, TOMBSTONE_VERSION, "a tombstone", path)
    reason = (
        tombstone.rejection_reason() if path.endswith(f"/{tombstone.path}") else f"its own path is {tombstone.path}"
    )
    if reason:
        raise CorruptError(
            "a tombstone is invalid",
            path=path,
            expected="files of the dataset to which the folder belongs",
            found=reason,
            todo="restore it from a backup; the files that it names are left alone until then",
        )
    return tombstone


def superseded_by(tombstones: Iterable[Tombstone], done_epoch: int) -> Mapping[str, list[Tombstone]]:
    """Return the superseded files by path below the output root, with the tombstones that list them.

    In a valid output, one tombstone lists each file.

    Args:
        tombstones: tombstones of one dataset.
        done_epoch: the dataset's done epoch. Tombstones of newer epochs are ignored.
    """
    superseded: dict[str, list[Tombstone]] = {}
    for tombstone in tombstones:
        if tombstone.epoch <= done_epoch:
            for file in tombstone.files:
                superseded.setdefault(file.path, []).append(tombstone)
    return superseded


def newest_replacements(tombstones: Iterable[Tombstone], done_epoch: int) -> list[Tombstone]:
    """Return the done replacements that no other tombstone supersedes. A valid output has at most one."""
    done = [tombstone for tombstone in tombstones if tombstone.epoch <= done_epoch]
    superseded = superseded_by(done, done_epoch)
    return [tombstone for tombstone in done if tombstone.is_replacement and tombstone.path not in superseded]

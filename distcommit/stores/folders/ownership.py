"""What a job leaves in its own folders, so that a store that does not belong to them is told at once.

<staging>/.distcommit/owner.json        whose folder it is; written once
<output>/.distcommit/owner.json
<output>/.distcommit/<epoch>-<mark>     how far the runs are that may have published here

Looking at them costs one read and one listing a run, however much is published.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from distcommit.core.errors import ConfigurationError, DistcommitError, StaleStoreError
from distcommit.core.ports import FileSystem
from distcommit.protocol.paths.output import mark_name, mark_of
from distcommit.protocol.paths.parts import CLAIM_FOLDER, OWNER
from distcommit.stores.state.documents import decode_document, encode_document

OWNER_VERSION = 1
_TODO = "`distcommit store rebuild` writes it again from the store; or restore the file from a backup"


class Owner(msgspec.Struct, frozen=True):
    """The job that stages or publishes in a folder. `store` is where its store was when it claimed the folder."""

    version: int
    store_id: str
    job: str
    store: str


class Mark(StrEnum):
    """What the runs of a store say in its output. `clean`: it has ended, and no sequence was left open.

    `rebuild` stands from before a rebuild changes anything until it has ended: no run begins in between. `unsealed`: it
    publishes before anything says so (at-least-once), so that files of its epoch may be a part of what it read.
    """

    BEGAN = "began"
    ENDED = "ended"
    CLEAN = "clean"
    REBUILD = "rebuild"
    UNSEALED = "unsealed"


def claim(fs: FileSystem, root: str, owner: Owner) -> None:
    """Makes `root` the owner's, if it is nobody's yet.

    Raises:
        StaleStoreError: if it is the same job's, with another store.
        ConfigurationError: if it is another job's.
    """
    found = read_owner(fs, root)
    if found is None:
        fs.sync([owner.store], owner.store)  # its maker may have died before that: a claim must not outlive the store
        fs.make_folders(f"{root}/{CLAIM_FOLDER}")
        fs.put_if_absent(f"{root}/{CLAIM_FOLDER}/{OWNER}", encode_document(owner))
        fs.sync([f"{root}/{CLAIM_FOLDER}"], root)
        found = read_owner(fs, root) or owner
    if found.store_id != owner.store_id:
        raise not_the_owner(root, found, owner.job, f"the store with id {owner.store_id} at {owner.store}")


def read_owner(fs: FileSystem, root: str) -> Owner | None:
    """Whose folder it is; None if it is nobody's.

    Raises:
        UnknownVersionError, CorruptError: if what says so can't be read.
    """
    path = f"{root}/{CLAIM_FOLDER}/{OWNER}"
    try:
        return decode_document(fs.read(path), Owner, OWNER_VERSION, "the claim of a folder", path, todo=_TODO)
    except FileNotFoundError:
        return None


def not_the_owner(root: str, found: Owner, job: str, store: str = "no store at all") -> DistcommitError:
    """The error for a folder that is somebody else's."""
    if found.job == job:
        return StaleStoreError(
            "this folder was filled from another store of the job",
            path=root,
            expected=f"the store with id {found.store_id}, which was at {found.store}",
            found=store,
            todo="correct paths.store, or restore that store; if it is lost, and nothing is at paths.store,"
            " `distcommit store rebuild` makes it anew from the published files",
        )
    return ConfigurationError(
        "this folder belongs to another job",
        path=root,
        expected=f"a folder of job {job!r} alone",
        found=f"job {found.job!r}, with its store at {found.store}",
        todo="give each job paths.output and paths.staging of its own; they may stand side by side in one folder",
    )


def read_marks(fs: FileSystem, output: str) -> dict[Mark, int]:
    """The newest epoch of each mark; 0 for one that is not there."""
    newest = dict.fromkeys(Mark, 0)
    for entry in fs.list_folder(f"{output}/{CLAIM_FOLDER}"):
        epoch, mark = mark_of(entry.name) or (0, "")
        if mark in newest:
            newest[Mark(mark)] = max(newest[Mark(mark)], epoch)
    return newest


def newest_end(marks: dict[Mark, int]) -> int:
    """The newest epoch that has come to its end, by these marks."""
    return max(marks[Mark.ENDED], marks[Mark.CLEAN])


def put_mark(fs: FileSystem, output: str, epoch: int, mark: Mark) -> None:
    """Puts a mark, durably, and takes older ones of its kind away."""
    folder = f"{output}/{CLAIM_FOLDER}"
    fs.make_folders(folder)
    fs.put_if_absent(f"{folder}/{mark_name(epoch, mark)}", b"")
    fs.sync([folder], output)
    for entry in fs.list_folder(folder):
        other_epoch, other = mark_of(entry.name) or (epoch, "")
        if other == mark and other_epoch < epoch:
            fs.delete(f"{folder}/{entry.name}")

"""Ownership of folders: a file in each folder of a job, its *claim*, names the job and the store that own the folder.

<staging>/.distcommit/owner.json        the claim: written once
<output>/.distcommit/owner.json
"""

from __future__ import annotations

import msgspec

from distcommit.core.errors import ConfigurationError, DistcommitError, StaleStoreError
from distcommit.core.interfaces.file_system import FileSystem
from distcommit.protocol.paths.shared_names import OWNER, OWNERSHIP_FOLDER
from distcommit.stores.state.checksummed_json import decode_document, encode_document

OWNER_VERSION = 1
_REMEDY = "`distcommit store rebuild` writes it again from the store; or restore the file from a backup"


class Owner(msgspec.Struct, frozen=True):
    """The claim of a folder.

    Attributes:
        version: format version.
        store_id: id of the job's store.
        job: name of the job that stages or publishes in the folder.
        store: path of the store when it claimed the folder.
    """

    version: int
    store_id: str
    job: str
    store: str


def take_ownership(fs: FileSystem, root: str, owner: Owner, *, read_only: bool = False) -> None:
    """Make `owner` the owner of `root`, durably, if it has none. If `read_only`, only compare an existing claim.

    Raises:
        StaleStoreError: if another store of the same job owns the folder.
        ConfigurationError: if another job owns the folder.
        UnknownVersionError, CorruptError: if the claim cannot be read.
    """
    current_owner = read_owner(fs, root)
    if current_owner is None and read_only:
        return
    if current_owner is None:
        # The store's creator may have died before its sync, and a claim must not outlive the store.
        fs.sync([owner.store], owner.store)
        fs.make_folders(f"{root}/{OWNERSHIP_FOLDER}")
        fs.put_if_absent(f"{root}/{OWNERSHIP_FOLDER}/{OWNER}", encode_document(owner))
        fs.sync([f"{root}/{OWNERSHIP_FOLDER}"], root)
        current_owner = read_owner(fs, root) or owner
    if current_owner.store_id != owner.store_id:
        raise wrong_owner_error(root, current_owner, owner.job, f"the store with id {owner.store_id} at {owner.store}")


def read_owner(fs: FileSystem, root: str) -> Owner | None:
    """Return the owner of a folder; None if it has none.

    Raises:
        UnknownVersionError, CorruptError: if the claim cannot be read.
    """
    path = f"{root}/{OWNERSHIP_FOLDER}/{OWNER}"
    try:
        return decode_document(
            fs.read(path),
            Owner,
            OWNER_VERSION,
            "the claim of a folder",
            path,
            error_id="FOLDER_CLAIM_CORRUPT",
            todo=_REMEDY,
        )
    except FileNotFoundError:
        return None


def wrong_owner_error(root: str, owner: Owner, job: str, store: str = "no store") -> DistcommitError:
    """Return the error for a folder that another job or store owns."""
    if owner.job == job:
        return StaleStoreError(
            "the folder was filled from another store of the job",
            id="FOLDER_OF_ANOTHER_STORE",
            path=root,
            expected=f"the store with id {owner.store_id}, which was at {owner.store}",
            found=store,
            todo="correct paths.store, or restore that store; if it is lost, and paths.store does not exist,"
            " `distcommit store rebuild` recreates it from the published files",
        )
    return ConfigurationError(
        "the folder belongs to another job",
        id="FOLDER_OF_ANOTHER_JOB",
        path=root,
        expected=f"a folder that belongs to job {job!r}",
        found=f"job {owner.job!r}, with its store at {owner.store}",
        todo="if this job is new, set paths.output and paths.staging to folders of its own (they may be beside the"
        f" other job's); if it is job {owner.job!r}, set job to {owner.job!r} and paths.store to {owner.store}",
    )

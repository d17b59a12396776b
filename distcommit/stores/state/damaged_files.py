"""Unreadable small files, set aside: store marker, newest settings, and claims.

A run needs each of these files. `distcommit store rebuild` restores each from the others and the job file.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from distcommit.core.errors import CorruptError, DistcommitError, UnknownVersionError
from distcommit.core.interfaces.file_system import FileSystem
from distcommit.protocol.paths.shared_names import OWNER, OWNERSHIP_FOLDER
from distcommit.protocol.paths.store import set_aside_by, set_aside_root
from distcommit.stores.folders.folder_ownership import read_owner
from distcommit.stores.state.job_store import JobStore, Roots
from distcommit.stores.state.recorded_fixed_settings import read_settings

SETTINGS_RECORD = "the record of settings"
_REPLACED = ".replaced"
OWNER_FILES = {"output": "the claim of the output", "staging": "the claim of staging"}


class Unreadable(NamedTuple):
    """A file that cannot be read.

    Attributes:
        name: name of the file, for messages.
        error: why it cannot be read.
        is_damaged: whether its bytes were altered; False for an unknown version or an outage.
    """

    name: str
    error: str
    is_damaged: bool


def unreadable_files(store: JobStore) -> Iterator[Unreadable]:
    """Yield the files beside the logs (newest settings and claims) that cannot be read."""
    try:
        read_settings(store)
    except (DistcommitError, OSError) as error:
        yield _unreadable(SETTINGS_RECORD, error)
    for root, name in OWNER_FILES.items():
        try:
            read_owner(store.fs, getattr(store.roots, root))
        except (DistcommitError, OSError) as error:
            yield _unreadable(name, error)


def is_damaged(error: Exception) -> bool:
    """Return whether an error shows altered bytes, not another format version or an outage."""
    return isinstance(error, CorruptError) and not isinstance(error, UnknownVersionError)


def owner_path(root: str) -> str:
    return f"{root}/{OWNERSHIP_FOLDER}/{OWNER}"


def set_file_aside(fs: FileSystem, roots: Roots, path: str, run_id: str) -> None:
    """Move a file to `set_aside`; after a crash it may be in both places."""
    folder = f"{roots.store}/{set_aside_by(run_id)}"
    fs.make_folders(folder)
    fs.put_if_absent(f"{folder}/{_name_aside(path)}", fs.read(path))
    fs.sync([folder], roots.store)
    fs.delete(path)


def record_restored(fs: FileSystem, roots: Roots, path: str) -> None:
    """Record that a file was restored, durably, by an empty file beside each of its copies in `set_aside`."""
    for copy in _copies_without_file(fs, roots, path):
        fs.put_if_absent(f"{copy}{_REPLACED}", b"")


def is_only_set_aside(fs: FileSystem, roots: Roots, path: str) -> bool:
    return fs.status(path) is None and any(_copies_without_file(fs, roots, path))


def _copies_without_file(fs: FileSystem, roots: Roots, path: str) -> Iterator[str]:
    base, name = set_aside_root(roots.store), _name_aside(path)
    for run in fs.list_folder(base):
        names = {entry.name for entry in fs.list_folder(f"{base}/{run.name}")} if run.is_folder else set()
        if name in names and f"{name}{_REPLACED}" not in names:
            yield f"{base}/{run.name}/{name}"


def _name_aside(path: str) -> str:
    return "-".join(path.rpartition(f"/{OWNERSHIP_FOLDER}/")[0].rpartition("/")[2:] + path.rpartition("/")[2:])


def _unreadable(name: str, error: Exception) -> Unreadable:
    return Unreadable(name, str(error) or type(error).__name__, is_damaged(error))

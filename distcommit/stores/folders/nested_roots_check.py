"""Check that no folder of a job is inside another job's."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from distcommit.core.errors import ConfigurationError
from distcommit.core.interfaces.file_system import FileSystem
from distcommit.fs.separate_store import file_system_at
from distcommit.protocol.paths.output import is_published_name
from distcommit.protocol.paths.shared_names import OWNER, OWNERSHIP_FOLDER
from distcommit.protocol.paths.store import JOB_LOG, STORE_MARKER
from distcommit.stores.folders.folder_ownership import read_owner


def require_apart(fs: FileSystem, store: str, staging: str, output: str) -> None:
    """Check that no root of a job is inside a claimed folder or a store. Costs two operations for each parent folder.

    Raises:
        ConfigurationError: if a root is inside such a folder.
    """
    roots = (store, staging, output)
    parents = {(folder, file_system_at(fs, root)): root for root in roots for folder in _parents(root)}
    for (folder, part), root in sorted(parents.items(), key=lambda parent: parent[0][0]):
        with suppress(PermissionError):  # this user's jobs cannot have claimed a folder that this user may not read
            if job_folder := _job_folder(part, folder):
                raise _inside(root, f"{job_folder} at {folder}")
    for root in (staging, output):
        if _is_store(fs, root):
            raise _inside(root, f"the store of a job at {root}")
    if job_folder := _owning_job(fs, store):
        raise _inside(store, f"{job_folder} at {store}")


def first_published(fs: FileSystem, root: str) -> str | None:
    """Return the path of the first published file below a root, or None.

    Raises:
        ConfigurationError: if a subfolder belongs to a job.
    """
    subfolders: list[str] = []
    for entry in fs.list_folder(root):
        path = f"{root}/{entry.name}"
        if entry.is_folder and entry.name != OWNERSHIP_FOLDER:
            subfolders.append(path)
        elif not entry.is_folder and is_published_name(entry.name):
            return path
    for path in subfolders:
        if job_folder := _job_folder(fs, path):
            raise _inside(path, f"{job_folder} inside {root}")
        if actual := first_published(fs, path):
            return actual
    return None


def _parents(root: str) -> Iterator[str]:
    folder = root.rpartition("/")[0]
    while folder:
        yield folder
        folder = folder.rpartition("/")[0]


def _job_folder(fs: FileSystem, folder: str) -> str:
    return "the store of a job" if _is_store(fs, folder) else _owning_job(fs, folder)


def _is_store(fs: FileSystem, folder: str) -> bool:
    return fs.status(f"{folder}/{STORE_MARKER}") is not None and bool(fs.list_folder(f"{folder}/{JOB_LOG}"))


def _owning_job(fs: FileSystem, folder: str) -> str:
    if fs.status(f"{folder}/{OWNERSHIP_FOLDER}/{OWNER}") is None:
        return ""
    owner = read_owner(fs, folder)
    return "" if owner is None else f"a folder of job {owner.job!r}"


def _inside(root: str, actual: str) -> ConfigurationError:
    return ConfigurationError(
        "a job's folder is inside a folder of another job",
        id="JOB_FOLDERS_INVALID",
        path=root,
        expected="folders that are not inside one another",
        found=actual,
        todo="correct paths.store, paths.staging or paths.output; folders of several jobs may be side by side",
    )

"""No folder of a job is inside a folder of another job: files of the inner job would be taken for the outer one's."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from distcommit.core.errors import ConfigurationError
from distcommit.core.ports import FileSystem
from distcommit.protocol.paths.output import is_published_name
from distcommit.protocol.paths.parts import CLAIM_FOLDER, OWNER
from distcommit.protocol.paths.store import JOB_LOG, STORE_MARKER
from distcommit.stores.folders.ownership import read_owner


def require_apart(fs: FileSystem, store: str, staging: str, output: str) -> None:
    """Make sure that none of a job's folders is inside a folder that a job has claimed, or inside a store.

    Costs two looks for each folder above them.

    Raises:
        ConfigurationError: naming both.
    """
    above = {folder: root for root in (store, staging, output) for folder in _above(root)}
    for folder, root in sorted(above.items()):
        with suppress(PermissionError):  # what this user may not look at can't be claimed by a job of this user
            if whose := _whose(fs, folder):
                raise _inside(root, f"{whose} at {folder}")
    for root in (staging, output):
        if _is_store(fs, root):
            raise _inside(root, f"the store of a job at {root}")
    if whose := _claimed(fs, store):
        raise _inside(store, f"{whose} at {store}")


def first_published(fs: FileSystem, root: str) -> str | None:
    """Return the first file below a folder that a job has published there.

    Raises:
        ConfigurationError: if a folder below it is one of a job.
    """
    below: list[str] = []
    for entry in fs.list_folder(root):
        path = f"{root}/{entry.name}"
        if entry.is_folder and entry.name != CLAIM_FOLDER:
            below.append(path)
        elif not entry.is_folder and is_published_name(entry.name):
            return path
    for path in below:
        if whose := _whose(fs, path):
            raise _inside(path, f"{whose} inside {root}")
        if found := first_published(fs, path):
            return found
    return None


def _above(root: str) -> Iterator[str]:
    folder = root.rpartition("/")[0]
    while folder:
        yield folder
        folder = folder.rpartition("/")[0]


def _whose(fs: FileSystem, folder: str) -> str:
    """Return which folder of which job this is; empty if it is none."""
    return "the store of a job" if _is_store(fs, folder) else _claimed(fs, folder)


def _is_store(fs: FileSystem, folder: str) -> bool:
    return fs.status(f"{folder}/{STORE_MARKER}") is not None and bool(fs.list_folder(f"{folder}/{JOB_LOG}"))


def _claimed(fs: FileSystem, folder: str) -> str:
    if fs.status(f"{folder}/{CLAIM_FOLDER}/{OWNER}") is None:
        return ""
    owner = read_owner(fs, folder)
    return "" if owner is None else f"a folder of job {owner.job!r}"


def _inside(root: str, found: str) -> ConfigurationError:
    return ConfigurationError(
        "a job's folder is inside a folder of a job",
        path=root,
        expected="folders of jobs that are not inside one another",
        found=found,
        todo="correct paths.store, paths.staging or paths.output; folders of several jobs may be side by side",
    )

"""Failures that may be the node's: a missing package, no temporary folder, a failed local disk, a store out of sight.

A task that meets such a failure raises NodeFailedError. Spark then runs it again on another executor and counts the
failure for this one. All finished work is in the store, so the repeated task does only the rest.
"""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Iterator

from distcommit.core.errors import ConfigurationError, DistcommitError, error_text
from distcommit.core.interfaces.file_system import FileSystem
from distcommit.engine.run_settings import RunSettings
from distcommit.fs.separate_store import file_system_at
from distcommit.stores.state.job_store import marker_path, read_marker

_OF_NODE = {
    errno.EDQUOT,
    errno.EIO,
    errno.EMFILE,
    errno.ENFILE,
    errno.ENODEV,
    errno.ENOMEM,
    errno.ENOSPC,
    errno.ENXIO,
    errno.EROFS,
    errno.ESTALE,
}
_LOCAL = "file"
_NO_TEMPORARY_FOLDER = "No usable temporary directory"
_SEEN: set[str] = set()
"""Ids of the stores that this process has seen."""


class NodeFailedError(Exception):
    """A task failed for a reason that may be its node's, and another executor can repeat it."""


def hand_back(settings: RunSettings, error: BaseException | None) -> None:
    """Raise NodeFailedError if the error may be the node's and another executor would repeat the task.

    The caller must have stored nothing about the failure.
    """
    if settings.hands_back and any(_is_of_node(cause, settings.store.fs) for cause in _causes(error)):
        raise NodeFailedError(error_text(error, 500) if error else "") from error


def require_visible_store(settings: RunSettings) -> None:
    """Check once in each process that this machine sees the run's store, not an empty folder or another job's store.

    An unreadable store is no reason to fail: the task itself reports what it cannot read.

    Raises:
        NodeFailedError: if it does not, and another executor would repeat the task.
        ConfigurationError: if it does not, and none would.
    """
    store = settings.store
    if store.store_id in _SEEN:
        return
    found = "no such file"
    try:
        marker = read_marker(store.fs, store.roots, repairable=True)
    except (OSError, DistcommitError):
        return
    if marker is not None:
        found = f"the store {marker.store_id}"
        if marker.store_id == store.store_id:
            _SEEN.add(store.store_id)
            return
    error = ConfigurationError(
        "an executor does not see the store",
        id="STORE_NOT_VISIBLE",
        path=marker_path(store.roots),
        host=socket.gethostname(),
        expected=f"the store {store.store_id}, as the driver sees it",
        found=found,
        todo="mount the folders of section paths on each machine under the same path, or use URLs of a shared"
        " file system",
    )
    if settings.hands_back:
        raise NodeFailedError(error_text(error, 1000)) from error
    raise error


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    yielded: list[BaseException] = []
    while error is not None and error not in yielded:
        yielded.append(error)
        yield error
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)


def _is_of_node(error: BaseException, fs: FileSystem) -> bool:
    """Return whether the error may be the node's: a missing package, no temporary folder, or a failed local disk.

    Args:
        fs: the file system of the job's folders. If the path in the error is not on the local disk, and its folder does
            not exist on this machine, the error is the target's.
    """
    if isinstance(error, ImportError | NodeFailedError):
        return True
    if not isinstance(error, OSError):
        return False
    name = error.filename
    is_local = (
        not isinstance(name, str)
        or file_system_at(fs, name).scheme == _LOCAL
        or os.path.isdir(os.path.dirname(name) or name)
    )
    return (error.errno in _OF_NODE and is_local) or _NO_TEMPORARY_FOLDER in str(error)

"""Failures that a node may have caused.

Spark repeats such a task on another executor, which does only the unfinished rest.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator

from distcommit.core.errors import error_text
from distcommit.core.interfaces.file_system import FileSystem
from distcommit.engine.run_settings import RunSettings
from distcommit.fs.separate_store import file_system_at

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


class NodeFailedError(Exception):
    """A task failed for a reason that may be its node's, and another executor can repeat it."""


def hand_back(settings: RunSettings, error: BaseException | None) -> None:
    """Raise NodeFailedError if the node may have caused the error, and another executor would repeat the task. The
    caller must have stored nothing about the failure."""
    if settings.hands_back and any(_is_of_node(cause, settings.store.fs) for cause in _causes(error)):
        raise NodeFailedError(error_text(error, 500) if error else "") from error


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

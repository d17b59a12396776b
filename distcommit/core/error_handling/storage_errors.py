"""Typed errors for failed operations of a file system."""

from __future__ import annotations

import errno

from distcommit.core.errors import DistcommitError, StorageRefusedError, TransientError

_OUTAGES = {
    errno.EAGAIN,
    errno.EBUSY,
    errno.ECONNREFUSED,
    errno.ECONNRESET,
    errno.EDQUOT,
    errno.EHOSTUNREACH,
    errno.EIO,
    errno.EMFILE,
    errno.ENFILE,
    errno.ENOMEM,
    errno.ENOSPC,
    errno.EROFS,
    errno.ESTALE,
    errno.ETIMEDOUT,
}


REFUSALS = {
    errno.ENOSPC: "free space on the file system of {}",
    errno.EDQUOT: "free space on the file system of {}, or have the quota raised",
    errno.EROFS: "make the file system of {} writable again (a failing disk is often mounted read-only, HDFS may be in"
    " safe mode)",
    errno.EACCES: "correct the permissions: let this user write {}",
    errno.EPERM: "correct the permissions: let this user write {}",
    errno.ELOOP: "remove the symbolic link or the mount at {}",
}
"""Remedies by errno, for errors that reject a whole operation before it has any effect."""


def is_storage_outage(error: OSError) -> bool:
    """Return whether the storage is busy or unreachable, instead of rejecting the operation."""
    return error.errno in _OUTAGES and error.errno not in REFUSALS


def storage_error(error: OSError, subject: str, **ids: str) -> DistcommitError:
    """Return the typed error for a failed storage operation, caused by `error`.

    It is a StorageRefusedError if the storage rejects the operation, another TransientError in an outage, and a
    DistcommitError otherwise.
    """
    typed = _typed(error, subject, ids)
    typed.__cause__ = error
    return typed


def _typed(error: OSError, subject: str, ids: dict[str, str]) -> DistcommitError:
    if error.errno in REFUSALS:
        path = error.filename or ids.get("path", "the job's folders")
        return StorageRefusedError(
            subject,
            found=f"{error.strerror} ({errno.errorcode[error.errno]})",
            todo=f"{REFUSALS[error.errno].format(path)}, and run again; nothing was lost",
            **ids,
        )
    kind, id_ = (
        (TransientError, "STORAGE_UNAVAILABLE") if error.errno in _OUTAGES else (DistcommitError, "STORAGE_FAILED")
    )
    return kind(
        subject,
        id=id_,
        found=f"{type(error).__name__}: {error}",
        todo="repair the storage (space, permissions, connection) and run again; nothing was lost",
        **ids,
    )

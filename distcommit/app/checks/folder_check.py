"""The check of one folder of a job."""

from __future__ import annotations

import os
import re
import uuid

from distcommit.core.errors import ConfigurationError
from distcommit.core.interfaces.file_system import FileSystem
from distcommit.protocol.paths.temporary_and_probes import store_probe_name
from distcommit.stores.state.file_system_probe import NO_PUT, unsupported

_OF_KERNEL = re.compile("/(proc|sys|dev(?!/shm/))(/|$)")
"""Folders in which the kernel creates no file, although the superuser has the permission to write there."""


def check_folder(fs: FileSystem, path: str, *, is_used: bool) -> str:
    """Check that a folder, or its nearest existing parent, is writable. Return its path, with a note if it will be
    created.

    A remote folder that exists, or whose file system has no folders, is checked with a probe file. If a run has created
    the store already (`is_used`), no probe is written.

    Raises:
        ConfigurationError: if the folder is not writable, it belongs to the kernel, or its file system replaces a file
            that exists.
        OSError: if the file system can't be reached.
    """
    nearest = path
    while (status := fs.status(nearest)) is None and nearest.strip("/"):
        nearest = nearest.rpartition("/")[0] or "/"
    exists = nearest == path
    is_writable = status is None or status.is_folder
    if fs.scheme == "file" and _OF_KERNEL.match(path):
        raise ConfigurationError(
            "a folder of the job is on a file system of the kernel",
            path=path,
            expected="a folder on a disk",
            todo="correct the path in section paths",
        )
    if fs.scheme == "file":
        is_writable = is_writable and os.access(nearest, os.W_OK | os.X_OK)
    elif (exists or not fs.has_folders) and not is_used:
        probe, is_replaced = f"{path}/{store_probe_name(uuid.uuid4().hex)}", False
        try:
            is_replaced = fs.put_if_absent(probe, b"") and fs.put_if_absent(probe, b"")
            fs.delete(probe)
        except PermissionError:
            is_writable = False
        if is_replaced:
            raise unsupported(fs, path, NO_PUT)
    if not is_writable:
        raise ConfigurationError(
            "a folder of the job can't be written",
            path=path,
            expected="a folder that this user can write, or can create",
            found="a file" if status is not None and not status.is_folder else f"no permission to write {nearest}",
            todo="correct the path in section paths, or the permissions",
        )
    return path if exists else f"{path} will be created"

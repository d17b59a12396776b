"""Put-if-absent where a file can be renamed without replacing, and a client may send a request again."""

from __future__ import annotations

import contextlib
import errno
import posixpath
import uuid

from distcommit.fs.local import TEMPORARY
from distcommit.model.ports import FileSystem


def put_by_rename(fs: FileSystem, path: str, data: bytes) -> bool:
    """`FileSystem.put_if_absent` by a temporary file beside it, which is renamed. As durable as the file system's
    renames and closed files are."""
    folder, name = posixpath.split(path)
    temporary = f"{folder}/{TEMPORARY}{name}-{uuid.uuid4().hex}"
    try:
        _write_new(fs, temporary, data)
        fs.rename(temporary, path)
    except FileExistsError:
        fs.delete(temporary)
        return False
    except FileNotFoundError:
        # The folder is missing, somebody swept the temporary file, or the client renamed it, did not hear the answer
        # and tried again.
        return fs.read(path) == data
    except OSError:
        with contextlib.suppress(OSError):
            fs.delete(temporary)
        raise
    return True


def _write_new(fs: FileSystem, path: str, data: bytes) -> None:
    try:
        writer = fs.create(path)
    except FileExistsError as error:  # nobody else makes this name: it was made, and made again
        raise OSError(errno.EIO, "the answer to the making of a file was lost", path) from error
    try:
        writer.write(data)
    finally:
        writer.close_file(sync=True)

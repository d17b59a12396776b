"""Put-if-absent for file systems beyond a network: by a rename that does not replace, and many at a time."""

from __future__ import annotations

import contextlib
import errno
import posixpath
import uuid
from collections.abc import Sequence

from distcommit.core.ports import FileSystem, not_put
from distcommit.core.support.parallel import in_flight
from distcommit.protocol.paths.temporary import temporary_name


def put_by_rename(fs: FileSystem, path: str, data: bytes) -> bool:
    """`FileSystem.put_if_absent` by a temporary file beside it, which is renamed, where a client may send a request
    again. As durable as the file system's renames and closed files are."""
    folder, name = posixpath.split(path)
    temporary = f"{folder}/{temporary_name(name, uuid.uuid4().hex)}"
    try:
        _write_aside(fs, temporary, path, data)
        fs.rename(temporary, path)
    except FileExistsError:
        fs.delete(temporary)
        return False
    except FileNotFoundError:
        # The folder is missing, somebody swept the temporary file, or the client renamed it, did not hear the answer
        # and tried again.
        return fs.read(path) == data
    except OSError as error:
        refused = _still_there(fs, temporary)
        with contextlib.suppress(OSError):
            fs.delete(temporary)
        raise (not_put(error, path) if refused else error) from error
    return True


def _still_there(fs: FileSystem, temporary: str) -> bool:
    """Whether a file surely has not got its name."""
    try:
        return fs.status(temporary) is not None
    except OSError:
        return False


def put_each(fs: FileSystem, files: Sequence[tuple[str, bytes]]) -> list[bool | OSError]:
    """`FileSystem.put_all_if_absent` where each has a barrier of its own."""

    def put(file: tuple[str, bytes]) -> bool | OSError:
        try:
            return fs.put_if_absent(*file)
        except OSError as error:
            return error

    return in_flight(fs.parallel_calls, put, files)


def _write_aside(fs: FileSystem, temporary: str, path: str, data: bytes) -> None:
    try:
        _write_new(fs, temporary, data)
    except OSError as error:
        raise not_put(error, path) from error


def _write_new(fs: FileSystem, path: str, data: bytes) -> None:
    try:
        writer = fs.create(path)
    except FileExistsError as error:  # nobody else makes this name: it was made, and made again
        raise OSError(errno.EIO, "the answer to the making of a file was lost", path) from error
    try:
        writer.write(data)
    finally:
        writer.close_file(sync=True)

"""HDFS: put-if-absent and rename without replacing, as the NameNode orders them.

What rests on what, read from Hadoop 3.4 and tried on it:

- Names are durable when a call returns: the NameNode answers after its edit log is synced. So `sync` has nothing to do.
- Bytes are durable when their file is closed, if the client marks the last packet of a block for syncing: then each
  DataNode of the pipeline syncs the block, and the folder that it moves the block to. Nothing can sync a closed file.
- Renaming goes by `rename2` without overwriting. The old `rename` would move a file into a folder of the target's name.
- A client may send a request again when it hears no answer. A rename that was done then fails for want of its source.
"""

from __future__ import annotations

import errno
import posixpath
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

from xxhash import xxh3_64

from distcommit.core.ports import FileAccess, FileStatus, FolderEntry
from distcommit.fs.put_if_absent import put_by_rename, put_each
from distcommit.fs.staged_writer import ChecksummingWriter

_ERRORS = {
    "AccessControlException": errno.EACCES,
    "AlreadyBeingCreatedException": errno.EEXIST,
    "DSQuotaExceededException": errno.EDQUOT,
    "FileAlreadyExistsException": errno.EEXIST,
    "FileNotFoundException": errno.ENOENT,
    "InvalidPathException": errno.EINVAL,
    "NSQuotaExceededException": errno.EDQUOT,
    "ParentNotDirectoryException": errno.ENOTDIR,
    "PathComponentTooLongException": errno.ENAMETOOLONG,
    "PathIsNotEmptyDirectoryException": errno.ENOTEMPTY,
    "QuotaByStorageTypeExceededException": errno.EDQUOT,
    "SafeModeException": errno.EROFS,
}


def hdfs_error(exception: str, message: str, path: str) -> OSError:
    """The built-in error for a Java exception, by the name of its class; EIO for one that is not known."""
    name = re.split(r"[.$]", exception)[-1]
    return OSError(_ERRORS.get(name, errno.EIO), f"{message.partition(chr(10))[0]} ({name})", path)


class HdfsWriter(Protocol):
    """A file that the NameNode has made and that is open for this client."""

    def write(self, data: memoryview) -> None: ...
    def close(self) -> None:
        """Returns when HDFS has the whole file. Whether it is durable then is for the calls to say."""
        ...


class HdfsCalls(Protocol):
    """One method, one request to the NameNode. Errors are OSError with errno, as `hdfs_error` makes them.

    `has_file_ids`: whether a status tells which file it is of.
    """

    scheme: str
    has_file_ids: bool

    def open_new(self, path: str) -> HdfsWriter:
        """Makes a file that nobody has, in a folder that is there."""
        ...

    def pieces(self, path: str) -> Iterator[bytes]:
        """The file's bytes, in order."""
        ...

    def status(self, path: str) -> FileStatus: ...
    def list_folder(self, path: str) -> list[FolderEntry]: ...
    def make_folders(self, path: str) -> None:
        """Also those above it. Nothing happens if it is there."""
        ...

    def make_folder(self, path: str) -> None:
        """In a folder that is there. Nothing happens if it is there."""
        ...

    def set_mode(self, path: str, mode: int) -> None: ...
    def set_owner(self, path: str, owner: str | None, group: str | None) -> None:
        """Only HDFS's superuser may give a file away; its owner may give it to a group of his."""
        ...

    def rename(self, source: str, target: str) -> None:
        """By `rename2`, without overwriting."""
        ...

    def delete(self, path: str) -> bool:
        """A file or an empty folder; False if there was none."""
        ...


class HdfsFileSystem:
    """Files on HDFS, by either of its protocols. Paths are absolute, without scheme and authority.

    Args:
        calls: the requests to use.
    """

    has_folders = True
    has_links = False
    names_last = True

    def __init__(self, calls: HdfsCalls) -> None:
        self._calls = calls
        # Of twenty small files one or two are closed after half a second: the NameNode has not heard of the block yet,
        # and the client asks again then. So what many buckets wait for, they wait for at once.
        self.scheme, self.parallel_calls, self.parallel_buckets = calls.scheme, 32, 32

    def read(self, path: str) -> bytes:
        return b"".join(self._calls.pieces(path))

    def list_folder(self, path: str) -> list[FolderEntry]:
        try:
            return self._calls.list_folder(path)
        except FileNotFoundError:
            return []

    def status(self, path: str) -> FileStatus | None:
        try:
            return self._calls.status(path)
        except (FileNotFoundError, NotADirectoryError):
            return None

    def checksum(self, path: str) -> int:
        checksum = xxh3_64()
        for piece in self._calls.pieces(path):
            checksum.update(piece)
        return checksum.intdigest()

    def make_folder(self, path: str) -> bool:
        """As the port says, but True also if the folder was there: HDFS does not tell who made it."""
        try:
            self._calls.make_folder(path)
        except FileExistsError:
            return False
        return True

    def make_folders(self, path: str) -> None:
        self._calls.make_folders(path)

    def create(self, path: str, target: str = "") -> HdfsStagedWriter:
        return HdfsStagedWriter(self._calls, path)

    def set_access(self, path: str, access: FileAccess) -> None:
        if access.mode is not None:
            self._calls.set_mode(path, access.mode)
        if access.owner is not None or access.group is not None:
            self._calls.set_owner(path, access.owner, access.group)

    def put_if_absent(self, path: str, data: bytes) -> bool:
        return put_by_rename(self, path, data)

    def put_all_if_absent(self, files: Sequence[tuple[str, bytes]]) -> list[bool | OSError]:
        return put_each(self, files)

    def rename(self, source: str, target: str) -> None:
        try:
            self._calls.rename(source, target)
        except (FileNotFoundError, FileExistsError):
            raise
        except OSError as error:
            there = self.status(target)
            if there is not None and there.is_folder:  # a plain error, says HDFS
                raise FileExistsError(errno.EEXIST, "there is a folder of that name", target) from error
            raise

    def rename_folder(self, source: str, target: str) -> bool:
        try:
            self.rename(source, target)
        except FileExistsError:
            return False
        except FileNotFoundError:
            raise
        except OSError:
            if self.status(target) is not None:  # a file of that name: a plain error, says HDFS
                return False
            raise
        return True

    def delete(self, path: str) -> bool:
        return self._calls.delete(path)

    def delete_folder(self, path: str) -> bool:
        try:
            return self._calls.delete(path)
        except OSError as error:
            if error.errno == errno.ENOTEMPTY:
                return False
            raise

    def sync(self, folders: Iterable[str], root: str) -> None:
        pass  # names are durable when the NameNode has answered

    def sync_tree(self, root: str) -> None:
        pass  # and bytes since their file was closed

    def real_path(self, path: str) -> str:
        return posixpath.normpath(path)  # no symbolic links: HDFS switched them off for good in Hadoop 2.2


class HdfsStagedWriter(ChecksummingWriter):
    """A new file on HDFS. Its length shows to others once it is closed."""

    def __init__(self, calls: HdfsCalls, path: str) -> None:
        super().__init__()
        self._calls, self._path = calls, path
        self._writer = calls.open_new(path)

    def _take(self, view: memoryview) -> None:
        self._writer.write(view)

    def close_file(self, *, sync: bool) -> FileStatus:
        """Returns the size alone where HDFS would tell no more that names the file."""
        self._writer.close()
        return self._calls.status(self._path) if self._calls.has_file_ids else FileStatus(self.size_bytes, 0, 0)

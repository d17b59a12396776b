"""HDFS: put-if-absent and rename without overwriting, both ordered by the NameNode.

Facts that the implementation relies on (Hadoop 3.4):

- Names are durable when a call returns, so `sync` does nothing.
- Bytes are durable when their file is closed, if the client sets the sync flag on the last packet of each block.
- Renames use `rename2` without overwriting. The older `rename` moves a file into an existing folder at the target.
- A client may repeat a request whose response was lost. A rename repeated after success fails, because its source is
  missing.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Iterator
from typing import Protocol

from distcommit.core.interfaces.file_system import FileAccess, FileStatus, FolderEntry
from distcommit.fs.checksumming_writer import ChecksummingWriter
from distcommit.fs.network_file_operations import NetworkFileOperations

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
    """Return the OSError for a Java exception; EIO if it is unknown."""
    name = re.split(r"[.$]", exception)[-1]
    return OSError(_ERRORS.get(name, errno.EIO), f"{message.partition(chr(10))[0]} ({name})", path)


class HdfsWriter(Protocol):
    def write(self, data: memoryview) -> None: ...
    def close(self) -> None:
        """Send the remaining bytes and close the file. Over RPC its bytes are durable then, over WebHDFS only with
        `dfs.datanode.synconclose`."""
        ...


class HdfsCalls(Protocol):
    """Requests to the NameNode, one for each method. Errors are those of `hdfs_error`.

    Attributes:
        scheme: scheme of the URL.
        has_file_ids: whether the status of a file contains its id.
    """

    scheme: str
    has_file_ids: bool

    def open_new(self, path: str) -> HdfsWriter:
        """Create a file in an existing folder. Raises FileExistsError if the name is taken."""
        ...

    def read_chunks(self, path: str) -> Iterator[bytes]: ...

    def status(self, path: str) -> FileStatus: ...
    def list_folder(self, path: str) -> list[FolderEntry]: ...
    def make_folders(self, path: str) -> None:
        """Create a folder and its parents, unless they exist."""
        ...

    def make_folder(self, path: str) -> None:
        """Create a folder below an existing one, unless it exists."""
        ...

    def set_mode(self, path: str, mode: int) -> None: ...
    def set_owner(self, path: str, owner: str | None, group: str | None) -> None:
        """Change owner (superuser only) and group (otherwise one of the owner's groups), unless None."""
        ...

    def rename(self, source: str, target: str) -> None:
        """Rename by `rename2`, without overwriting."""
        ...

    def delete(self, path: str) -> bool:
        """Delete a file or empty folder; return False if it does not exist."""
        ...


class HdfsFileSystem(NetworkFileOperations):
    """File system on HDFS. Paths have no scheme and authority."""

    has_folders = True
    has_links = False  # Hadoop 2.2 disabled symbolic links for good
    names_last = True

    def __init__(self, calls: HdfsCalls) -> None:
        self._calls = calls
        # One or two of twenty small files take half a second to close: the NameNode does not know the block yet, and
        # the client retries then. Buckets therefore wait in parallel.
        self.scheme, self.parallel_calls, self.parallel_buckets = calls.scheme, 32, 32

    def read_chunks(self, path: str) -> Iterator[bytes]:
        return self._calls.read_chunks(path)

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

    def make_folder(self, path: str) -> bool:
        """Return True also for an existing folder, because HDFS does not report who created it."""
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

    def rename(self, source: str, target: str) -> None:
        try:
            self._calls.rename(source, target)
        except (FileNotFoundError, FileExistsError):
            raise
        except OSError as error:
            existing = self.status(target)
            if existing is not None and existing.is_folder:  # HDFS reports it as a general error
                raise FileExistsError(errno.EEXIST, "a folder has this name", target) from error
            raise

    def rename_folder(self, source: str, target: str) -> bool:
        try:
            self.rename(source, target)
        except FileExistsError:
            return False
        except FileNotFoundError:
            raise
        except OSError:
            if self.status(target) is not None:  # HDFS reports a file of that name as a general error
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


class HdfsStagedWriter(ChecksummingWriter):
    """Writer of a new file. Other clients see its length once it is closed."""

    def __init__(self, calls: HdfsCalls, path: str) -> None:
        super().__init__()
        self._calls, self._path = calls, path
        self._writer = calls.open_new(path)

    def _write_all(self, view: memoryview) -> None:
        self._writer.write(view)

    def close_file(self, *, sync: bool) -> FileStatus:
        """Close the file, regardless of `sync`. Without file ids, the status has only the size."""
        self._writer.close()
        return self._calls.status(self._path) if self._calls.has_file_ids else FileStatus(self.size_bytes, 0, 0)

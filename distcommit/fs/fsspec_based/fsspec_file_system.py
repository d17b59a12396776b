"""Any file system of fsspec whose `mv` is a rename, for example SMB. `fsspec_probe` tests its capabilities when a store
is created.

fsspec guarantees little:

- The inherited `mv` copies and deletes, so a paused run could restore a file that an operator has abandoned meanwhile.
  A class that inherits `mv` is rejected.
- Nothing can be synced. A job whose commits must survive a power loss is rejected.
- There are no file ids. Files are identified by size and checksum.
- On SMB a rename uses an open handle, and succeeds even if the file was deleted in between. The name then remains until
  the handle is closed. Therefore `delete` waits until the name is gone.
"""

from __future__ import annotations

import errno
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from fsspec import AbstractFileSystem, get_filesystem_class

from distcommit.core.errors import ConfigurationError
from distcommit.core.interfaces.file_system import FileAccess, FileStatus, FolderEntry
from distcommit.core.support.request_counts import REQUESTS
from distcommit.fs.checksumming_writer import ChecksummingWriter
from distcommit.fs.fsspec_based.fsspec_probe import probe
from distcommit.fs.network_file_operations import NetworkFileOperations

_OPTIONS = {"smb": {"share_access": "rwd"}}
"""Client options that a scheme requires. On SMB, other processes can read an open file only with this option."""

_PIECE_BYTES = 1 << 20
_DELETE_PAUSES_S = (0.01, 0.02, 0.05, 0.1, 0.3, 0.6)
_KINDS = {
    FileNotFoundError: errno.ENOENT,
    FileExistsError: errno.EEXIST,
    PermissionError: errno.EACCES,
    IsADirectoryError: errno.EISDIR,
    NotADirectoryError: errno.ENOTDIR,
}
_FILE_ERRORS = {
    *_KINDS.values(),
    *(errno.EAGAIN, errno.EBUSY, errno.EDQUOT, errno.EFBIG, errno.EILSEQ, errno.EINVAL, errno.ELOOP, errno.EMLINK),
    *(errno.ENAMETOOLONG, errno.ENOSPC, errno.ENOTEMPTY, errno.EOPNOTSUPP, errno.EPERM, errno.EROFS, errno.EXDEV),
}
"""Errors that concern a file. All others concern the connection, even a bad file descriptor."""

_NT_STATUS = {
    0xC0000022: errno.EACCES,  # ACCESS_DENIED
    0xC0000033: errno.EINVAL,  # OBJECT_NAME_INVALID
    0xC0000043: errno.EAGAIN,  # SHARING_VIOLATION: the client reports a missing permission
    0xC0000044: errno.EDQUOT,  # QUOTA_EXCEEDED
    0xC0000056: errno.EBUSY,  # DELETE_PENDING: deleted but still open
    0xC000007F: errno.ENOSPC,  # DISK_FULL
}
"""SMB status codes that the client does not map."""

_LOGON_FAILURE = 0xC000006D


def fsspec_class(scheme: str) -> type[AbstractFileSystem]:
    """Return fsspec's class for a URL scheme.

    Raises:
        ConfigurationError: if fsspec has no class, its package is missing, or the class inherits `mv`.
    """
    try:
        kind: type[AbstractFileSystem] = get_filesystem_class(scheme)
    except (ImportError, ValueError) as error:
        raise ConfigurationError(
            "fsspec has no file system for this URL",
            id="FILE_SYSTEM_UNSUPPORTED",
            scheme=scheme,
            expected="a local path, a URL with hdfs://, webhdfs://, s3://, az://, abfss:// or gs://, or one that fsspec"
            " knows",
            found=str(error),
            todo="correct the URL, or install the package named above on the driver and the executors",
        ) from error
    if kind.mv is AbstractFileSystem.mv:
        raise ConfigurationError(
            "the file system lacks a capability that exactly-once needs: atomic rename",
            id="FILE_SYSTEM_UNSUPPORTED",
            scheme=scheme,
            expected="a class that defines `mv`",
            found=f"{kind.__name__} inherits `mv`, which copies and deletes: a paused run could restore a deleted file",
            todo="choose another file system for the job's folders",
        )
    return kind


class FsspecFileSystem(NetworkFileOperations):
    """A file system of fsspec. Connects at the first call in each process. Picklable if its class can be imported.

    Options come from fsspec's configuration (`FSSPEC_<SCHEME>_<OPTION>` and the files in ~/.config/fsspec).

    Args:
        kind: the class, from `fsspec_class`.
        scheme: the URL's scheme.
        authority: the URL's part before the path. Paths exclude it.
    """

    has_folders = True
    has_links = names_last = False  # unknown: links cannot be seen, names cannot be synced
    parallel_calls = 16
    parallel_buckets = 4

    def __init__(self, kind: type[AbstractFileSystem], scheme: str, authority: str) -> None:
        self._kind, self.scheme, self._authority = kind, scheme, authority
        self._base = kind._strip_protocol(f"{scheme}://{authority}").rstrip("/")
        self._connected: AbstractFileSystem | None = None
        self._connecting = threading.Lock()

    def __reduce__(self) -> tuple[type[FsspecFileSystem], tuple[type[AbstractFileSystem], str, str]]:
        return FsspecFileSystem, (self._kind, self.scheme, self._authority)

    def probe(self, folder: str) -> None:
        probe(self, folder)

    def list_folder(self, path: str) -> list[FolderEntry]:
        try:
            with self._request(path) as (fs, own):
                fs.invalidate_cache()
                infos = fs.ls(own, detail=True)
        except OSError:  # the class may ask for the details of each name, one of which was deleted meanwhile
            return self._list_one_by_one(path)
        return [FolderEntry(_name_of(info["name"]), info["type"] == "directory") for info in infos]

    def status(self, path: str) -> FileStatus | None:
        try:
            return self._status(path)
        except (FileNotFoundError, NotADirectoryError):
            return None

    def make_folder(self, path: str) -> bool:
        try:
            with self._request(path) as (fs, own):
                fs.mkdir(own, create_parents=False)
        except FileExistsError:
            return False
        return True

    def make_folders(self, path: str) -> None:
        with self._request(path) as (fs, own):
            fs.makedirs(own, exist_ok=True)

    def create(self, path: str, target: str = "") -> FsspecStagedWriter:
        return FsspecStagedWriter(self, path)

    def set_access(self, path: str, access: FileAccess) -> None:
        raise OSError(errno.EOPNOTSUPP, "fsspec can't set owner and mode", path)

    def rename(self, source: str, target: str) -> None:
        with self._request(target) as (fs, own):
            fs.mv(self._base + source, own)

    def rename_folder(self, source: str, target: str) -> bool:
        return False  # some classes move it into an existing folder at the target

    def delete(self, path: str) -> bool:
        """Delete a file. Raises OSError with EBUSY if another process has it open, and either the name remains for a
        second or the file was not deleted."""
        try:
            with self._request(path) as (fs, own):
                fs.rm_file(own)
        except FileNotFoundError:
            return False
        except OSError as error:
            if error.errno != errno.EBUSY:
                raise
            self._wait_until_gone(path)
            if self.status(path) is not None:
                raise
            return True
        self._wait_until_gone(path)
        return True

    def delete_folder(self, path: str) -> bool:
        try:
            with self._request(path) as (fs, own):
                fs.rmdir(own)
        except FileNotFoundError:
            return False
        except OSError:
            if self.list_folder(path):  # classes raise different errors for a folder that is not empty
                return False
            raise
        self._wait_until_gone(path)
        return True

    def read_chunks(self, path: str) -> Iterator[bytes]:
        with self._request(path) as (fs, own), fs.open(own, "rb") as file:
            while chunk := file.read(_PIECE_BYTES):
                yield chunk

    def _status(self, path: str) -> FileStatus:
        with self._request(path) as (fs, own):
            fs.invalidate_cache()
            info = fs.info(own)
        is_folder = info["type"] == "directory"
        return FileStatus(0 if is_folder else info["size"], 0, 0, is_folder)

    def _list_one_by_one(self, path: str) -> list[FolderEntry]:
        try:
            with self._request(path) as (fs, own):
                names = [_name_of(listed) for listed in fs.ls(own, detail=False)]
        except FileNotFoundError:
            return []
        entries = []
        for name in names:
            try:
                entries.append(FolderEntry(name, self._status(f"{path}/{name}").is_folder))
            except OSError as error:
                if error.errno not in (errno.ENOENT, errno.EBUSY):
                    raise
        return entries

    def _wait_until_gone(self, path: str) -> None:
        """Wait until a deleted name is free or taken again. Raises OSError after a second."""
        for pause_s in (*_DELETE_PAUSES_S, None):
            try:
                self.status(path)
                return
            except OSError:
                if pause_s is None:
                    raise
                time.sleep(pause_s)

    @contextmanager
    def _request(self, path: str) -> Iterator[tuple[AbstractFileSystem, str]]:
        """Count a request, and yield fsspec's file system and path. Raises each error as OSError. After an unknown
        error, which becomes EIO, the next call reconnects."""
        REQUESTS.made += 1
        try:
            yield self._connect(), self._base + path
        except Exception as error:  # noqa: BLE001 - each package has its own errors
            built_in = _built_in(error, path)
            if built_in.errno == errno.EIO:
                self._connected = None
            raise built_in from None

    def _connect(self) -> AbstractFileSystem:
        with self._connecting:
            if self._connected is None:
                options = self._kind._get_kwargs_from_urls(f"{self.scheme}://{self._authority}/")
                options |= {"use_listings_cache": False, "skip_instance_cache": True}
                try:
                    self._connected = self._kind(**options, **_OPTIONS.get(self.scheme, {}))
                except Exception as error:
                    if getattr(error, "status", 0) != _LOGON_FAILURE:
                        raise
                    raise PermissionError(str(error)) from error  # later a broken connection can look like it
            return self._connected


class FsspecStagedWriter(ChecksummingWriter):
    """Writer of a new file (mode `xb`). Some classes report a taken name only at `close_file`."""

    def __init__(self, fs: FsspecFileSystem, path: str) -> None:
        super().__init__()
        self._fs, self._path = fs, path
        try:
            with fs._request(path) as (connected, own):
                self._file = connected.open(own, "xb")
        except IsADirectoryError as error:
            raise FileExistsError(errno.EEXIST, "a folder has this name", path) from error

    def _write_all(self, view: memoryview) -> None:
        with self._fs._request(self._path):
            self._file.write(view)

    def close_file(self, *, sync: bool) -> FileStatus:
        with self._fs._request(self._path):
            self._file.close()
        return self._fs._status(self._path)


def _name_of(path: str) -> str:
    return path.rstrip("/").rpartition("/")[2]


def _built_in(error: Exception, path: str) -> OSError:
    number = _NT_STATUS.get(getattr(error, "ntstatus", 0))
    if number is None and isinstance(error, OSError):
        number = error.errno or next((code for kind, code in _KINDS.items() if isinstance(error, kind)), None)
    code = number if number in _FILE_ERRORS else errno.EIO
    return OSError(code, f"{os.strerror(code)} ({type(error).__name__}: {error})", path)

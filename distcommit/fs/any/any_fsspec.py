"""Any file system of fsspec whose `mv` is a rename: SMB shares, for one. What it can do is tried when a store is made.

fsspec promises little, so that little is taken for granted:

- A file is made by mode `xb`, and renamed by the class's own `mv`. The one that classes inherit copies and deletes: a
  paused run would put a file back that a person has abandoned meanwhile. Such a class is refused before anything is
  written; the rest is `fsspec_probe`'s to find out.
- Nothing can be synced. A job whose commits have to survive a power loss is refused.
- There are no file ids, so that files are known by size and checksum.
- On SMB a rename goes by an open handle, and takes place even where the file was deleted in between (tried on Samba):
  the name then stays until the handle is closed. So `delete` returns only once the name is gone.
"""

from __future__ import annotations

import errno
import os
import posixpath
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from fsspec import AbstractFileSystem, get_filesystem_class
from xxhash import xxh3_64

from distcommit.core.errors import ConfigurationError
from distcommit.core.ports import FileAccess, FileStatus, FolderEntry
from distcommit.core.support.request_counts import REQUESTS
from distcommit.fs.any.fsspec_probe import probe
from distcommit.fs.put_if_absent import put_by_rename, put_each
from distcommit.fs.staged_writer import ChecksummingWriter

_OPTIONS = {"smb": {"share_access": "rwd"}}
"""What has to be set, by scheme. On SMB others could not even read a file that is open, unless its opener says so."""

_PIECE_BYTES = 1 << 20
_UNTIL_GONE_S = (0.01, 0.02, 0.05, 0.1, 0.3, 0.6)
_KINDS = {
    FileNotFoundError: errno.ENOENT,
    FileExistsError: errno.EEXIST,
    PermissionError: errno.EACCES,
    IsADirectoryError: errno.EISDIR,
    NotADirectoryError: errno.ENOTDIR,
}
_ANSWERS = {
    *_KINDS.values(),
    *(errno.EAGAIN, errno.EBUSY, errno.EDQUOT, errno.EFBIG, errno.EILSEQ, errno.EINVAL, errno.ELOOP, errno.EMLINK),
    *(errno.ENAMETOOLONG, errno.ENOSPC, errno.ENOTEMPTY, errno.EOPNOTSUPP, errno.EPERM, errno.EROFS, errno.EXDEV),
}
"""What a file system answers. Other numbers are about the connection: a client may even tell of a bad descriptor."""

_NT_STATUS = {
    0xC0000022: errno.EACCES,  # ACCESS_DENIED
    0xC0000033: errno.EINVAL,  # OBJECT_NAME_INVALID
    0xC0000043: errno.EAGAIN,  # SHARING_VIOLATION: for the client it is a missing permission
    0xC0000044: errno.EDQUOT,  # QUOTA_EXCEEDED
    0xC0000056: errno.EBUSY,  # DELETE_PENDING: deleted, and still open
    0xC000007F: errno.ENOSPC,  # DISK_FULL
}
"""What SMB says and its client has no number for."""

_LOGON_FAILURE = 0xC000006D


def implementation(scheme: str) -> type[AbstractFileSystem]:
    """The class that fsspec has for a URL's scheme.

    Raises:
        ConfigurationError: if it has none, a package is missing, or the class has no rename.
    """
    try:
        kind: type[AbstractFileSystem] = get_filesystem_class(scheme)
    except (ImportError, ValueError) as error:
        raise ConfigurationError(
            "fsspec has no file system for this URL",
            scheme=scheme,
            expected="a path of this machine, hdfs://, webhdfs:// or s3://, or what fsspec knows",
            found=str(error),
            todo="correct the URL, or install the package that is named, also where the executors run",
        ) from error
    if kind.mv is AbstractFileSystem.mv:
        raise ConfigurationError(
            "this file system can't do what exactly-once needs: rename in one step",
            scheme=scheme,
            expected="a class with an `mv` of its own",
            found=f"{kind.__name__} inherits one that copies and deletes: a paused run could put a file back",
            todo="choose another file system for the job's folders",
        )
    return kind


class FsspecFileSystem:
    """One file system of fsspec. Connects at the first call, in each process anew; picklable, if its class can be
    imported. Its options are those of fsspec's own configuration (`FSSPEC_<SCHEME>_<OPTION>` and the files in
    ~/.config/fsspec).

    Args:
        kind: the class, as `implementation` returns it.
        scheme: the URL's.
        authority: what the URL has before its path. Paths are what comes after it.
    """

    has_folders = True
    has_links = names_last = False  # of neither is anything known
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
        """See `core.ports.ProbedFileSystem`."""
        probe(self, folder)

    def read(self, path: str) -> bytes:
        return b"".join(self._pieces(path))

    def list_folder(self, path: str) -> list[FolderEntry]:
        try:
            with self._asked(path) as (fs, own):
                fs.invalidate_cache()
                found = fs.ls(own, detail=True)
        except OSError:  # a class may ask for each name, one of which went meanwhile
            return self._list_one_by_one(path)
        return [FolderEntry(_name_of(each["name"]), each["type"] == "directory") for each in found]

    def status(self, path: str) -> FileStatus | None:
        try:
            return self._status(path)
        except (FileNotFoundError, NotADirectoryError):
            return None

    def checksum(self, path: str) -> int:
        checksum = xxh3_64()
        for piece in self._pieces(path):
            checksum.update(piece)
        return checksum.intdigest()

    def make_folder(self, path: str) -> bool:
        try:
            with self._asked(path) as (fs, own):
                fs.mkdir(own, create_parents=False)
        except FileExistsError:
            return False
        return True

    def make_folders(self, path: str) -> None:
        with self._asked(path) as (fs, own):
            fs.makedirs(own, exist_ok=True)

    def create(self, path: str, target: str = "") -> FsspecStagedWriter:
        return FsspecStagedWriter(self, path)

    def set_access(self, path: str, access: FileAccess) -> None:
        raise OSError(errno.EOPNOTSUPP, "fsspec knows no owner and mode", path)

    def put_if_absent(self, path: str, data: bytes) -> bool:
        return put_by_rename(self, path, data)

    def put_all_if_absent(self, files: Sequence[tuple[str, bytes]]) -> list[bool | OSError]:
        return put_each(self, files)

    def rename(self, source: str, target: str) -> None:
        with self._asked(target) as (fs, own):
            fs.mv(self._base + source, own)

    def rename_folder(self, source: str, target: str) -> bool:
        return False  # some would put it into a folder of the target's name

    def delete(self, path: str) -> bool:
        """As the port says. EBUSY while somebody has the file open, where its name stays until it is closed."""
        try:
            with self._asked(path) as (fs, own):
                fs.rm_file(own)
        except FileNotFoundError:
            return False
        except OSError as error:
            if error.errno != errno.EBUSY:
                raise
        self._wait_until_gone(path)
        return True

    def delete_folder(self, path: str) -> bool:
        try:
            with self._asked(path) as (fs, own):
                fs.rmdir(own)
        except FileNotFoundError:
            return False
        except OSError:
            if self.list_folder(path):  # each has an error of its own for that
                return False
            raise
        self._wait_until_gone(path)
        return True

    def sync(self, folders: Iterable[str], root: str) -> None:
        pass  # there is no way to ask for it

    def sync_tree(self, root: str) -> None:
        pass

    def real_path(self, path: str) -> str:
        return posixpath.normpath(path)  # nor to see a link

    def _pieces(self, path: str) -> Iterator[bytes]:
        with self._asked(path) as (fs, own), fs.open(own, "rb") as file:
            while piece := file.read(_PIECE_BYTES):
                yield piece

    def _status(self, path: str) -> FileStatus:
        with self._asked(path) as (fs, own):
            fs.invalidate_cache()
            found = fs.info(own)
        is_folder = found["type"] == "directory"
        return FileStatus(0 if is_folder else found["size"], 0, 0, is_folder)

    def _list_one_by_one(self, path: str) -> list[FolderEntry]:
        try:
            with self._asked(path) as (fs, own):
                names = [_name_of(each) for each in fs.ls(own, detail=False)]
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
        """Returns once a deleted name is gone, or somebody has made it anew.

        Raises:
            OSError: if it can't be seen for a second; EBUSY if somebody keeps it open.
        """
        for pause_s in (*_UNTIL_GONE_S, None):
            try:
                self.status(path)
                return
            except OSError:
                if pause_s is None:
                    raise
                time.sleep(pause_s)

    @contextmanager
    def _asked(self, path: str) -> Iterator[tuple[AbstractFileSystem, str]]:
        """What fsspec connects to, and the path as it wants it. Errors are the built-in ones, EIO for those that are
        not known; then the next call connects anew, as not every client does it by itself. Counts as a request."""
        REQUESTS.made += 1
        try:
            yield self._connect(), self._base + path
        except Exception as error:  # noqa: BLE001 - each package has its own
            told = _built_in(error, path)
            if told.errno == errno.EIO:
                self._connected = None
            raise told from None

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
                    raise PermissionError(str(error)) from error  # not so later: a broken connection can look like it
            return self._connected


class FsspecStagedWriter(ChecksummingWriter):
    """A new file, open by mode `xb`. Some file systems tell only when it is closed that its name is taken."""

    def __init__(self, fs: FsspecFileSystem, path: str) -> None:
        super().__init__()
        self._fs, self._path = fs, path
        try:
            with fs._asked(path) as (connected, own):
                self._file = connected.open(own, "xb")
        except IsADirectoryError as error:
            raise FileExistsError(errno.EEXIST, "there is a folder of that name", path) from error

    def _take(self, view: memoryview) -> None:
        with self._fs._asked(self._path):
            self._file.write(view)

    def close_file(self, *, sync: bool) -> FileStatus:
        with self._fs._asked(self._path):
            self._file.close()
        return self._fs._status(self._path)


def _name_of(path: str) -> str:
    return path.rstrip("/").rpartition("/")[2]


def _built_in(error: Exception, path: str) -> OSError:
    """The built-in error that says the same."""
    number = _NT_STATUS.get(getattr(error, "ntstatus", 0))
    if number is None and isinstance(error, OSError):
        number = error.errno or next((code for kind, code in _KINDS.items() if isinstance(error, kind)), None)
    told = number if number in _ANSWERS else errno.EIO
    return OSError(told, f"{os.strerror(told)} ({type(error).__name__}: {error})", path)

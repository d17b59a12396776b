"""System calls with one atomic effect each, which tests replace to inject faults."""

from __future__ import annotations

import ctypes
import errno
import grp
import os
import pwd
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Protocol

from distcommit.core.interfaces.file_system import FileStatus, FolderEntry
from distcommit.fs.local_disk.confined_open import open_below

_RENAME_NOREPLACE = 1
_REFERENCE = getattr(os, "O_PATH", os.O_RDONLY) | os.O_CLOEXEC
_WORKING_FOLDER = -100  # AT_FDCWD
_AS = (sys.getfilesystemencoding(), sys.getfilesystemencodeerrors())  # three times as fast as os.fsencode
_witnesses: dict[int, int] = {}
"""Descriptors for `syncfs` by device, open until the process ends. See `_witness`."""


class PosixCalls(Protocol):
    """System calls, one for each method, with opaque descriptors. Errors are OSError with errno."""

    def open_new(self, path: str) -> int: ...
    def write(self, fd: int, data: bytes | bytearray | memoryview) -> int: ...
    def fsync(self, fd: int) -> None: ...
    def fstat(self, fd: int) -> FileStatus: ...
    def close(self, fd: int) -> None: ...
    def read_file(self, path: str) -> bytes: ...
    def lstat(self, path: str) -> FileStatus: ...
    def chmod(self, path: str, mode: int) -> None: ...
    def chown(self, path: str, owner: str | None, group: str | None) -> None: ...
    def scandir(self, path: str) -> list[FolderEntry]: ...
    def mkdir(self, path: str) -> None: ...
    def rmdir(self, path: str) -> None: ...
    def unlink(self, path: str) -> None: ...
    def link(self, source: str, target: str) -> None: ...
    def rename_noreplace(self, source: str, target: str) -> None: ...
    def fsync_folder(self, path: str) -> None: ...
    def syncfs(self, path: str) -> None: ...
    def realpath(self, path: str) -> str: ...


class RealPosixCalls:
    """System calls of the kernel. `syncfs` reports failed writes since Linux 5.8.

    Args:
        roots: absolute paths without links. Listings and deletions never leave them.
    """

    def __init__(self, roots: Sequence[str] = ()) -> None:
        self._roots = tuple(roots)
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._renameat2 = getattr(self._libc, "renameat2", None)
        self._syncfs = getattr(self._libc, "syncfs", None)

    def __reduce__(self) -> tuple[type[RealPosixCalls], tuple[tuple[str, ...]]]:
        return RealPosixCalls, (self._roots,)

    def open_new(self, path: str) -> int:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
        self._witness(fd, os.path.dirname(path))
        return fd

    def write(self, fd: int, data: bytes | bytearray | memoryview) -> int:
        return os.write(fd, data)

    def fsync(self, fd: int) -> None:
        os.fsync(fd)

    def fstat(self, fd: int) -> FileStatus:
        return _status(os.fstat(fd))

    def close(self, fd: int) -> None:
        os.close(fd)

    def read_file(self, path: str) -> bytes:
        with open(path, "rb") as file:
            return file.read()

    def lstat(self, path: str) -> FileStatus:
        return _status(os.lstat(path))

    def chmod(self, path: str, mode: int) -> None:
        os.chmod(path, mode)

    def chown(self, path: str, owner: str | None, group: str | None) -> None:
        try:
            user_id = -1 if owner is None else pwd.getpwnam(owner).pw_uid
            group_id = -1 if group is None else grp.getgrnam(group).gr_gid
        except KeyError as error:
            raise OSError(errno.EINVAL, str(error.args[0]), path) from None
        os.chown(path, user_id, group_id)

    def scandir(self, path: str) -> list[FolderEntry]:
        opened = self._opened(path, readable=True)
        try:
            with os.scandir(path if opened is None else opened) as entries:
                return [FolderEntry(e.name, e.is_dir(follow_symlinks=False), e.inode()) for e in entries]
        finally:
            if opened is not None:
                os.close(opened)

    def mkdir(self, path: str) -> None:
        os.mkdir(path)

    def rmdir(self, path: str) -> None:
        self._in_folder(os.rmdir, path)

    def unlink(self, path: str) -> None:
        self._in_folder(os.unlink, path)

    def link(self, source: str, target: str) -> None:
        os.link(source, target, follow_symlinks=False)

    def rename_noreplace(self, source: str, target: str) -> None:
        if self._renameat2 is None:
            raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS), source, None, target)
        if self._renameat2(
            _WORKING_FOLDER, source.encode(*_AS), _WORKING_FOLDER, target.encode(*_AS), _RENAME_NOREPLACE
        ):
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code), source, None, target)

    def fsync_folder(self, path: str) -> None:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def syncfs(self, path: str) -> None:
        if self._syncfs is None:
            os.sync()
            return
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            if self._syncfs(self._witness(fd, path)):
                code = ctypes.get_errno()
                raise OSError(code, os.strerror(code), path)
        finally:
            os.close(fd)

    def _witness(self, fd: int, folder: str) -> int:
        """Return a descriptor that was opened before this process wrote to the device of `fd`.

        `syncfs` reports an error once on each descriptor, but not on those opened later.
        """
        device = os.fstat(fd).st_dev
        if device not in _witnesses:
            _witnesses[device] = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        return _witnesses[device]

    def realpath(self, path: str) -> str:
        real = ""
        with suppress(OSError):
            opened = os.open(path, _REFERENCE)
            try:
                real = os.readlink(f"/proc/self/fd/{opened}")
            finally:
                os.close(opened)
        return real if real.startswith("/") and not real.endswith(" (deleted)") else os.path.realpath(path)

    def _in_folder(self, call: Callable[..., None], path: str) -> None:
        folder, _, name = path.rpartition("/")
        opened = self._opened(folder)
        if opened is None:
            call(path)
            return
        try:
            call(name, dir_fd=opened)
        except OSError as error:
            raise OSError(error.errno, error.strerror, path) from None
        finally:
            os.close(opened)

    def _opened(self, folder: str, *, readable: bool = False) -> int | None:
        for root in self._roots:
            if folder == root or folder.startswith(f"{root}/"):
                return open_below(root, folder, readable=readable)
        return None


def _status(stat: os.stat_result) -> FileStatus:
    return FileStatus(stat.st_size, stat.st_mtime_ns, stat.st_ino, (stat.st_mode & 0o170000) == 0o040000)

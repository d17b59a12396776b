"""The kernel's calls, observed one by one below the product's local file system."""

from __future__ import annotations

from dataclasses import dataclass, field

from distcommit.core.interfaces.file_system import FileStatus, FolderEntry
from distcommit.fs.local_disk.posix_calls import PosixCalls, RealPosixCalls


@dataclass
class ObservedCalls:
    """Passes every call on, after calling `observe` with its kind."""

    below: PosixCalls = field(default_factory=RealPosixCalls)

    def observe(self, kind: str) -> None:
        """Receive the name of the method before the call is made."""

    def open_new(self, path: str) -> int:
        self.observe("open_new")
        return self.below.open_new(path)

    def write(self, fd: int, data: bytes | bytearray | memoryview) -> int:
        self.observe("write")
        return self.below.write(fd, data)

    def fsync(self, fd: int) -> None:
        self.observe("fsync")
        self.below.fsync(fd)

    def fstat(self, fd: int) -> FileStatus:
        self.observe("fstat")
        return self.below.fstat(fd)

    def close(self, fd: int) -> None:
        self.observe("close")
        self.below.close(fd)

    def read_file(self, path: str) -> bytes:
        self.observe("read_file")
        return self.below.read_file(path)

    def lstat(self, path: str) -> FileStatus:
        self.observe("lstat")
        return self.below.lstat(path)

    def chmod(self, path: str, mode: int) -> None:
        self.observe("chmod")
        self.below.chmod(path, mode)

    def chown(self, path: str, owner: str | None, group: str | None) -> None:
        self.observe("chown")
        self.below.chown(path, owner, group)

    def scandir(self, path: str) -> list[FolderEntry]:
        self.observe("scandir")
        return self.below.scandir(path)

    def mkdir(self, path: str) -> None:
        self.observe("mkdir")
        self.below.mkdir(path)

    def rmdir(self, path: str) -> None:
        self.observe("rmdir")
        self.below.rmdir(path)

    def unlink(self, path: str) -> None:
        self.observe("unlink")
        self.below.unlink(path)

    def link(self, source: str, target: str) -> None:
        self.observe("link")
        self.below.link(source, target)

    def rename_noreplace(self, source: str, target: str) -> None:
        self.observe("rename")
        self.below.rename_noreplace(source, target)

    def fsync_folder(self, path: str) -> None:
        self.observe("fsync_folder")
        self.below.fsync_folder(path)

    def syncfs(self, path: str) -> None:
        self.observe("syncfs")
        self.below.syncfs(path)

    def realpath(self, path: str) -> str:
        self.observe("realpath")
        return self.below.realpath(path)

"""The kernel's calls, counted by kind: the seam below the product's local file system."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from distcommit.fs.posix import PosixCalls, RealPosixCalls
from distcommit.model.ports import FileStatus, FolderEntry


@dataclass
class CountingCalls:
    """Passes everything on and counts it. Bytes written are counted by the folder below the root that they go to."""

    below: PosixCalls = field(default_factory=RealPosixCalls)
    calls: Counter[str] = field(default_factory=Counter)
    bytes_written: Counter[str] = field(default_factory=Counter)
    root: str = ""
    _open: dict[int, str] = field(default_factory=dict)

    def open_new(self, path: str) -> int:
        self.calls["open_new"] += 1
        fd = self.below.open_new(path)
        self._open[fd] = path.removeprefix(self.root)
        return fd

    def write(self, fd: int, data: bytes | bytearray | memoryview) -> int:
        self.calls["write"] += 1
        done = self.below.write(fd, data)
        self.bytes_written["/".join(self._open[fd].split("/")[1:3])] += done
        return done

    def fsync(self, fd: int) -> None:
        self.calls["fsync"] += 1
        self.below.fsync(fd)

    def fstat(self, fd: int) -> FileStatus:
        self.calls["fstat"] += 1
        return self.below.fstat(fd)

    def close(self, fd: int) -> None:
        self.calls["close"] += 1
        self.below.close(fd)

    def read_file(self, path: str) -> bytes:
        self.calls["read_file"] += 1
        return self.below.read_file(path)

    def lstat(self, path: str) -> FileStatus:
        self.calls["lstat"] += 1
        return self.below.lstat(path)

    def scandir(self, path: str) -> list[FolderEntry]:
        self.calls["scandir"] += 1
        return self.below.scandir(path)

    def mkdir(self, path: str) -> None:
        self.calls["mkdir"] += 1
        self.below.mkdir(path)

    def rmdir(self, path: str) -> None:
        self.calls["rmdir"] += 1
        self.below.rmdir(path)

    def unlink(self, path: str) -> None:
        self.calls["unlink"] += 1
        self.below.unlink(path)

    def link(self, source: str, target: str) -> None:
        self.calls["link"] += 1
        self.below.link(source, target)

    def rename_noreplace(self, source: str, target: str) -> None:
        self.calls["rename"] += 1
        self.below.rename_noreplace(source, target)

    def fsync_folder(self, path: str) -> None:
        self.calls["fsync_folder"] += 1
        self.below.fsync_folder(path)

    def syncfs(self, path: str) -> None:
        self.calls["syncfs"] += 1
        self.below.syncfs(path)

    def realpath(self, path: str) -> str:
        self.calls["realpath"] += 1
        return self.below.realpath(path)

"""The requests of `HdfsCalls` on a simulated machine.

Each name is durable once its request was answered, there are no links, and files of the same size and time are
indistinguishable. It serves `HdfsFileSystem` in place of the NameNode.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from itertools import accumulate

from distcommit.core.interfaces.file_system import FileStatus, FolderEntry
from distcommit.fs.hadoop.hdfs_file_system import HdfsFileSystem
from distcommit.fs.local_disk.posix_calls import PosixCalls


class SimulatedHdfs(HdfsFileSystem):
    """HDFS's own code, above a machine's calls, one call at a time.

    Args:
        calls: the machine.
    """

    def __init__(self, calls: PosixCalls) -> None:
        super().__init__(_NameNode(calls))
        self.parallel_calls = self.parallel_buckets = 1  # with threads no history could be replayed


class _Writer:
    def __init__(self, calls: PosixCalls, path: str) -> None:
        self._calls, self._path, self._fd = calls, path, calls.open_new(path)

    def write(self, data: memoryview) -> None:
        self._calls.write(self._fd, data)

    def close(self) -> None:
        self._calls.fsync(self._fd)
        self._calls.close(self._fd)
        self._calls.syncfs(self._path)


class _NameNode:
    scheme = "simulated"
    has_file_ids = False

    def __init__(self, calls: PosixCalls) -> None:
        self._calls = calls

    def open_new(self, path: str) -> _Writer:
        return _Writer(self._calls, path)

    def read_chunks(self, path: str) -> Iterator[bytes]:
        yield self._calls.read_file(path)

    def status(self, path: str) -> FileStatus:
        file_status = self._calls.lstat(path)
        return FileStatus(file_status.size_bytes, file_status.mtime_ns, 0, file_status.is_folder)

    def list_folder(self, path: str) -> list[FolderEntry]:
        return [FolderEntry(entry.name, entry.is_folder, 0) for entry in self._calls.scandir(path)]

    def make_folders(self, path: str) -> None:
        for folder in accumulate(path.strip("/").split("/"), "{}/{}".format, initial=""):
            if folder:
                self.make_folder(folder)

    def make_folder(self, path: str) -> None:
        with suppress(FileExistsError):
            self._calls.mkdir(path)
            self._calls.syncfs(path)
            return
        if not self._calls.lstat(path).is_folder:
            raise FileExistsError(path)

    def set_mode(self, path: str, mode: int) -> None:
        self._calls.chmod(path, mode)

    def set_owner(self, path: str, owner: str | None, group: str | None) -> None:
        self._calls.chown(path, owner, group)

    def rename(self, source: str, target: str) -> None:
        self._calls.rename_noreplace(source, target)
        self._calls.syncfs(target)

    def delete(self, path: str) -> bool:
        try:
            status = self._calls.lstat(path)
            (self._calls.rmdir if status.is_folder else self._calls.unlink)(path)
        except FileNotFoundError:
            return False
        self._calls.syncfs(path)
        return True

"""A POSIX file system in memory that knows which parts would survive a power loss (`durable_tree`).

It serves `LocalFileSystem` in place of the kernel.
"""

from __future__ import annotations

import errno
from collections.abc import Callable

from distcommit.core.interfaces.file_system import FileStatus, FolderEntry
from distcommit.testing.fakes.faulty_calls import Operation
from tests.simulation.durable_tree import DurableTree, failed
from tests.simulation.power_loss import File, Folder, Link, bind

Gate = Callable[[Operation], None]


class SimulatedPosix(DurableTree):
    """The system calls of `PosixCalls` on an in-memory tree.

    Args:
        gate: called before each mutating call; may raise `Crashed` or an OSError, or let other actors proceed first.
    """

    def __init__(self, gate: Gate | None = None) -> None:
        super().__init__()
        self._open: dict[int, int] = {}
        self.gate = gate

    def open_new(self, path: str) -> int:
        self._begin("create", path)
        folder, name = self._parent(path)
        if name in self._folder(folder).names:
            raise failed(errno.EEXIST, path)
        inode = next(self._numbers)
        self._inodes[inode] = File(b"", None, next(self._ticks))
        self._change(folder, name, inode)
        self._open[inode] = inode
        return inode

    def write(self, fd: int, data: bytes | bytearray | memoryview) -> int:
        self._begin("write", f"<{fd}>")
        file = self._file(self._open[fd])
        self._inodes[self._open[fd]] = File(file.data + bytes(data), file.durable, next(self._ticks), file.given_up)
        return len(data)

    def fsync(self, fd: int) -> None:
        self._begin("fsync", f"<{fd}>")
        self._sync_file(self._open[fd])

    def fstat(self, fd: int) -> FileStatus:
        return self._status(self._open[fd])

    def close(self, fd: int) -> None:
        self._open.pop(fd, None)

    def read_file(self, path: str) -> bytes:
        return self._file(self._lookup(path)).data

    def lstat(self, path: str) -> FileStatus:
        return self._status(self._lookup(path, follow=False))

    def chmod(self, path: str, mode: int) -> None:
        self._begin("chmod", path)
        self._lookup(path)

    def chown(self, path: str, owner: str | None, group: str | None) -> None:
        self._begin("chown", path)
        self._lookup(path)

    def scandir(self, path: str) -> list[FolderEntry]:
        names, inodes = self._folder(self._lookup(path)).names, self._inodes
        return [FolderEntry(name, type(inodes[inode]) is Folder, inode) for name, inode in names.items()]

    def mkdir(self, path: str) -> None:
        self._begin("mkdir", path)
        folder, name = self._parent(path)
        if name in self._folder(folder).names:
            raise failed(errno.EEXIST, path)
        inode = next(self._numbers)
        self._inodes[inode] = Folder()
        self._durable_names[inode] = {}
        self._change(folder, name, inode)

    def rmdir(self, path: str) -> None:
        self._begin("rmdir", path)
        folder, name = self._parent(path)
        if self._folder(self._lookup(path, follow=False)).names:
            raise failed(errno.ENOTEMPTY, path)
        self._known_folders.clear()
        self._change(folder, name, 0)

    def unlink(self, path: str) -> None:
        self._begin("unlink", path)
        node = self._inodes[self._lookup(path, follow=False)]
        if type(node) is Folder:
            raise failed(errno.EISDIR, path)
        if type(node) is Link:
            self._known_folders.clear()
        folder, name = self._parent(path)
        self._change(folder, name, 0)

    def link(self, source: str, target: str) -> None:
        self._begin("link", target)
        inode = self._lookup(source, follow=False)
        folder, name = self._parent(target)
        if name in self._folder(folder).names:
            raise failed(errno.EEXIST, target)
        self._change(folder, name, inode)

    def rename_noreplace(self, source: str, target: str) -> None:
        self._begin("rename", target)
        inode = self._lookup(source, follow=False)
        folder, name = self._parent(target)
        if name in self._folder(folder).names:
            raise failed(errno.EEXIST, target)
        if type(self._inodes[inode]) is not File:
            self._known_folders.clear()
        if type(self._inodes[inode]) is Folder:
            source_parent, old = self._parent(source)
            bind(self._folder(source_parent).names, old, 0)
            self._change(folder, name, inode, frees=(source_parent, old))
            return
        added = self._change(folder, name, inode)
        self._change(*self._parent(source), 0, needs=added)

    def fsync_folder(self, path: str) -> None:
        self._begin("fsync_folder", path)
        inode = self._lookup(path)
        self._folder(inode)
        self._settle(inode)

    def syncfs(self, path: str) -> None:
        self._begin("syncfs", path)
        self._settle()
        for inode, node in list(self._inodes.items()):
            if type(node) is File and node.durable is not node.data:
                self._sync_file(inode)

    def realpath(self, path: str) -> str:
        real = ""
        for part in filter(None, path.split("/")):
            real = f"{real}/{part}"
            try:
                node = self._inodes[self._lookup(real, follow=False)]
            except OSError:
                continue
            if isinstance(node, Link):
                real = self.realpath(node.path)
        return real or "/"

    def symlink(self, target: str, path: str) -> None:
        """Create a symbolic link at `path`, as a foreign program does."""
        self._begin("symlink", path)
        folder, name = self._parent(path)
        inode = next(self._numbers)
        self._inodes[inode] = Link(target)
        self._known_folders.clear()
        self._change(folder, name, inode)

    def give_up(self, call: str, where: object) -> None:
        """Drop the bytes of a failed sync (by name and argument): as in the kernel, they count as clean from then on.

        They can still be read, and no later successful sync makes them durable.
        """
        concerned = list(self._inodes) if call == "syncfs" else []
        if call == "fsync":
            concerned = [self._open[int(str(where))]]
        for inode in concerned:
            file = self._inodes[inode]
            if type(file) is File and file.durable is not file.data and file.durable != file.data:
                self._inodes[inode] = File(file.data, file.durable, file.mtime_ns, given_up=True)

    def _begin(self, kind: str, path: str) -> None:
        if self.gate is not None:
            self.gate(Operation(kind, path))

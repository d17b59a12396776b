"""A POSIX file system in memory that knows what would survive a power loss.

It stands below `LocalFileSystem` in place of the kernel. Every call is one atomic effect on the volatile state; what is
durable is tracked apart, so that the states a crash may leave can be enumerated.

What is assumed of the real file system: a synced file keeps its bytes, a synced folder its names; unsynced names may
survive or not, each by itself, but those of one name in one folder in their order; the old name of a rename goes only
if the new one survives; a folder is never in two places: its rename survives as a whole or not at all, and is durable
with either of the folders it went from and to; unsynced bytes may be absent, cut short or whole.
"""

from __future__ import annotations

import errno
import functools
import itertools
import os
import random
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from operator import itemgetter

from distcommit.model.ports import FileStatus, FolderEntry
from distcommit.testing.simulation.power_loss import File, Folder, Link, NameChange, Sketch, bind, kept_bytes, picks


@dataclass(frozen=True, slots=True)
class Operation:
    """One mutating call, as the recorder saw it: what and where. `site` has ids taken out."""

    kind: str
    path: str

    @property
    def site(self) -> str:
        """The kind of operation and the kind of place, for coverage."""
        return f"{self.kind} {_without_ids(self.path)}"


class Crashed(BaseException):
    """The process died here. Not an Exception: nothing may handle it."""


Gate = Callable[[Operation], None]


class SimulatedPosix:
    """The system calls of `PosixCalls` on an in-memory tree.

    Args:
        gate: called before each mutating call; may raise `Crashed` or an OSError, or let other actors go first.
    """

    def __init__(self, gate: Gate | None = None) -> None:
        self._inodes: dict[int, File | Folder | Link] = {1: Folder()}
        self._durable_names: dict[int, dict[str, int]] = {1: {}}
        self._changes: list[NameChange] = []
        self._open: dict[int, int] = {}
        self._known_folders: dict[str, int] = {}  # where lookups have led, until a folder or link goes away
        self._numbers = itertools.count(2)
        self._ticks = itertools.count(1)
        self.gate = gate

    # -- calls

    def open_new(self, path: str) -> int:
        self._begin("create", path)
        folder, name = self._parent(path)
        if name in self._folder(folder).names:
            raise _error(errno.EEXIST, path)
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
            raise _error(errno.EEXIST, path)
        inode = next(self._numbers)
        self._inodes[inode] = Folder()
        self._durable_names[inode] = {}
        self._change(folder, name, inode)

    def rmdir(self, path: str) -> None:
        self._begin("rmdir", path)
        folder, name = self._parent(path)
        if self._folder(self._lookup(path, follow=False)).names:
            raise _error(errno.ENOTEMPTY, path)
        self._known_folders.clear()
        self._change(folder, name, 0)

    def unlink(self, path: str) -> None:
        self._begin("unlink", path)
        found = self._inodes[self._lookup(path, follow=False)]
        if type(found) is Folder:
            raise _error(errno.EISDIR, path)
        if type(found) is Link:
            self._known_folders.clear()
        folder, name = self._parent(path)
        self._change(folder, name, 0)

    def link(self, source: str, target: str) -> None:
        self._begin("link", target)
        inode = self._lookup(source, follow=False)
        folder, name = self._parent(target)
        if name in self._folder(folder).names:
            raise _error(errno.EEXIST, target)
        self._change(folder, name, inode)

    def rename_noreplace(self, source: str, target: str) -> None:
        self._begin("rename", target)
        inode = self._lookup(source, follow=False)
        folder, name = self._parent(target)
        if name in self._folder(folder).names:
            raise _error(errno.EEXIST, target)
        if type(self._inodes[inode]) is not File:
            self._known_folders.clear()
        if type(self._inodes[inode]) is Folder:
            left, old = self._parent(source)
            bind(self._folder(left).names, old, 0)
            self._change(folder, name, inode, frees=(left, old))
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
        for inode, found in list(self._inodes.items()):
            if type(found) is File and found.durable is not found.data:
                self._sync_file(inode)

    def realpath(self, path: str) -> str:
        real = ""
        for part in filter(None, path.split("/")):
            real = f"{real}/{part}"
            try:
                found = self._inodes[self._lookup(real, follow=False)]
            except OSError:
                continue
            if isinstance(found, Link):
                real = self.realpath(found.path)
        return real or "/"

    def symlink(self, target: str, path: str) -> None:
        """A symbolic link at `path`, as somebody else's program makes it."""
        self._begin("symlink", path)
        folder, name = self._parent(path)
        inode = next(self._numbers)
        self._inodes[inode] = Link(target)
        self._known_folders.clear()
        self._change(folder, name, inode)

    # -- crashes

    def give_up(self, call: str, where: object) -> None:
        """A sync (by name and argument) could not write: as in the kernel, its bytes count as clean from then on.
        They can still be read, and no later sync that succeeds makes them durable."""
        concerned = list(self._inodes) if call == "syncfs" else []
        if call == "fsync":
            concerned = [self._open[int(str(where))]]
        for inode in concerned:
            file = self._inodes[inode]
            if type(file) is File and file.durable is not file.data and file.durable != file.data:
                self._inodes[inode] = File(file.data, file.durable, file.mtime_ns, given_up=True)

    def after_kill(self) -> SimulatedPosix:
        """What the next process finds when this one was killed: everything, synced or not."""
        return self._copy()

    def after_power_loss(self, rng: random.Random, bound: int, samples: int) -> Iterator[SimulatedPosix]:
        """States that a power loss may leave: durable names with a subset of the unsynced changes, and for each file
        with unsynced bytes none of them, all of them, or part.

        All subsets where at most `bound` choices are open; beyond that none, all, each one alone, each one missing, and
        `samples` at random.
        """
        return (survivor for _, survivor in self.power_losses(rng, bound, samples, set()))

    def power_losses(
        self, rng: random.Random, bound: int, samples: int, known: set[int]
    ) -> Iterator[tuple[int, SimulatedPosix]]:
        """The same, numbered from 1, without those that are in `known`: states of this machine, or of one that it is a
        copy of, that were given before. A number is a state's whatever is known."""
        torn = [
            n for n, f in self._inodes.items() if type(f) is File and f.durable is not f.data and f.durable != f.data
        ]
        choices: list[list[int]] = [[0, 1]] * len(self._changes) + [[0, 1, 2]] * len(torn)
        seen: set[tuple[object, ...]] = set()
        number, sketch = 0, Sketch(self._durable_names, self._inodes, torn)
        for picked in picks(choices, rng, bound, samples):
            changes, bytes_kept = self._possible(picked[: len(self._changes)]), picked[len(self._changes) :]
            key = (*(change.number for change in changes), *bytes_kept)
            if key in seen:
                continue
            seen.add(key)
            number += 1
            kept = dict(zip(torn, bytes_kept, strict=True))
            state = sketch.of(changes, kept)
            if state not in known:
                known.add(state)
                yield number, self._survivor(changes, kept)

    def files(self) -> Iterator[tuple[int, str, bytes | None]]:
        """All files and folders in the order of their making: inode, path, and bytes (None for a folder)."""
        for path, inode in sorted(self.walk("/"), key=itemgetter(1)):
            found = self._inodes[inode]
            if type(found) is File:
                yield inode, path, found.data
            elif type(found) is Folder:
                yield inode, path, None

    def walk(self, path: str) -> list[tuple[str, int]]:
        """All paths below `path` with their inodes."""
        found, folders, inodes = [], [(path.rstrip("/"), self._lookup(path))], self._inodes
        for above, folder in folders:  # which grows meanwhile
            for name, inode in self._folder(folder).names.items():
                found.append((f"{above}/{name}", inode))
                if type(inodes[inode]) is Folder:
                    folders.append(found[-1])
        return found

    # -- inside

    def _possible(self, picked: tuple[int, ...]) -> list[NameChange]:
        """Of the picked changes those that may survive without the others."""
        numbers: set[int] = set()
        blocked: set[tuple[int, str]] = set()
        possible: list[NameChange] = []
        for change, pick in zip(self._changes, picked, strict=True):
            stopped = not pick or any(place in blocked for place in change.places)
            if stopped or (change.needs >= 0 and not self._survives(change.needs, numbers)):
                blocked.update(change.places)
            else:
                numbers.add(change.number)
                possible.append(change)
        return possible

    def _survivor(self, changes: list[NameChange], kept: dict[int, int]) -> SimulatedPosix:
        after = SimulatedPosix()
        durable = {inode: dict(entries) for inode, entries in self._durable_names.items()}
        for change in changes:
            change.apply(durable)
        after._inodes = {}
        for inode, found in self._inodes.items():
            if type(found) is Folder:
                after._inodes[inode] = Folder(dict(durable.get(inode, {})))
            elif type(found) is File and inode in kept:
                left = kept_bytes(found, kept[inode])
                after._inodes[inode] = File(left, left, found.mtime_ns)
            else:
                after._inodes[inode] = found
        after._collect()
        after._numbers, after._ticks = itertools.count(max(self._inodes) + 1), itertools.count(1_000_000 + len(changes))
        return after

    def _survives(self, number: int, chosen: set[int]) -> bool:
        """Whether the change was chosen now or was synced before."""
        return number in chosen or all(change.number != number for change in self._changes)

    def _collect(self) -> None:
        """Drops what no name reaches, and takes what is left for durable."""
        reached = {1: self._inodes[1], **{inode: self._inodes[inode] for _, inode in self.walk("/")}}
        self._inodes = reached
        self._durable_names = {n: dict(f.names) for n, f in reached.items() if type(f) is Folder}

    def _copy(self) -> SimulatedPosix:
        after = SimulatedPosix()
        after._inodes = {
            inode: Folder(dict(found.names)) if type(found) is Folder else found
            for inode, found in self._inodes.items()
        }
        after._durable_names = {n: dict(entries) for n, entries in self._durable_names.items()}
        after._changes = list(self._changes)
        after._known_folders = dict(self._known_folders)
        after._numbers = itertools.count(max(self._inodes) + 1)
        after._ticks = itertools.count(next(self._ticks) + 1_000_000)
        return after

    def _begin(self, kind: str, path: str) -> None:
        if self.gate is not None:
            self.gate(Operation(kind, path))

    def _change(self, folder: int, name: str, inode: int, needs: int = -1, frees: tuple[int, str] | None = None) -> int:
        number = next(self._ticks)
        bind(self._folder(folder).names, name, inode)
        self._changes.append(NameChange(number, folder, name, inode, needs, frees))
        return number

    def _settle(self, folder: int = 0) -> None:
        """Makes the names durable that changed in a folder, or, without one, everywhere."""
        left: list[NameChange] = []
        for change in self._changes:
            if not folder or change.folder == folder or (change.frees is not None and change.frees[0] == folder):
                change.apply(self._durable_names)
            else:
                left.append(change)
        self._changes = left

    def _sync_file(self, inode: int) -> None:
        file = self._file(inode)
        if not file.given_up:
            self._inodes[inode] = File(file.data, file.data, file.mtime_ns)

    def _lookup(self, path: str, *, follow: bool = True) -> int:
        inode = self._known_folders.get(path, 0)
        if inode:
            return inode
        above, _, name = path.rstrip("/").rpartition("/")
        if not name:
            return 1
        try:
            folder = self._inodes[self._lookup(above)]
        except OSError as error:
            raise _error(error.errno or 0, path) from None
        if type(folder) is not Folder:
            raise _error(errno.ENOTDIR, path)
        inode = folder.names.get(name, 0)
        if not inode:
            raise _error(errno.ENOENT, path)
        found = self._inodes[inode]
        if type(found) is Link:
            return self._lookup(found.path) if follow else inode
        if type(found) is Folder:
            self._known_folders[path] = inode
        return inode

    def _parent(self, path: str) -> tuple[int, str]:
        folder, _, name = path.rpartition("/")
        return self._lookup(folder), name

    def _folder(self, inode: int) -> Folder:
        found = self._inodes[inode]
        if type(found) is not Folder:
            raise _error(errno.ENOTDIR, str(inode))
        return found

    def _file(self, inode: int) -> File:
        found = self._inodes[inode]
        if type(found) is not File:
            raise _error(errno.EISDIR, str(inode))
        return found

    def _status(self, inode: int) -> FileStatus:
        found = self._inodes[inode]
        if isinstance(found, Folder):
            return FileStatus(0, 0, inode, True)
        if isinstance(found, Link):
            return FileStatus(len(found.path), 0, inode)
        return FileStatus(len(found.data), found.mtime_ns, inode)


_IDS = re.compile(r"[0-9a-f]{32}|\d{8}T\d{6}-[0-9a-f]{12}|[0-9a-f]{16}(?=\.parquet)")
_DIGITS = re.compile(r"\d+")


@functools.lru_cache(100_000)
def _without_ids(path: str) -> str:
    return _DIGITS.sub("0", _IDS.sub("#", path))


def _error(code: int, path: str) -> OSError:
    return OSError(code, os.strerror(code), path)

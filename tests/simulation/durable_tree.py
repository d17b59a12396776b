"""A tree of files and folders in memory that knows which parts would survive a power loss.

Every change is one atomic effect on the volatile state. Durable parts are tracked separately, so that the states after
a crash can be enumerated. The assumptions about the real file system:

- A synced file keeps its bytes, and a synced folder its names.
- Unsynced names may survive or not, each independently, but those of one name in one folder in their order.
- The old name of a rename disappears only if the new one survives.
- A folder is never in two places: its rename survives completely or not at all, and is durable with either of the
  two folders.
- Unsynced bytes may be absent, truncated or complete.
"""

from __future__ import annotations

import errno
import itertools
import os
import random
from collections.abc import Iterator
from operator import itemgetter
from typing import Self

from distcommit.core.interfaces.file_system import FileStatus
from tests.simulation.power_loss import File, Folder, Link, NameChange, Sketch, bind, kept_bytes, picks


class DurableTree:
    """Names and inodes, both present and after a crash."""

    def __init__(self) -> None:
        self._inodes: dict[int, File | Folder | Link] = {1: Folder()}
        self._durable_names: dict[int, dict[str, int]] = {1: {}}
        self._changes: list[NameChange] = []
        self._known_folders: dict[str, int] = {}  # results of lookups, until a folder or link is removed
        self._numbers = itertools.count(2)
        self._ticks = itertools.count(1)

    def after_kill(self) -> Self:
        """Return the machine for the next process after a kill: everything, synced or not."""
        return self._copy()

    def after_power_loss(self, rng: random.Random, bound: int, samples: int) -> Iterator[Self]:
        """Yield states that a power loss may leave.

        They have the durable names with a subset of the unsynced changes, and of each file with unsynced bytes none of
        them, all of them, or part. All subsets are tried where at most `bound` choices are open. Beyond that: none,
        all, each one alone, each one missing, and `samples` at random.
        """
        return (survivor for _, survivor in self.power_losses(rng, bound, samples, set()))

    def power_losses(self, rng: random.Random, bound: int, samples: int, known: set[int]) -> Iterator[tuple[int, Self]]:
        """Yield these states, numbered from 1, without those in `known`.

        `known` has states of this machine, or of one that it is a copy of. A state's number does not depend on `known`.
        """
        torn = [
            n for n, f in self._inodes.items() if type(f) is File and f.durable is not f.data and f.durable != f.data
        ]
        choices: list[list[int]] = [[0, 1]] * len(self._changes) + [[0, 1, 2]] * len(torn)
        visited: set[tuple[object, ...]] = set()
        number, sketch = 0, Sketch(self._durable_names, self._inodes, torn)
        for picked in self._picks(choices, torn, rng, bound, samples):
            changes, bytes_kept = self._possible(picked[: len(self._changes)]), picked[len(self._changes) :]
            key = (*(change.number for change in changes), *bytes_kept)
            if key in visited:
                continue
            visited.add(key)
            number += 1
            bytes_by_inode = dict(zip(torn, bytes_kept, strict=True))
            state = sketch.of(changes, bytes_by_inode)
            if state not in known:
                known.add(state)
                yield number, self._survivor(changes, bytes_by_inode)

    def files(self) -> Iterator[tuple[int, str, bytes | None]]:
        """Return all files and folders in the order of their creation: inode, path, and bytes (None for a folder)."""
        for path, inode in sorted(self.walk("/"), key=itemgetter(1)):
            node = self._inodes[inode]
            if type(node) is File:
                yield inode, path, node.data
            elif type(node) is Folder:
                yield inode, path, None

    def contents(self) -> Iterator[tuple[int, str, bytes | None, int]]:
        """Return the files in any order, with their last change, as `lstat` reports it."""
        for path, inode in self.walk("/"):
            node = self._inodes[inode]
            if type(node) is File:
                yield inode, path, node.data, node.mtime_ns
            elif type(node) is Folder:
                yield inode, path, None, 0

    def has_links(self) -> bool:
        """Return whether there is or was a symbolic link, which `files` omits."""
        return any(type(node) is Link for node in self._inodes.values())

    def walk(self, path: str) -> list[tuple[str, int]]:
        """Yield all paths below `path` with their inodes."""
        root = self._lookup(path)
        paths, inodes = [], self._inodes
        folders = [(path.rstrip("/"), self._folder(root).names)]
        for above, names in folders:  # which grows meanwhile
            for name, inode in names.items():
                there, below = inodes[inode], f"{above}/{name}"
                paths.append((below, inode))
                if type(there) is Folder:
                    folders.append((below, there.names))
        return paths

    # -- inside

    def _picks(
        self, choices: list[list[int]], torn: list[int], rng: random.Random, bound: int, samples: int
    ) -> Iterator[tuple[int, ...]]:
        """Yield an option for each unsynced change and each of the files `torn`."""
        return picks(choices, rng, bound, samples)

    def _possible(self, picked: tuple[int, ...]) -> list[NameChange]:
        """Return the picked changes that may survive without the others."""
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

    def _survivor(self, changes: list[NameChange], kept: dict[int, int]) -> Self:
        after = type(self)()
        durable = {inode: dict(entries) for inode, entries in self._durable_names.items()}
        for change in changes:
            change.apply(durable)
        after._inodes = {}
        for inode, node in self._inodes.items():
            if type(node) is Folder:
                after._inodes[inode] = Folder(dict(durable.get(inode, {})))
            elif type(node) is File and inode in kept:
                remaining = kept_bytes(node, kept[inode])
                after._inodes[inode] = File(remaining, remaining, node.mtime_ns)
            else:
                after._inodes[inode] = node
        after._collect()
        after._numbers, after._ticks = itertools.count(max(self._inodes) + 1), itertools.count(1_000_000 + len(changes))
        return after

    def _survives(self, number: int, chosen: set[int]) -> bool:
        """Return whether the change was chosen now or synced before."""
        return number in chosen or all(change.number != number for change in self._changes)

    def _collect(self) -> None:
        """Drop unreachable inodes, and make the remaining ones durable."""
        reached = {1: self._inodes[1], **{inode: self._inodes[inode] for _, inode in self.walk("/")}}
        self._inodes = reached
        self._durable_names = {n: dict(f.names) for n, f in reached.items() if type(f) is Folder}

    def _copy(self) -> Self:
        after = type(self)()
        after._inodes = {
            inode: Folder(dict(node.names)) if type(node) is Folder else node for inode, node in self._inodes.items()
        }
        after._durable_names = {n: dict(entries) for n, entries in self._durable_names.items()}
        after._changes = list(self._changes)
        after._known_folders = dict(self._known_folders)
        after._numbers = itertools.count(max(self._inodes) + 1)
        after._ticks = itertools.count(next(self._ticks) + 1_000_000)
        return after

    def _change(self, folder: int, name: str, inode: int, needs: int = -1, frees: tuple[int, str] | None = None) -> int:
        number = next(self._ticks)
        bind(self._folder(folder).names, name, inode)
        self._changes.append(NameChange(number, folder, name, inode, needs, frees))
        return number

    def _settle(self, folder: int = 0) -> None:
        """Make the changed names of a folder durable or, without one, all names."""
        remaining: list[NameChange] = []
        for change in self._changes:
            if not folder or change.folder == folder or (change.frees is not None and change.frees[0] == folder):
                change.apply(self._durable_names)
            else:
                remaining.append(change)
        self._changes = remaining

    def _sync_file(self, inode: int) -> None:
        file = self._file(inode)
        if not file.given_up:
            self._inodes[inode] = File(file.data, file.data, file.mtime_ns)

    def _lookup(self, path: str, *, follow: bool = True) -> int:
        known_folders = self._known_folders
        inode = known_folders.get(path, 0)
        if inode:
            return inode
        above, _, name = path.rstrip("/").rpartition("/")
        if not name:
            return 1
        try:
            folder = self._inodes[known_folders.get(above, 0) or self._lookup(above)]
        except OSError as error:
            raise failed(error.errno or 0, path) from None
        if type(folder) is not Folder:
            raise failed(errno.ENOTDIR, path)
        inode = folder.names.get(name, 0)
        if not inode:
            raise failed(errno.ENOENT, path)
        node = self._inodes[inode]
        if type(node) is Folder:
            known_folders[path] = inode
        elif type(node) is Link and follow:
            return self._lookup(node.path)
        return inode

    def _parent(self, path: str) -> tuple[int, str]:
        folder, _, name = path.rpartition("/")
        return self._lookup(folder), name

    def _folder(self, inode: int) -> Folder:
        node = self._inodes[inode]
        if type(node) is not Folder:
            raise failed(errno.ENOTDIR, str(inode))
        return node

    def _file(self, inode: int) -> File:
        node = self._inodes[inode]
        if type(node) is not File:
            raise failed(errno.EISDIR, str(inode))
        return node

    def _status(self, inode: int) -> FileStatus:
        node = self._inodes[inode]
        if isinstance(node, Folder):
            return FileStatus(0, 0, inode, True)
        if isinstance(node, Link):
            return FileStatus(len(node.path), 0, inode)
        return FileStatus(len(node.data), node.mtime_ns, inode)


def failed(code: int, path: str) -> OSError:
    """Return the error of a system call."""
    return OSError(code, os.strerror(code), path)

"""Parts of a simulated machine, and the states that a power loss may leave of them."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class File:
    """A state of a file, shared by copies of a machine. `given_up`: its unsynced bytes never become durable, as a
    sync failed."""

    data: bytes
    durable: bytes | None = None
    mtime_ns: int = 0
    given_up: bool = False


@dataclass(frozen=True, slots=True)
class Link:
    """A symbolic link to an absolute path."""

    path: str


@dataclass(slots=True)
class Folder:
    """A folder: the inodes of its names."""

    names: dict[str, int] = field(default_factory=dict)


@dataclass(slots=True)
class NameChange:
    """One unsynced change of a folder: `name` now means `inode`, or nothing (0).

    `needs`: the change that it depends on. `frees`: folder and name that this change removes.
    """

    number: int
    folder: int
    name: str
    inode: int
    needs: int = -1
    frees: tuple[int, str] | None = None

    @property
    def places(self) -> tuple[tuple[int, str], ...]:
        """Return folder and name of all that it changes."""
        here = (self.folder, self.name)
        return (here,) if self.frees is None else (here, self.frees)

    def apply(self, names: dict[int, dict[str, int]]) -> None:
        """Apply the change to the names by folder."""
        bind(names.setdefault(self.folder, {}), self.name, self.inode)
        if self.frees is not None:
            bind(names.setdefault(self.frees[0], {}), self.frees[1], 0)


class Sketch:
    """Distinguishes the states that a machine may be left in, cheaply; equal states may count as different."""

    def __init__(
        self, durable: dict[int, dict[str, int]], inodes: dict[int, File | Folder | Link], torn: list[int]
    ) -> None:
        self._durable, self._inodes, self._torn = durable, inodes, frozenset(torn)
        self._named: set[int] = set()
        self._base = 0
        for folder, names in durable.items():
            for name, inode in names.items():
                self._base ^= hash((folder, name, inode))
                if inode not in self._named:
                    self._named.add(inode)
                    self._base ^= self._content(inode, {})

    def of(self, changes: list[NameChange], kept: dict[int, int]) -> int:
        """Return a number for the state in which these changes and bytes survived."""
        now: dict[tuple[int, str], int] = {}
        for change in changes:
            now[change.folder, change.name] = change.inode
            if change.frees is not None:
                now[change.frees] = 0
        state = self._base
        for (folder, name), inode in now.items():
            before = self._durable.get(folder, {}).get(name, 0)
            state ^= (hash((folder, name, before)) if before else 0) ^ (hash((folder, name, inode)) if inode else 0)
        added = set(now.values()) - self._named - {0}
        for inode in added:
            state ^= self._content(inode, kept)
        for inode in self._torn & self._named:
            state ^= self._content(inode, kept)
        return state

    def _content(self, inode: int, kept: dict[int, int]) -> int:
        node = self._inodes[inode]
        if not isinstance(node, File) or (inode in self._torn and not kept):
            return 0
        return hash((inode, kept_bytes(node, kept[inode]) if inode in kept else node.data))


def kept_bytes(file: File, choice: int) -> bytes:
    """Return a file's unsynced bytes after a power loss: none, all, or half of them."""
    data, before = file.data, file.durable or b""
    if choice == 2:
        return before + data[len(before) : len(before) + max(1, (len(data) - len(before)) // 2)]
    return data if choice else before


def picks(choices: list[list[int]], rng: random.Random, bound: int, samples: int) -> Iterator[tuple[int, ...]]:
    """Yield one option for each choice: all combinations of at most `bound` choices, else the extremes and samples."""
    if len(choices) <= bound:
        yield from itertools.product(*choices)
        return
    none, every = tuple(0 for _ in choices), tuple(1 for _ in choices)
    yield none
    yield every
    for place in range(len(choices)):
        yield (*none[:place], 1, *none[place + 1 :])
        yield (*every[:place], 0, *every[place + 1 :])
    for _ in range(samples):
        yield tuple(rng.choice(options) for options in choices)


def bind(names: dict[str, int], name: str, inode: int) -> None:
    """Make `name` mean `inode`, or nothing (0)."""
    if inode:
        names[name] = inode
    else:
        names.pop(name, None)

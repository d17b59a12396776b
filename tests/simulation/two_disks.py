"""A simulated machine with the store on a disk of its own: each disk loses its unsynced writes by itself."""

from __future__ import annotations

import errno
import random
from collections.abc import Iterator

from tests.simulation.durable_tree import failed
from tests.simulation.power_loss import File
from tests.simulation.simulated_posix import SimulatedPosix

STORE_DISK = "/job/store"


class TwoDisks(SimulatedPosix):
    """A machine with a disk mounted at `STORE_DISK`.

    No file can be moved from one disk to the other. `syncfs` syncs one disk. Its power losses include those of one disk
    alone: that disk keeps only what was synced, and the other one keeps everything.
    """

    def syncfs(self, path: str) -> None:
        self._begin("syncfs", path)
        on_store, synced = self._on_store_disk(), _is_on_store_disk(path)
        remaining = []
        for change in self._changes:
            if (change.folder in on_store) is synced:
                change.apply(self._durable_names)
            else:
                remaining.append(change)
        self._changes = remaining
        for inode, node in list(self._inodes.items()):
            if type(node) is File and node.durable is not node.data and (inode in on_store) is synced:
                self._sync_file(inode)

    def rename_noreplace(self, source: str, target: str) -> None:
        _require_one_disk(source, target)
        super().rename_noreplace(source, target)

    def link(self, source: str, target: str) -> None:
        _require_one_disk(source, target)
        super().link(source, target)

    def _picks(
        self, choices: list[list[int]], torn: list[int], rng: random.Random, bound: int, samples: int
    ) -> Iterator[tuple[int, ...]]:
        on_store = self._on_store_disk()
        is_on_store = [change.folder in on_store for change in self._changes] + [inode in on_store for inode in torn]
        if any(is_on_store) and not all(is_on_store):
            yield tuple(1 if is_store else 0 for is_store in is_on_store)
            yield tuple(0 if is_store else 1 for is_store in is_on_store)
        yield from super()._picks(choices, torn, rng, bound, samples)

    def _on_store_disk(self) -> set[int]:
        """Return the inodes of the store's disk; a file without a name counts as one of the other disk."""
        try:
            root = self._lookup(STORE_DISK)
        except OSError:
            return set()
        return {root, *(inode for _, inode in self.walk(STORE_DISK))}


def _is_on_store_disk(path: str) -> bool:
    return path == STORE_DISK or path.startswith(f"{STORE_DISK}/")


def _require_one_disk(source: str, target: str) -> None:
    if _is_on_store_disk(source) is not _is_on_store_disk(target):
        raise failed(errno.EXDEV, target)

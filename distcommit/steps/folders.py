"""Keeps steps below their roots: no component of a folder may be a symbolic link that leads out."""

from __future__ import annotations

import threading
from collections.abc import Iterable

from distcommit.core.errors import ConfigurationError
from distcommit.core.ports import FileSystem
from distcommit.core.support.parallel import in_flight


class GuardedFolders:
    """The folders below one root that one batch of steps touches; each is looked at once.

    Args:
        fs: the file system.
        root: absolute; the root itself may be reached through links, what lies below it may not lead out of it.
    """

    def __init__(self, fs: FileSystem, root: str) -> None:
        self._fs, self._root = fs, root
        self._safe = {root}
        self._links: dict[str, set[str]] = {}
        self._looking = threading.Lock()
        self._look_first = False
        self._real_root = ""

    def check(self, folder: str) -> None:
        """Refuses a folder that leads out of the root; a missing one is fine. Costs a listing per folder above it.

        Raises:
            ConfigurationError: if a component is a symbolic link that leads out.
        """
        if folder in self._safe or not self._fs.has_links:
            return
        above, name = _above(folder), folder.rpartition("/")[2]
        self.check(above)
        with self._looking:  # once, though many threads ask at a time
            if above not in self._links:
                self._links[above] = {e.name for e in self._fs.list_folder(above) if not e.is_folder}
        if name in self._links[above]:
            self._inside(folder)
        self._safe.add(folder)

    def make(self, folder: str) -> None:
        """Makes a folder below the root, with one call where its parent is known: if it is new, or if the one before
        was there and this one is, too.

        Raises:
            ConfigurationError: if a component is a symbolic link that leads out.
        """
        if folder in self._safe:
            return
        above = _above(folder)
        self.make(above)
        if self.seems_there(folder):
            return
        try:
            made = self._fs.make_folder(folder)
        except FileNotFoundError:  # somebody has taken the one above away meanwhile, as it was empty
            self.forget(above)
            self.make(above)
            made = self._fs.make_folder(folder)
        if not made and self._fs.has_links:
            self._look_first = True
            self._is_there(folder)
        self._safe.add(folder)

    def seems_there(self, folder: str) -> bool:
        """Whether a folder, whose parent was made, is known to be there. It is looked for only if the one before was
        there: in the everyday case all are, and a look takes less than what fails because they are.

        Raises:
            ConfigurationError: if it is a symbolic link that leads out.
        """
        if folder in self._safe:
            return True
        if not self._look_first:
            return False
        self._look_first = self._is_there(folder)
        if self._look_first:
            self._safe.add(folder)
        return self._look_first

    def expect_there(self, there: bool) -> None:
        """Whether the next folder is looked for first, as the last one was there."""
        self._look_first = there and self._fs.has_links

    def _is_there(self, folder: str) -> bool:
        status = self._fs.status(folder)
        if status is not None and not status.is_folder:
            self._inside(folder)
        return status is not None

    def make_all(self, folders: Iterable[str]) -> dict[str, OSError | ConfigurationError]:
        """`make` for many folders, those of one depth at a time; why some could not be made."""
        by_depth: dict[int, set[str]] = {}
        for folder in folders:
            missing = folder
            while missing not in self._safe and missing not in (
                known := by_depth.setdefault(missing.count("/"), set())
            ):
                known.add(missing)
                missing = _above(missing)
        failed: dict[str, OSError | ConfigurationError] = {}

        def make(folder: str) -> None:
            try:
                self.make(folder)
            except (OSError, ConfigurationError) as error:
                failed[folder] = error

        for _, level in sorted(by_depth.items()):
            in_flight(self._fs.parallel_calls, make, sorted(level))
        return failed

    def forget(self, folder: str) -> None:
        """Looks at the folder again next time: it has vanished meanwhile."""
        while len(folder) > len(self._root):
            self._safe.discard(folder)
            folder = _above(folder)

    def confirm(self, folder: str) -> None:
        """Check a folder again after it was used: a link may have been put there after the first check.

        Raises:
            ConfigurationError: if it leads out of the root now.
        """
        if self._fs.has_links and folder != self._root:
            self._inside(folder)

    def _inside(self, folder: str) -> None:
        if not self._real_root:
            self._real_root = self._fs.real_path(self._root)
        real, root = self._fs.real_path(folder), self._real_root
        if not real.startswith(root.rstrip("/") + "/"):
            raise ConfigurationError(
                "a folder leads out of its root through a symbolic link",
                path=folder,
                expected=f"a folder below {root}",
                found=real,
                todo="remove the link; nothing is written through it",
            )


def _above(folder: str) -> str:
    """The folder above an absolute one without empty components; `posixpath.dirname` costs 5 times as much."""
    return folder.rpartition("/")[0] or "/"

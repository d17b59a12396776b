"""Keeps steps below their roots: no component of a folder may be a symbolic link that leads out."""

from __future__ import annotations

import posixpath
import threading
from collections.abc import Iterable

from distcommit.model.errors import ConfigurationError
from distcommit.model.parallel import in_flight
from distcommit.model.ports import FileSystem


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

    def check(self, folder: str) -> None:
        """Refuses a folder that leads out of the root; a missing one is fine. Costs a listing per folder above it.

        Raises:
            ConfigurationError: if a component is a symbolic link that leads out.
        """
        if folder in self._safe or not self._fs.has_links:
            return
        above, _, name = folder.rpartition("/")  # absolute, without empty components
        above = above or "/"
        self.check(above)
        with self._looking:  # once, though many threads ask at a time
            if above not in self._links:
                self._links[above] = {e.name for e in self._fs.list_folder(above) if not e.is_folder}
        if name in self._links[above]:
            self._inside(folder)
        self._safe.add(folder)

    def make(self, folder: str) -> None:
        """Makes a folder below the root, with one call if it is new and its parent is known.

        Raises:
            ConfigurationError: if a component is a symbolic link that leads out.
        """
        if folder in self._safe:
            return
        above = posixpath.dirname(folder)
        self.make(above)
        try:
            made = self._fs.make_folder(folder)
        except FileNotFoundError:  # somebody has taken the one above away meanwhile, as it was empty
            self.forget(above)
            self.make(above)
            made = self._fs.make_folder(folder)
        if not made and self._fs.has_links:
            status = self._fs.status(folder)
            if status is not None and not status.is_folder:
                self._inside(folder)
        self._safe.add(folder)

    def make_all(self, folders: Iterable[str]) -> dict[str, OSError | ConfigurationError]:
        """`make` for many folders, those of one depth at a time; why some could not be made."""
        by_depth: dict[int, set[str]] = {}
        for folder in folders:
            missing = folder
            while missing not in self._safe and missing not in (
                known := by_depth.setdefault(missing.count("/"), set())
            ):
                known.add(missing)
                missing = posixpath.dirname(missing)
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
            folder = posixpath.dirname(folder)

    def _inside(self, folder: str) -> None:
        real, root = self._fs.real_path(folder), self._fs.real_path(self._root)
        if not real.startswith(root.rstrip("/") + "/"):
            raise ConfigurationError(
                "a folder leads out of its root through a symbolic link",
                path=folder,
                expected=f"a folder below {root}",
                found=real,
                todo="remove the link; nothing is written through it",
            )

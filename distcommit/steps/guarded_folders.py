"""Guard against symbolic links that lead out of a step's roots."""

from __future__ import annotations

import threading
from collections.abc import Iterable

from distcommit.core.errors import ConfigurationError
from distcommit.core.interfaces.file_system import FileSystem
from distcommit.core.support.parallel import run_parallel


class GuardedFolders:
    """The folders below one root that a batch of steps uses. Each folder is checked once.

    Args:
        fs: the file system.
        root: the absolute root. The path to the root may contain links.
    """

    def __init__(self, fs: FileSystem, root: str) -> None:
        self._fs, self._root = fs, root
        self._safe = {root}
        self._links: dict[str, set[str]] = {}
        self._listing = threading.Lock()
        self._look_first = False
        self._real_root = ""

    def check(self, folder: str) -> None:
        """Reject a folder that leads out of the root. Parents are checked first. A missing folder passes.

        Raises:
            ConfigurationError: if a component is a symbolic link that leads out.
        """
        if folder in self._safe or not self._fs.has_links:
            return
        above, name = _above(folder), folder.rpartition("/")[2]
        self.check(above)
        with self._listing:  # once, though called from many threads
            if above not in self._links:
                self._links[above] = {e.name for e in self._fs.list_folder(above) if not e.is_folder}
        if name in self._links[above]:
            self._inside(folder)
        self._safe.add(folder)

    def make(self, folder: str) -> None:
        """Create a folder and its parents below the root.

        Costs one or two calls if the parent is known.

        Raises:
            ConfigurationError: if a component is a symbolic link that leads out.
        """
        if folder in self._safe:
            return
        above = _above(folder)
        self.make(above)
        if self.is_known_to_exist(folder):
            return
        try:
            is_new = self._fs.make_folder(folder)
        except FileNotFoundError:  # a sweep has deleted the empty parent meanwhile
            self.forget(above)
            self.make(above)
            is_new = self._fs.make_folder(folder)
        if not is_new and self._fs.has_links:
            self._look_first = True
            self._exists(folder)
        self._safe.add(folder)

    def is_known_to_exist(self, folder: str) -> bool:
        """Return whether a folder is known to exist below an existing parent.

        The file system is asked only if the previous folder existed, because usually all folders of a batch exist, or
        none.

        Raises:
            ConfigurationError: if the folder is a symbolic link that leads out.
        """
        if folder in self._safe:
            return True
        if not self._look_first:
            return False
        self._look_first = self._exists(folder)
        if self._look_first:
            self._safe.add(folder)
        return self._look_first

    def expect_there(self, is_present: bool) -> None:
        """Set whether the next folder probably exists, so that its status is read first."""
        self._look_first = is_present and self._fs.has_links

    def _exists(self, folder: str) -> bool:
        status = self._fs.status(folder)
        if status is not None and not status.is_folder:
            self._inside(folder)
        return status is not None

    def make_all(self, folders: Iterable[str]) -> dict[str, OSError | ConfigurationError]:
        """Create folders and their parents, by depth; return the error of each folder that failed."""
        by_depth: dict[int, set[str]] = {}
        for folder in folders:
            missing = folder
            while missing not in self._safe and missing not in (
                level_folders := by_depth.setdefault(missing.count("/"), set())
            ):
                level_folders.add(missing)
                missing = _above(missing)
        failed: dict[str, OSError | ConfigurationError] = {}

        def make(folder: str) -> None:
            try:
                self.make(folder)
            except (OSError, ConfigurationError) as error:
                failed[folder] = error

        for _, level in sorted(by_depth.items()):
            run_parallel(self._fs.parallel_calls, make, sorted(level))
        return failed

    def forget(self, folder: str) -> None:
        """Discard the check results of a vanished folder and its parents."""
        while len(folder) > len(self._root):
            self._safe.discard(folder)
            folder = _above(folder)

    def confirm(self, folder: str) -> None:
        """Check a folder again after use, because a link may have replaced it.

        Raises:
            ConfigurationError: if the folder leads out of the root now.
        """
        if self._fs.has_links and folder != self._root:
            todo = "remove the link, and look for files of this job where it leads: some may have been renamed there"
            self._inside(folder, todo)

    def _inside(self, folder: str, todo: str = "remove the link; nothing is written through it") -> None:
        if not self._real_root:
            self._real_root = self._fs.real_path(self._root)
        real, root = self._fs.real_path(folder), self._real_root
        if not real.startswith(root.rstrip("/") + "/"):
            raise ConfigurationError(
                "a folder leads out of its root through a symbolic link",
                id="PATH_OUTSIDE_ROOT",
                path=folder,
                expected=f"a folder below {root}",
                found=real,
                todo=todo,
            )


def parent_of(path: str) -> str:
    """Return a path's folder, 5 times as fast as `posixpath.dirname`."""
    return path.rpartition("/")[0]


def _above(folder: str) -> str:
    return parent_of(folder) or "/"

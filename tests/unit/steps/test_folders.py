"""Folders are looked at once for a batch of steps, however many threads ask."""

from __future__ import annotations

import threading
from pathlib import Path

from distcommit.fs.local import LocalFileSystem
from distcommit.model.errors import ConfigurationError
from distcommit.model.parallel import in_flight
from distcommit.model.ports import FolderEntry
from distcommit.steps.folders import GuardedFolders

THREADS = 8


class Listed(LocalFileSystem):
    """Counts listings; the first waits until others ask for one as well, or have had the time to."""

    def __init__(self) -> None:
        super().__init__()
        self.listed: list[str] = []
        self._second = threading.Event()

    def list_folder(self, path: str) -> list[FolderEntry]:
        self.listed.append(path)
        if len(self.listed) > 1:
            self._second.set()
        self._second.wait(0.2)
        return super().list_folder(path)


def test_threads_that_check_folders_side_by_side_list_the_one_above_once(tmp_path: Path) -> None:
    fs, root = Listed(), f"{tmp_path}/root"
    folders = [f"{root}/{number}" for number in range(THREADS)]
    for folder in folders:
        fs.make_folders(folder)
    in_flight(THREADS, GuardedFolders(fs, root).check, folders)
    assert fs.listed == [root]


def test_nothing_is_made_behind_a_link_that_leads_out_of_the_root(tmp_path: Path) -> None:
    root, elsewhere = tmp_path / "root", tmp_path / "elsewhere"
    root.mkdir()
    elsewhere.mkdir()
    (root / "link").symlink_to(elsewhere)
    failed = GuardedFolders(LocalFileSystem(), str(root)).make_all([f"{root}/link/a", f"{root}/b/c"])
    assert {folder: type(error) for folder, error in failed.items()} == {
        f"{root}/link": ConfigurationError,
        f"{root}/link/a": ConfigurationError,
    }
    assert list(elsewhere.iterdir()) == []
    assert (root / "b/c").is_dir()


def test_a_folder_that_somebody_takes_away_meanwhile_is_made_again(tmp_path: Path) -> None:
    """As who deletes what is retired does with one in which nothing is left."""
    folders, above = GuardedFolders(LocalFileSystem(), str(tmp_path)), tmp_path / "dataset" / "2024"
    folders.make(str(above))
    above.rmdir()
    above.parent.rmdir()
    folders.make(str(above / "01"))
    assert (above / "01").is_dir()

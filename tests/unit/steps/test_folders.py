"""Folders are looked at once for a batch of steps, however many threads ask."""

from __future__ import annotations

import threading
from pathlib import Path

from distcommit.fs.local import LocalFileSystem
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

"""A batch of steps checks each folder once, however many threads ask."""

from __future__ import annotations

import threading
from collections import Counter
from pathlib import Path
from typing import Any, cast

import pytest

from distcommit.core.errors import ConfigurationError
from distcommit.core.interfaces.commit_step import StepContext
from distcommit.core.interfaces.file_system import FolderEntry
from distcommit.core.support.parallel import run_parallel
from distcommit.fs.local_disk.local_file_system import LocalFileSystem
from distcommit.fs.local_disk.posix_calls import PosixCalls, RealPosixCalls
from distcommit.steps.guarded_folders import GuardedFolders
from distcommit.steps.rename_step import FsRenameCommitStep

THREADS = 8


class Listed(LocalFileSystem):
    """A file system that counts listings. The first listing waits until others are requested, or for a moment."""

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


def test_threads_that_check_sibling_folders_list_the_parent_once(tmp_path: Path) -> None:
    fs, root = Listed(), f"{tmp_path}/root"
    folders = [f"{root}/{number}" for number in range(THREADS)]
    for folder in folders:
        fs.make_folders(folder)
    run_parallel(THREADS, GuardedFolders(fs, root).check, folders)
    assert fs.listed == [root]


def test_no_folder_is_created_behind_a_link_that_leads_out_of_the_root(tmp_path: Path) -> None:
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


def test_folder_that_another_process_deletes_meanwhile_is_created_again(tmp_path: Path) -> None:
    """Deleting superseded files removes a folder that becomes empty."""
    folders, above = GuardedFolders(LocalFileSystem(), str(tmp_path)), tmp_path / "dataset" / "2024"
    folders.make(str(above))
    above.rmdir()
    above.parent.rmdir()
    folders.make(str(above / "01"))
    assert (above / "01").is_dir()


class Noted:
    """System calls, each recorded with its folder."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, str]] = []

    def __getattr__(self, name: str) -> Any:
        call = getattr(RealPosixCalls(), name)

        def noted(path: str, *rest: str) -> Any:
            self.calls.append((name, path))
            return call(path, *rest)

        return noted


@pytest.mark.parametrize("there", [True, False])
def test_existing_folders_take_one_check_each_and_new_ones_one_call_each(tmp_path: Path, there: bool) -> None:
    folders = [f"{tmp_path}/{number}/day" for number in range(5)]
    for folder in folders if there else ():
        Path(folder).mkdir(parents=True)
    noted = Noted()
    assert GuardedFolders(LocalFileSystem(cast(PosixCalls, noted)), str(tmp_path)).make_all(folders) == {}
    asked = Counter(name for name, _ in noted.calls)
    assert asked == ({"mkdir": 1, "lstat": 10} if there else {"mkdir": 10})
    assert all(Path(folder).is_dir() for folder in folders)


def test_missing_folders_are_created_beside_existing_ones(tmp_path: Path) -> None:
    folders = [f"{tmp_path}/{number}" for number in range(9)]
    for folder in folders[::3]:
        Path(folder).mkdir()
    assert GuardedFolders(LocalFileSystem(), str(tmp_path)).make_all(folders) == {}
    assert sorted(map(str, tmp_path.iterdir())) == folders


def test_link_is_detected_also_where_folders_are_only_checked(tmp_path: Path) -> None:
    root, elsewhere = tmp_path / "root", tmp_path / "elsewhere"
    for folder in (root / "a", elsewhere):
        folder.mkdir(parents=True)
    (root / "b").symlink_to(elsewhere)
    folders = GuardedFolders(LocalFileSystem(), str(root))
    folders.make(f"{root}/a")
    with pytest.raises(ConfigurationError, match="leads out"):
        folders.is_known_to_exist(f"{root}/b")
    assert not folders.is_known_to_exist(f"{root}/c"), "no further check after the first missing folder"


@pytest.mark.parametrize(
    ("there", "asked"), [(True, {"rename": 1 + 5, "mkdir": 0}), (False, {"rename": 5, "mkdir": 0})]
)
def test_only_the_first_of_existing_target_folders_is_tried_as_a_whole(
    tmp_path: Path, there: bool, asked: dict[str, int]
) -> None:
    for number in range(5):
        (tmp_path / f"staging/{number}").mkdir(parents=True)
        (tmp_path / f"staging/{number}/f").write_bytes(b"x")
        (tmp_path / "output" / (f"{number}" if there else "")).mkdir(parents=True, exist_ok=True)
    noted = Noted()
    context = StepContext(LocalFileSystem(cast(PosixCalls, noted)), f"{tmp_path}/staging", f"{tmp_path}/output")
    files = [FsRenameCommitStep(context, f"{number}/f", f"{number}/f").file for number in range(5)]
    noted.calls.clear()
    assert not any(FsRenameCommitStep.execute_all(FsRenameCommitStep.of_all(context, files, is_complete=True)))
    calls = Counter(name for name, _ in noted.calls)
    assert {"rename": calls["rename_noreplace"], "mkdir": calls["mkdir"]} == asked
    assert sorted(str(path.relative_to(tmp_path / "output")) for path in tmp_path.glob("output/*/*")) == [
        f"{number}/f" for number in range(5)
    ]

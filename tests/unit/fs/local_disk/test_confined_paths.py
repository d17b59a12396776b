"""Nothing outside the job's roots is listed or deleted, whatever links, mounts and concurrent changes exist."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from distcommit.core.errors import ConfigurationError
from distcommit.core.interfaces.commit_step import StepContext
from distcommit.core.interfaces.file_system import FolderEntry, OutsideRootError
from distcommit.fs.local_disk.confined_open import open_below, walk
from distcommit.fs.local_disk.local_file_system import LocalFileSystem
from distcommit.fs.local_disk.posix_calls import RealPosixCalls
from distcommit.protocol.paths.staging import attempt_folder, bucket_folder
from distcommit.steps.rename_step import FsRenameCommitStep
from distcommit.stores.folders.attempt_notes import remove_unfinished_notes
from distcommit.stores.folders.folder_trees import delete_tree
from distcommit.stores.folders.staging import list_attempts, remove_attempts, remove_empty, sweep_epoch

Deletion = Callable[[LocalFileSystem, str], object]
ATTEMPT = attempt_folder(1, 0, "unit", "0" * 32)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "root"
    folder.mkdir()
    return folder


@pytest.fixture
def elsewhere(tmp_path: Path) -> Path:
    """Create a foreign folder with files that a careless sweep would delete."""
    folder = tmp_path / "elsewhere"
    for below in ("", bucket_folder(1, 0).partition("/")[2], ATTEMPT.partition("/")[2], ATTEMPT.rpartition("/")[2]):
        (folder / below).mkdir(parents=True, exist_ok=True)
        (folder / below / "precious").write_bytes(b"x")
        (folder / below / "empty").mkdir(exist_ok=True)
    return folder


def confined(*roots: Path) -> LocalFileSystem:
    return LocalFileSystem(RealPosixCalls([str(root) for root in roots]), durable=False)


def tree(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


@pytest.mark.parametrize(
    "act",
    [
        lambda fs, folder: fs.list_folder(folder),
        lambda fs, folder: fs.delete(f"{folder}/precious"),
        lambda fs, folder: fs.delete_folder(f"{folder}/empty"),
        delete_tree,
    ],
    ids=["list", "delete", "delete_folder", "delete_tree"],
)
@pytest.mark.parametrize("below", ["", "/deeper"])
@pytest.mark.parametrize("absolute", [True, False])
def test_link_that_leads_out_of_the_root_is_not_followed(
    root: Path, elsewhere: Path, act: Deletion, below: str, absolute: bool
) -> None:
    (elsewhere / "deeper/empty").mkdir(parents=True)
    (elsewhere / "deeper/precious").write_bytes(b"x")
    (root / "link").symlink_to(elsewhere if absolute else "../elsewhere")
    before = tree(elsewhere)
    if act is delete_tree and not below:
        with pytest.raises(OSError, match=r"Not a directory|leads out"):
            act(confined(root), f"{root}/link")
    else:
        with pytest.raises(OutsideRootError, match="leads out"):
            act(confined(root), f"{root}/link{below}")
    assert tree(elsewhere) == before


@pytest.mark.parametrize("absolute", [True, False])
def test_link_that_stays_inside_the_root_is_followed(root: Path, absolute: bool) -> None:
    (root / "real/empty").mkdir(parents=True)
    (root / "real/file").write_bytes(b"x")
    (root / "link").symlink_to(root / "real" if absolute else "real")
    fs = confined(root)
    assert sorted(entry.name for entry in fs.list_folder(f"{root}/link")) == ["empty", "file"]
    assert fs.delete(f"{root}/link/file")
    assert fs.delete_folder(f"{root}/link/empty")
    assert tree(root) == ["link", "real"]


def test_root_reached_through_a_link_is_the_root(tmp_path: Path, root: Path) -> None:
    (tmp_path / "job").symlink_to(root)
    (root / "a/b").mkdir(parents=True)
    (root / "a/b/file").write_bytes(b"x")
    fs = confined(tmp_path / "job")
    assert delete_tree(fs, f"{tmp_path}/job/a") == 1
    assert tree(root) == []


def test_missing_folders_files_and_roots_are_accepted(tmp_path: Path, root: Path) -> None:
    for fs, folder in ((confined(root), root), (confined(tmp_path / "none"), tmp_path / "none")):
        assert fs.list_folder(f"{folder}/a/b") == []
        assert not fs.delete(f"{folder}/a/b")
        assert not fs.delete_folder(f"{folder}/a/b")
        assert delete_tree(fs, f"{folder}/a") == 0


@pytest.mark.parametrize("path", ["/proc", "/proc/self"])
def test_mount_inside_the_root_is_not_entered(path: str) -> None:
    with pytest.raises(OutsideRootError, match="a mount leads out of /"):
        open_below("/", path)
    root_fd = os.open("/", os.O_RDONLY)
    try:
        with pytest.raises(OSError, match=r"cross-device"):
            walk(root_fd, path.strip("/"), os.O_RDONLY)
    finally:
        os.close(root_fd)


def test_kernel_without_openat2_opens_folders_one_by_one_and_follows_no_link(root: Path, elsewhere: Path) -> None:
    (root / "a/b").mkdir(parents=True)
    (root / "a/link").symlink_to(elsewhere)
    root_fd = os.open(root, os.O_RDONLY)
    try:
        opened = walk(root_fd, "a/b", os.O_RDONLY | os.O_DIRECTORY)
        assert os.fstat(opened).st_ino == (root / "a/b").stat().st_ino
        os.close(opened)
        with pytest.raises(OSError, match="not a folder"):
            walk(root_fd, "a/link/empty", os.O_RDONLY | os.O_DIRECTORY)
        with pytest.raises(FileNotFoundError):
            walk(root_fd, "a/none", os.O_RDONLY | os.O_DIRECTORY)
    finally:
        os.close(root_fd)


def _swept(fs: LocalFileSystem, root: str) -> object:
    return sweep_epoch(fs, root, 1, 0)


def _removed(fs: LocalFileSystem, root: str) -> object:
    return remove_attempts(fs, root, [ATTEMPT])


def _emptied(fs: LocalFileSystem, root: str) -> object:
    remove_empty(fs, root, 1, 0)
    return None


def _unnoted(fs: LocalFileSystem, root: str) -> object:
    remove_unfinished_notes(fs, root, 1, 0)
    return None


@pytest.mark.parametrize("sweep", [_swept, _removed, _emptied, _unnoted])
@pytest.mark.parametrize("linked", [1, 2, 3], ids=["epoch", "bucket", "attempt"])
def test_sweep_deletes_nothing_behind_a_linked_staging_folder(
    root: Path, elsewhere: Path, sweep: Deletion, linked: int
) -> None:
    parts = ATTEMPT.split("/")
    link = root.joinpath(*parts[:linked])
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(elsewhere)
    before = tree(elsewhere)
    try:
        sweep(confined(root), str(root))
    except OSError as error:
        assert isinstance(error, OutsideRootError | NotADirectoryError)  # noqa: PT017 - some have nothing to do there
    assert tree(elsewhere) == before


class Swapping(RealPosixCalls):
    """A file system on which another process replaces `folder` by a link after it was listed or checked."""

    def __init__(self, roots: list[str], folder: str, to: Path) -> None:
        super().__init__(roots)
        self.folder, self.to = folder, to

    def swap(self) -> None:
        if not os.path.islink(self.folder):
            os.rename(self.folder, f"{self.folder}.aside")
            os.symlink(self.to, self.folder)

    def scandir(self, path: str) -> list[FolderEntry]:
        entries = super().scandir(path)
        if path == self.folder:
            self.swap()
        return entries

    def rename_noreplace(self, source: str, target: str) -> None:
        if target.startswith(f"{self.folder}/") or source.startswith(f"{self.folder}/"):
            self.swap()
        super().rename_noreplace(source, target)


def test_link_placed_between_listing_and_deletion_protects_its_target(root: Path, elsewhere: Path) -> None:
    folder = f"{root}/a"
    (root / "a/deeper").mkdir(parents=True)
    (root / "a/precious").write_bytes(b"ours")
    before = tree(elsewhere)
    with pytest.raises(OutsideRootError):
        delete_tree(LocalFileSystem(Swapping([str(root)], folder, elsewhere)), folder)
    assert tree(elsewhere) == before


class SwappingLate(Swapping):
    """A file system on which another process replaces the folder by a link after it was opened."""

    def _opened(self, folder: str, *, readable: bool = False) -> int | None:
        opened = super()._opened(folder, readable=readable)
        if folder == self.folder:
            self.swap()
        return opened


@pytest.mark.parametrize(
    "act",
    [lambda fs, folder: fs.delete(f"{folder}/precious"), lambda fs, folder: fs.delete_folder(f"{folder}/empty")],
    ids=["delete", "delete_folder"],
)
def test_link_placed_between_opening_and_deletion_protects_its_target(
    root: Path, elsewhere: Path, act: Deletion
) -> None:
    (root / "a/empty").mkdir(parents=True)
    (root / "a/precious").write_bytes(b"ours")
    before = tree(elsewhere)
    assert act(LocalFileSystem(SwappingLate([str(root)], f"{root}/a", elsewhere)), f"{root}/a")
    assert tree(elsewhere) == before
    assert len(tree(root / "a.aside")) == 1, "the opened folder was deleted"


@pytest.mark.parametrize("swapped", ["staging/a", "output/d"])
def test_rename_through_a_link_placed_after_the_check_is_not_published(
    tmp_path: Path, elsewhere: Path, swapped: str
) -> None:
    for folder in ("staging/a", "output/d"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "staging/a/f").write_bytes(b"x")
    (elsewhere / "f").write_bytes(b"x") if swapped.startswith("staging") else None
    plain = StepContext(LocalFileSystem(durable=False), f"{tmp_path}/staging", f"{tmp_path}/output")
    file = FsRenameCommitStep(plain, "a/f", "d/f").file
    calls = Swapping([], f"{tmp_path}/{swapped}", elsewhere)
    context = StepContext(LocalFileSystem(calls, durable=False), plain.staging_root, plain.output_root)
    (error,) = FsRenameCommitStep.execute_all([FsRenameCommitStep.of(context, file)])
    assert isinstance(error, ConfigurationError)
    assert "leads out of its root" in str(error)


def test_only_attempts_below_the_root_are_listed(root: Path, elsewhere: Path) -> None:
    (root / ATTEMPT).mkdir(parents=True)
    fs = confined(root)
    assert list_attempts(fs, str(root), 1, 0) == {"unit": [ATTEMPT]}
    (root / bucket_folder(2, 0)).parent.mkdir()
    (root / bucket_folder(2, 0)).symlink_to(elsewhere)
    with pytest.raises(OutsideRootError):
        list_attempts(fs, str(root), 2, 0)


def test_confined_file_system_is_confined_after_unpickling(root: Path, elsewhere: Path) -> None:
    import pickle

    fs = LocalFileSystem(pickle.loads(pickle.dumps(RealPosixCalls([str(root)]))))
    (root / "link").symlink_to(elsewhere)
    with pytest.raises(OutsideRootError):
        fs.delete(f"{root}/link/precious")

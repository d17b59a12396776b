"""On a mount that does not tell names apart by their case (a share, macOS) no store is made; readers of one that was
moved there, or made by an older release, get what is of their dataset, though another has the same folder.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from distcommit.app.reading import readers
from distcommit.core.errors import ConfigurationError
from distcommit.core.ports import FileStatus, FolderEntry
from distcommit.fs.posix_calls.local import LocalFileSystem
from distcommit.fs.posix_calls.posix import RealPosixCalls
from tests.unit.app.job_file.test_readers import Place


def _there(path: str) -> str:
    """The name by which it is kept, if there is one that differs in case alone."""
    found = "/"
    for part in path.split("/")[1:]:
        names = os.listdir(found) if os.path.isdir(found) else []
        found = os.path.join(found, next((name for name in names if name.lower() == part.lower()), part))
    return found


class _WithoutCase(RealPosixCalls):
    """System calls on such a mount."""

    def open_new(self, path: str) -> int:
        return super().open_new(_there(path))

    def read_file(self, path: str) -> bytes:
        return super().read_file(_there(path))

    def lstat(self, path: str) -> FileStatus:
        return super().lstat(_there(path))

    def scandir(self, path: str) -> list[FolderEntry]:
        return super().scandir(_there(path))

    def mkdir(self, path: str) -> None:
        super().mkdir(_there(path))

    def rmdir(self, path: str) -> None:
        super().rmdir(_there(path))

    def unlink(self, path: str) -> None:
        super().unlink(_there(path))

    def link(self, source: str, target: str) -> None:
        super().link(_there(source), _there(target))

    def rename_noreplace(self, source: str, target: str) -> None:
        super().rename_noreplace(_there(source), _there(target))

    def fsync_folder(self, path: str) -> None:
        super().fsync_folder(_there(path))


class _WithoutCaseIn(_WithoutCase):
    """The same, of what is below one folder."""

    def __init__(self, folder: str) -> None:
        super().__init__()
        self.folder = folder

    def lstat(self, path: str) -> FileStatus:
        return super().lstat(path) if path.startswith(f"{self.folder}/") else RealPosixCalls.lstat(self, path)


@pytest.mark.parametrize("root", ["store", "staging", "output"])
def test_no_store_is_made_where_names_are_not_told_apart_by_case(tmp_path: Path, root: str) -> None:
    place = Place(tmp_path)
    place.fs = LocalFileSystem(_WithoutCaseIn(getattr(place.roots, root)), durable=False)
    with pytest.raises(ConfigurationError, match="keeping names apart that differ only in case") as caught:
        place.run(3, ["orders"])
    assert getattr(place.roots, root) in str(caught.value)
    assert not place.fs.list_folder(place.roots.output)


def test_a_reader_gets_what_is_of_its_dataset_though_two_have_one_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = Place(tmp_path)
    place.run(1, ["first"])  # makes the store, where names are told apart
    place.fs = LocalFileSystem(_WithoutCase(), durable=False)
    place.run(3, ["orders"])
    place.run(5, ["orders", "Orders"])
    monkeypatch.setattr(readers, "open_file_system", lambda *_, **__: place.fs)
    output = Path(place.roots.output)
    assert not (output / "Orders").exists()
    (output / "Orders").symlink_to(output / "orders")  # for pyarrow, which opens files by itself
    cut = place.read()
    assert place.counts(cut) == {"Orders": 5, "first": 1, "orders": 5}
    assert [len(found) for found in cut.paths().values()] == [1, 1, 2]

"""Case-insensitive mounts (a share, macOS): no store is created on them.

Readers of a store that was moved there return only records of their dataset, although another dataset shares its
folder.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from distcommit.app.reading import snapshot_reader
from distcommit.app.reading.live_files import published_files
from distcommit.core.errors import ConfigurationError, CorruptError
from distcommit.core.interfaces.file_system import FileStatus, FolderEntry
from distcommit.fs.local_disk.local_file_system import LocalFileSystem
from distcommit.fs.local_disk.posix_calls import RealPosixCalls
from tests.unit.app.reading.test_snapshot_reader import Place


def _stored_spelling(path: str) -> str:
    """Return the stored spelling of a path if one exists that differs only in case."""
    actual = "/"
    for part in path.split("/")[1:]:
        names = os.listdir(actual) if os.path.isdir(actual) else []
        actual = os.path.join(actual, next((name for name in names if name.lower() == part.lower()), part))
    return actual


class _WithoutCase(RealPosixCalls):
    """System calls on a case-insensitive mount."""

    def open_new(self, path: str) -> int:
        return super().open_new(_stored_spelling(path))

    def read_file(self, path: str) -> bytes:
        return super().read_file(_stored_spelling(path))

    def lstat(self, path: str) -> FileStatus:
        return super().lstat(_stored_spelling(path))

    def scandir(self, path: str) -> list[FolderEntry]:
        return super().scandir(_stored_spelling(path))

    def mkdir(self, path: str) -> None:
        super().mkdir(_stored_spelling(path))

    def rmdir(self, path: str) -> None:
        super().rmdir(_stored_spelling(path))

    def unlink(self, path: str) -> None:
        super().unlink(_stored_spelling(path))

    def link(self, source: str, target: str) -> None:
        super().link(_stored_spelling(source), _stored_spelling(target))

    def rename_noreplace(self, source: str, target: str) -> None:
        super().rename_noreplace(_stored_spelling(source), _stored_spelling(target))

    def fsync_folder(self, path: str) -> None:
        super().fsync_folder(_stored_spelling(path))


class _WithoutCaseIn(_WithoutCase):
    """System calls on a case-insensitive mount at one folder."""

    def __init__(self, folder: str) -> None:
        super().__init__()
        self.folder = folder

    def lstat(self, path: str) -> FileStatus:
        return super().lstat(path) if path.startswith(f"{self.folder}/") else RealPosixCalls.lstat(self, path)


@pytest.mark.parametrize("root", ["store", "staging", "output"])
def test_store_is_not_created_on_a_case_insensitive_file_system(tmp_path: Path, root: str) -> None:
    place = Place(tmp_path)
    place.fs = LocalFileSystem(_WithoutCaseIn(getattr(place.roots, root)), durable=False)
    with pytest.raises(ConfigurationError, match="keeping names apart that differ only in case") as caught:
        place.run(3, ["orders"])
    assert getattr(place.roots, root) in str(caught.value)
    assert not place.fs.list_folder(place.roots.output)


def test_reader_returns_only_its_dataset_although_two_datasets_share_a_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = Place(tmp_path)
    place.run(1, ["first"])  # creates the store on a case-sensitive file system
    place.fs = LocalFileSystem(_WithoutCase(), durable=False)
    place.run(3, ["orders"])
    place.run(5, ["orders", "Orders"])
    monkeypatch.setattr(snapshot_reader, "open_folders", lambda *_, **__: place.fs)
    output = Path(place.roots.output)
    assert not (output / "Orders").exists()
    (output / "Orders").symlink_to(output / "orders")  # pyarrow opens files without the simulated calls
    cut = place.read()
    assert place.counts(cut) == {"Orders": 5, "first": 1, "orders": 5}
    assert [len(paths) for paths in cut.paths().values()] == [1, 1, 2]


def test_file_without_a_footer_in_a_shared_folder_is_an_error_and_not_omitted(tmp_path: Path) -> None:
    path = f"{tmp_path}/{'3'.zfill(10)}-00001_000001-{'a' * 32}-0001.jsonl.gz"
    Path(path).write_bytes(b"truncated")
    with pytest.raises(CorruptError, match="footer") as caught:
        published_files(LocalFileSystem(), "orders", [path, f"{tmp_path}/missing.parquet"])
    assert caught.value.ids["path"] == path

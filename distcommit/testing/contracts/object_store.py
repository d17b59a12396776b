"""What the protocol needs of an object store, as a pytest class to subclass; see `testing.contracts`."""

from __future__ import annotations

import pytest

from distcommit.core.ports import FileAccess, FileSystem
from distcommit.testing.contracts.file_system import FileSystemContract


class ObjectStoreContract(FileSystemContract):
    """As `FileSystemContract`, where folders are the beginnings of names and nothing is renamed: a staged file is
    completed under the name that it was created for, in one step, and nobody sees it there before."""

    def test_a_name_needs_its_folder(self, fs: FileSystem, root: str) -> None:
        """It does not, and its folders are there with it."""
        path = f"{root}/missing/deep/a"
        assert fs.make_folder(f"{root}/missing/deep")
        assert fs.status(f"{root}/missing") is None
        assert fs.put_if_absent(path, b"x")
        found = fs.status(f"{root}/missing")
        assert found is not None
        assert found.is_folder
        assert [(entry.name, entry.is_folder) for entry in fs.list_folder(root)] == [("missing", True)]
        assert fs.delete(path)
        assert fs.status(f"{root}/missing") is None

    def test_rename_never_replaces_a_folder(self, fs: FileSystem, root: str) -> None:
        """A name may be that of an object and the beginning of others."""
        fs.put_if_absent(f"{root}/a/b", b"below")
        self.write(fs, f"{root}/staged", b"mine", target=f"{root}/a")
        fs.rename(f"{root}/staged", f"{root}/a")
        assert (fs.read(f"{root}/a"), fs.read(f"{root}/a/b")) == (b"mine", b"below")

    def test_of_many_that_rename_one_file_one_wins(self, fs: FileSystem, root: str) -> None:
        """They all complete the same file, and may all be told that it is done."""
        before = self.write(fs, f"{root}/a", b"x", target=f"{root}/b")
        assert any(self.race(lambda _: fs.rename(f"{root}/a", f"{root}/b"), FileNotFoundError))
        assert fs.status(f"{root}/b") == before
        assert [entry.name for entry in fs.list_folder(root)] == ["b"]

    def test_access_is_set_and_the_file_stays_the_same(self, fs: FileSystem, root: str) -> None:
        """It can't be set."""
        self.write(fs, f"{root}/a", b"x")
        with pytest.raises(OSError, match="no owner"):
            fs.set_access(f"{root}/a", FileAccess(mode=0o640))

    def test_folders(self, fs: FileSystem, root: str) -> None:
        """Deep ones, of their own accord."""
        deep = self.deep_folder(root)
        fs.make_folders(deep)
        self.put_below(fs, root, deep)

    def test_only_a_file_made_for_a_name_can_have_it(self, fs: FileSystem, root: str) -> None:
        fs.put_if_absent(f"{root}/plain", b"x")
        before = self.write(fs, f"{root}/a", b"x", target=f"{root}/b")
        for source in ("plain", "a"):
            with pytest.raises(OSError, match=r"rename|published"):
                fs.rename(f"{root}/{source}", f"{root}/c")
        assert fs.status(f"{root}/c") is None
        assert fs.status(f"{root}/a") == before

    def test_a_staged_file_is_seen_by_nobody_and_gone_when_deleted(self, fs: FileSystem, root: str) -> None:
        self.write(fs, f"{root}/a", b"x", target=f"{root}/b")
        assert fs.status(f"{root}/b") is None
        assert [entry.name for entry in fs.list_folder(root)] == ["a"]
        with pytest.raises(OSError, match="can't be read"):
            fs.read(f"{root}/a")
        assert fs.delete(f"{root}/a")
        assert fs.status(f"{root}/a") is None
        with pytest.raises(FileNotFoundError):
            fs.rename(f"{root}/a", f"{root}/b")
        assert fs.list_folder(root) == []

"""Contract of object stores, as a pytest class to subclass; see `testing.contracts`."""

from __future__ import annotations

import pytest

from distcommit.core.interfaces.file_system import FileAccess, FileSystem
from distcommit.testing.contracts.file_system import FileSystemContract


class ObjectStoreContract(FileSystemContract):
    """Contract of object stores: as `FileSystemContract`, but folders are prefixes of names and nothing is renamed. A
    staged file is completed in one step under the name that it was created for, and is not visible there before."""

    def test_file_in_a_missing_folder_is_rejected(self, fs: FileSystem, root: str) -> None:
        """A put needs no existing folder, and creates the folders of its path."""
        path = f"{root}/missing/deep/a"
        assert fs.make_folder(f"{root}/missing/deep")
        assert fs.status(f"{root}/missing") is None
        assert fs.put_if_absent(path, b"x")
        status = fs.status(f"{root}/missing")
        assert status is not None
        assert status.is_folder
        assert [(entry.name, entry.is_folder) for entry in fs.list_folder(root)] == [("missing", True)]
        assert fs.delete(path)
        assert fs.status(f"{root}/missing") is None

    def test_rename_never_replaces_a_folder(self, fs: FileSystem, root: str) -> None:
        """A name may be both an object and a prefix of others."""
        fs.put_if_absent(f"{root}/a/b", b"below")
        self.write(fs, f"{root}/staged", b"mine", target=f"{root}/a")
        fs.rename(f"{root}/staged", f"{root}/a")
        assert (fs.read(f"{root}/a"), fs.read(f"{root}/a/b")) == (b"mine", b"below")

    def test_concurrent_renames_of_one_file_have_one_winner(self, fs: FileSystem, root: str) -> None:
        """All callers complete the same upload, so all of them may report success."""
        before = self.write(fs, f"{root}/a", b"x", target=f"{root}/b")
        assert any(self.race(lambda _: fs.rename(f"{root}/a", f"{root}/b"), FileNotFoundError))
        assert fs.status(f"{root}/b") == before
        assert [entry.name for entry in fs.list_folder(root)] == ["b"]

    def test_setting_access_keeps_the_identity_of_the_file(self, fs: FileSystem, root: str) -> None:
        """Object stores reject a change of access."""
        self.write(fs, f"{root}/a", b"x")
        with pytest.raises(OSError, match="no owner"):
            fs.set_access(f"{root}/a", FileAccess(mode=0o640))

    def test_folders(self, fs: FileSystem, root: str) -> None:
        """Deep folders exist implicitly."""
        deep = self.deep_folder(root)
        fs.make_folders(deep)
        self.put_below(fs, root, deep)

    def test_file_created_for_another_name_cannot_be_renamed(self, fs: FileSystem, root: str) -> None:
        fs.put_if_absent(f"{root}/plain", b"x")
        before = self.write(fs, f"{root}/a", b"x", target=f"{root}/b")
        for source in ("plain", "a"):
            with pytest.raises(OSError, match=r"rename|published"):
                fs.rename(f"{root}/{source}", f"{root}/c")
        assert fs.status(f"{root}/c") is None
        assert fs.status(f"{root}/a") == before

    def test_staged_file_is_invisible_and_gone_after_delete(self, fs: FileSystem, root: str) -> None:
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

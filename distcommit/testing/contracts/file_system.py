"""Contract of file systems, as a pytest class to subclass; see `testing.contracts`."""

from __future__ import annotations

import pickle
from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from xxhash import xxh3_64_intdigest

from distcommit.core.interfaces.file_system import FileAccess, FileStatus, FileSystem

NAMES = ["a", "ünï côde", "x" * 200, "%2F", ".hidden", "a b:c", "日本"]


class FileSystemUnderTest(ABC):
    """The file system under test, and the operations that the contract's tests use."""

    @abstractmethod
    def open_file_system(self, folder: Path) -> tuple[FileSystem, str]:
        """Return the file system and an empty working folder on it. `folder` is an empty local folder."""

    def as_sent(self, fs: FileSystem) -> FileSystem:
        """Return the file system as another process receives it."""
        sent = pickle.loads(pickle.dumps(fs))
        assert isinstance(sent, type(fs))
        return sent

    @pytest.fixture
    def fs(self, opened: tuple[FileSystem, str]) -> FileSystem:
        return opened[0]

    @pytest.fixture
    def root(self, opened: tuple[FileSystem, str]) -> str:
        """Return an empty folder on the file system."""
        return opened[1]

    @pytest.fixture
    def opened(self, tmp_path: Path) -> tuple[FileSystem, str]:
        """Return the file system and the empty folder of one call of `open_file_system`."""
        return self.open_file_system(tmp_path)

    def write(self, fs: FileSystem, path: str, data: bytes, *, sync: bool = True, target: str = "") -> FileStatus:
        """Write a new file and return its status. With `sync`, the file is durable. With `target`, it can be renamed to
        that path.
        """
        writer = fs.create(path, target)
        writer.write(data)
        return self.closed_status(fs, path, writer.close_file(sync=sync))

    def closed_status(self, fs: FileSystem, path: str, closed: FileStatus) -> FileStatus:
        """Return the status of a closed file. If files have ids, it must be the status that closing returned; otherwise
        only the sizes must be equal.
        """
        status = fs.status(path)
        assert status is not None
        assert (status.size_bytes, status.file_id, status.is_folder) == (closed.size_bytes, closed.file_id, False)
        assert status == closed or not closed.file_id
        return status

    def race(self, act: Callable[[int], None], lost: type[OSError]) -> list[bool]:
        """Call `act` eight times concurrently, with the numbers 0 to 7. Return for each call whether it succeeded. A
        call that does not succeed must raise `lost`.
        """

        def won(number: int) -> bool:
            try:
                act(number)
            except lost:
                return False
            return True

        with ThreadPoolExecutor(8) as pool:
            return list(pool.map(won, range(8)))

    def deep_folder(self, root: str) -> str:
        """Return the path of a deep folder below the folder `a`."""
        return f"{root}/a/" + "/".join(f"{'d' * 50}{n}" for n in range(12))

    def put_below(self, fs: FileSystem, root: str, deep: str) -> None:
        """Put a file into the folder `deep`, and check that the root contains no other entry."""
        assert fs.put_if_absent(f"{deep}/file", b"x")
        fs.sync([deep], root)
        fs.sync_tree(root)
        assert fs.read(f"{deep}/file") == b"x"
        assert [(entry.name, entry.is_folder) for entry in fs.list_folder(root)] == [("a", True)]


class FileSystemContract(FileSystemUnderTest):
    """Contract of file systems: names are taken exclusively, renames never replace, one of several concurrent puts
    wins, and readers see whole files.

    class TestMyFileSystem(FileSystemContract):
        def open_file_system(self, folder):
            return MyFileSystem(), str(folder)

    For an object store (`has_folders` is False) subclass `ObjectStoreContract`.
    """

    REFUSED_NAMES: frozenset[str] = frozenset()
    """The `NAMES` that the file system rejects, at the latest on closing."""
    REPORTS_FOLDER_CREATION = True
    """Whether `make_folder` returns True only to the creator of the folder."""

    @pytest.mark.parametrize("name", NAMES)
    def test_file_is_read_as_it_was_written(self, fs: FileSystem, root: str, name: str) -> None:
        path = f"{root}/{name}"
        if name in self.REFUSED_NAMES:
            with pytest.raises(OSError, match="nvalid"):
                self.write(fs, path, b"x")
            return
        writer = fs.create(path)
        for chunk in (b"one", bytearray(b"two"), memoryview(b"three")):
            assert writer.write(chunk) == len(chunk)
        assert (writer.size_bytes, writer.checksum) == (11, xxh3_64_intdigest(b"onetwothree"))
        closed = self.closed_status(fs, path, writer.close_file(sync=True))
        assert fs.read(path) == b"onetwothree"
        assert closed.size_bytes == 11
        assert not closed.is_folder
        assert fs.checksum(path) == xxh3_64_intdigest(b"onetwothree")
        assert [(entry.name, entry.is_folder) for entry in fs.list_folder(root)] == [(name, False)]
        assert all(entry.file_id in (0, closed.file_id) for entry in fs.list_folder(root))

    def test_large_file_is_read_as_it_was_written(self, fs: FileSystem, root: str) -> None:
        data = bytes(range(256)) * 40_000
        assert self.write(fs, f"{root}/a", data).size_bytes == len(data)
        assert fs.read(f"{root}/a") == data
        assert fs.put_if_absent(f"{root}/b", data)
        assert fs.checksum(f"{root}/b") == fs.checksum(f"{root}/a")

    def test_create_is_exclusive(self, fs: FileSystem, root: str) -> None:
        self.write(fs, f"{root}/a", b"first")
        with pytest.raises(FileExistsError):
            self.write(fs, f"{root}/a", b"second")
        with pytest.raises(FileExistsError):
            fs.create(f"{root}/a", f"{root}/b")
        assert fs.read(f"{root}/a") == b"first"
        staged = self.write(fs, f"{root}/b", b"first", target=f"{root}/c")
        with pytest.raises(FileExistsError):
            fs.create(f"{root}/b", f"{root}/d")
        assert fs.status(f"{root}/b") == staged

    def test_file_in_a_missing_folder_is_rejected(self, fs: FileSystem, root: str) -> None:
        self.write(fs, f"{root}/a", b"x")
        for target in ("missing/a", "missing/deep/a"):
            path = f"{root}/{target}"
            with pytest.raises(FileNotFoundError):
                fs.create(path)
            with pytest.raises(FileNotFoundError):
                fs.put_if_absent(path, b"x")
            with pytest.raises(FileNotFoundError):
                fs.rename(f"{root}/a", path)
        with pytest.raises(FileNotFoundError):
            fs.make_folder(f"{root}/missing/below")
        assert [entry.name for entry in fs.list_folder(root)] == ["a"]

    def test_missing_file_or_folder_is_reported(self, fs: FileSystem, root: str) -> None:
        path = f"{root}/missing"
        assert fs.status(path) is None
        assert fs.list_folder(path) == []
        assert not fs.delete(path)
        assert not fs.delete_folder(path)
        for read in (fs.read, fs.checksum):
            with pytest.raises(FileNotFoundError):
                read(path)
        with pytest.raises(FileNotFoundError):
            fs.rename(path, f"{root}/b")

    def test_put_if_absent_keeps_the_first_file(self, fs: FileSystem, root: str) -> None:
        assert fs.put_if_absent(f"{root}/a", b"first")
        assert not fs.put_if_absent(f"{root}/a", b"second")
        assert fs.read(f"{root}/a") == b"first"
        assert [entry.name for entry in fs.list_folder(root)] == ["a"], "a temporary file is left"
        assert fs.put_if_absent(f"{root}/empty", b"")
        assert fs.read(f"{root}/empty") == b""

    def test_batched_puts_have_independent_results(self, fs: FileSystem, root: str) -> None:
        fs.make_folder(f"{root}/below")
        fs.put_if_absent(f"{root}/2", b"first")
        for turn, many in enumerate((1, 3, 40)):
            files = [(f"{root}/{'below/' * (index % 2)}{turn}-{index}", b"%d" % index * 1000) for index in range(many)]
            selected = (f"{root}/2", b"second")
            impossible = [(f"{root}/missing/{turn}", b"x")] if fs.has_folders else []
            answers = fs.put_all_if_absent([*files, selected, *impossible])
            assert answers[: many + 1] == [True] * many + [False]
            assert [type(answer) for answer in answers[many + 1 :]] == [FileNotFoundError for _ in impossible]
            assert [fs.read(path) for path, _ in files] == [data for _, data in files]
        assert fs.read(f"{root}/2") == b"first"
        assert len(fs.list_folder(root)) + len(fs.list_folder(f"{root}/below")) == 2 + 44, "a temporary file is left"
        assert fs.put_all_if_absent([]) == []

    def test_concurrent_puts_of_one_name_have_one_winner(self, fs: FileSystem, root: str) -> None:
        for turn in range(20):
            path = f"{root}/{turn}"
            with ThreadPoolExecutor(8) as pool:
                won = list(pool.map(lambda n, path=path: fs.put_if_absent(path, b"%d" % n * 1000), range(8)))
            assert won.count(True) == 1
            assert fs.read(path) == b"%d" % won.index(True) * 1000

    def test_setting_access_keeps_the_identity_of_the_file(self, fs: FileSystem, root: str) -> None:
        before = self.write(fs, f"{root}/a", b"x")
        fs.set_access(f"{root}/a", FileAccess(mode=0o640))
        fs.set_access(f"{root}/a", FileAccess())
        assert fs.status(f"{root}/a") == before
        assert fs.read(f"{root}/a") == b"x"
        with pytest.raises(FileNotFoundError):
            fs.set_access(f"{root}/missing", FileAccess(mode=0o640))

    def test_rename_keeps_the_identity_of_the_file(self, fs: FileSystem, root: str) -> None:
        before = self.write(fs, f"{root}/a", b"x", target=f"{root}/folder/b")
        fs.make_folder(f"{root}/folder")
        assert fs.checksum(f"{root}/a") == xxh3_64_intdigest(b"x")
        fs.rename(f"{root}/a", f"{root}/folder/b")
        fs.sync([f"{root}/folder"], root)
        after = fs.status(f"{root}/folder/b")
        assert after is not None
        assert (after.size_bytes, after.mtime_ns, after.file_id) == (1, before.mtime_ns, before.file_id)
        assert fs.status(f"{root}/a") is None
        assert fs.read(f"{root}/folder/b") == b"x"
        assert [entry.name for entry in fs.list_folder(root)] == ["folder"]

    def test_rename_never_replaces(self, fs: FileSystem, root: str) -> None:
        before = self.write(fs, f"{root}/a", b"mine", target=f"{root}/b")
        self.write(fs, f"{root}/b", b"theirs")
        with pytest.raises(FileExistsError):
            fs.rename(f"{root}/a", f"{root}/b")
        assert fs.read(f"{root}/b") == b"theirs"
        assert fs.status(f"{root}/a") == before
        fs.delete(f"{root}/b")
        fs.rename(f"{root}/a", f"{root}/b")
        assert fs.read(f"{root}/b") == b"mine"

    def test_rename_never_replaces_a_folder(self, fs: FileSystem, root: str) -> None:
        self.write(fs, f"{root}/a", b"mine")
        fs.make_folder(f"{root}/empty")
        with pytest.raises(FileExistsError):
            fs.rename(f"{root}/a", f"{root}/empty")
        assert fs.read(f"{root}/a") == b"mine"
        assert fs.list_folder(f"{root}/empty") == []

    def test_concurrent_renames_to_one_name_have_one_winner(self, fs: FileSystem, root: str) -> None:
        for number in range(8):
            self.write(fs, f"{root}/{number}", b"%d" % number, target=f"{root}/target")
        won = self.race(lambda number: fs.rename(f"{root}/{number}", f"{root}/target"), FileExistsError)
        assert won.count(True) == 1
        assert fs.read(f"{root}/target") == b"%d" % won.index(True)
        assert len(fs.list_folder(root)) == 8

    def test_concurrent_renames_of_one_file_have_one_winner(self, fs: FileSystem, root: str) -> None:
        self.write(fs, f"{root}/a", b"x")
        won = self.race(lambda number: fs.rename(f"{root}/a", f"{root}/{number}"), FileNotFoundError)
        assert fs.status(f"{root}/a") is None
        assert [entry.name for entry in fs.list_folder(root)] == [str(n) for n in range(8) if won[n]]

    def test_folder_is_renamed_as_a_whole_and_never_replaces(self, fs: FileSystem, root: str) -> None:
        fs.make_folders(f"{root}/a/deep")
        before = self.write(fs, f"{root}/a/deep/file", b"x")
        if not fs.rename_folder(f"{root}/a", f"{root}/b"):
            assert fs.status(f"{root}/a/deep/file") == before
            return
        fs.sync([root], root)
        assert fs.status(f"{root}/b/deep/file") == before
        assert fs.status(f"{root}/a") is None
        self.write(fs, f"{root}/file", b"y")
        fs.make_folder(f"{root}/empty")
        for target in ("file", "empty"):
            assert not fs.rename_folder(f"{root}/b", f"{root}/{target}")
        for source, target in (("missing", "c"), ("b", "missing/c")):
            with pytest.raises(FileNotFoundError):
                fs.rename_folder(f"{root}/{source}", f"{root}/{target}")
        assert fs.read(f"{root}/b/deep/file") == b"x"
        assert fs.read(f"{root}/file") == b"y"
        assert fs.list_folder(f"{root}/empty") == []

    def test_changes_are_visible_to_others_at_once(self, fs: FileSystem, root: str) -> None:
        other = self.as_sent(fs)
        for number in range(20):
            path, moved = f"{root}/{number}", f"{root}/moved-{number}"
            assert other.status(path) is None
            assert fs.put_if_absent(path, b"x")
            assert other.status(path) == fs.status(path)
            assert [entry.name for entry in other.list_folder(root)] == [str(number)]
            assert fs.delete(path)
            self.write(fs, path, b"x", target=moved)
            assert other.status(moved) is None
            fs.rename(path, moved)
            assert [entry.name for entry in other.list_folder(root)] == [f"moved-{number}"]
            assert other.read(moved) == b"x"
            assert fs.delete(moved)
            assert other.list_folder(root) == []

    def test_folders(self, fs: FileSystem, root: str) -> None:
        assert fs.make_folder(f"{root}/a")
        assert fs.make_folder(f"{root}/a") != self.REPORTS_FOLDER_CREATION
        deep = self.deep_folder(root)
        fs.make_folders(deep)
        fs.make_folders(deep)
        status = fs.status(deep)
        assert status is not None
        assert status.is_folder
        self.put_below(fs, root, deep)

    def test_delete_removes_one_file_or_one_empty_folder(self, fs: FileSystem, root: str) -> None:
        fs.make_folder(f"{root}/a")
        self.write(fs, f"{root}/a/file", b"x")
        assert not fs.delete_folder(f"{root}/a")
        assert fs.read(f"{root}/a/file") == b"x"
        assert fs.delete(f"{root}/a/file")
        assert not fs.delete(f"{root}/a/file")
        assert fs.delete_folder(f"{root}/a") == fs.has_folders
        assert not fs.delete_folder(f"{root}/a")
        assert fs.list_folder(root) == []

    def test_sync_accepts_any_folders_below_its_root(self, fs: FileSystem, root: str) -> None:
        folders = [f"{root}/{n}" for n in range(40)]
        for folder in folders:
            fs.make_folder(folder)
            self.write(fs, f"{folder}/a", b"x", sync=False)
        fs.sync([], root)
        fs.sync([root], root)
        fs.sync(folders, root)
        fs.sync_tree(root)
        assert all(fs.read(f"{folder}/a") == b"x" for folder in folders)

    def test_recreated_file_has_another_identity(self, fs: FileSystem, root: str) -> None:
        first = self.write(fs, f"{root}/a", b"x")
        fs.delete(f"{root}/a")
        again = self.write(fs, f"{root}/a", b"y")
        assert fs.status(f"{root}/a") == again
        assert fs.checksum(f"{root}/a") != xxh3_64_intdigest(b"x")
        assert first.size_bytes == again.size_bytes

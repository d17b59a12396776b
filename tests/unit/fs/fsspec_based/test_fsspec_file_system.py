"""fsspec file systems as a job uses them: their answers are interpreted, and unsupported ones are rejected."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import fsspec
import pytest

from distcommit.core.errors import ConfigurationError
from distcommit.core.interfaces.file_system import FileAccess, FileSystem
from distcommit.fs.fsspec_based.fsspec_file_system import FsspecFileSystem, fsspec_class
from distcommit.testing.contracts import FileSystemContract
from tests.unit.fs.fsspec_based.fsspec_file_systems import Renaming, opened


class TestFsspecOnALocalDisk(FileSystemContract):
    def open_file_system(self, folder: Path) -> tuple[FileSystem, str]:
        return opened(Renaming), str(folder)

    def test_setting_access_keeps_the_identity_of_the_file(self, fs: FileSystem, root: str) -> None:
        """fsspec cannot set the access mode, so the call raises."""
        self.write(fs, f"{root}/a", b"x")
        with pytest.raises(OSError, match="can't set owner"):
            fs.set_access(f"{root}/a", FileAccess(mode=0o640))


@pytest.mark.parametrize(
    ("scheme", "problem"),
    [
        ("memory", "MemoryFileSystem inherits `mv`, which copies and deletes"),
        ("nothing", "Protocol not known: nothing"),
        ("libarchive", "LibArchive requires"),
    ],
)
def test_scheme_without_a_renaming_class_is_rejected_unopened(
    monkeypatch: pytest.MonkeyPatch, scheme: str, problem: str
) -> None:
    monkeypatch.setitem(sys.modules, "libarchive", None)
    with pytest.raises(ConfigurationError) as caught:
        fsspec_class(scheme)
    assert problem in caught.value.found
    assert caught.value.ids == {"scheme": scheme}
    assert caught.value.todo


class Failing(Renaming):
    """A file system whose lookups fail by path: the path's number is that of an error in `errors`."""

    errors: tuple[Exception, ...] = ()
    made = 0

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        type(self).made += 1

    def info(self, path: str, **kwargs: Any) -> Any:
        raise self.errors[int(path.rpartition("/")[2])]


class NtError(OSError):
    """An error as the SMB client raises it."""

    def __init__(self, status: int, number: int = 0) -> None:
        super().__init__(number, "what the client says", "path")
        self.ntstatus = status


class RefusedError(Exception):
    """An error as the SMB client raises it where no file is involved."""

    status = 0xC000006D


@pytest.mark.parametrize(
    ("error", "number", "connects_anew"),
    [
        (OSError(errno.ENOSPC, "full"), errno.ENOSPC, False),
        (FileExistsError("/a"), errno.EEXIST, False),
        (PermissionError("/a"), errno.EACCES, False),
        (IsADirectoryError("/a"), errno.EISDIR, False),
        (NtError(0xC0000022), errno.EACCES, False),
        (NtError(0xC0000033), errno.EINVAL, False),
        (NtError(0xC0000043, errno.EPERM), errno.EAGAIN, False),
        (NtError(0xC0000044), errno.EDQUOT, False),
        (NtError(0xC0000056), errno.EBUSY, False),
        (NtError(0xC000007F), errno.ENOSPC, False),
        (NtError(0xC0000001), errno.EIO, True),
        (RefusedError("on a connection that was lost"), errno.EIO, True),
        (OSError("the connection is gone"), errno.EIO, True),
        (OSError(errno.EBADF, "the connection is gone"), errno.EIO, True),
        (OSError(errno.ECONNRESET, "the connection is gone"), errno.EIO, True),
        (RuntimeError("the connection is gone"), errno.EIO, True),
    ],
)
def test_errors_become_built_in_ones(error: Exception, number: int, connects_anew: bool) -> None:
    class Fails(Failing):
        errors = (error,)

    fs = opened(Fails)
    for _ in range(2):
        with pytest.raises(OSError, match=type(error).__name__) as caught:
            fs.status("/0")
        assert (caught.value.errno, type(caught.value)) == (number, type(OSError(number, "")))
        assert caught.value.filename == "/0"
    assert Fails.made == 1 + connects_anew


@pytest.mark.parametrize(
    ("error", "kind"), [(RefusedError("wrong password"), PermissionError), (RuntimeError("no route"), OSError)]
)
def test_rejected_password_is_a_missing_permission(error: Exception, kind: type[OSError]) -> None:
    class Refuses(Renaming):
        def __init__(self, **options: Any) -> None:
            raise error

    with pytest.raises(OSError, match=str(error)) as caught:
        opened(Refuses).read("/a")
    assert type(caught.value) is kind


@pytest.mark.parametrize("error", [FileNotFoundError("/0"), NotADirectoryError("/0")])
def test_missing_file_has_no_status(error: Exception) -> None:
    class Fails(Failing):
        errors = (error,)

    assert opened(Fails).status("/0") is None


class Options(Renaming):
    """A file system that records its options and counts its instances."""

    given: dict[str, Any] = {}
    made = 0

    def __init__(self, **options: Any) -> None:
        super().__init__()
        type(self).given = options
        type(self).made += 1

    @staticmethod
    def _get_kwargs_from_urls(path: str) -> dict[str, Any]:
        return {"url": path}


@pytest.mark.parametrize(("scheme", "more"), [("smb", {"share_access": "rwd"}), ("other", {})])
def test_options_come_from_the_url_and_from_fsspec_without_caches(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, scheme: str, more: dict[str, str]
) -> None:
    monkeypatch.setitem(fsspec.config.conf, "renaming", {"username": "me"})
    count = Options.made
    for _ in range(2):
        fs = FsspecFileSystem(Options, scheme, "user@host:1")
        for _ in range(2):
            with suppress(FileNotFoundError):
                fs.read(f"{tmp_path}/missing")
    url = f"{scheme}://user@host:1/"
    assert Options.given == {"url": url, "username": "me", "use_listings_cache": False, **more}
    assert Options.made - count == 2, "each file system has its own connection"


class Remembers(Renaming):
    """A file system that caches listings until the cache is invalidated."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.known: dict[tuple[str, str], Any] = {}

    def _remembered(self, what: str, path: str, look: Callable[[], Any]) -> Any:
        if (what, path) not in self.known:
            self.known[what, path] = look()
        return self.known[what, path]

    def info(self, path: str, **kwargs: Any) -> Any:
        return self._remembered("info", path, lambda: super(Remembers, self).info(path, **kwargs))

    def ls(self, path: str, detail: bool = False, **kwargs: Any) -> Any:
        return self._remembered("ls", path, lambda: super(Remembers, self).ls(path, detail, **kwargs))

    def invalidate_cache(self, path: str | None = None) -> None:
        self.known.clear()


def test_each_listing_is_uncached(tmp_path: Path) -> None:
    fs = opened(Remembers)
    for number in range(3):
        (tmp_path / str(number)).touch()
        assert len(fs.list_folder(str(tmp_path))) == number + 1


def test_each_status_is_uncached(tmp_path: Path) -> None:
    fs = opened(Remembers)
    for size in range(3):
        (tmp_path / "a").write_bytes(bytes(size))
        status = fs.status(f"{tmp_path}/a")
        assert status is not None
        assert status.size_bytes == size


class AtARoot(Renaming):
    """A file system whose URLs without a path are the root, with a slash."""

    asked = ""

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return path.removeprefix("renaming://here") or "/"

    def info(self, path: str, **kwargs: Any) -> Any:
        type(self).asked = path
        raise FileNotFoundError(path)


def test_paths_begin_with_a_single_slash() -> None:
    assert opened(AtARoot).status("/a/b") is None
    assert AtARoot.asked == "/a/b"


class AsksForEachName(Renaming):
    """A file system like SMB: a listing fails if a listed file is deleted meanwhile."""

    def ls(self, path: str, detail: bool = False, **kwargs: Any) -> Any:
        names = sorted(super().ls(path, detail=False))
        return [self.info(name) for name in names] if detail else names

    def info(self, path: str, **kwargs: Any) -> Any:
        if path.endswith("gone"):
            raise FileNotFoundError(path)
        if path.endswith("going"):
            raise NtError(0xC0000056)
        if path.endswith("secret"):
            raise PermissionError(path)
        return super().info(path, **kwargs)


@pytest.mark.parametrize("name", ["gone", "going"])
def test_listing_omits_files_deleted_meanwhile(tmp_path: Path, name: str) -> None:
    for file in ("a", name, "z"):
        (tmp_path / file).touch()
    (tmp_path / "folder").mkdir()
    entries = opened(AsksForEachName).list_folder(str(tmp_path))
    assert [(entry.name, entry.is_folder) for entry in entries] == [("a", False), ("folder", True), ("z", False)]


class MarksFolders(Renaming):
    """A file system like SMB: a folder's name ends with a slash."""

    def ls(self, path: str, detail: bool = False, **kwargs: Any) -> Any:
        return [{**entry, "name": entry["name"] + "/"} for entry in super().ls(path, detail=True)]


def test_folder_name_has_no_slash(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    assert [entry.name for entry in opened(MarksFolders).list_folder(str(tmp_path))] == ["folder"]


def test_failed_listing_is_not_an_empty_folder(tmp_path: Path) -> None:
    (tmp_path / "gone").touch()
    (tmp_path / "secret").touch()
    with pytest.raises(PermissionError):
        opened(AsksForEachName).list_folder(str(tmp_path))
    (tmp_path / "gone").unlink()
    with pytest.raises(PermissionError):
        opened(AsksForEachName).list_folder(str(tmp_path))


class HeldOpen(Renaming):
    """A file system on which a deleted file disappears after `looks` lookups."""

    looks = 0

    def _remove(self, path: str, remove: Callable[[str], None]) -> None:
        self.looks, self.path, self.remove = type(self).looks, path, remove

    def rm_file(self, path: str) -> None:
        if getattr(self, "path", None) == path:
            raise NtError(0xC0000056)
        os.stat(path)
        self._remove(path, os.unlink)

    def rmdir(self, path: str) -> None:
        os.stat(path)
        self._remove(path, os.rmdir)

    def info(self, path: str, **kwargs: Any) -> Any:
        if getattr(self, "path", None) == path:
            if self.looks > 0:
                self.looks -= 1
                raise NtError(0xC0000056)
            self.path = ""
            self.remove(path)
        return super().info(path, **kwargs)


class HeldForAWhile(HeldOpen):
    looks = 3


class DeletedByAnother(HeldForAWhile):
    def rm_file(self, path: str) -> None:
        self._remove(path, os.unlink)
        raise NtError(0xC0000056)


class HeldForGood(HeldOpen):
    looks = 1000


def test_deletion_returns_after_the_file_is_gone(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "folder").mkdir()
    fs = opened(HeldForAWhile)
    assert fs.delete(f"{tmp_path}/file")
    assert fs.delete_folder(f"{tmp_path}/folder")
    assert os.listdir(tmp_path) == []
    assert not fs.delete(f"{tmp_path}/file")
    assert not fs.delete_folder(f"{tmp_path}/folder")


def test_deletion_by_another_process_returns_after_the_file_is_gone(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert opened(DeletedByAnother).delete(f"{tmp_path}/file")
    assert os.listdir(tmp_path) == []


def test_file_that_stays_because_it_is_open_is_not_reported_as_deleted(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    fs = opened(HeldForGood)
    for _ in range(2):
        with pytest.raises(OSError, match="busy") as caught:
            fs.delete(f"{tmp_path}/file")
        assert caught.value.errno == errno.EBUSY
    assert os.listdir(tmp_path) == ["file"]


class BusyFile(Renaming):
    """A file system that refuses to delete a busy file, and shows it as before."""

    def rm_file(self, path: str) -> None:
        raise OSError(errno.EBUSY, "busy", path)


def test_busy_file_that_was_not_deleted_is_not_reported_as_deleted(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match="busy") as caught:
        opened(BusyFile).delete(f"{tmp_path}/file")
    assert caught.value.errno == errno.EBUSY
    assert os.listdir(tmp_path) == ["file"]


class DeletesNothing(Renaming):
    def rm_file(self, path: str) -> None:
        raise PermissionError(path)

    def rmdir(self, path: str) -> None:
        raise PermissionError(path)


def test_forbidden_deletion_raises(tmp_path: Path) -> None:
    fs = opened(DeletesNothing)
    for delete in (fs.delete, fs.delete_folder):
        (tmp_path / "a").mkdir(exist_ok=True)
        with pytest.raises(PermissionError):
            delete(f"{tmp_path}/a")


def test_creating_a_file_at_a_folder_s_path_raises_file_exists(tmp_path: Path) -> None:
    class SaysItIsAFolder(Renaming):
        def _open(self, path: str, mode: str = "rb", **kwargs: Any) -> Any:
            raise IsADirectoryError(path)

    with pytest.raises(FileExistsError):
        opened(SaysItIsAFolder).create(f"{tmp_path}/a")


def test_folders_have_no_size_and_links_are_unknown(tmp_path: Path) -> None:
    fs = opened(Renaming)
    status = fs.status(str(tmp_path))
    assert status is not None
    assert (status.size_bytes, status.file_id, status.mtime_ns, status.is_folder) == (0, 0, 0, True)
    assert fs.real_path("/a/./b/../c") == "/a/c"
    assert not fs.rename_folder(str(tmp_path), f"{tmp_path}-moved")

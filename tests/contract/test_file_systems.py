"""The local file systems fulfill the file system contract, with and without renameat2, durable or not."""

from __future__ import annotations

import errno
import grp
import os
import pwd
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from distcommit.core.interfaces.file_system import FileAccess, FileSystem
from distcommit.fs.local_disk.local_file_system import LocalFileSystem
from distcommit.fs.local_disk.posix_calls import RealPosixCalls
from distcommit.fs.separate_store import TwoFileSystems
from distcommit.testing.contracts import FileSystemContract
from tests.simulation.simulated_posix import SimulatedPosix
from tests.simulation.world import SimulatedFileSystem


class TestLocalFileSystem(FileSystemContract):
    def open_file_system(self, folder: Path) -> tuple[FileSystem, str]:
        return LocalFileSystem(), str(folder)


class TestLocalFileSystemThatIsNotDurable(FileSystemContract):
    def open_file_system(self, folder: Path) -> tuple[FileSystem, str]:
        return LocalFileSystem(durable=False), str(folder)


def test_mode_owner_and_group_are_set_as_requested(tmp_path: Path) -> None:
    fs = LocalFileSystem()
    fs.put_if_absent(f"{tmp_path}/a", b"x")
    owner, group = pwd.getpwuid(os.getuid()).pw_name, grp.getgrgid(os.getgid()).gr_name
    fs.set_access(f"{tmp_path}/a", FileAccess(mode=0o640, owner=owner, group=group))
    status = (tmp_path / "a").stat()
    assert (status.st_mode & 0o777, status.st_uid, status.st_gid) == (0o640, os.getuid(), os.getgid())
    with pytest.raises(OSError, match="nobody-at-all"):
        fs.set_access(f"{tmp_path}/a", FileAccess(owner="nobody-at-all"))


class WithoutRenameat2(RealPosixCalls):
    """System calls without renameat2, as on NFS."""

    def rename_noreplace(self, source: str, target: str) -> None:
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), source, None, target)


class TestLocalFileSystemWithoutRenameat2(FileSystemContract):
    def open_file_system(self, folder: Path) -> tuple[FileSystem, str]:
        return LocalFileSystem(WithoutRenameat2()), str(folder)

    def test_concurrent_renames_of_one_file_have_one_winner(self, fs: FileSystem, root: str) -> None:
        """Several renames by link and unlink may succeed. Steps compare identities, so that nothing is lost."""
        self.write(fs, f"{root}/a", b"x")

        def rename(number: int) -> None:
            with suppress(FileNotFoundError):
                fs.rename(f"{root}/a", f"{root}/{number}")

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(rename, range(8)))
        names = [entry.name for entry in fs.list_folder(root)]
        assert names
        assert "a" not in names
        assert {fs.read(f"{root}/{name}") for name in names} == {b"x"}


class TestSimulatedFileSystem(FileSystemContract):
    def open_file_system(self, folder: Path) -> tuple[FileSystem, str]:
        fs = SimulatedFileSystem(SimulatedPosix())
        fs.make_folders("/job/here")
        return fs, "/job/here"

    def as_sent(self, fs: FileSystem) -> FileSystem:
        return fs  # its disk is in this process


class LosesAnswers(RealPosixCalls):
    """System calls that are executed but whose answers are lost."""

    def __init__(self) -> None:
        super().__init__()
        self.deaf = False

    def rename_noreplace(self, source: str, target: str) -> None:
        super().rename_noreplace(source, target)
        if self.deaf:
            raise OSError(errno.EIO, os.strerror(errno.EIO), target)


def test_put_with_a_lost_answer_is_complete_and_in_doubt(tmp_path: Path) -> None:
    calls = LosesAnswers()
    fs = LocalFileSystem(calls)
    calls.deaf = True
    with pytest.raises(OSError, match="Input/output error"):
        fs.put_if_absent(f"{tmp_path}/a", b"whole")
    calls.deaf = False
    assert fs.read(f"{tmp_path}/a") == b"whole"
    assert not fs.put_if_absent(f"{tmp_path}/a", b"again")
    assert [entry.name for entry in fs.list_folder(str(tmp_path))] == ["a"]


class TestTwoFileSystems(FileSystemContract):
    """The folder under test is on the file system of staging and output."""

    def open_file_system(self, folder: Path) -> tuple[FileSystem, str]:
        return TwoFileSystems(_NoFileSystem(), LocalFileSystem(), f"{folder}-store"), str(folder)


class TestTwoFileSystemsInTheStore(FileSystemContract):
    def open_file_system(self, folder: Path) -> tuple[FileSystem, str]:
        return TwoFileSystems(LocalFileSystem(), _NoFileSystem(), str(folder)), str(folder)


class _NoFileSystem(LocalFileSystem):
    """A file system that must not be called."""

    def __getattribute__(self, name: str) -> Any:
        if callable(getattr(LocalFileSystem, name, None)) and not name.startswith("__"):
            raise AssertionError(f"{name} was called on the wrong file system")
        return super().__getattribute__(name)

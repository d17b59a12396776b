"""Our file systems keep what the protocol needs, with and without renameat2, durable and not."""

from __future__ import annotations

import errno
import grp
import os
import pwd
import random
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from distcommit.fs.local import TEMPORARY, LocalFileSystem
from distcommit.fs.posix import RealPosixCalls
from distcommit.model.ports import FileAccess, FileSystem
from distcommit.testing.conformance import FileSystemContract
from distcommit.testing.simulated_posix import SimulatedPosix
from distcommit.testing.world import SimulatedFileSystem
from tests.unit.spark.machines import Machine, fails, on_every_power_loss


class TestLocalFileSystem(FileSystemContract):
    def open_file_system(self, place: Path) -> tuple[FileSystem, str]:
        return LocalFileSystem(), str(place)


class TestLocalFileSystemThatIsNotDurable(FileSystemContract):
    def open_file_system(self, place: Path) -> tuple[FileSystem, str]:
        return LocalFileSystem(durable=False), str(place)


def test_mode_owner_and_group_are_set_as_asked(tmp_path: Path) -> None:
    fs = LocalFileSystem()
    fs.put_if_absent(f"{tmp_path}/a", b"x")
    owner, group = pwd.getpwuid(os.getuid()).pw_name, grp.getgrgid(os.getgid()).gr_name
    fs.set_access(f"{tmp_path}/a", FileAccess(mode=0o640, owner=owner, group=group))
    found = (tmp_path / "a").stat()
    assert (found.st_mode & 0o777, found.st_uid, found.st_gid) == (0o640, os.getuid(), os.getgid())
    with pytest.raises(OSError, match="nobody-at-all"):
        fs.set_access(f"{tmp_path}/a", FileAccess(owner="nobody-at-all"))


class WithoutRenameat2(RealPosixCalls):
    """As on NFS."""

    def rename_noreplace(self, source: str, target: str) -> None:
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), source, None, target)


class TestLocalFileSystemWithoutRenameat2(FileSystemContract):
    def open_file_system(self, place: Path) -> tuple[FileSystem, str]:
        return LocalFileSystem(WithoutRenameat2()), str(place)

    def test_of_many_that_rename_one_file_one_wins(self, fs: FileSystem, root: str) -> None:
        """Not so by link and unlink: several may find it. That is why steps compare identities; nothing is lost."""
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
    def open_file_system(self, place: Path) -> tuple[FileSystem, str]:
        fs = SimulatedFileSystem(SimulatedPosix())
        fs.make_folders("/job/here")
        return fs, "/job/here"

    def as_sent(self, fs: FileSystem) -> FileSystem:
        return fs  # its disk is in this process


FEW, MANY = 2, 30
"""Puts at once: synced each by itself, and all of them by one call."""


def puts(machine: Machine, many: int) -> tuple[LocalFileSystem, list[tuple[str, bytes]]]:
    """That many files to put into folders that are there, durably."""
    fs = SimulatedFileSystem(machine)
    for place in range(many):
        fs.make_folders(f"/job/{place}")
    machine.syncfs("/")
    return fs, [(f"/job/{place}/a", b"whole") for place in range(many)]


@pytest.mark.parametrize("many", [FEW, MANY])
@pytest.mark.parametrize(("kind", "part"), [("fsync", ""), ("syncfs", ""), ("fsync_folder", ""), ("write", "")])
def test_puts_that_fail_are_told_as_errors_and_the_others_are_there(many: int, kind: str, part: str) -> None:
    for nth in range(1, 2 * many):
        machine = Machine()
        fs, files = puts(machine, many)
        machine.faults.append(fails(errno.EIO, kind, part, first=nth, times=1))
        answers = fs.put_all_if_absent(files)
        durable = next(machine.after_power_loss(random.Random(1), 0, 0)).files()
        there = {path: data for _, path, data in durable if data is not None}
        for (path, data), answer in zip(files, answers, strict=True):
            assert answer is True or isinstance(answer, OSError)
            if answer is True:
                assert there[path] == data
        assert not [path for path in machine.paths("/job") if TEMPORARY in path]


@pytest.mark.parametrize("many", [FEW, MANY])
def test_no_power_loss_leaves_part_of_a_put(many: int) -> None:
    machine = Machine()
    fs, files = puts(machine, many)
    torn: list[str] = []

    def look(after: SimulatedPosix, where: str) -> None:
        torn.extend(where for _, path, data in after.files() if path.endswith("/a") and data != b"whole")

    on_every_power_loss(machine, look)
    assert fs.put_all_if_absent(files) == [True] * many
    assert fs.put_all_if_absent(files) == [False] * many
    assert torn == []


@pytest.mark.parametrize("many", [FEW, MANY])
def test_a_put_that_was_answered_survives_a_power_loss(many: int) -> None:
    machine = Machine()
    fs, files = puts(machine, many)
    fs.put_all_if_absent(files)
    after = next(machine.after_power_loss(random.Random(1), 0, 0))
    assert {path: data for _, path, data in after.files() if data is not None} == dict(files)


class LosesAnswers(RealPosixCalls):
    """As a server that does what it is asked and is not heard."""

    def __init__(self) -> None:
        super().__init__()
        self.deaf = False

    def rename_noreplace(self, source: str, target: str) -> None:
        super().rename_noreplace(source, target)
        if self.deaf:
            raise OSError(errno.EIO, os.strerror(errno.EIO), target)


def test_a_put_whose_answer_is_lost_is_whole_and_in_doubt(tmp_path: Path) -> None:
    calls = LosesAnswers()
    fs = LocalFileSystem(calls)
    calls.deaf = True
    with pytest.raises(OSError, match="Input/output error"):
        fs.put_if_absent(f"{tmp_path}/a", b"whole")
    calls.deaf = False
    assert fs.read(f"{tmp_path}/a") == b"whole"
    assert not fs.put_if_absent(f"{tmp_path}/a", b"again")
    assert [entry.name for entry in fs.list_folder(str(tmp_path))] == ["a"]

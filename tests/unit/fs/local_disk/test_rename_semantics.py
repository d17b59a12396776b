"""Semantics of plain renames, links and inode numbers that explain how files are published."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from distcommit.core.interfaces.file_system import FileStatus
from distcommit.fs.local_disk.local_file_system import LocalFileSystem

FS = LocalFileSystem(durable=False)


def test_plain_rename_replaces_a_file_and_an_empty_folder(tmp_path: Path) -> None:
    for name, text in (("a", "mine"), ("b", "theirs")):
        (tmp_path / name).write_text(text)
    for folder in ("mine", "theirs"):
        (tmp_path / folder).mkdir()
    (tmp_path / "mine" / "x").touch()
    with pytest.raises(FileExistsError):
        FS.rename(f"{tmp_path}/a", f"{tmp_path}/b")
    assert not FS.rename_folder(f"{tmp_path}/mine", f"{tmp_path}/theirs")
    assert (tmp_path / "b").read_text() == "theirs"
    os.rename(tmp_path / "a", tmp_path / "b")
    os.rename(tmp_path / "mine", tmp_path / "theirs")
    assert (tmp_path / "b").read_text() == "mine", "the existing file is replaced silently"
    assert (tmp_path / "theirs" / "x").exists(), "and so is the existing folder"


def test_inode_number_is_reused_at_once(tmp_path: Path) -> None:
    """If it were taken for a file's identity, the next file would pass for the earlier one."""
    before, checksum = made(tmp_path / "part", b"000")
    for number in range(1, 100):
        (tmp_path / "part").unlink()
        now, new_checksum = made(tmp_path / "part", b"%03d" % number)
        if now.file_id == before.file_id:
            break
    else:
        pytest.skip("this file system gives no number again so soon")
    assert (now.file_id, now.size_bytes) == (before.file_id, before.size_bytes)
    assert now != before, "times distinguish them, unless a process sets them"
    assert new_checksum != checksum, "otherwise checksums do"


def made(path: Path, data: bytes) -> tuple[FileStatus, int]:
    path.write_bytes(data)
    status = FS.status(str(path))
    assert status is not None
    return status, FS.checksum(str(path))


@pytest.fixture
def shared() -> Iterator[Path]:
    """Return a folder that any user may write to."""
    with tempfile.TemporaryDirectory(prefix="shared-") as folder:
        os.chmod(folder, 0o777)
        yield Path(folder)


@pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user, which only root can")
def test_another_user_cannot_link_a_file_that_it_may_rename(shared: Path) -> None:
    """Linux distributions set `fs.protected_hardlinks`. So a rename is tried first, and a link only where the file
    system has no rename that keeps an existing target.
    """
    if Path("/proc/sys/fs/protected_hardlinks").read_text().strip() != "1":
        pytest.skip("fs.protected_hardlinks is off")
    (shared / "staged").write_text("mine")
    assert as_nobody(lambda: os.link(shared / "staged", shared / "linked")) == "PermissionError"
    assert as_nobody(lambda: FS.rename(f"{shared}/staged", f"{shared}/published")) == ""
    assert [path.name for path in shared.iterdir()] == ["published"]


def as_nobody(act: Callable[[], None]) -> str:
    """Return the exception of a function in a process of another user, if any."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.setgid(65534)
            os.setuid(65534)
            act()
        except BaseException as error:  # noqa: BLE001 - it is told
            os.write(writing, type(error).__name__.encode())
        finally:
            os._exit(0)
    os.close(writing)
    os.waitpid(child, 0)
    with open(reading, "rb") as pipe:
        return pipe.read().decode()

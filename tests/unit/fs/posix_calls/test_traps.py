"""Why files are published as they are: what renames, links and inode numbers do by themselves, beside what is used."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from distcommit.core.ports import FileStatus
from distcommit.fs.posix_calls.local import LocalFileSystem

FS = LocalFileSystem(durable=False)


def test_a_rename_by_itself_replaces_a_file_and_an_empty_folder(tmp_path: Path) -> None:
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
    assert (tmp_path / "b").read_text() == "mine", "theirs is gone without a word"
    assert (tmp_path / "theirs" / "x").exists(), "and so is their folder"


def test_an_inode_number_is_given_again_at_once(tmp_path: Path) -> None:
    """Who takes it for a file's identity takes the next file for the one that was there."""
    before, checksum = made(tmp_path / "part", b"000")
    for number in range(1, 100):
        (tmp_path / "part").unlink()
        now, new_checksum = made(tmp_path / "part", b"%03d" % number)
        if now.file_id == before.file_id:
            break
    else:
        pytest.skip("this file system gives no number again so soon")
    assert (now.file_id, now.size_bytes) == (before.file_id, before.size_bytes)
    assert now != before, "times tell them apart, as long as nobody sets them"
    assert new_checksum != checksum, "and else checksums"


def made(path: Path, data: bytes) -> tuple[FileStatus, int]:
    path.write_bytes(data)
    status = FS.status(str(path))
    assert status is not None
    return status, FS.checksum(str(path))


@pytest.fixture
def shared() -> Iterator[Path]:
    """A folder that anybody may write to."""
    with tempfile.TemporaryDirectory(prefix="shared-") as folder:
        os.chmod(folder, 0o777)
        yield Path(folder)


@pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user, which only root can")
def test_another_user_can_not_link_a_file_that_it_may_rename(shared: Path) -> None:
    """Under `fs.protected_hardlinks`, which Linux distributions set: why a rename comes first, and a link only where a
    file system has no rename that keeps what is there."""
    if Path("/proc/sys/fs/protected_hardlinks").read_text().strip() != "1":
        pytest.skip("fs.protected_hardlinks is off")
    (shared / "staged").write_text("mine")
    assert as_nobody(lambda: os.link(shared / "staged", shared / "linked")) == "PermissionError"
    assert as_nobody(lambda: FS.rename(f"{shared}/staged", f"{shared}/published")) == ""
    assert [path.name for path in shared.iterdir()] == ["published"]


def as_nobody(act: Callable[[], None]) -> str:
    """What it raises, if anything, in a process of another user."""
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
    with open(reading, "rb") as told:
        return told.read().decode()

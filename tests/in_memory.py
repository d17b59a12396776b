"""Folders of tests in shared memory, where no test waits for a disk."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from _pytest.tmpdir import tmppath_result_key

_SHARED_MEMORY, _BYTES = Path("/dev/shm"), 8 << 30
_LINK = "memory"


def new_session_folder(folder: Path) -> Path | None:
    """Create a folder in shared memory for a session whose temporary files are in `folder`, which gets a link to it.

    Return None if there is little memory, or if programs in it may not be executed.
    """
    if not os.access(_SHARED_MEMORY, os.W_OK) or os.statvfs(_SHARED_MEMORY).f_flag & os.ST_NOEXEC:
        return None
    if shutil.disk_usage(_SHARED_MEMORY).free < _BYTES:
        return None
    memory = Path(tempfile.mkdtemp(prefix="dct-", dir=_SHARED_MEMORY))
    (folder / _LINK).symlink_to(memory)
    return memory


def folder_in_memory(on_disk: Path, item: pytest.Item) -> Iterator[Path]:
    """Yield a test's own folder: in memory if the session has one there, or else `on_disk`.

    Slow tests kill runs in their commits, which take long enough only on a disk. The folder of a failed test is copied
    to `on_disk`, which stays.
    """
    memory = Path(tempfile.gettempdir(), _LINK)
    if not memory.is_dir() or item.get_closest_marker("slow"):
        yield on_disk
        return
    parent = Path(tempfile.mkdtemp(dir=memory.resolve()))
    folder = parent / on_disk.name  # tests use it in names on servers
    folder.mkdir()
    yield folder
    if not all(item.stash.get(tmppath_result_key, {}).values()):
        shutil.copytree(folder, on_disk, symlinks=True, dirs_exist_ok=True)
    shutil.rmtree(parent, ignore_errors=True)

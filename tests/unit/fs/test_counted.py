"""What is asked of file systems is counted, and changes nothing else."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from distcommit.app.job_file.places import open_file_system
from distcommit.fs.counted import counted
from distcommit.fs.local import LocalFileSystem
from distcommit.fs.posix import RealPosixCalls
from distcommit.model.requests import REQUESTS


def asked(fs: LocalFileSystem, folder: Path, name: str) -> int:
    """How many requests a file takes: open, write, sync, look, close, rename, sync of the folder."""
    before = REQUESTS.made
    fs.put_if_absent(f"{folder}/{name}", b"bytes")
    return REQUESTS.made - before


def test_each_call_is_counted_also_where_a_job_file_opens_it_and_after_pickling(tmp_path: Path) -> None:
    here = LocalFileSystem(counted(RealPosixCalls()))
    opened = open_file_system(str(tmp_path), durable=True)
    assert isinstance(opened, LocalFileSystem)
    sent = pickle.loads(pickle.dumps(here))
    assert [asked(fs, tmp_path, name) for fs, name in ((here, "a"), (opened, "b"), (sent, "c"))] == [7, 7, 7]
    assert asked(LocalFileSystem(), tmp_path, "d") == 0
    assert {path.read_bytes() for path in tmp_path.iterdir()} == {b"bytes"}


def test_what_is_no_call_and_what_goes_wrong_is_handed_on() -> None:
    class Calls:
        scheme = "hdfs"

        def fails(self) -> None:
            raise FileNotFoundError

    calls, before = counted(Calls()), REQUESTS.made
    assert calls.scheme == "hdfs"
    assert REQUESTS.made == before
    with pytest.raises(FileNotFoundError):
        calls.fails()
    assert REQUESTS.made == before + 1
    with pytest.raises(AttributeError):
        _ = calls.missing  # type: ignore[attr-defined]

"""Counting of file system requests, which changes nothing else."""

from __future__ import annotations

import pickle
import threading
from pathlib import Path

import pytest

from distcommit.app.job_file.folder_locations import open_file_system
from distcommit.core.support.request_counts import counting_calls
from distcommit.fs.local_disk.local_file_system import LocalFileSystem
from distcommit.fs.local_disk.posix_calls import RealPosixCalls


class OfThisThread:
    """A counter of one thread: those of other tests may still send requests in this process."""

    def __init__(self) -> None:
        self._thread, self._made = threading.get_ident(), 0

    @property
    def made(self) -> int:
        return self._made

    @made.setter
    def made(self, made: int) -> None:
        if threading.get_ident() == self._thread:
            self._made = made


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> OfThisThread:
    requests = OfThisThread()
    monkeypatch.setattr("distcommit.core.support.request_counts.REQUESTS", requests)
    return requests


def test_each_call_is_counted_also_when_opened_by_a_job_file_and_after_pickling(
    tmp_path: Path, requests: OfThisThread
) -> None:
    def asked(fs: LocalFileSystem, name: str) -> int:
        """Return the number of requests for a file: open, write, sync, stat, close, rename, sync of the folder."""
        before = requests.made
        fs.put_if_absent(f"{tmp_path}/{name}", b"bytes")
        return requests.made - before

    here = LocalFileSystem(counting_calls(RealPosixCalls()))
    opened = open_file_system(str(tmp_path), durable=True)
    assert isinstance(opened, LocalFileSystem)
    sent = pickle.loads(pickle.dumps(here))
    assert [asked(fs, name) for fs, name in ((here, "a"), (opened, "b"), (sent, "c"))] == [7, 7, 7]
    assert asked(LocalFileSystem(), "d") == 0
    assert {path.read_bytes() for path in tmp_path.iterdir()} == {b"bytes"}


def test_attributes_and_errors_are_passed_on(requests: OfThisThread) -> None:
    class Calls:
        scheme = "hdfs"

        def fails(self) -> None:
            raise FileNotFoundError

    calls, before = counting_calls(Calls()), requests.made
    assert calls.scheme == "hdfs"
    assert requests.made == before
    with pytest.raises(FileNotFoundError):
        calls.fails()
    assert requests.made == before + 1
    with pytest.raises(AttributeError):
        _ = calls.missing  # type: ignore[attr-defined]

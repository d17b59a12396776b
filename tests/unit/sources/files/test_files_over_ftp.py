"""Files on an FTP server."""

from __future__ import annotations

import ftplib
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from distcommit.fs.fsspec_based.input_files import InputFile, InputFolder
from tests.servers.process import ServerProcess, free_ports
from tests.unit.sources.files.files_folder import NOW_S, Folder

pytestmark = pytest.mark.thorough  # it starts a server


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, str]]:
    """Return a served folder and its URL."""
    folder = tmp_path_factory.mktemp("ftp")
    (port,) = free_ports(1)
    with ExitStack() as stack:
        command = [sys.executable, "-m", "pyftpdlib", "-i", "127.0.0.1", "-p", str(port), "-d", str(folder)]
        process = stack.enter_context(ServerProcess("the FTP server", command, folder.with_name("ftp.log")))
        process.wait_until(lambda: _answers(port))
        yield folder, f"ftp://127.0.0.1:{port}/"


def _answers(port: int) -> bool:
    with ftplib.FTP() as client:
        client.connect("127.0.0.1", port, timeout=5)
    return True


def test_ftp_files_are_read_once_by_the_time_of_their_listing(served: tuple[Path, str]) -> None:
    root, url = served
    folder = Folder(root, paths=[f"{url}in/{{dataset}}/*.jsonl"])
    folder.put("d/a.jsonl", "1\n2\n")
    input_folder = InputFolder(f"{url}in/d")
    assert input_folder.entries("") == [("a.jsonl", InputFile(4, int(NOW_S) * 1_000_000_000))]
    assert input_folder.status("a.jsonl") == InputFile(4, int(NOW_S) * 1_000_000_000)
    assert input_folder.status("b.jsonl") is None
    assert folder.values() == ["1", "2"]
    folder.put("d/b.jsonl", "3\n", at=60)
    assert folder.values() == ["3"]
    assert folder.values() == []

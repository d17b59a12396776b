"""A wall clock for some processes alone, which can be set while they run."""

from __future__ import annotations

import functools
import mmap
import shutil
import struct
import subprocess
import tempfile
from pathlib import Path

from tests.servers.process import ServerUnavailableError

_PROGRAM = Path(__file__).parent / "c" / "set_clock.c"


class SetClock:
    """Clock that equals the machine's until it is set.

    Monotonic clocks, timeouts, and the times of files are the machine's own.

    Args:
        file: the file to create, which processes read at every call.

    Raises:
        ServerUnavailableError: if there is no C compiler.
    """

    def __init__(self, file: Path) -> None:
        file.write_bytes(bytes(mmap.PAGESIZE))
        self._file = file
        self.environment = {"LD_PRELOAD": str(_library()), "SET_CLOCK_FILE": str(file)}
        """Variables of the processes that have this clock."""

    def set(self, ahead_s: int) -> None:
        """Set it ahead of the machine's by that many seconds, or behind, from now on."""
        with self._file.open("r+b") as file, mmap.mmap(file.fileno(), 0) as at:
            at[:8] = struct.pack("=q", ahead_s)


@functools.cache
def _library() -> Path:
    """Return the library, compiled once for each process."""
    compiler = shutil.which("cc")
    if compiler is None:
        raise ServerUnavailableError("the C compiler cc is not on PATH (Debian: gcc, libc6-dev)")
    library = Path(_FOLDER.name, "set_clock.so")
    command = [compiler, "-O1", "-fPIC", "-shared", "-o", str(library), str(_PROGRAM), "-ldl"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ServerUnavailableError(f"{_PROGRAM.name} can't be compiled: {done.stderr.strip()[-500:]}")
    return library


_FOLDER = tempfile.TemporaryDirectory(prefix="set-clock-")

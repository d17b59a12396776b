"""A clock of a peer's own, by libfaketime: the time of day can be set, and what measures intervals stays right."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

_SLEEP = Path(__file__).parent / "c" / "sleep.c"
_SEEN_S = 1


class PeerClock:
    """One that processes go by that are started with `environment`.

    Args:
        folder: of its own, which is there; it takes a file that says how far the clock is off.

    Raises:
        FileNotFoundError: naming what is not installed.
        RuntimeError: if the little that libfaketime needs here can't be compiled.
    """

    seen_within_s = 2.0 * _SEEN_S
    """How long until processes have noticed that it was set."""

    def __init__(self, folder: Path) -> None:
        libraries = sorted(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"))
        if not libraries:
            raise FileNotFoundError("there is no libfaketime (Debian: faketime)")
        compiler = shutil.which("cc")
        if compiler is None:
            raise FileNotFoundError("there is no C compiler (Debian: gcc)")
        sleep, self._file = folder / "sleep.so", folder / "offset"
        command = [compiler, "-shared", "-fPIC", "-O1", "-o", str(sleep), str(_SLEEP)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"{_SLEEP.name} can't be compiled: {done.stderr.strip()[-300:]}")
        self.environment = {
            "LD_PRELOAD": f"{sleep} {libraries[0]}",
            "FAKETIME_TIMESTAMP_FILE": str(self._file),
            "FAKETIME_CACHE_DURATION": str(_SEEN_S),
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        }
        self.set(0)

    def set(self, off_s: int) -> None:
        """Sets it so many seconds ahead, or back if negative."""
        self._file.write_text(f"{off_s:+d}")

"""Open threads and files of this process, counted by the operating system."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

_THREADS = "rdk:"
"""The names of librdkafka's threads."""


def client_threads() -> int:
    """Count the threads of Kafka clients in this process; each open client has some."""
    names: list[str] = []
    for thread in Path("/proc/self/task").iterdir():
        with contextlib.suppress(OSError):  # the thread has just ended
            names.append((thread / "comm").read_text())
    return sum(name.startswith(_THREADS) for name in names)


def open_below(folder: Path) -> list[str]:
    """Return the files, not folders, below a folder that this process has open; one folder per disk stays open for
    syncs."""
    paths: list[str] = []
    for descriptor in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            paths.append(os.readlink(descriptor))
    return sorted(path for path in paths if path.startswith(f"{folder}/") and not Path(path).is_dir())

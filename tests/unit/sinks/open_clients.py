"""What a process has open, counted by the operating system."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

_THREADS = "rdk:"
"""How those of librdkafka are called."""


def client_threads() -> int:
    """How many threads clients of Kafka have in this process: each has some as long as it is open."""
    names: list[str] = []
    for thread in Path("/proc/self/task").iterdir():
        with contextlib.suppress(OSError):  # it has ended just now
            names.append((thread / "comm").read_text())
    return sum(name.startswith(_THREADS) for name in names)


def open_below(folder: Path) -> list[str]:
    """The files below a folder that this process has open, without folders: of each disk it keeps one to sync it by."""
    found: list[str] = []
    for descriptor in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            found.append(os.readlink(descriptor))
    return sorted(path for path in found if path.startswith(f"{folder}/") and not Path(path).is_dir())

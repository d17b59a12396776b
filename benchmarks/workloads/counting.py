"""The kernel's calls, counted by kind."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from benchmarks.workloads.calls import ObservedCalls


@dataclass
class CountingCalls(ObservedCalls):
    """Counts calls. Written bytes are counted by the folder below the root that they go to."""

    calls: Counter[str] = field(default_factory=Counter)
    bytes_written: Counter[str] = field(default_factory=Counter)
    root: str = ""
    _open: dict[int, str] = field(default_factory=dict)

    def observe(self, kind: str) -> None:
        self.calls[kind] += 1

    def open_new(self, path: str) -> int:
        fd = super().open_new(path)
        self._open[fd] = path.removeprefix(self.root)
        return fd

    def write(self, fd: int, data: bytes | bytearray | memoryview) -> int:
        done = super().write(fd, data)
        self.bytes_written["/".join(self._open[fd].split("/")[1:3])] += done
        return done

"""The requests of a file system, counted below it on the driver and in executors."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

from distcommit.core.interfaces.file_system import FileSystem

_SEAMS = {"file": "_calls", "hdfs": "_calls", "webhdfs": "_calls", "s3": "_requests"}
"""By scheme: the attribute in which a file system holds the object that it calls."""


class Counted:
    """Passes each call on to the object below, and counts calls by name, and bytes in both directions. A pickled
    copy counts from zero."""

    def __init__(self, below: Any) -> None:
        self._below = below
        self._lock = threading.Lock()
        self.counts: Counter[str] = Counter()

    def __reduce__(self) -> tuple[type[Counted], tuple[Any]]:
        return Counted, (self._below,)

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self._below, name)
        return self._counting(name, attribute) if callable(attribute) and not name.startswith("_") else attribute

    def _counting(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*arguments: Any, **named: Any) -> Any:
            answer = call(*arguments, **named)
            with self._lock:
                self.counts[f"requests_{name}"] += 1
                self.counts["bytes_sent"] += sum(map(_size, (*arguments, *named.values())))
                self.counts["bytes_received"] += _size(answer)
            return answer

        return counted


def seam_of(fs: FileSystem) -> str:
    """Return the attribute that holds the object below that file system."""
    return _SEAMS[fs.scheme]


def count_requests(fs: FileSystem) -> Counted:
    """Count that file system's requests from now on; its copies in executors count their own."""
    seam = seam_of(fs)
    below = getattr(fs, seam)
    counted = below if isinstance(below, Counted) else Counted(below)
    setattr(fs, seam, counted)
    return counted


def counts_of(fs: FileSystem) -> Counter[str]:
    """Return the counts of that file system, with `requests` as their sum; nothing if it is not counted."""
    below = getattr(fs, _SEAMS.get(fs.scheme, ""), None)
    if not isinstance(below, Counted):
        return Counter()
    counts = Counter(below.counts)
    counts["requests"] = sum(number for kind, number in counts.items() if kind.startswith("requests_"))
    return counts


def _size(value: object) -> int:
    return len(value) if isinstance(value, bytes | bytearray) else value.nbytes if isinstance(value, memoryview) else 0

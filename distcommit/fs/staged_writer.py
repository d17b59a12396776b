"""What all writers of new files have in common: they count and checksum what is written to them."""

from __future__ import annotations

from abc import ABC, abstractmethod

from xxhash import xxh3_64

from distcommit.core.ports import FileStatus


class ChecksummingWriter(ABC):
    """A `StagedWriter` but for where the bytes go."""

    def __init__(self) -> None:
        self._hash = xxh3_64()
        self._size_bytes = 0

    @property
    def size_bytes(self) -> int:
        return self._size_bytes

    @property
    def checksum(self) -> int:
        return self._hash.intdigest()

    def write(self, data: bytes | bytearray | memoryview, /) -> int:
        view = memoryview(data).cast("B")
        self._hash.update(view)
        self._take(view)
        self._size_bytes += len(view)
        return len(view)

    @abstractmethod
    def _take(self, view: memoryview) -> None:
        """Writes all of it."""

    @abstractmethod
    def close_file(self, *, sync: bool) -> FileStatus: ...

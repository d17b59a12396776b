"""Base class of writers of new files."""

from __future__ import annotations

from abc import ABC, abstractmethod

from xxhash import xxh3_64

from distcommit.core.interfaces.file_system import FileStatus


class ChecksummingWriter(ABC):
    """A `StagedWriter` that counts and checksums bytes."""

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
        self._write_all(view)
        self._size_bytes += len(view)
        return len(view)

    @abstractmethod
    def _write_all(self, view: memoryview) -> None: ...

    @abstractmethod
    def close_file(self, *, sync: bool) -> FileStatus: ...

"""Folders of input files in Azure and Google Cloud Storage, with fsspec's calls.

The fsspec class of `obstore` is not used: it lists no times, and its ETags differ from the blobs'.
"""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any, BinaryIO

from distcommit.fs.object_stores.blob_requests import BlobRequests
from distcommit.fs.object_stores.object_operations import folder_key_of

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

_BUFFER_BYTES = 1 << 20


class InputBlobs:
    """A container's blobs as files. `url` is scheme and authority."""

    def __init__(self, url: str) -> None:
        self._requests = BlobRequests(url)

    def ls(self, folder: str, *, detail: bool) -> list[dict[str, Any]]:
        """Return a folder's entries with details. Raises FileNotFoundError if there are none."""
        folders, files = self._requests.list_details(folder_key_of(folder))
        if not folders and not files:
            raise FileNotFoundError(folder)
        return [{"name": name, "type": "directory"} for name in folders] + [_file(meta) for meta in files]

    def info(self, path: str) -> dict[str, Any]:
        """Return a file's state. Raises FileNotFoundError if it does not exist."""
        return _file(self._requests.details(path))

    def isdir(self, path: str) -> bool:
        return self._requests.is_folder(folder_key_of(path))

    def open(self, path: str, mode: str) -> BinaryIO:
        return io.BufferedReader(_BlobReader(self._requests, path), _BUFFER_BYTES)

    def invalidate_cache(self) -> None:
        """Do nothing: listings are not cached."""


class _BlobReader(io.RawIOBase):
    def __init__(self, requests: BlobRequests, key: str) -> None:
        super().__init__()
        self._requests, self._key = requests, key
        self._reader = requests.open_reader(key)

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return int(self._reader.tell())

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        return int(self._reader.seek(offset, whence))

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        view = memoryview(buffer).cast("B")
        with self._requests.errors_of(self._key):
            data = memoryview(self._reader.read(len(view)))
        view[: len(data)] = data
        return len(data)


def _file(meta: dict[str, Any]) -> dict[str, Any]:
    return {
        "name": meta["path"],
        "type": "file",
        "size": meta["size"],
        # A listing of Google Cloud Storage has milliseconds, and the head of an object has seconds.
        "last_modified": meta["last_modified"].replace(microsecond=0),
        "etag": (meta["e_tag"] or "").strip('"'),
    }

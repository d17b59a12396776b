"""A new object that is written from front to back, as Python's own streams are."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

from distcommit.fs.object_stores.s3_requests import S3Requests

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

_PART_BYTES = 8 << 20  # ten thousand parts are allowed: 80 GiB


class S3Stream(io.RawIOBase):
    """Nobody sees the object before the stream is closed; then it is durable. It never replaces another one.

    A small object is one request; a larger one an upload, of which 8 MB are in memory. Who dies leaves the upload:
    `abandoned` takes it away.

    Args:
        requests: to the bucket.
        key: the object's.
    """

    def __init__(self, requests: S3Requests, key: str) -> None:
        super().__init__()
        self._requests, self._key = requests, key
        self._waiting, self._parts, self._upload_id = bytearray(), list[str](), ""
        self._size_bytes = 0

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._size_bytes

    def write(self, data: ReadableBuffer, /) -> int:
        view = memoryview(data).cast("B")
        self._waiting += view
        self._size_bytes += len(view)
        while len(self._waiting) >= _PART_BYTES:
            self._send(_PART_BYTES)
        return len(view)

    def close(self) -> None:
        """Makes the object visible.

        Raises:
            FileExistsError: if there is one of that name.
        """
        if self.closed:
            return
        try:
            if not self._upload_id:
                self._requests.put(self._key, bytes(self._waiting), {}, if_absent=True)
                return
            if self._waiting:
                self._send(len(self._waiting))
            self._requests.complete_upload(self._key, self._upload_id, self._parts)
        finally:
            super().close()

    def __del__(self) -> None:
        """One that nobody has closed is never seen."""

    def _send(self, size_bytes: int) -> None:
        if not self._upload_id:
            self._upload_id = self._requests.begin_upload(self._key, {})
        data = bytes(memoryview(self._waiting)[:size_bytes])
        del self._waiting[:size_bytes]
        self._parts.append(self._requests.upload_part(self._key, self._upload_id, len(self._parts) + 1, data))


def abandoned(requests: S3Requests, key: str) -> None:
    """Deletes an object that a stream has written, and what streams that died have left of it."""
    for upload_id in requests.uploads_to(key):
        try:
            requests.abort_upload(key, upload_id)
        except FileNotFoundError:
            continue  # another one was first
    requests.delete(key)

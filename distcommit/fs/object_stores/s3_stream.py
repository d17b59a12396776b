"""Sequential writing of S3 objects in parts."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

from distcommit.fs.object_stores.object_operations import PART_BYTES
from distcommit.fs.object_stores.s3_requests import S3Requests

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


class PartUpload:
    """Sender of a multipart upload in parts of 8 MiB. Less than one part is in memory.

    An object has at most 78 GiB, because an upload has at most 10,000 parts.
    """

    def __init__(self, requests: S3Requests, key: str, upload_id: str) -> None:
        self._requests, self._key, self.upload_id = requests, key, upload_id
        self._waiting, self._etags = bytearray(), list[str]()

    def write(self, data: ReadableBuffer) -> None:
        self._waiting += data
        while len(self._waiting) >= PART_BYTES:
            self._send(PART_BYTES)

    def finish(self) -> list[str]:
        if self._waiting or not self._etags:
            self._send(len(self._waiting))
        return self._etags

    def _send(self, size_bytes: int) -> None:
        data = bytes(memoryview(self._waiting)[:size_bytes])
        del self._waiting[:size_bytes]
        self._etags.append(self._requests.upload_part(self._key, self.upload_id, len(self._etags) + 1, data))


class S3Stream(io.RawIOBase):
    """Stream into a new object, which is visible and durable after `close`. Existing objects are not replaced.

    A stream below 8 MiB takes one request. If a process dies, its larger upload remains until `discard_stream`.
    """

    def __init__(self, requests: S3Requests, key: str) -> None:
        super().__init__()
        self._requests, self._key = requests, key
        self._waiting, self._size_bytes = bytearray(), 0
        self._upload: PartUpload | None = None

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._size_bytes

    def write(self, data: ReadableBuffer, /) -> int:
        view = memoryview(data).cast("B")
        self._size_bytes += len(view)
        if self._upload is not None:
            self._upload.write(view)
            return len(view)
        self._waiting += view
        if len(self._waiting) >= PART_BYTES:
            self._upload = PartUpload(self._requests, self._key, self._requests.begin_upload(self._key, {}))
            self._upload.write(self._waiting)
            self._waiting.clear()
        return len(view)

    def close(self) -> None:
        """Publish the object. Raises FileExistsError if the key is taken."""
        if self.closed:
            return
        try:
            if self._upload is None:
                self._requests.put(self._key, bytes(self._waiting), {}, if_absent=True)
            else:
                self._requests.complete_upload(self._key, self._upload.upload_id, self._upload.finish())
        finally:
            super().close()

    def __del__(self) -> None:
        """Leave an abandoned stream open, because closing would publish it."""


def discard_stream(requests: S3Requests, key: str) -> None:
    """Delete an object and its unfinished uploads."""
    for upload_id in requests.uploads_to(key):
        try:
            requests.abort_upload(key, upload_id)
        except FileNotFoundError:
            continue  # completed or aborted meanwhile
    requests.delete(key)

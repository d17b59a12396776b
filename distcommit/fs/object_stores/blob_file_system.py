"""Azure Blob Storage and Google Cloud Storage: put-if-absent by conditional PUT, publication by a conditional copy.

Google's objects are called blobs here, and its buckets containers. Facts that this relies on (references of the APIs,
observed on the test servers):

- A PUT or a copy with `If-None-Match: *` (Google: `x-goog-if-generation-match: 0`) writes the blob only if the name is
  free. An id in the blob's metadata identifies each put after a lost response. A copy has the metadata of its source.
- A staged file is a blob in staging, whose metadata names the path where it will be published. Publishing copies it
  there and then deletes it. A blob whose metadata names its own path is published.
- Azure may complete a copy after its response; until then the target is empty. The staged file is deleted only
  after that, because a copy fails if its source is deleted before.
- Writing begins with an empty blob, which reserves the name. A closed empty file is marked in its metadata.
- An acknowledged change is durable, and every later request sees it, listings included.
- Folders are prefixes of names.
"""

from __future__ import annotations

import errno
import os
import time
import uuid
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

from xxhash import xxh3_64_intdigest

from distcommit.core.interfaces.file_system import FileStatus, FolderEntry, StagedWriter
from distcommit.fs.checksumming_writer import ChecksummingWriter
from distcommit.fs.object_stores.blob_requests import BlobRequests
from distcommit.fs.object_stores.object_operations import (
    PART_BYTES,
    ObjectHead,
    ObjectStoreOperations,
    folder_key_of,
    key_of,
)

_ID = "distcommit_id"
_TARGET = "distcommit_target"
_EMPTY = "distcommit_empty"
_COPY_LIMIT_S = 30.0
_COPY_POLL_S = 0.2


class BlobFileSystem(ObjectStoreOperations):
    """File system in a container. Paths are names with a leading slash."""

    def __init__(self, requests: BlobRequests, scheme: str) -> None:
        self._requests, self.scheme = requests, scheme

    def read(self, path: str) -> bytes:
        head, data = self._requests.get(key_of(path))
        if _is_staged(head, path):
            raise OSError(errno.EOPNOTSUPP, "a staged file can't be read before it is published", path)
        if _is_incomplete(head):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return data

    def read_chunks(self, path: str) -> Iterator[bytes]:
        is_empty = True
        for chunk in self._requests.read_chunks(key_of(path)):
            is_empty = False
            yield chunk
        if is_empty and self.status(path) is None:  # its copy is not complete
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)

    def list_folder(self, path: str) -> list[FolderEntry]:
        return self._requests.list_folder(folder_key_of(path))

    def status(self, path: str) -> FileStatus | None:
        head = self._requests.head(key_of(path)) if key_of(path) else None
        if head is None:
            return FileStatus(0, 0, 0, is_folder=True) if self._requests.is_folder(folder_key_of(path)) else None
        if _is_incomplete(head):
            return FileStatus(0, 0, 0) if _is_staged(head, path) else None
        return _status_of(head)

    def create(self, path: str, target: str = "") -> StagedWriter:
        return StagedBlob(self._requests, path, target) if target else PlainBlob(self._requests, path)

    def put_if_absent(self, path: str, data: bytes) -> bool:
        return self._requests.put(key_of(path), data, {_ID: uuid.uuid4().hex}) is not None

    def rename(self, source: str, target: str) -> None:
        """Publish a staged file at its own target. Several callers may publish the same file. If the copy is incomplete
        after 30 s, raise OSError with EAGAIN; the staged file remains."""
        staged = self._requests.head(key_of(source))
        if staged is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), source)
        if staged.metadata.get(_TARGET) != quote(target) or _is_incomplete(staged):
            raise OSError(errno.EOPNOTSUPP, "only a closed staged file can be published, at its own target", target)
        try:
            self._requests.copy(key_of(source), key_of(target))
        except (FileExistsError, FileNotFoundError):
            head = self._requests.head(key_of(target))
            if head is None or head.metadata != staged.metadata:
                raise
            # Copied before: by another caller, or by this request before the client repeated it.
        self._wait_for_copy(staged, target)
        self._requests.delete(key_of(source))

    def delete(self, path: str) -> bool:
        return self._requests.delete(key_of(path))

    def _wait_for_copy(self, staged: ObjectHead, target: str) -> None:
        deadline_s = time.monotonic() + _COPY_LIMIT_S
        while True:
            head = self._requests.head(key_of(target))
            if head is not None and (head.size_bytes, head.metadata) == (staged.size_bytes, staged.metadata):
                return
            if time.monotonic() >= deadline_s:
                raise OSError(errno.EAGAIN, "the store has not completed the copy of a staged file", target)
            time.sleep(_COPY_POLL_S)


class PlainBlob(ChecksummingWriter):
    """Writer that puts a blob at `close_file`, which raises FileExistsError if the name is taken."""

    def __init__(self, requests: BlobRequests, path: str) -> None:
        super().__init__()
        self._requests, self._path, self._data = requests, path, bytearray()

    def _write_all(self, view: memoryview) -> None:
        self._data += view

    def close_file(self, *, sync: bool) -> FileStatus:
        return _put_new(self._requests, self._path, bytes(self._data), {_ID: uuid.uuid4().hex})


class StagedBlob(ChecksummingWriter):
    """Writer of a staged file, with buffers of about 8 MiB here and in the client.

    From 8 MiB on, `close_file` replaces the blob unconditionally, because `obstore` has no condition for parts. So a
    late attempt can recreate a deleted staged file. No log names that file, and the next run deletes it.
    """

    def __init__(self, requests: BlobRequests, path: str, target: str) -> None:
        super().__init__()
        self._requests, self._path = requests, path
        self._metadata = {_ID: uuid.uuid4().hex, _TARGET: quote(target)}
        reserved = requests.put(key_of(path), b"", self._metadata)
        if reserved is None:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
        self._reserved = reserved
        self._data = bytearray()
        self._parts: Any = None

    def _write_all(self, view: memoryview) -> None:
        self._data += view
        if len(self._data) >= PART_BYTES:
            if self._parts is None:
                self._parts = self._requests.open_parts(key_of(self._path), self._metadata)
            self._send()

    def close_file(self, *, sync: bool) -> FileStatus:
        if self._parts is not None:
            self._send()
            with self._requests.errors_of(self._path):
                self._parts.close()
            return _status_of(ObjectHead(self.size_bytes, "", self._metadata))
        metadata = {**self._metadata, _ID: uuid.uuid4().hex} | ({} if self._data else {_EMPTY: "1"})
        return _put_new(self._requests, self._path, bytes(self._data), metadata, self._reserved)

    def _send(self) -> None:
        with self._requests.errors_of(self._path):
            self._parts.write(bytes(self._data))
        self._data.clear()


def _put_new(
    requests: BlobRequests, path: str, data: bytes, metadata: dict[str, str], replaced: ObjectHead | None = None
) -> FileStatus:
    put = requests.put(key_of(path), data, metadata, replaced=replaced)
    if put is None:
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
    return _status_of(put)


def _is_staged(head: ObjectHead, path: str) -> bool:
    return head.metadata.get(_TARGET, quote(path)) != quote(path)


def _is_incomplete(head: ObjectHead) -> bool:
    """Return whether a blob only reserves its name, or is being copied."""
    return not head.size_bytes and _TARGET in head.metadata and _EMPTY not in head.metadata


def _status_of(head: ObjectHead) -> FileStatus:
    return FileStatus(head.size_bytes, 0, xxh3_64_intdigest((head.metadata.get(_ID) or head.etag).encode()))

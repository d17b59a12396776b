"""Object stores with the S3 protocol: put-if-absent by conditional PUT, publication by completing a multipart upload.

Facts that this relies on (S3 API reference, observed on the test server):

- A PUT with `If-None-Match: *` writes the object only if the key is free. An id in the object's metadata identifies
  each put after a lost response.
- Objects cannot be renamed. A staged file is a multipart upload to the key where it will be published. Completing it
  ends the staged file and creates the published one in one conditional step. The file's name in staging is a small
  object, the marker, with the id and the parts of the upload. A marker without its upload has no effect.
- An object is identified by the id that its upload was given, together with its ETag.
- An acknowledged change is durable, and every later request sees it, listings included.
- Folders are key prefixes.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import re
import uuid
from collections.abc import Iterator, Sequence

import msgspec
from xxhash import xxh3_64_intdigest

from distcommit.core.interfaces.file_system import FileStatus, FolderEntry, StagedWriter
from distcommit.fs.checksumming_writer import ChecksummingWriter
from distcommit.fs.object_stores.object_operations import ObjectHead, ObjectStoreOperations, folder_key_of, key_of
from distcommit.fs.object_stores.s3_requests import S3Requests
from distcommit.fs.object_stores.s3_stream import PartUpload
from distcommit.fs.object_stores.staged_upload_marker import MARKER_VERSION, UploadMarker, decode_marker, encode_marker

_ID = "distcommit-id"
_STAGED = "distcommit-staged"
_MD5 = re.compile("[0-9a-f]{32}")


class S3FileSystem(ObjectStoreOperations):
    """File system in an S3 bucket. Paths are keys with a leading slash."""

    scheme = "s3"

    def __init__(self, requests: S3Requests) -> None:
        self._requests = requests

    def read(self, path: str) -> bytes:
        head, data = self._requests.get(key_of(path))
        if _STAGED in head.metadata:
            raise OSError(errno.EOPNOTSUPP, "a staged file can't be read before it is published", path)
        return data

    def list_folder(self, path: str) -> list[FolderEntry]:
        return self._requests.list_folder(folder_key_of(path))

    def status(self, path: str) -> FileStatus | None:
        head = self._requests.head(key_of(path)) if key_of(path) else None
        if head is None:
            return FileStatus(0, 0, 0, is_folder=True) if self._requests.is_folder(folder_key_of(path)) else None
        if _STAGED not in head.metadata:
            return _status_of(head)
        try:
            return self._staged(path)[1]
        except FileNotFoundError:
            return None

    def checksum(self, path: str) -> int:
        """Return a file's xxh3-64; for a staged file, as its writer recorded it. Raises FileNotFoundError if the upload
        has ended or has other parts."""
        head = self._requests.head(key_of(path))
        if head is not None and _STAGED in head.metadata:
            return self._staged(path)[0].checksum
        return super().checksum(path)

    def read_chunks(self, path: str) -> Iterator[bytes]:
        return self._requests.read_chunks(key_of(path))

    def create(self, path: str, target: str = "") -> StagedWriter:
        return S3Upload(self._requests, path, target) if target else S3Object(self._requests, path)

    def put_if_absent(self, path: str, data: bytes) -> bool:
        return _put_new(self._requests, key_of(path), data, {}) is not None

    def rename(self, source: str, target: str) -> None:
        """Publish a staged file at its own target by completing its upload. Several callers may publish it."""
        marker = self._marker(source)
        if marker.target != target or not marker.closed:
            raise OSError(errno.EOPNOTSUPP, f"only a closed file can be published, at {marker.target}", target)
        try:
            self._requests.complete_upload(key_of(target), marker.upload_id, marker.parts)
        except (FileExistsError, FileNotFoundError, BlockingIOError):
            head = self._requests.head(key_of(target))
            if head is None or _status_of(head) != _status_when_published(marker):
                raise
            # Completed before: by another caller, or by this request before the client repeated it.
        with contextlib.suppress(OSError):  # the file is published; a sweep deletes the marker
            self._requests.delete(key_of(source))

    def delete(self, path: str) -> bool:
        """Delete a file. The upload of a staged file is aborted first, so that no process can complete it."""
        head = self._requests.head(key_of(path))
        if head is None:
            return False
        if _STAGED in head.metadata:
            try:
                marker = self._marker(path)
                self._requests.abort_upload(key_of(marker.target), marker.upload_id)
            except FileNotFoundError:
                pass  # completed or aborted before
        self._requests.delete(key_of(path))
        return True

    def _marker(self, path: str) -> UploadMarker:
        head, data = self._requests.get(key_of(path))
        if _STAGED not in head.metadata:
            raise OSError(errno.EOPNOTSUPP, "only a staged file can be renamed", path)
        return decode_marker(data, path)

    def _staged(self, path: str) -> tuple[UploadMarker, FileStatus]:
        marker = self._marker(path)
        parts = self._requests.uploaded_parts(key_of(marker.target), marker.upload_id)
        if marker.closed and parts != list(marker.parts):
            raise FileNotFoundError(errno.ENOENT, "the upload has other parts than were written", path)
        return marker, _status_when_published(marker)


class S3Object(ChecksummingWriter):
    """Writer that puts an object at `close_file`, which raises FileExistsError if the key is taken."""

    def __init__(self, requests: S3Requests, path: str) -> None:
        super().__init__()
        self._requests, self._key = requests, key_of(path)
        self._data = bytearray()

    def _write_all(self, view: memoryview) -> None:
        self._data += view

    def close_file(self, *, sync: bool) -> FileStatus:
        put = _put_new(self._requests, self._key, bytes(self._data), {})
        if put is None:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), "/" + self._key)
        return _status_of(put)


class S3Upload(ChecksummingWriter):
    """Writer of a staged file: an upload to its published key, with a marker in staging.

    The marker is put before the first part, so a sweep finds every upload with parts. A crash between the requests that
    begin the upload and put the marker leaves an upload without parts.
    """

    def __init__(self, requests: S3Requests, path: str, target: str) -> None:
        super().__init__()
        self._requests, self._key = requests, key_of(path)
        object_id = uuid.uuid4().hex
        upload_id = requests.begin_upload(key_of(target), {_ID: object_id})
        self._marker = UploadMarker(MARKER_VERSION, upload_id, target, object_id)
        if _put_new(requests, self._key, encode_marker(self._marker), {_STAGED: "1"}) is None:
            requests.abort_upload(key_of(target), upload_id)
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
        self._upload = PartUpload(requests, key_of(target), upload_id)

    def _write_all(self, view: memoryview) -> None:
        self._upload.write(view)

    def close_file(self, *, sync: bool) -> FileStatus:
        parts = tuple(self._upload.finish())
        marker = msgspec.structs.replace(
            self._marker, closed=True, parts=parts, size_bytes=self.size_bytes, checksum=self.checksum
        )
        self._requests.put(self._key, encode_marker(marker), {_STAGED: "1"}, if_absent=False)
        return _status_when_published(marker)


def _put_new(requests: S3Requests, key: str, data: bytes, metadata: dict[str, str]) -> ObjectHead | None:
    metadata = {**metadata, _ID: uuid.uuid4().hex}
    try:
        return ObjectHead(len(data), requests.put(key, data, metadata, if_absent=True), metadata)
    except FileExistsError:
        head = requests.head(key)
        return head if head is not None and head.metadata.get(_ID) == metadata[_ID] else None


def _status_of(head: ObjectHead) -> FileStatus:
    return FileStatus(head.size_bytes, 0, _file_id(head.metadata.get(_ID, ""), head.etag))


def _status_when_published(marker: UploadMarker) -> FileStatus:
    return FileStatus(marker.size_bytes, 0, _file_id(marker.object_id, _etag_of(marker.parts)) if marker.closed else 0)


def _file_id(object_id: str, etag: str) -> int:
    return xxh3_64_intdigest(f"{object_id} {etag}".encode())


def _etag_of(parts: Sequence[str]) -> str:
    """Return the ETag of an object of these parts, or an empty text if their ETags are not MD5s.

    In that case, as with a key management service, checksums identify objects.
    """
    if not all(_MD5.fullmatch(etag) for etag in parts):
        return ""
    joined = b"".join(map(bytes.fromhex, parts))
    return f"{hashlib.md5(joined, usedforsecurity=False).hexdigest()}-{len(parts)}"

"""Object stores that speak S3: put-if-absent by conditional PUT, and files that are completed where they are published.

What rests on what, read from the S3 API reference and tried on the test server:

- A PUT with `If-None-Match: *` writes the object only if nothing is at the key. The client may send it again when it
  hears no answer, and is then told that the key is taken: each put has an id in its metadata, by which it is known.
- Nothing can be renamed. A staged file is a multipart upload, begun for the key where it is published: nobody sees it
  before it is completed, which is one step, and conditional as a PUT is. Its name in staging is a small object, the
  marker, that says which upload it is and what its parts are. The staged file is there as long as its upload is, so
  that in completing it both change at once; the marker alone is nothing.
- Who the object at a key is, says the id that its upload was given, together with its ETag.
- What was answered is durable, and every later request sees it (strong consistency, in listings too).
- Folders are the beginnings of keys.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import posixpath
import re
import uuid
from collections.abc import Iterable, Sequence

import msgspec
from xxhash import xxh3_64, xxh3_64_intdigest

from distcommit.core.ports import FileAccess, FileStatus, FolderEntry, StagedWriter
from distcommit.fs.object_stores.s3_requests import CALLS, ObjectHead, S3Requests
from distcommit.fs.object_stores.upload_marker import MARKER_VERSION, UploadMarker, decode_marker, encode_marker
from distcommit.fs.put_if_absent import put_each
from distcommit.fs.staged_writer import ChecksummingWriter

_ID = "distcommit-id"
_STAGED = "distcommit-staged"
_PART_BYTES = 8 << 20  # ten thousand parts are allowed: 80 GiB
_MD5 = re.compile("[0-9a-f]{32}")


class S3FileSystem:
    """One bucket. Paths are keys with a slash before them.

    Args:
        requests: those to use.
    """

    scheme = "s3"
    has_folders = has_links = names_last = False
    parallel_calls = CALLS
    parallel_buckets = CALLS

    def __init__(self, requests: S3Requests) -> None:
        self._requests = requests

    def read(self, path: str) -> bytes:
        head, data = self._requests.get(_key(path))
        if _STAGED in head.metadata:
            raise OSError(errno.EOPNOTSUPP, "a staged file can't be read before it is published", path)
        return data

    def list_folder(self, path: str) -> list[FolderEntry]:
        return self._requests.list_folder(_folder_key(path))

    def status(self, path: str) -> FileStatus | None:
        head = self._requests.head(_key(path))
        if head is None:
            return FileStatus(0, 0, 0, is_folder=True) if self._requests.is_folder(_folder_key(path)) else None
        if _STAGED not in head.metadata:
            return _status_of(head)
        try:
            return self._staged(path)[1]
        except FileNotFoundError:
            return None

    def checksum(self, path: str) -> int:
        """As the port says; of a staged file what its writer found, if the parts are still those it wrote."""
        head = self._requests.head(_key(path))
        if head is not None and _STAGED in head.metadata:
            return self._staged(path)[0].checksum
        checksum = xxh3_64()
        for piece in self._requests.pieces(_key(path)):
            checksum.update(piece)
        return checksum.intdigest()

    def make_folder(self, path: str) -> bool:
        return True

    def make_folders(self, path: str) -> None:
        pass

    def create(self, path: str, target: str = "") -> StagedWriter:
        return S3Upload(self._requests, path, target) if target else S3Object(self._requests, path)

    def set_access(self, path: str, access: FileAccess) -> None:
        raise OSError(errno.EOPNOTSUPP, "objects have no owner and mode", path)

    def put_if_absent(self, path: str, data: bytes) -> bool:
        return _put_new(self._requests, _key(path), data, {}) is not None

    def put_all_if_absent(self, files: Sequence[tuple[str, bytes]]) -> list[bool | OSError]:
        return put_each(self, files)

    def rename(self, source: str, target: str) -> None:
        """Completes a staged file. Of several callers at once more than one may be told that it is done."""
        marker = self._marker(source)
        if marker.target != target or not marker.closed:
            raise OSError(errno.EOPNOTSUPP, f"only a closed file can be published, at {marker.target}", target)
        try:
            self._requests.complete_upload(_key(target), marker.upload_id, marker.parts)
        except (FileExistsError, FileNotFoundError, BlockingIOError):
            head = self._requests.head(_key(target))
            if head is None or _status_of(head) != _status_when_published(marker):
                raise
            # Completed before: by another, or by this request before it was sent again.
        with contextlib.suppress(OSError):  # done it is; the marker is swept
            self._requests.delete(_key(source))

    def rename_folder(self, source: str, target: str) -> bool:
        return False

    def delete(self, path: str) -> bool:
        """As the port says; of a staged file its upload is given up first, so that nobody can complete it any more."""
        head = self._requests.head(_key(path))
        if head is None:
            return False
        if _STAGED in head.metadata:
            try:
                marker = self._marker(path)
                self._requests.abort_upload(_key(marker.target), marker.upload_id)
            except FileNotFoundError:
                pass  # completed, or given up before
        self._requests.delete(_key(path))
        return True

    def delete_folder(self, path: str) -> bool:
        return False

    def sync(self, folders: Iterable[str], root: str) -> None:
        pass  # what was answered is durable

    def sync_tree(self, root: str) -> None:
        pass

    def real_path(self, path: str) -> str:
        return posixpath.normpath(path)

    def _marker(self, path: str) -> UploadMarker:
        """The marker of a staged file. FileNotFoundError if there is none."""
        head, data = self._requests.get(_key(path))
        if _STAGED not in head.metadata:
            raise OSError(errno.EOPNOTSUPP, "an object can't be renamed", path)
        return decode_marker(data, path)

    def _staged(self, path: str) -> tuple[UploadMarker, FileStatus]:
        """A staged file. FileNotFoundError if its upload is not there any more with the parts that were written."""
        marker = self._marker(path)
        parts = self._requests.uploaded_parts(_key(marker.target), marker.upload_id)
        if marker.closed and parts != list(marker.parts):
            raise FileNotFoundError(errno.ENOENT, "the upload has other parts than were written", path)
        return marker, _status_when_published(marker)


class S3Object(ChecksummingWriter):
    """A new object, put when it is closed; that is when FileExistsError is raised if the name is taken."""

    def __init__(self, requests: S3Requests, path: str) -> None:
        super().__init__()
        self._requests, self._key = requests, _key(path)
        self._data = bytearray()

    def _take(self, view: memoryview) -> None:
        self._data += view

    def close_file(self, *, sync: bool) -> FileStatus:
        put = _put_new(self._requests, self._key, bytes(self._data), {})
        if put is None:
            raise FileExistsError(errno.EEXIST, "the name is taken", "/" + self._key)
        return _status_of(put)


class S3Upload(ChecksummingWriter):
    """A staged file: a multipart upload to the key where it is published, and the marker that is its name in staging.

    The marker is there before the first part is, so that a sweep of staging finds every upload that holds bytes; one
    without parts is left by who dies between the two requests that begin it.
    """

    def __init__(self, requests: S3Requests, path: str, target: str) -> None:
        super().__init__()
        self._requests, self._key, self._target_key = requests, _key(path), _key(target)
        self._waiting = bytearray()
        self._parts: list[str] = []
        object_id = uuid.uuid4().hex
        upload_id = requests.begin_upload(self._target_key, {_ID: object_id})
        self._marker = UploadMarker(MARKER_VERSION, upload_id, target, object_id)
        if _put_new(requests, self._key, encode_marker(self._marker), {_STAGED: "1"}) is None:
            requests.abort_upload(self._target_key, upload_id)
            raise FileExistsError(errno.EEXIST, "the name is taken", path)

    def _take(self, view: memoryview) -> None:
        self._waiting += view
        while len(self._waiting) >= _PART_BYTES:
            self._send(bytes(self._waiting[:_PART_BYTES]))
            del self._waiting[:_PART_BYTES]

    def close_file(self, *, sync: bool) -> FileStatus:
        if self._waiting or not self._parts:
            self._send(bytes(self._waiting))
        marker = msgspec.structs.replace(
            self._marker,
            closed=True,
            parts=tuple(self._parts),
            size_bytes=self.size_bytes,
            checksum=self.checksum,
        )
        self._requests.put(self._key, encode_marker(marker), {_STAGED: "1"}, if_absent=False)
        return _status_when_published(marker)

    def _send(self, data: bytes) -> None:
        number = len(self._parts) + 1
        self._parts.append(self._requests.upload_part(self._target_key, self._marker.upload_id, number, data))


def _put_new(requests: S3Requests, key: str, data: bytes, metadata: dict[str, str]) -> ObjectHead | None:
    """Puts an object where nothing is; None if the key was taken, by another than this very put."""
    metadata = {**metadata, _ID: uuid.uuid4().hex}
    try:
        return ObjectHead(len(data), requests.put(key, data, metadata, if_absent=True), metadata)
    except FileExistsError:
        found = requests.head(key)
        return found if found is not None and found.metadata.get(_ID) == metadata[_ID] else None


def _status_of(head: ObjectHead) -> FileStatus:
    return FileStatus(head.size_bytes, 0, _file_id(head.metadata.get(_ID, ""), head.etag))


def _status_when_published(marker: UploadMarker) -> FileStatus:
    return FileStatus(marker.size_bytes, 0, _file_id(marker.object_id, _etag_of(marker.parts)) if marker.closed else 0)


def _file_id(object_id: str, etag: str) -> int:
    return xxh3_64_intdigest(f"{object_id} {etag}".encode())


def _etag_of(parts: Sequence[str]) -> str:
    """The ETag of an object of these parts, where theirs are the MD5s of their bytes; else none that an object has, and
    identity is decided by checksum (as with keys of a key management service)."""
    if not all(_MD5.fullmatch(etag) for etag in parts):
        return ""
    joined = b"".join(map(bytes.fromhex, parts))
    return f"{hashlib.md5(joined, usedforsecurity=False).hexdigest()}-{len(parts)}"


def _key(path: str) -> str:
    return path[1:]


def _folder_key(path: str) -> str:
    return f"{path.strip('/')}/" if path.strip("/") else ""

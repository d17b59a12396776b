"""The name of a staged file in an object store: a small object that says which upload it is.

Specification: `tests/golden/README.md`.
"""

from __future__ import annotations

import msgspec

from distcommit.core.errors import CorruptError, UnknownVersionError
from distcommit.decoding import from_json

MARKER_VERSION = 1


class _Version(msgspec.Struct):
    version: int


class UploadMarker(msgspec.Struct, frozen=True):
    """An upload, the path it is published at, and the id that the object there will show in its metadata.

    Once all bytes are there it is `closed`, and says what they are: `parts` are the ETags of the upload's parts in
    order, `checksum` is xxh3-64 over all.
    """

    version: int
    upload_id: str
    target: str
    object_id: str
    closed: bool = False
    parts: tuple[str, ...] = ()
    size_bytes: int = 0
    checksum: int = 0


def encode_marker(marker: UploadMarker) -> bytes:
    """The object's bytes: JSON."""
    return msgspec.json.encode(marker)


def decode_marker(data: bytes, path: str) -> UploadMarker:
    """The marker of a staged file.

    Raises:
        UnknownVersionError: if a newer version wrote it.
        CorruptError: if it is not one.
    """
    try:
        version = from_json(data, _Version).version
        if version == MARKER_VERSION:
            return from_json(data, UploadMarker)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise CorruptError(
            "the marker of a staged file is corrupt",
            path=path,
            expected=f"a marker of format version {MARKER_VERSION}",
            found=f"{error}: {data[:80]!r}",
            todo="find out who wrote there; delete it once nothing of its epoch is pending",
        ) from error
    raise UnknownVersionError(
        "the marker of a staged file has an unknown version",
        path=path,
        expected=str(MARKER_VERSION),
        found=str(version),
        todo="run the version of distcommit that wrote it, or a newer one; if there is none of that version, it is"
        " damaged (no checksum covers this number): delete it once nothing of its epoch is pending",
    )

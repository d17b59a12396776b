"""Marker of a staged file: a small object that names its upload (`conf/docs/reference/formats-data-files.md`)."""

from __future__ import annotations

import msgspec

from distcommit.core.errors import CorruptError, UnknownVersionError
from distcommit.core.support.decoding import from_json

MARKER_VERSION = 1


class _Version(msgspec.Struct):
    version: int
    """Format version, read first."""


class UploadMarker(msgspec.Struct, frozen=True):
    """Marker of a staged file.

    Attributes:
        version: format version.
        upload_id: id of the upload.
        target: path at which the file is published.
        object_id: id in the metadata of the published object.
        closed: whether all bytes were uploaded. Only then are the following fields set.
        parts: ETags of the parts in order.
        size_bytes: size of the file.
        checksum: xxh3-64 over all bytes.
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
    return msgspec.json.encode(marker)


def decode_marker(data: bytes, path: str) -> UploadMarker:
    """Decode a marker; raises UnknownVersionError or CorruptError."""
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
            todo="find out which program wrote it; delete it once nothing of its epoch is pending",
        ) from error
    raise UnknownVersionError(
        "the marker of a staged file has an unknown version",
        path=path,
        expected=str(MARKER_VERSION),
        found=str(version),
        todo="run the version of distcommit that wrote it, or a newer one; if no such version exists, the marker is"
        " damaged (this number has no checksum): delete it once nothing of its epoch is pending",
    )

"""Small JSON files: readable, versioned, with a checksum in the last line that covers the bytes above it.

{"version": 1, ...}
xxh3 0123456789abcdef
"""

from __future__ import annotations

from typing import TypeVar

import msgspec
from xxhash import xxh3_64_hexdigest

from distcommit.core.errors import CorruptError, UnknownVersionError
from distcommit.core.support.decoding import from_json

Document = TypeVar("Document", bound=msgspec.Struct)
UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""Errors that decoding foreign bytes raises."""

_LABEL = b"xxh3 "
_RESTORE = "restore the file from a backup"


class _Version(msgspec.Struct):
    version: int
    """Format version, decoded before the other fields."""


def encode_document(document: msgspec.Struct) -> bytes:
    """Encode a document, which must have a field `version`."""
    body = msgspec.json.format(msgspec.json.encode(document), indent=2) + b"\n"
    return body + _LABEL + xxh3_64_hexdigest(body).encode() + b"\n"


def decode_document(
    data: bytes,
    kind: type[Document],
    version: int,
    subject: str,
    path: str,
    *,
    error_id: str = "",
    todo: str = _RESTORE,
) -> Document:
    """Return the document in `data`. `subject`, `path`, `error_id` and `todo` are for errors.

    Raises:
        UnknownVersionError: if the document is undamaged and of another version.
        CorruptError: if it is truncated, foreign or altered.
    """
    body, label, check = data.rpartition(_LABEL)
    if not label or check != xxh3_64_hexdigest(body).encode() + b"\n":
        raise _corrupt(subject, path, f"bytes that do not match their checksum: {data[:80]!r}", error_id, todo)
    try:
        result = from_json(body, _Version).version
        if result == version:
            return from_json(body, kind)
    except UNREADABLE as error:
        raise _corrupt(subject, path, f"{error}: {data[:80]!r}", error_id, todo) from error
    raise UnknownVersionError(
        f"{subject} has an unknown format version",
        path=path,
        expected=str(version),
        found=str(result),
        todo="run the version of distcommit that wrote it",
    )


def _corrupt(subject: str, path: str, actual: str, error_id: str, todo: str) -> CorruptError:
    return CorruptError(f"{subject} is corrupt", id=error_id, path=path, found=actual, todo=todo)

"""Damage to stored files: to their raw bytes, and below correct checksums."""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable

import msgspec
from xxhash import xxh3_64_hexdigest

from distcommit.protocol.paths.store import SEGMENT_SUFFIX
from distcommit.stores.logs.segment_format import FORMAT_VERSION
from distcommit.stores.state.checksummed_json import encode_document
from distcommit.stores.state.job_store import StoreMarker
from tests.simulation.log_watch import ANOTHERS_ID

_VERSION = re.compile(rb'(distcommit-segment |"version": ?|distcommit-table-version.{1,4}?)(\d)')


def sealed_segment(raw: bytes, *, declared_bytes: int | None = None) -> bytes:
    """Return a segment file with a correct checksum around these record bytes."""
    size = len(raw) if declared_bytes is None else declared_bytes
    return checked_segment(zlib.compress(raw, 1), size)


def checked_segment(body: bytes, declared_bytes: int) -> bytes:
    """Return a segment file with a correct checksum around these compressed bytes."""
    head = f"distcommit-segment {FORMAT_VERSION} epoch=7 writer={ANOTHERS_ID} raw={declared_bytes}"
    return f"{head} xxh3={xxh3_64_hexdigest(head.encode() + body)}\n".encode() + body


def of_version(data: bytes, version: int) -> bytes:
    """Return a segment or a document of another format version, with a correct checksum."""
    if data.startswith(b"distcommit-segment "):
        header, _, body = data.partition(b"\n")
        head = re.sub(rb"\d+", str(version).encode(), header.rpartition(b" ")[0], count=1)
        return head + f" xxh3={xxh3_64_hexdigest(head + body)}\n".encode() + body
    body = re.sub(rb'"version": \d+', f'"version": {version}'.encode(), data.rpartition(b"xxh3 ")[0], count=1)
    return body + f"xxh3 {xxh3_64_hexdigest(body)}\n".encode()


def _whole_flipped(path: str, data: bytes) -> bytes:
    place = len(data) * 2 // 3
    return data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :] if data else b"\1"


def _whole_newer(path: str, data: bytes) -> bytes:
    """Write the file as a newer version of the format would."""
    return of_version(data, 9) if path.endswith((SEGMENT_SUFFIX, ".json")) and _VERSION.search(data) else data


def _whole_renumbered(path: str, data: bytes) -> bytes:
    """Flip one bit, in the digit of the format's version."""
    return _VERSION.sub(lambda match: match[1] + bytes([match[2][0] ^ 2]), data, count=1)


def _whole_altered(path: str, data: bytes) -> bytes:
    """Change values, under correct checksums."""
    if path.endswith(SEGMENT_SUFFIX):
        return sealed_segment(b"\xc1" if len(data) % 2 else msgspec.msgpack.encode("x"), declared_bytes=1)
    if path.endswith("store.json"):
        return encode_document(StoreMarker("another", 1, "job", 16, "0" * 32))
    return data[:-1] + b" "


WHOLE: dict[str, Callable[[str, bytes], bytes]] = {
    "flipped": _whole_flipped,
    "cut": lambda path, data: data[: len(data) // 2],
    "newer": _whole_newer,
    "renumbered": _whole_renumbered,
    "foreign": lambda path, data: b'{"name": "another program"}\n',
    "altered": _whole_altered,
}
"""Damage to a whole stored file, by name: from its path and its bytes."""

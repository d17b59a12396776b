"""Metadata at the end of files, for formats or clients that have no place for it.

gzip (RFC 1952): empty members with an extra field. zstd (RFC 8878): a skippable frame. ORC (specification v1, "File
Tail"): an item of user metadata in the footer, a message of Protocol Buffers, in uncompressed chunks of a compressed
file.
"""

from __future__ import annotations

import base64
import re
import struct
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import msgspec
import pyarrow as pa
from xxhash import xxh3_64_hexdigest

from distcommit.core.errors import UnknownVersionError
from distcommit.core.support.decoding import from_json

TAIL_VERSION = 1

_END = re.compile(rb" (\d{10}) ([0-9a-f]{16}) distcommit")
_END_BYTES = 39
_MEMBER = b"\x1f\x8b\x08\x04" + b"\0" * 5 + b"\xff"
_SKIPPABLE = 0x184D2A5D


class _Version(msgspec.Struct):
    version: int
    """Format version, read first."""


class FileTail(msgspec.Struct, frozen=True):
    """Metadata of a file, written and read by `Frames`.

    Attributes:
        version: format version of the tail.
        metadata: the file's metadata by key, such as its footer.
        schema: schema of the rows as Arrow serializes it, in base64.
        others_checksum: xxh3-64 of all other bytes of the file, as 16 hexadecimal digits.
    """

    version: int
    metadata: dict[str, str]
    schema: str
    others_checksum: str

    @property
    def arrow_schema(self) -> pa.Schema:
        """The schema; raises ValueError or pyarrow's errors if it is not valid."""
        return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(self.schema)))


def file_tail_of(metadata: dict[str, str], schema: pa.Schema, others_checksum: str = "0" * 16) -> FileTail:
    return FileTail(TAIL_VERSION, metadata, base64.b64encode(schema.serialize().to_pybytes()).decode(), others_checksum)


@dataclass(frozen=True, slots=True)
class Frames:
    """Format of the frames in which a file format stores parts of the metadata.

    Attributes:
        head: returns the bytes before a part, given the part's size in bytes.
        foot: bytes after each part.
        part_bytes: largest part in bytes; only the first may be smaller.
        name: returns the first part's bytes before the metadata, given the metadata's size in bytes.
    """

    head: Callable[[int], bytes]
    foot: bytes = b""
    part_bytes: int = 1 << 31
    name: Callable[[int], bytes] = lambda size: b""

    def framed(self, tail: FileTail) -> bytes:
        return self._framed(msgspec.json.encode(tail))

    def read(self, file: pa.NativeFile, end: int) -> tuple[FileTail, int] | None:
        """Return the metadata in frames that end at offset `end`, and the offset of their beginning; None if there are
        none. Raises ValueError if they are damaged, and UnknownVersionError."""
        size = _END_BYTES + len(self.foot)
        if end < size:
            return None
        match = _END.fullmatch(file.read_at(_END_BYTES, end - size))
        if match is None:
            return None
        length = int(match[1])
        behind = len(self.name(length + _END_BYTES)) + length + _END_BYTES
        parts = -(-behind // self.part_bytes)
        framed_size = behind + parts * (len(self.head(0)) + len(self.foot))
        if framed_size > end:
            raise ValueError("the metadata is longer than the file")
        frames = file.read_at(framed_size, end - framed_size)
        text = self._without_frames(frames)[-length - _END_BYTES : -_END_BYTES]
        if xxh3_64_hexdigest(text).encode() != match[2] or self._framed(text) != frames:
            raise ValueError("the metadata has changed since it was written")
        version = from_json(text, _Version).version
        if version != TAIL_VERSION:
            raise UnknownVersionError(
                "the metadata at a file's end has an unknown version",
                expected=f"version {TAIL_VERSION}",
                found=f"version {version}",
                todo="read it with the version of distcommit that wrote it",
            )
        return from_json(text, FileTail), end - framed_size

    def _framed(self, text: bytes) -> bytes:
        end = f" {str(len(text)).zfill(10)} {xxh3_64_hexdigest(text)} distcommit".encode()
        text = self.name(len(text) + _END_BYTES) + text + end
        bounds = [0, *range(len(text) % self.part_bytes or self.part_bytes, len(text), self.part_bytes), len(text)]
        parts = [text[start:stop] for start, stop in pairwise(bounds)]
        return b"".join(self.head(len(part)) + part + self.foot for part in parts)

    def _without_frames(self, frames: bytes) -> bytes:
        frame_sizes = len(self.head(0)), len(self.foot)
        stops = range(len(frames), 0, -(self.part_bytes + sum(frame_sizes)))
        starts = [max(0, stop - self.part_bytes - sum(frame_sizes)) for stop in stops]
        parts = [
            frames[start + frame_sizes[0] : stop - frame_sizes[1]] for start, stop in zip(starts, stops, strict=True)
        ]
        return b"".join(reversed(parts))


def _gzip_head(size: int) -> bytes:
    return _MEMBER + struct.pack("<H", size + 4) + b"DC" + struct.pack("<H", size)


def varint(number: int) -> bytes:
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def _orc_name(size: int) -> bytes:
    key, field = b"distcommit", 2
    item = bytes([1 << 3 | field, len(key)]) + key + bytes([2 << 3 | field]) + varint(size)
    return bytes([5 << 3 | field]) + varint(len(item) + size) + item


def _orc_head(size: int) -> bytes:
    return (size << 1 | 1).to_bytes(3, "little")


GZIP = Frames(_gzip_head, b"\x03\x00" + b"\0" * 8, 16_000)  # DuckDB reads headers of at most 32 KiB
ZSTD = Frames(lambda size: struct.pack("<II", _SKIPPABLE, size))
ORC = Frames(_orc_head, part_bytes=32 << 10, name=_orc_name)
ORC_NOT_COMPRESSED = Frames(lambda size: b"", name=_orc_name)

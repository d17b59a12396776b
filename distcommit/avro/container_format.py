"""Avro container files: header and blocks with sync markers (Apache Avro 1.12 specification, Object Container
Files)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import BinaryIO

from distcommit.avro.compression import CODECS, DamagedDataError, TooLargeError, decompress

MAX_BLOCK_BYTES = 64 << 20
"""Maximum size of a header, and of a block both compressed and decompressed."""
SYNC_BYTES = 16
_SCHEMA, _CODEC = b"avro.schema", b"avro.codec"
_MAGIC = b"Obj\x01"
_MAX_LONG_BYTES = 10


@dataclass(frozen=True, slots=True)
class Header:
    """The header of a container file.

    Attributes:
        metadata: values by key, as in the file, among them schema and codec.
        sync: sync marker, random bytes that follow each block of the file.
    """

    metadata: Mapping[bytes, bytes]
    sync: bytes

    @property
    def schema(self) -> str:
        """The writer's schema as JSON text. Raises ValueError if the header has none."""
        if _SCHEMA not in self.metadata:
            raise ValueError("it is not an Avro file: its header has no schema")
        return self.metadata[_SCHEMA].decode()

    @property
    def codec(self) -> str:
        """Codec of the blocks. Raises ValueError if it is unknown."""
        codec = self.metadata.get(_CODEC, b"null").decode("utf-8", "replace")
        if codec not in CODECS:
            raise ValueError(f"its codec is {codec!r:.50}, and it must be one of {', '.join(CODECS)}")
        return codec


def header_bytes(schema: bytes, codec: str, sync: bytes, metadata: Mapping[str, str] | None = None) -> bytes:
    entries = {_SCHEMA: schema, _CODEC: codec.encode()}
    entries |= {key.encode(): value.encode() for key, value in (metadata or {}).items()}
    encoded = b"".join(_encoded_bytes(part) for entry in entries.items() for part in entry)
    return _MAGIC + _encoded_long(len(entries)) + encoded + b"\0" + sync


def block_bytes(count: int, data: bytes, sync: bytes) -> bytes:
    """Encode a block of `count` records in compressed `data`."""
    return b"".join((_encoded_long(count), _encoded_bytes(data), sync))


def read_header(stream: BinaryIO) -> Header:
    """Read the header. Raises ValueError if the file is not an Avro file, or the header exceeds `MAX_BLOCK_BYTES`."""
    if stream.read(len(_MAGIC)) != _MAGIC:
        raise ValueError("it is not an Avro file: it does not begin with Obj1")
    try:
        return Header(dict(_metadata(stream)), _read_exactly(stream, SYNC_BYTES))
    except (EOFError, ValueError) as error:
        raise ValueError(f"it is not an Avro file: {error}") from error


def read_blocks(stream: BinaryIO, header: Header, max_bytes: int = MAX_BLOCK_BYTES) -> Iterator[tuple[int, bytes]]:
    """Yield each block's record count and decompressed bytes. Raises ValueError for a damaged or too large block."""
    codec, number = header.codec, 0
    while (count := _read_long(stream)) is not None:
        size = _read_long(stream)
        if size is None or size < 0 or count < 0:
            raise ValueError(f"block {number} has a negative count or size")
        if size > max_bytes:
            raise ValueError(f"block {number} has {size} bytes, and at most {max_bytes} are allowed")
        data, sync = stream.read(size), stream.read(SYNC_BYTES)
        if len(data) < size or sync != header.sync:
            raise ValueError(f"block {number} is cut off, or not followed by the sync marker of the file")
        try:
            plain = decompress(codec, data, max_bytes)
        except TooLargeError:
            raise ValueError(
                f"block {number} of {size} bytes has more than {max_bytes} bytes once it is decompressed, the limit"
            ) from None
        except DamagedDataError as error:
            raise ValueError(f"block {number} is damaged: {error}") from error
        yield count, plain
        number += 1


def _metadata(stream: BinaryIO) -> Iterator[tuple[bytes, bytes]]:
    remaining = MAX_BLOCK_BYTES
    while count := _require_long(stream):
        if count < 0:
            _require_long(stream)
        for _ in range(abs(count)):
            entry = []
            for _ in range(2):
                size = _require_long(stream)
                if not 0 <= size < remaining:
                    raise ValueError(f"its header has an entry of {size} bytes, and at most {remaining} are allowed")
                remaining -= size + 1
                entry.append(_read_exactly(stream, size))
            yield entry[0], entry[1]


def _require_long(stream: BinaryIO) -> int:
    value = _read_long(stream)
    if value is None:
        raise EOFError("its header is cut off")
    return value


def _read_exactly(stream: BinaryIO, size: int) -> bytes:
    data = stream.read(size)
    if len(data) < size:
        raise EOFError("its header is cut off")
    return data


def _read_long(stream: BinaryIO) -> int | None:
    value = shift = 0
    for _ in range(_MAX_LONG_BYTES):
        byte = stream.read(1)
        if not byte:
            if shift:
                raise ValueError("it ends within a number")
            return None
        value, shift = value | (byte[0] & 0x7F) << shift, shift + 7
        if byte[0] < 0x80:
            return value >> 1 ^ -(value & 1)
    raise ValueError("a number has more than 64 bits")


def _encoded_bytes(data: bytes) -> bytes:
    return _encoded_long(len(data)) + data


def _encoded_long(value: int) -> bytes:
    value, encoded = value << 1, bytearray()
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes(encoded) + bytes([value])

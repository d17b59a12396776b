"""Blocks of Avro container files, decompressed within bounds.

A compressed block of some bytes can hold gigabytes. So blocks are taken apart here and decompressed as far as the
bound, and fastavro is given each of them as a file of its own that is not compressed.

Source: Apache Avro 1.12 specification, Object Container Files.
"""

from __future__ import annotations

import bz2
import io
import lzma
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO

import fastavro
import pyarrow as pa

MAX_BLOCK_BYTES = 64 << 20
"""Bytes of a block, before and after it is decompressed."""
_SYNC_BYTES = 16
_CRC_BYTES = 4
_LONGEST = 10
_MAGIC = b"Obj\x01"
_HEADER = fastavro.parse_schema(
    {
        "type": "record",
        "name": "Header",
        "fields": [
            {"name": "magic", "type": {"type": "fixed", "name": "Magic", "size": 4}},
            {"name": "meta", "type": {"type": "map", "values": "bytes"}},
            {"name": "sync", "type": {"type": "fixed", "name": "Sync", "size": _SYNC_BYTES}},
        ],
    }
)


@dataclass(frozen=True, slots=True)
class Header:
    """What a file says before its first block."""

    schema: str
    codec: str
    sync: bytes

    def write(self) -> bytes:
        """Return the header of a file that is not compressed."""
        out = io.BytesIO()
        out.write(_MAGIC + _long(1))
        for text in (b"avro.schema", self.schema.encode()):
            out.write(_long(len(text)) + text)
        out.write(b"\0" + self.sync)
        return out.getvalue()


def read_header(stream: BinaryIO) -> Header:
    """Read the header, and leave the stream at the first block.

    Raises:
        ValueError: if it is no Avro file, or its codec is not known.
    """
    try:
        found: Any = fastavro.schemaless_reader(stream, _HEADER)
        meta = {name: value.decode() for name, value in found["meta"].items() if name in ("avro.schema", "avro.codec")}
        header = Header(meta["avro.schema"], meta.get("avro.codec", "null"), found["sync"])
    except (EOFError, KeyError, ValueError, IndexError, TypeError) as error:
        raise ValueError(f"it is no Avro file: {type(error).__name__}: {error}") from error
    if found["magic"] != _MAGIC:
        raise ValueError("it is no Avro file: it does not begin with Obj1")
    if header.codec not in _CODECS:
        raise ValueError(f"its codec is {header.codec!r:.50}, and it must be one of {', '.join(_CODECS)}")
    return header


def blocks(stream: BinaryIO, header: Header) -> Iterator[tuple[int, bytes]]:
    """Yield the number of records of each block, and its decompressed bytes.

    Raises:
        ValueError: if a block is damaged, or larger than the bound.
    """
    number = 0
    while (count := _read_long(stream)) is not None:
        size = _read_long(stream)
        if size is None or size < 0 or count < 0:
            raise ValueError(f"block {number} has a negative count or size")
        if size > MAX_BLOCK_BYTES:
            raise ValueError(f"block {number} has {size} bytes, and at most {MAX_BLOCK_BYTES} are allowed")
        data, sync = stream.read(size), stream.read(_SYNC_BYTES)
        if len(data) < size or sync != header.sync:
            raise ValueError(f"block {number} is cut off, or not followed by the sync marker of the file")
        try:
            plain = _CODECS[header.codec](data)
        except _TooLargeError:
            raise ValueError(
                f"block {number} of {size} bytes has more than {MAX_BLOCK_BYTES} bytes once it is decompressed, the"
                " most that are allowed"
            ) from None
        except (OSError, EOFError, zlib.error, lzma.LZMAError, pa.ArrowException) as error:
            raise ValueError(f"block {number} is damaged: {type(error).__name__}: {error}") from error
        yield count, plain
        number += 1


class _TooLargeError(Exception):
    """A block that is larger than the bound once it is decompressed."""


def _within(plain: bytes) -> bytes:
    if len(plain) > MAX_BLOCK_BYTES:
        raise _TooLargeError
    return plain


def _deflate(data: bytes) -> bytes:
    return _within(zlib.decompressobj(-zlib.MAX_WBITS).decompress(data, MAX_BLOCK_BYTES + 1))


def _bzip2(data: bytes) -> bytes:
    return _within(bz2.BZ2Decompressor().decompress(data, MAX_BLOCK_BYTES + 1))


def _xz(data: bytes) -> bytes:
    return _within(lzma.LZMADecompressor().decompress(data, MAX_BLOCK_BYTES + 1))


def _zstandard(data: bytes) -> bytes:
    with pa.CompressedInputStream(pa.BufferReader(data), "zstd") as stream:
        return _within(stream.read(MAX_BLOCK_BYTES + 1))


def _snappy(data: bytes) -> bytes:
    """Snappy begins with the size that it decompresses to, and Avro puts a CRC32 of that behind it."""
    body, checksum = data[:-_CRC_BYTES], data[-_CRC_BYTES:]
    size = shift = 0
    for byte in body[:5]:
        size, shift = size | (byte & 0x7F) << shift, shift + 7
        if byte < 0x80:
            break
    else:
        raise OSError("it does not begin with a size")
    if size > MAX_BLOCK_BYTES:
        raise _TooLargeError
    plain: bytes = pa.decompress(body, size, codec="snappy", asbytes=True)
    if zlib.crc32(plain).to_bytes(_CRC_BYTES, "big") != checksum:
        raise OSError("its checksum is wrong")
    return plain


_CODECS: dict[str, Callable[[bytes], bytes]] = {
    "null": _within,
    "deflate": _deflate,
    "snappy": _snappy,
    "zstandard": _zstandard,
    "bzip2": _bzip2,
    "xz": _xz,
}


def as_file(header: bytes, sync: bytes, count: int, plain: bytes) -> io.BytesIO:
    """Return a file that has this block alone."""
    return io.BytesIO(b"".join((header, _long(count), _long(len(plain)), plain, sync)))


def _read_long(stream: BinaryIO) -> int | None:
    """Read a number; None at the end of the stream."""
    value = shift = 0
    for _ in range(_LONGEST):
        byte = stream.read(1)
        if not byte:
            if shift:
                raise ValueError("it ends within a number")
            return None
        value, shift = value | (byte[0] & 0x7F) << shift, shift + 7
        if byte[0] < 0x80:
            return value >> 1 ^ -(value & 1)
    raise ValueError("a number has more than 64 bits")


def _long(value: int) -> bytes:
    value, made = value << 1, bytearray()
    while value >= 0x80:
        made.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes(made) + bytes([value])

"""Compression codecs of container files (Apache Avro 1.12 specification, Object Container Files). Decompression stops
at a limit, because a few bytes can hold gigabytes."""

from __future__ import annotations

import bz2
import lzma
import zlib
from collections.abc import Callable
from typing import Literal

import pyarrow as pa

AvroCodec = Literal["null", "deflate", "snappy", "zstandard"]
"""Codecs that files are written with."""
_CRC_BYTES = 4
_PART_BYTES = 1 << 20


class DamagedDataError(ValueError):
    """Data that can't be decompressed."""


class TooLargeError(ValueError):
    """Data whose decompressed size exceeds the limit."""


def compress(codec: AvroCodec, data: bytes) -> bytes:
    match codec:
        case "null":
            return data
        case "deflate":
            deflate = zlib.compressobj(wbits=-zlib.MAX_WBITS)  # Avro wants it without the zlib header
            return deflate.compress(data) + deflate.flush()
        case "snappy":
            body: bytes = pa.compress(data, "snappy", asbytes=True)
            return body + zlib.crc32(data).to_bytes(_CRC_BYTES, "big")
        case "zstandard":
            packed: bytes = pa.compress(data, "zstd", asbytes=True)
            return packed


def decompress(codec: str, data: bytes, max_bytes: int) -> bytes:
    """Decompress a block with a codec of `CODECS`. Raises DamagedDataError, or TooLargeError above `max_bytes`."""
    try:
        plain = CODECS[codec](data, max_bytes)
    except (OSError, EOFError, zlib.error, lzma.LZMAError, pa.ArrowException) as error:
        raise DamagedDataError(f"{type(error).__name__}: {error}") from error
    if len(plain) > max_bytes:
        raise TooLargeError
    return plain


def _plain(data: bytes, max_bytes: int) -> bytes:
    return data


def _deflate(data: bytes, max_bytes: int) -> bytes:
    return zlib.decompressobj(-zlib.MAX_WBITS).decompress(data, max_bytes + 1)


def _bzip2(data: bytes, max_bytes: int) -> bytes:
    return bz2.BZ2Decompressor().decompress(data, max_bytes + 1)


def _xz(data: bytes, max_bytes: int) -> bytes:
    return lzma.LZMADecompressor().decompress(data, max_bytes + 1)


def _zstandard(data: bytes, max_bytes: int) -> bytes:
    parts, size = [], 0
    with pa.CompressedInputStream(pa.BufferReader(data), "zstd") as stream:
        while size <= max_bytes and (part := stream.read(_PART_BYTES)):
            parts.append(part)
            size += len(part)
    return b"".join(parts)


def _snappy(data: bytes, max_bytes: int) -> bytes:
    body, checksum = data[:-_CRC_BYTES], data[-_CRC_BYTES:]
    size = shift = 0
    for byte in body[:5]:
        size, shift = size | (byte & 0x7F) << shift, shift + 7
        if byte < 0x80:
            break
    else:
        raise OSError("it does not start with a size")
    if size > max_bytes:
        raise TooLargeError
    plain: bytes = pa.decompress(body, size, codec="snappy", asbytes=True)
    if zlib.crc32(plain).to_bytes(_CRC_BYTES, "big") != checksum:
        raise OSError("its checksum is wrong")
    return plain


CODECS: dict[str, Callable[[bytes, int], bytes]] = {
    "null": _plain,
    "deflate": _deflate,
    "snappy": _snappy,
    "zstandard": _zstandard,
    "bzip2": _bzip2,
    "xz": _xz,
}
"""Decompressors of all codecs that can be read, by codec."""

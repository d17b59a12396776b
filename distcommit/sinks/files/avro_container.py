"""Avro object container files (Avro specification 1.12, "Object Container Files"): header, blocks, and reading back.

fastavro encodes the records. The container is written here, as fastavro's needs further libraries for zstandard and
snappy, which pyarrow has, and converts timestamps to Python's, which do not have all values.
"""

from __future__ import annotations

import io
import os
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

import msgspec
import pyarrow as pa

from distcommit.sinks.files.avro_schema import arrow_schema, avro_schema, plain_schema, without_logical_types

AvroCodec = Literal["null", "deflate", "snappy", "zstandard"]

_MAGIC = b"Obj\x01"
_SYNC_BYTES = 16
_HEADER_BYTES = 64 << 10
_BLOCK_BYTES = 256 << 10
_MAX_BLOCK_ROWS = 4096


@dataclass(frozen=True, slots=True)
class AvroHeader:
    """The header of a container file; blocks begin at `size_bytes`."""

    metadata: dict[bytes, bytes]
    sync: bytes
    size_bytes: int


def write_table(
    rows: pa.Table, codec: AvroCodec, metadata: Mapping[str, str], write: Callable[[bytes], object]
) -> None:
    """Write a whole container file in blocks of about 256 KiB of Arrow data."""
    import fastavro  # noqa: PLC0415 - of this format alone

    schema = avro_schema(rows.schema)
    laid_out = fastavro.parse_schema(without_logical_types(schema))
    sync = os.urandom(_SYNC_BYTES)
    meta = {
        "avro.schema": msgspec.json.encode(schema),
        "avro.codec": codec.encode(),
        **{key: text.encode() for key, text in metadata.items()},
    }
    out = io.BytesIO()
    fastavro.schemaless_writer(out, _header_schema(), {"magic": _MAGIC, "meta": meta, "sync": sync})
    block_rows = min(_MAX_BLOCK_ROWS, max(1, _BLOCK_BYTES * rows.num_rows // max(rows.nbytes, 1)))
    for batch in rows.cast(plain_schema(rows.schema)).to_batches(max_chunksize=block_rows):
        block = io.BytesIO()
        for row in batch.to_pylist():
            fastavro.schemaless_writer(block, laid_out, row)
        data = _compress(codec, block.getvalue())
        fastavro.schemaless_writer(out, "long", batch.num_rows)
        fastavro.schemaless_writer(out, "long", len(data))
        write(out.getvalue())
        write(data)
        out = io.BytesIO(sync)
        out.seek(_SYNC_BYTES)
    write(out.getvalue())


def read_header(file: pa.NativeFile) -> AvroHeader:
    """Read the header, and little more.

    Raises:
        ValueError: if this is not a container file; damage may raise other built-in errors as well.
    """
    import fastavro  # noqa: PLC0415 - of this format alone

    size = file.size()
    length = _HEADER_BYTES
    while True:
        # From a bounded buffer, so that no memory is allocated for a damaged length.
        start = io.BytesIO(file.read_at(min(length, size), 0))
        if start.getvalue()[:4] != _MAGIC:
            raise ValueError("the file does not begin like an Avro file")
        try:
            found = fastavro.schemaless_reader(start, _header_schema(), None)
        except EOFError:
            found = None
        if isinstance(found, dict) and len(found["sync"]) == _SYNC_BYTES:
            metadata = {key.encode(): bytes(data) for key, data in found["meta"].items()}
            return AvroHeader(metadata, found["sync"], start.tell())
        if length >= size:
            raise ValueError("the header is cut off")
        length *= 4


def read_table(file: pa.NativeFile) -> pa.Table:
    """Read all records of a container file from this module.

    Raises:
        ValueError: if it is damaged; damage may raise other built-in errors as well.
    """
    import fastavro  # noqa: PLC0415 - of this format alone

    header = read_header(file)
    record = msgspec.json.decode(header.metadata[b"avro.schema"])
    schema = arrow_schema(record)
    plain = plain_schema(schema)
    try:
        laid_out = fastavro.parse_schema(without_logical_types(record))
    except fastavro.schema.SchemaParseException as error:
        raise ValueError(f"its schema is not valid: {error}") from error
    batches = []
    for count, data in _blocks(file, header):
        block = io.BytesIO(data)
        rows = [fastavro.schemaless_reader(block, laid_out, None) for _ in range(count)]
        if block.tell() != len(data):
            raise ValueError("a block has bytes after its records")
        batches.append(pa.RecordBatch.from_pylist(rows, schema=plain))
    return pa.Table.from_batches(batches, schema=plain).cast(schema)


def _blocks(file: pa.NativeFile, header: AvroHeader) -> Iterator[tuple[int, bytes]]:
    codec = header.metadata.get(b"avro.codec", b"null").decode()
    source = io.BytesIO(file.read_at(file.size() - header.size_bytes, header.size_bytes))
    end = len(source.getbuffer())
    while source.tell() < end:
        count, size = _long(source), _long(source)
        if count < 0 or size < 0:
            raise ValueError("a block of negative size")
        data = source.read(size)
        if source.read(_SYNC_BYTES) != header.sync:
            raise ValueError("a block does not end in the sync marker")
        yield count, _decompress(codec, data)


@cache
def _header_schema() -> Any:
    import fastavro  # noqa: PLC0415 - of this format alone

    return fastavro.parse_schema(
        {
            "type": "record",
            "name": "org.apache.avro.file.Header",
            "fields": [
                {"name": "magic", "type": {"type": "fixed", "name": "magic", "size": 4}},
                {"name": "meta", "type": {"type": "map", "values": "bytes"}},
                {"name": "sync", "type": {"type": "fixed", "name": "sync", "size": _SYNC_BYTES}},
            ],
        }
    )


def _long(source: io.BytesIO) -> int:
    import fastavro  # noqa: PLC0415 - of this format alone

    found = fastavro.schemaless_reader(source, "long", None)
    if not isinstance(found, int):
        raise TypeError("a block does not begin with a number")
    return found


def _compress(codec: AvroCodec, data: bytes) -> bytes:
    if codec == "null":
        return data
    if codec == "deflate":
        squeezer = zlib.compressobj(wbits=-15)  # Avro's deflate has no zlib header
        return squeezer.compress(data) + squeezer.flush()
    if codec == "snappy":
        squeezed: bytes = pa.compress(data, "snappy", asbytes=True)
        return squeezed + zlib.crc32(data).to_bytes(4, "big")
    packed: bytes = pa.compress(data, "zstd", asbytes=True)
    return packed


def _decompress(codec: str, data: bytes) -> bytes:
    if codec == "null":
        return data
    if codec == "deflate":
        return zlib.decompress(data, wbits=-15)
    if codec == "snappy":
        plain: bytes = pa.decompress(data[:-4], _snappy_size(data), "snappy", asbytes=True)
        if zlib.crc32(plain).to_bytes(4, "big") != data[-4:]:
            raise ValueError("a block's checksum is wrong")
        return plain
    if codec == "zstandard":
        with pa.CompressedInputStream(pa.BufferReader(data), "zstd") as stream:
            unpacked: bytes = stream.read()
        return unpacked
    raise ValueError(f"unknown codec {codec!r}")


def _snappy_size(data: bytes) -> int:
    """Return the size of the plain data, with which a snappy block begins: 7 bits per byte, low bits first."""
    size = 0
    for index, byte in enumerate(data[:5]):
        size |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return size
    raise ValueError("a snappy block without its size")

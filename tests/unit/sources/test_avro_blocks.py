"""Avro container files whose blocks claim more than they should, and the codecs that producers use."""

from __future__ import annotations

import io
import json
import zlib
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from distcommit.sources.files.avro import read_avro
from distcommit.sources.files.avro_blocks import MAX_BLOCK_BYTES, Header, as_file

RECORD = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "string"}]}
SYNC = bytes(range(16))


def file_of(schema: Any, codec: str, *blocks: tuple[int, bytes]) -> io.BytesIO:
    """A container file with these blocks: the number of records that each claims, and its bytes."""
    written = Header(json.dumps(schema), "null", SYNC).write()
    if codec != "null":
        pair = b"\x14avro.codec" + bytes([len(codec) << 1]) + codec.encode()
        written = written.replace(b"Obj\x01\x02", b"Obj\x01\x04" + pair, 1)
    begin = as_file(written, SYNC, 0, b"").getvalue()[: len(written)]
    return io.BytesIO(begin + b"".join(as_file(b"", SYNC, *block).getvalue() for block in blocks))


def rows_of(file: io.BytesIO) -> list[Any]:
    return [row for batch in read_avro(file) for row in batch.to_pylist()]


@pytest.mark.parametrize("codec", ["null", "deflate", "bzip2", "xz"])
def test_records_of_each_codec_are_read(codec: str) -> None:
    file, records = io.BytesIO(), [{"a": f"text {n}"} for n in range(20_000)]
    fastavro.writer(file, fastavro.parse_schema(dict(RECORD)), records, codec=codec)
    file.seek(0)
    batches = list(read_avro(file))
    assert [row for batch in batches for row in batch.to_pylist()] == records
    assert max(batch.num_rows for batch in batches) <= 8192


def test_a_snappy_file_is_read_and_its_checksum_compared() -> None:
    plain = b"\x06one\x06two"
    body = pa.compress(plain, codec="snappy", asbytes=True)
    good, bad = (body + (zlib.crc32(plain) ^ wrong).to_bytes(4, "big") for wrong in (0, 1))
    assert rows_of(file_of(RECORD, "snappy", (2, good))) == [{"a": "one"}, {"a": "two"}]
    with pytest.raises(ValueError, match="checksum is wrong"):
        rows_of(file_of(RECORD, "snappy", (2, bad)))


def test_a_zstandard_file_is_read() -> None:
    body = pa.compress(b"\x06one", codec="zstd", asbytes=True)
    assert rows_of(file_of(RECORD, "zstandard", (1, body))) == [{"a": "one"}]


def test_a_codec_that_is_not_known_is_named() -> None:
    with pytest.raises(ValueError, match="its codec is 'lzo', and it must be one of null, deflate"):
        rows_of(file_of(RECORD, "lzo", (1, b"x")))


@pytest.mark.parametrize("codec", ["deflate", "zstandard", "snappy"])
def test_a_block_that_decompresses_to_gigabytes_is_refused_within_the_bound(codec: str) -> None:
    zeros = bytes(MAX_BLOCK_BYTES + 1)
    if codec == "deflate":
        packer = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
        body = packer.compress(zeros) + packer.flush()
    elif codec == "zstandard":
        body = pa.compress(zeros, codec="zstd", asbytes=True)
    else:
        body = b"\xff\xff\xff\xff\x0f" + bytes(8)
    with pytest.raises(ValueError, match=f"more than {MAX_BLOCK_BYTES} bytes once it is decompressed"):
        rows_of(file_of(RECORD, codec, (1, body)))


@pytest.mark.parametrize("kind", ["null", {"type": "record", "name": "E", "fields": []}])
def test_a_small_file_that_claims_many_records_without_bytes_is_refused(kind: Any) -> None:
    schema = {"type": "record", "name": "R", "fields": [{"name": "a", "type": kind}]}
    file = file_of(schema, "null", (10**12, b""))
    assert len(file.getvalue()) < 200
    with pytest.raises(ValueError, match="claims 1000000000000 records in 0 bytes, and at most 65536 more"):
        rows_of(file)
    assert len(rows_of(file_of(schema, "null", (3, b"")))) == 3


def test_an_array_of_what_takes_no_bytes_is_refused() -> None:
    schema = {**RECORD, "fields": [{"name": "a", "type": {"type": "array", "items": "null"}}]}
    with pytest.raises(ValueError, match="array of what takes no bytes"):
        rows_of(file_of(schema, "null", (1, b"\x80\x80\x80\x80\x80\x20\0")))


def test_a_schema_that_expands_to_millions_of_columns_is_refused() -> None:
    kind: Any = "long"
    for level in range(24):
        second = kind if isinstance(kind, str) else kind["name"]
        fields = [{"name": "a", "type": kind}, {"name": "b", "type": second}]
        kind = {"type": "record", "name": f"L{level}", "fields": fields}
    with pytest.raises(ValueError, match="more than 10000 columns"):
        rows_of(file_of(kind, "null"))


@pytest.mark.parametrize(
    ("blocks", "found"),
    [(((-1, b""),), "negative"), (((1, b"\xff\xff"),), "block 0"), (((5, b"\x06one"),), "block 0")],
)
def test_a_damaged_block_is_named(blocks: tuple[tuple[int, bytes], ...], found: str) -> None:
    written = file_of(RECORD, "null", *[(max(count, 0), data) for count, data in blocks]).getvalue()
    if blocks[0][0] < 0:
        written = written[: -len(as_file(b"", SYNC, 0, b"").getvalue())] + b"\x01\x00" + SYNC
    with pytest.raises(ValueError, match=found):
        rows_of(io.BytesIO(written))


@pytest.mark.parametrize("cut", [1, 8, 17, 25])
def test_a_file_that_is_cut_off_is_no_shorter_file(cut: int) -> None:
    whole = file_of(RECORD, "null", (2, b"\x06one\x06two")).getvalue()
    with pytest.raises(ValueError, match=r"cut off|within a number|negative"):
        rows_of(io.BytesIO(whole[:-cut]))

"""Avro container files: blocks with excessive claims, and the codecs that producers use."""

from __future__ import annotations

import io
import json
import zlib
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distcommit.avro.container_format import MAX_BLOCK_BYTES, block_bytes, header_bytes
from distcommit.avro.container_reader import read_batches
from distcommit.schemas.schema_size_limits import MAX_NESTING, MAX_SCHEMA_BYTES
from tests.unit.avro.test_avro_datums import as_arrow, bodies, by_fastavro, schemas, without_repeated_keys

RECORD = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "string"}]}
SYNC = bytes(range(16))


def file_of(schema: Any, codec: str, *blocks: tuple[int, bytes]) -> io.BytesIO:
    """Build a container file from blocks: the claimed number of records of each, and its bytes."""
    header = header_bytes(json.dumps(schema).encode(), codec, SYNC)
    return io.BytesIO(header + b"".join(block_bytes(*block, SYNC) for block in blocks))


def rows_of(file: io.BytesIO) -> list[Any]:
    return [row for batch in read_batches(file) for row in batch.to_pylist()]


@pytest.mark.parametrize("codec", ["null", "deflate", "bzip2", "xz"])
def test_records_of_each_codec_are_read_back(codec: str) -> None:
    file, records = io.BytesIO(), [{"a": f"text {n}"} for n in range(20_000)]
    fastavro.writer(file, fastavro.parse_schema(dict(RECORD)), records, codec=codec)
    file.seek(0)
    batches = list(read_batches(file))
    assert [row for batch in batches for row in batch.to_pylist()] == records
    assert max(batch.num_rows for batch in batches) <= 8192


def test_snappy_file_is_read_and_its_checksum_compared() -> None:
    plain = b"\x06one\x06two"
    body = pa.compress(plain, codec="snappy", asbytes=True)
    good, bad = (body + (zlib.crc32(plain) ^ wrong).to_bytes(4, "big") for wrong in (0, 1))
    assert rows_of(file_of(RECORD, "snappy", (2, good))) == [{"a": "one"}, {"a": "two"}]
    with pytest.raises(ValueError, match="checksum is wrong"):
        rows_of(file_of(RECORD, "snappy", (2, bad)))


def test_zstandard_file_is_read() -> None:
    body = pa.compress(b"\x06one", codec="zstd", asbytes=True)
    assert rows_of(file_of(RECORD, "zstandard", (1, body))) == [{"a": "one"}]


def test_unknown_codec_is_named() -> None:
    with pytest.raises(ValueError, match="its codec is 'lzo', and it must be one of null, deflate"):
        rows_of(file_of(RECORD, "lzo", (1, b"x")))


@pytest.mark.parametrize("codec", ["deflate", "zstandard", "snappy"])
def test_block_that_decompresses_to_gigabytes_is_rejected_within_the_bound(codec: str) -> None:
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


@pytest.mark.parametrize("kind", ["null", {"type": "record", "name": "E", "fields": [{"name": "n", "type": "null"}]}])
def test_small_file_that_claims_many_records_without_bytes_is_rejected(kind: Any) -> None:
    schema = {"type": "record", "name": "R", "fields": [{"name": "a", "type": kind}]}
    file = file_of(schema, "null", (10**12, b""))
    assert len(file.getvalue()) < 300
    with pytest.raises(ValueError, match="claims 1000000000000 records in 0 bytes, and at most 65536 more"):
        rows_of(file)
    assert len(rows_of(file_of(schema, "null", (3, b"")))) == 3


@pytest.mark.parametrize("items", ["null", {"type": "record", "name": "E", "fields": [{"name": "n", "type": "null"}]}])
def test_array_of_items_without_bytes_is_rejected(items: Any) -> None:
    schema = {**RECORD, "fields": [{"name": "a", "type": {"type": "array", "items": items}}]}
    with pytest.raises(ValueError, match="array of items that take no bytes"):
        rows_of(file_of(schema, "null", (1, b"\x80\x80\x80\x80\x80\x20\0")))


def test_schema_that_expands_to_millions_of_columns_is_rejected() -> None:
    kind: Any = "long"
    for level in range(24):
        second = kind if isinstance(kind, str) else kind["name"]
        fields = [{"name": "a", "type": kind}, {"name": "b", "type": second}]
        kind = {"type": "record", "name": f"L{level}", "fields": fields}
    with pytest.raises(ValueError, match="more than 10000 columns"):
        rows_of(file_of(kind, "null"))


@pytest.mark.parametrize(
    ("blocks", "problem"),
    [(((-1, b""),), "negative"), (((1, b"\xff\xff"),), "block 0"), (((5, b"\x06one"),), "block 0")],
)
def test_damaged_block_is_named(blocks: tuple[tuple[int, bytes], ...], problem: str) -> None:
    written = file_of(RECORD, "null", *[(max(count, 0), data) for count, data in blocks]).getvalue()
    if blocks[0][0] < 0:
        written = written[: -len(block_bytes(0, b"", SYNC))] + b"\x01\x00" + SYNC
    with pytest.raises(ValueError, match=problem):
        rows_of(io.BytesIO(written))


@pytest.mark.parametrize("cut", [1, 8, 17, 25])
def test_truncated_file_is_not_read_as_a_shorter_file(cut: int) -> None:
    whole = file_of(RECORD, "null", (2, b"\x06one\x06two")).getvalue()
    with pytest.raises(ValueError, match=r"cut off|within a number|negative"):
        rows_of(io.BytesIO(whole[:-cut]))


def test_block_with_bytes_behind_its_records_is_rejected() -> None:
    with pytest.raises(ValueError, match="block 0 has bytes left after its records"):
        rows_of(file_of(RECORD, "null", (1, b"\x06one\x06two")))


@pytest.mark.parametrize("size", [MAX_BLOCK_BYTES, 2**62, -1])
def test_header_that_claims_gigabytes_is_rejected_before_they_are_allocated(size: int) -> None:
    number, encoded = (size << 1) ^ (size >> 63), b""
    while number > 0x7F:
        number, encoded = number >> 7, encoded + bytes([number & 0x7F | 0x80])
    with pytest.raises(ValueError, match=f"an entry of {size} bytes, and at most {MAX_BLOCK_BYTES} are allowed"):
        rows_of(io.BytesIO(b"Obj\x01\x02" + encoded + bytes([number])))


def test_schema_text_beyond_the_limit_is_rejected() -> None:
    schema = {**RECORD, "doc": "x" * MAX_SCHEMA_BYTES}
    with pytest.raises(ValueError, match=f"at most {MAX_SCHEMA_BYTES} are allowed"):
        rows_of(file_of(schema, "null"))


def test_schema_nested_beyond_the_limit_is_rejected() -> None:
    kind: Any = "long"
    for _ in range(MAX_NESTING + 1):
        kind = {"type": "array", "items": kind}
    with pytest.raises(ValueError, match=f"more than {MAX_NESTING} levels deep"):
        rows_of(file_of({**RECORD, "fields": [{"name": "a", "type": kind}]}, "null"))


@pytest.mark.parametrize(
    ("kind", "data", "reason"),
    [
        ({"type": "array", "items": "boolean"}, b"\xfe\xff\xff\xff\xff\xff\xff\xff\x7f\x01", "a count of items"),
        ({"type": "array", "items": "double"}, b"\x08" + bytes(9), "ends within"),
        ({"type": "array", "items": {"type": "array", "items": "int"}}, b"\x02\x02\x80", "ends within"),
        ({"type": "map", "values": "int"}, b"\x02\x7f", "a length is negative"),
        (["null", "int"], b"\x04", "no such branch"),
        (["null", "int"], b"\x01", "no such branch"),
        ("long", b"\xff" * 11, "record 0"),
        ("string", b"\x04\xff\xff", "record 0: a string is not UTF-8"),
    ],
    ids=str,
)
def test_record_that_claims_more_than_its_block_holds_is_rejected(kind: Any, data: bytes, reason: str) -> None:
    schema = {**RECORD, "fields": [{"name": "a", "type": kind}]}
    with pytest.raises(ValueError, match=reason):
        rows_of(file_of(schema, "null", (1, data)))


@pytest.mark.thorough
@given(st.data())
def test_any_records_of_a_block_are_read_as_by_fastavro(data: st.DataObject) -> None:
    schema = data.draw(schemas(logical=True))
    datums = data.draw(st.lists(bodies(schema), max_size=5))
    rows = rows_of(file_of(schema, "deflate", (len(datums), raw_deflate(b"".join(datums)))))
    expected = [as_arrow(schema, by_fastavro(schema, datum)) for datum in datums]
    actual = repr([without_repeated_keys(row) for row in rows])
    assert actual.replace("zoneinfo.ZoneInfo(key='UTC')", "datetime.timezone.utc") == repr(expected)


def raw_deflate(data: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return packer.compress(data) + packer.flush()

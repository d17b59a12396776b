"""File contents: every mapped type, also read by other readers, with the configured compression."""

from __future__ import annotations

import io
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from distcommit.core.errors import ConfigurationError
from distcommit.fs.local_disk.local_file_system import LocalFileSystem
from distcommit.sinks.files.footer import read_records
from distcommit.sinks.files.formats.encoders import Compression
from distcommit.sinks.files.sink import FileSink
from tests.unit.sinks.files.attempts import files_in, numbered

TYPES: list[tuple[pa.DataType, list[Any]]] = [
    (pa.binary(), [b"", b"\xff", None]),
    (pa.large_binary(), [b"x", None]),
    (pa.string(), ["", "é\U0001f600", None]),
    (pa.large_string(), ["x", None]),
    (pa.dictionary(pa.int32(), pa.string()), ["x", None, "x"]),
    (pa.int8(), [-128, 127, None]),
    (pa.int16(), [-(2**15), None]),
    (pa.int32(), [-(2**31), 2**31 - 1, None]),
    (pa.uint32(), [2**32 - 1, None]),
    (pa.int64(), [-(2**63), 2**63 - 1, None]),
    (pa.float32(), [0.5, None, float("inf")]),
    (pa.float64(), [1e300, None]),
    (pa.bool_(), [True, False, None]),
    (pa.date32(), [None, datetime(2013, 1, 31, tzinfo=UTC).date()]),
    (pa.timestamp("ms", "UTC"), [0, None, -1, 2**62]),
    (pa.timestamp("us", "Europe/Brussels"), [0, None, -(2**62)]),
    (pa.timestamp("us"), [5, None]),
    (pa.list_(pa.int32()), [[], [1, None], None]),
    (
        pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary()), ("at", pa.timestamp("ms", "UTC"))])),
        [[], None, [{"key": "k", "value": b"v", "at": 3}, {"key": "k", "value": None, "at": None}]],
    ),
    (pa.struct([("a", pa.struct([("a", pa.int64())]))]), [{"a": {"a": 1}}, {"a": None}, None]),
]


@pytest.mark.parametrize("compression", ["zstd", "snappy", "gzip", "none"])
def test_avro_supports_every_mapped_type(tmp_path: Path, compression: Compression) -> None:
    columns = [pa.array((values * 3)[:6], kind) for kind, values in TYPES]
    batch = pa.RecordBatch.from_arrays(columns, names=[f"c{place}" for place in range(len(columns))])
    files = files_in(tmp_path, FileSink(format="avro", compression=compression), provenance=None)
    files.write(batch)
    (output,) = files.prepare_commit().files
    path = tmp_path / output.staged_path
    table = read_records(LocalFileSystem(), str(path))
    for place, (kind, _) in enumerate(TYPES):
        plain = kind.value_type if pa.types.is_dictionary(kind) else kind
        required = columns[place].cast(plain)
        back = table.column(place).cast(plain)
        assert back.combine_chunks().equals(required), kind
    header = fastavro.schemaless_reader(io.BytesIO(path.read_bytes()[4:]), {"type": "map", "values": "bytes"}, None)
    assert isinstance(header, dict)
    assert header["avro.codec"] == {"zstd": b"zstandard", "gzip": b"deflate", "none": b"null"}.get(
        compression, compression.encode()
    )


@pytest.mark.parametrize("compression", ["gzip", "none"])
def test_other_avro_readers_read_the_same_records(tmp_path: Path, compression: Compression) -> None:
    files = files_in(tmp_path, FileSink(format="avro", compression=compression))
    batch = numbered(0, 10_000, value=b"x" * 100)
    files.write(batch)
    (output,) = files.prepare_commit().files
    with (tmp_path / output.staged_path).open("rb") as file:
        assert list(fastavro.reader(file)) == batch.to_pylist()


def test_columns_that_are_not_nullable_are_not_unions(tmp_path: Path) -> None:
    schema = pa.schema([pa.field("n", pa.int64(), nullable=False)])
    files = files_in(tmp_path, FileSink(format="avro"), provenance=None)
    files.write(pa.record_batch({"n": [1]}, schema=schema))
    (output,) = files.prepare_commit().files
    assert read_records(LocalFileSystem(), f"{tmp_path}/{output.staged_path}").schema.equals(schema)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("amount", pa.decimal128(10, 2)),
        ("at", pa.timestamp("ns", "UTC")),
        ("big", pa.uint64()),
        ("kafka-time", pa.int64()),
        ("1st", pa.int64()),
        ("nested", pa.list_(pa.struct([("x", pa.duration("ms"))]))),
    ],
)
def test_type_without_an_avro_form_is_rejected_with_its_column(tmp_path: Path, name: str, kind: pa.DataType) -> None:
    files = files_in(tmp_path, FileSink(format="avro"), provenance=None)
    batch = pa.RecordBatch.from_arrays([pa.nulls(1, kind)], names=[name])
    with pytest.raises(ConfigurationError, match=f"column={name}"):
        files.write(batch)
    files.abort()


@pytest.mark.parametrize("compression", ["zstd", "snappy", "gzip", "none"])
def test_parquet_files_are_compressed_as_configured_unless_tiny(tmp_path: Path, compression: Compression) -> None:
    expected = {"none": "UNCOMPRESSED"}.get(compression, compression.upper())
    for attempt, count, required in (("big", 10_000, expected), ("tiny", 10, "UNCOMPRESSED")):
        files = files_in(tmp_path, FileSink(compression=compression), attempt=attempt)
        files.write(numbered(0, count, value=b"x" * 20))
        (output,) = files.prepare_commit().files
        assert pq.read_metadata(tmp_path / output.staged_path).row_group(0).column(3).compression == required

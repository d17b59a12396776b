"""Formats without file metadata: its substitute, compatibility with other readers, and unsupported types."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any, get_args

import duckdb
import msgspec
import pyarrow as pa
import pyarrow.orc as pa_orc
import pytest

from distcommit.core.errors import ConfigurationError, CorruptError, UnknownVersionError
from distcommit.core.work_units import MAIN_BRANCH, error_branch_of
from distcommit.fs.local_disk.local_file_system import LocalFileSystem
from distcommit.sinks.files.content_sum import content_sum
from distcommit.sinks.files.footer import read_footer, read_records
from distcommit.sinks.files.formats.encoders import Compression, FileFormat
from distcommit.sinks.files.formats.file_tail import GZIP, file_tail_of
from distcommit.sinks.files.formats.text_values import from_text, to_text
from distcommit.sinks.files.sink import FileSink
from tests.unit.sinks.files.attempts import LEAST, files_in, numbered
from tests.unit.sinks.files.test_footer import FOOTER, Memory

FS = LocalFileSystem()
WORDS = pa.table(
    {
        "n": pa.array([1, 2, 3, None], pa.int64()),
        "text": ["", None, 'a "quoted",\r\n text', "ü"],
        "at": pa.array([0, 1, None, 253_402_300_800_000], pa.timestamp("ms", "UTC")),
        "ratio": [0.1, float("nan"), float("-inf"), None],
    }
)


def written(root: Path, sink: FileSink, rows: pa.Table = WORDS) -> Path:
    """Write one file of these rows and return its path."""
    files = files_in(root, sink, provenance=None)
    for batch in rows.to_batches():
        files.write(batch)
    (output,) = files.prepare_commit().files
    return root / output.staged_path


@pytest.mark.parametrize("compression", ["gzip", "zstd"])
@pytest.mark.parametrize("size", [0, 15_000, 200_000])
def test_other_readers_read_text_files_and_ignore_the_metadata_at_the_end(
    tmp_path: Path, compression: Compression, size: int
) -> None:
    rows = pa.Table.from_batches([numbered(0, 5000)])
    for form in ("csv", "jsonl"):
        sink, file = FileSink(format=form, compression=compression), Memory()
        metadata = {"distcommit": FOOTER.to_metadata()["distcommit"], "more": "x" * size}
        sink.encoder(rows.schema).finish(rows, metadata, file)  # type: ignore[arg-type]
        path = tmp_path / f"file{sink.ending}"
        path.write_bytes(file.data)
        assert read_footer(FS, str(path)) == FOOTER
        read = f"SELECT count(*), sum(kafka_offset), max(epoch_ms(kafka_timestamp)) FROM '{path}'"
        assert duckdb.connect().execute(read).fetchall() == [(5000, sum(range(5000)), 0)]
        if compression == "gzip":
            assert gzip.decompress(path.read_bytes()).count(b"\n") == 5000 + (form == "csv")


@pytest.mark.parametrize("compression", ["none", "zstd", "snappy", "gzip"])
def test_other_readers_read_orc_and_the_footer_in_its_user_metadata(tmp_path: Path, compression: Compression) -> None:
    rows = WORDS.slice(0, 3)
    path = written(tmp_path, FileSink(format="orc", compression=compression), rows)
    file = pa_orc.ORCFile(path)
    assert file.read().column("text").to_pylist() == rows.column("text").to_pylist()
    description = json.loads(file.metadata[b"distcommit"].rsplit(b" ", 3)[0])
    assert json.loads(description["metadata"]["distcommit"])["records"] == 3


def test_json_lines_have_conventional_values(tmp_path: Path) -> None:
    columns = {
        **{name: WORDS.column(name) for name in WORDS.column_names},
        "data": pa.array([b"\xff", b"", None, b"a"]),
        "price": pa.array(["1.20", None, "0.00", "-3.10"]).cast(pa.decimal128(9, 2)),
        "list": pa.array([[{"a": 1.5}, None], [], None, [{"a": float("inf")}]]),
        "old": pa.array([-5_000_000_000, None, 0, 1], pa.timestamp("s", "Europe/Brussels")),
        "clock": pa.array([0, 86_399, None, 5], pa.time32("s")),
    }
    path = written(tmp_path, FileSink(format="jsonl", compression="gzip"), pa.table(columns))
    lines = [json.loads(line) for line in gzip.decompress(path.read_bytes()).splitlines()]
    names = ["n", "text", "at", "ratio", "data", "price", "list", "old", "clock"]
    assert [list(line) for line in lines] == [names] * 4
    assert [list(line.values()) for line in lines] == [
        [
            1,
            "",
            "1970-01-01T00:00:00.000Z",
            0.1,
            "/w==",
            "1.20",
            [{"a": 1.5}, None],
            "1811-07-23T15:06:40Z",
            "00:00:00",
        ],
        [2, None, "1970-01-01T00:00:00.001Z", "NaN", "", None, [], None, "23:59:59"],
        [3, 'a "quoted",\r\n text', None, "-Infinity", None, "0.00", None, "1970-01-01T00:00:00Z", None],
        [None, "ü", "253402300800000", None, "YQ==", "-3.10", [{"a": "Infinity"}], "1970-01-01T00:00:01Z", "00:00:05"],
    ]
    table = read_records(FS, str(path))
    assert table.schema.equals(pa.table(columns).schema)
    assert content_sum(table) == content_sum(pa.table(columns))


def test_csv_distinguishes_null_from_empty_text(tmp_path: Path) -> None:
    path = written(tmp_path, FileSink(format="csv", compression="gzip"), WORDS.select(["n", "text"]))
    assert gzip.decompress(path.read_bytes()) == b'"n","text"\n1,""\n2,\n3,"a ""quoted"",\r\n text"\n,"\xc3\xbc"\n'
    assert read_records(FS, str(path)).equals(WORDS.select(["n", "text"]))


NOT_NESTED = [("list", pa.list_(pa.int64())), ("struct", pa.struct([("a", pa.int64())]))]
NEITHER = [
    ("took", pa.duration("ms")),
    ("half", pa.float16()),
    ("map", pa.map_(pa.string(), pa.int64())),
    ("nothing", pa.null()),
]
DEEP = [("list", pa.list_(pa.struct([("a", pa.duration("s"))]))), ("struct", pa.struct([]))]
REFUSED: list[tuple[FileFormat, str, pa.DataType]] = [
    *(("csv", name, kind) for name, kind in [*NEITHER, *NOT_NESTED]),
    *(("jsonl", name, kind) for name, kind in [*NEITHER, *DEEP]),
    *(("orc", name, kind) for name, kind in [*NEITHER, *DEEP, ("unsigned", pa.uint64()), ("day", pa.date64())]),
    *(("orc", "digits", pa.decimal128(5, scale)) for scale in (-2, 7)),
    ("parquet", "rounded", pa.decimal128(5, -2)),
    ("parquet", "empty", pa.binary(0)),
    ("parquet", "runs", pa.run_end_encoded(pa.int32(), pa.string())),
    ("parquet", "took", pa.month_day_nano_interval()),
    ("parquet", "struct", pa.struct([])),
]


@pytest.mark.parametrize(("form", "name", "kind"), REFUSED)
def test_type_that_the_format_can_not_store_is_rejected_with_its_column(
    tmp_path: Path, form: FileFormat, name: str, kind: pa.DataType
) -> None:
    sink = FileSink(format=form)
    with pytest.raises(ConfigurationError, match=f"column={name}"):
        sink.check_schema(pa.schema([("n", pa.int64()), (name, kind)]))
    files = files_in(tmp_path, sink, provenance=None)
    with pytest.raises(ConfigurationError, match=f"column={name}"):
        files.write(pa.RecordBatch.from_arrays([pa.nulls(1, kind)], names=[name]))
    files.abort()


@pytest.mark.parametrize("form", get_args(FileFormat))
@pytest.mark.parametrize("name", ["n", "N"])
def test_column_names_that_differ_only_in_case_are_rejected_before_and_after_a_record_is_read(
    tmp_path: Path, form: FileFormat, name: str
) -> None:
    schema, message = pa.schema([("n", pa.int64()), (name, pa.int64())]), f"column={name}.*found the same name as 'n'"
    sink = FileSink(format=form)
    with pytest.raises(ConfigurationError, match=message):
        sink.check_schema(schema)
    files = files_in(tmp_path, sink, provenance=None)
    with pytest.raises(ConfigurationError, match=message):
        files.write(pa.RecordBatch.from_arrays([pa.array([1]), pa.array([2])], schema=schema))
    files.abort()


def test_error_files_keep_names_that_differ_only_in_case(tmp_path: Path) -> None:
    batch = pa.record_batch({"id": [1], "ID": [2]})
    files = files_in(tmp_path, FileSink(), provenance=None, branch=error_branch_of(MAIN_BRANCH))
    files.write(batch)
    (output,) = files.prepare_commit().files
    assert read_records(FS, str(tmp_path / output.staged_path)).equals(pa.Table.from_batches([batch]))


@pytest.mark.parametrize("time_ms", [2**62, -(2**62), (1 << 63) // 10**6 + 1])
def test_times_that_orc_would_read_back_differently_are_rejected(tmp_path: Path, time_ms: int) -> None:
    at = pa.array([[{"at": time_ms}]], pa.list_(pa.struct([("at", pa.timestamp("ms"))])))
    files = files_in(tmp_path, FileSink(format="orc"), provenance=None)
    files.write(pa.record_batch({"list": at}))
    with pytest.raises(ConfigurationError, match=r"years 1677 to 2262.*row checker"):
        files.prepare_commit()


ENDS: list[tuple[FileFormat, str]] = [("orc", ".orc"), ("jsonl", ".jsonl.gz"), ("csv", ".csv.gz")]


@pytest.mark.parametrize(("form", "ending"), ENDS)
def test_replaced_records_are_detected_although_the_footer_is_intact(
    tmp_path: Path, form: FileFormat, ending: str
) -> None:
    sink = FileSink(format=form, compression=LEAST.get(form, "none"))
    rows = WORDS.slice(0, 3)
    path = written(tmp_path, sink, rows)
    assert path.name.endswith(ending)
    other = written(tmp_path / "other", sink, rows.set_column(0, "n", pa.array([1, 2, 4], pa.int64()))).read_bytes()
    ours = path.read_bytes()
    place = next(at for at, (a, b) in enumerate(zip(ours, other, strict=False)) if a != b and at > 15)
    path.write_bytes(ours[:place] + other[place : place + 1] + ours[place + 1 :])
    assert read_footer(FS, str(path)) is not None
    with pytest.raises(CorruptError, match="changed since"):
        read_records(FS, str(path))


@pytest.mark.parametrize(("form", "ending"), ENDS)
def test_any_changed_byte_of_the_metadata_is_detected(tmp_path: Path, form: FileFormat, ending: str) -> None:
    path = written(tmp_path, FileSink(format=form, compression=LEAST.get(form, "none")), WORDS.slice(0, 3))
    whole = path.read_bytes()
    for place in range(whole.index(b'{"version"'), whole.index(b" distcommit", -80)):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        try:
            footer = read_footer(FS, str(path))
        except CorruptError:
            continue
        assert footer is None, f"{ending}: byte {place}"


def test_later_metadata_version_raises_unknown_version(tmp_path: Path) -> None:
    later = msgspec.structs.replace(file_tail_of({}, WORDS.schema), version=2)
    path = tmp_path / "file.jsonl.gz"
    path.write_bytes(gzip.compress(b"{}\n") + GZIP.framed(later))
    for read in (read_footer, read_records):
        with pytest.raises(UnknownVersionError, match=r"version 1; found version 2"):
            read(FS, str(path))


@pytest.mark.parametrize(("form", "ending"), ENDS)
def test_truncated_file_has_no_readable_records_at_any_length(tmp_path: Path, form: FileFormat, ending: str) -> None:
    path = written(tmp_path, FileSink(format=form, compression=LEAST.get(form, "none")), WORDS.slice(0, 3))
    whole = path.read_bytes()
    for length in range(0, len(whole), 11):
        path.write_bytes(whole[:length])
        with pytest.raises(CorruptError, match=ending):
            read_records(FS, str(path))
        footer: Any = None
        try:
            footer = read_footer(FS, str(path))
        except CorruptError:
            continue
        assert footer is None


@pytest.mark.parametrize("zone", [None, "UTC", "Asia/Tokyo"])
def test_earliest_nanosecond_timestamps_round_trip_through_text(zone: str | None) -> None:
    kind = pa.timestamp("ns", zone)
    first = -(1 << 63)
    instants = pa.array([first + 1, first + 854_775_807, first + 854_775_808, (1 << 63) - 1], pa.int64()).view(kind)
    assert from_text(to_text(instants), kind).view(pa.int64()).equals(instants.view(pa.int64()))

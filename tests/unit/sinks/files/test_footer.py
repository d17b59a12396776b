"""Footers: metadata round-trips, and damage never passes for other metadata."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from distcommit.core.errors import CorruptError, UnknownVersionError
from distcommit.core.interfaces.file_system import FileSystem
from distcommit.fs.local_disk.local_file_system import LocalFileSystem
from distcommit.sinks.files.footer import (
    FOOTER_VERSION,
    METADATA_KEY,
    Footer,
    Wanted,
    look_into,
    read_batches,
    read_footer,
    read_published_footer,
    read_records,
)
from distcommit.sinks.files.sink import FileSink

TEXT = st.text(st.characters(codec="utf-8"), max_size=30)
FOOTERS = st.builds(
    Footer,
    dataset_urn=TEXT,
    epoch=st.integers(0, 2**53),
    run_id=TEXT,
    work_unit_id=TEXT,
    attempt=TEXT,
    records=st.integers(0, 2**53),
    offsets=TEXT,
    kind=st.sampled_from(["data", "rejected"]),
)
FOOTER = Footer(dataset_urn="kafka:flüge", epoch=3, run_id="r", work_unit_id="w", attempt="a", records=3)
ROWS = pa.table({"n": pa.array([1, 2, 3], pa.int64()), "text": ["a", None, "c"]})


class RemoteLikeFileSystem(LocalFileSystem):
    """Local files that can be read only through the file system interface, as on HDFS."""

    scheme = "remote"


ENDINGS = ["parquet", "avro", "orc", "jsonl.gz", "jsonl.zst", "csv.gz", "csv.zst"]
FILE_SYSTEMS = [LocalFileSystem(), RemoteLikeFileSystem()]


class Memory:
    """A staged file, as encoders see it."""

    def __init__(self) -> None:
        self.data = b""
        self.size_bytes = 0

    def write(self, data: bytes) -> int:
        self.data += data
        self.size_bytes = len(self.data)
        return len(data)


def write_file(path: Path, metadata: dict[str, str], rows: pa.Table = ROWS) -> None:
    form = path.name.split(".")[1]
    if form != "parquet":
        written = Memory()
        sink = FileSink.model_validate({"format": form, "compression": "gzip" if path.suffix == ".gz" else "zstd"})
        sink.encoder(rows.schema).finish(rows, metadata, written)  # type: ignore[arg-type]
        path.write_bytes(written.data)
        return
    with pq.ParquetWriter(path, rows.schema) as writer:
        writer.write_table(rows)
        if metadata:
            writer.add_key_value_metadata(metadata)


@given(FOOTERS)
def test_metadata_round_trip(footer: Footer) -> None:
    metadata = footer.to_metadata()
    assert list(metadata) == [METADATA_KEY]
    assert Footer.from_metadata({**metadata, "other": "x"}) == footer


@pytest.mark.parametrize("fs", FILE_SYSTEMS, ids=lambda fs: fs.scheme)
@pytest.mark.parametrize("extension", ENDINGS)
def test_file_round_trip(tmp_path: Path, fs: FileSystem, extension: str) -> None:
    path = tmp_path / f"f.{extension}"
    write_file(path, FOOTER.to_metadata())
    assert read_footer(fs, str(path)) == FOOTER
    assert read_records(fs, str(path)).to_pylist() == ROWS.to_pylist()


@pytest.mark.parametrize("extension", ENDINGS)
def test_footer_of_megabytes_is_read(tmp_path: Path, extension: str) -> None:
    path = tmp_path / f"f.{extension}"
    big = Footer(**{**FOOTER_FIELDS, "offsets": "x" * 3_000_000})
    write_file(path, big.to_metadata())
    assert read_footer(LocalFileSystem(), str(path)) == big


FOOTER_FIELDS = {name: getattr(FOOTER, name) for name in FOOTER.__struct_fields__}


@pytest.mark.parametrize("extension", ["parquet", "avro", "orc", "jsonl.gz", "csv.zst"])
def test_file_of_another_program_has_no_footer(tmp_path: Path, extension: str) -> None:
    path = tmp_path / f"f.{extension}"
    write_file(path, {})
    assert read_footer(LocalFileSystem(), str(path)) is None


@pytest.mark.parametrize("name", ["_SUCCESS", "f.parquet.writing", "f.csv", ".parquet"])
def test_unknown_extension_is_not_a_published_file(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(b"garbage")
    assert read_footer(LocalFileSystem(), str(path)) is None
    with pytest.raises(ValueError, match="must have the ending of a published file"):
        read_records(LocalFileSystem(), str(path))


@pytest.mark.parametrize("fs", FILE_SYSTEMS, ids=lambda fs: fs.scheme)
@pytest.mark.parametrize("extension", ENDINGS)
def test_missing_file_raises_file_not_found_instead_of_corrupt(tmp_path: Path, fs: FileSystem, extension: str) -> None:
    for read in (read_footer, read_records):
        with pytest.raises(FileNotFoundError):
            read(fs, str(tmp_path / f"none.{extension}"))


@pytest.mark.parametrize("fs", FILE_SYSTEMS, ids=lambda fs: fs.scheme)
@pytest.mark.parametrize("extension", ["parquet", "avro", "orc"])
@pytest.mark.parametrize("data", [b"", b"PAR1", b"Obj\x01", b"garbage " * 100, b"PAR1" + b"\xff" * 100 + b"PAR1"])
def test_garbage_is_corrupt(tmp_path: Path, fs: FileSystem, extension: str, data: bytes) -> None:
    path = tmp_path / f"f.{extension}"
    path.write_bytes(data)
    for read in (read_footer, read_records):
        with pytest.raises(CorruptError, match=r"f\.(parquet|avro|orc)"):
            read(fs, str(path))


@pytest.mark.parametrize("extension", ["parquet", "avro"])
def test_truncated_file_is_corrupt_at_every_length(tmp_path: Path, extension: str) -> None:
    path = tmp_path / f"f.{extension}"
    write_file(path, FOOTER.to_metadata())
    whole = path.read_bytes()
    header = len(whole) if extension == "parquet" else whole.index(b"\x06", whole.index(b"avro.codec"))
    for length in range(0, min(header, len(whole) - 1), 7):
        path.write_bytes(whole[:length])
        with pytest.raises(CorruptError):
            read_footer(LocalFileSystem(), str(path))
    for length in range(len(whole) - 20, len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises(CorruptError):
            read_records(LocalFileSystem(), str(path))


@pytest.mark.thorough
@pytest.mark.parametrize("extension", ENDINGS)
@given(data=st.data())
@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_damaged_file_is_corrupt_or_has_a_readable_footer(tmp_path: Path, extension: str, data: st.DataObject) -> None:
    path = tmp_path / f"f.{extension}"
    write_file(path, FOOTER.to_metadata())
    damaged = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(damaged)
    for read in (read_footer, read_records):
        try:
            read(LocalFileSystem(), str(path))
        except CorruptError:
            continue


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "{}", '{"version": "1"}', '{"version": 1}', json.dumps({**FOOTER_FIELDS, "records": -1})]
)
@pytest.mark.parametrize("extension", ENDINGS)
def test_invalid_footer_text_is_corrupt(tmp_path: Path, extension: str, text: str) -> None:
    path = tmp_path / f"f.{extension}"
    write_file(path, {METADATA_KEY: text})
    with pytest.raises(CorruptError, match="footer can't be read"):
        read_footer(LocalFileSystem(), str(path))


def test_later_footer_version_is_named_with_its_file(tmp_path: Path) -> None:
    path = tmp_path / "f.parquet"
    write_file(path, {METADATA_KEY: json.dumps({"version": FOOTER_VERSION + 1, "new": []})})
    with pytest.raises(UnknownVersionError, match=rf"f\.parquet.*version {FOOTER_VERSION + 1}"):
        read_footer(LocalFileSystem(), str(path))


def bytes_read(columns: list[str] | None, wanted: Wanted | None, path: Path) -> tuple[int, list[int]]:
    """Return the number of bytes that this process read from the file, by the kernel's count, and the numbers read."""

    def count() -> int:
        counters = Path("/proc/self/io").read_text().split()
        return int(counters[counters.index("rchar:") + 1])

    before = count()
    batches = list(read_batches(LocalFileSystem(), str(path), columns, wanted))
    return count() - before, [n for batch in batches for n in batch["n"].to_pylist()]


def test_parquet_reads_only_the_selected_columns_and_row_groups(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    text = [f"{n:0200d}" for n in range(1000)]
    pq.write_table(
        pa.table({"n": range(1000), "text": text}), path, row_group_size=100, compression="none", use_dictionary=False
    )
    everything, all_numbers = bytes_read(None, None, path)
    numbers, same = bytes_read(["n", "of another file"], None, path)
    group, some = bytes_read(None, lambda _: pc.field("n") > 850, path)
    nothing, none = bytes_read(None, lambda _: pc.field("n") > 1000, path)
    assert (all_numbers, same, some, none) == (list(range(1000)), list(range(1000)), list(range(800, 1000)), [])
    assert nothing < 70_000, "only the end of the file, with the footer, is read"
    assert numbers - nothing < 10_000
    assert 40_000 < group - nothing < 50_000
    assert everything - nothing > 200_000
    schema, may_have = look_into(
        LocalFileSystem(), str(path), lambda schema_of_file: pc.field(schema_of_file.names[0]) == 7
    )
    assert (schema.names, may_have) == (["n", "text"], True)
    assert not look_into(RemoteLikeFileSystem(), str(path), lambda _: pc.field("n") < 0)[1]


@pytest.mark.parametrize("ending", ENDINGS)
def test_published_file_without_a_footer_is_corrupt_and_the_error_has_its_path(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"{'3'.zfill(10)}-00001_000001-{'a' * 32}-0001.{ending}"
    write_file(path, FOOTER.to_metadata())
    assert read_published_footer(LocalFileSystem(), str(path)) == FOOTER
    kept = slice(5) if ending == "avro" else slice(-5)  # Avro's footer is at the beginning
    path.write_bytes(path.read_bytes()[kept])
    with pytest.raises(CorruptError) as caught:
        read_published_footer(LocalFileSystem(), str(path))
    assert caught.value.ids["path"] == str(path)
    write_file(path, {})
    with pytest.raises(CorruptError):
        read_published_footer(LocalFileSystem(), str(path))


def test_foreign_file_without_a_footer_has_none(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    write_file(path, {})
    assert read_published_footer(LocalFileSystem(), str(path)) is None

"""Other format versions and damaged bytes: rejected by name, and never decoded to other values."""

from __future__ import annotations

import base64
import re
import zlib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from distcommit.core.errors import ConfigurationError, CorruptError, UnknownVersionError
from distcommit.sinks.files.offset_sets import OffsetSets
from distcommit.stores.logs.segment_format import decode_segment
from distcommit.stores.state.checksummed_json import decode_document, encode_document
from distcommit.stores.state.plan_and_task_state_encoding import check_table, table_name
from tests.golden import samples
from tests.golden.job import store_at
from tests.golden.make import DOCUMENTS, GOLDEN
from tests.golden.stored_bytes import PATH, READERS
from tests.golden.test_golden import golden
from tests.golden.test_golden_store import checked_out
from tests.simulation.damage import checked_segment, of_version

READ = {reader.name: reader for reader in READERS}
OTHER_VERSIONS = [0, 2, 99]
SEGMENTS = ("fence", "intent", "intent-held", "done", "failed", "by-hand-accept", "set-watermark", "checkpoint")
CHECKED = [*((f"segments/{name}.seg", "segment") for name in SEGMENTS), ("texts/offsets.txt", "offsets")]
"""Files whose checksum covers all bytes: every change is detected."""
TABLES = [("tables/plan.parquet", "plan"), ("tables/task_states.parquet", "task states")]
JSON = [
    ("documents/manifest.json", "manifest"),
    ("documents/tombstone.json", "tombstone"),
    ("documents/replacement.json", "tombstone"),
    ("documents/expired.json", "tombstone"),
    ("documents/compaction.json", "tombstone"),
    ("documents/store.json", "store marker"),
    ("texts/footer.txt", "footer"),
    ("ledgers/table-file.json", "table file"),
    ("ledgers/kafka-row.json", "kafka row"),
]


def table_of_version(data: bytes, version: int) -> bytes:
    table = pq.read_table(pa.BufferReader(data))
    sink = pa.BufferOutputStream()
    pq.write_table(table.replace_schema_metadata({b"distcommit-table-version": str(version).encode()}), sink)
    return bytes(sink.getvalue())


def text_of_version(data: bytes, version: int) -> bytes:
    return re.sub(rb'"version": ?\d+', f'"version":{version}'.encode(), data, count=1)


def steps_of_version(data: bytes, version: int) -> bytes:
    raw = msgspec.msgpack.decode(zlib.decompress(data.partition(b"\n")[2]))
    raw[2][0][4][0][1] = version
    body = msgspec.msgpack.encode(raw)
    return checked_segment(zlib.compress(body, 1), len(body))


def json_of_version(data: bytes, version: int) -> bytes:
    return msgspec.json.encode({**msgspec.json.decode(data), "version": version})


def covered_of_version(data: bytes, version: int) -> bytes:
    """Return an object with a version, which is what a list becomes in another version."""
    return msgspec.json.encode({"version": version, "entries": msgspec.json.decode(data)})


VERSIONED: list[tuple[str, str, Callable[[bytes, int], bytes]]] = [
    ("segments/fence.seg", "segment", of_version),
    ("segments/intent-rename.seg", "steps", steps_of_version),
    ("segments/intent-sink.seg", "steps", steps_of_version),
    ("documents/store.json", "store marker", of_version),
    ("documents/settings.json", "settings", of_version),
    ("documents/owner.json", "owner", of_version),
    ("documents/manifest.json", "manifest", of_version),
    ("documents/run.json", "run record", of_version),
    ("documents/begun.json", "run beginning", of_version),
    ("documents/tombstone.json", "tombstone", of_version),
    ("documents/replacement.json", "tombstone", of_version),
    ("documents/upload.json", "upload marker", text_of_version),
    ("tables/plan.parquet", "plan", table_of_version),
    ("tables/task_states.parquet", "task states", table_of_version),
    ("tables/run_table.parquet", "run table", table_of_version),
    ("texts/footer.txt", "footer", text_of_version),
    ("texts/offsets.txt", "offsets", text_of_version),
    ("ledgers/table-text.json", "table text", json_of_version),
    ("ledgers/table-text-files.json", "table text files", json_of_version),
    ("ledgers/table-file.json", "table file", json_of_version),
    ("ledgers/delta-file.json", "delta file", json_of_version),
    ("ledgers/kafka-row.json", "kafka row", json_of_version),
    ("ledgers/database-covered.json", "database covered", covered_of_version),
]
"""Golden file, its reader, and a function that changes the file's version. Locks and progress have no version. A
request to cancel or to pause counts whatever its contents."""


@pytest.mark.parametrize("version", OTHER_VERSIONS)
@pytest.mark.parametrize(("name", "reader", "of_another"), VERSIONED, ids=[name for name, *_ in VERSIONED])
def test_other_version_is_rejected_by_name(
    name: str, reader: str, of_another: Callable[[bytes, int], bytes], version: int
) -> None:
    with pytest.raises(UnknownVersionError, match=rf"expected (version )?1; found (version )?{version}\b") as caught:
        READ[reader].read(of_another(golden(name), version))
    assert caught.value.exit_code == 5
    if READ[reader].names_path:
        assert "path" in caught.value.ids


@pytest.mark.parametrize("version", OTHER_VERSIONS)
@pytest.mark.parametrize("name", DOCUMENTS)
def test_document_of_another_version_is_rejected_by_name(name: str, version: int) -> None:
    data = of_version(golden(f"documents/{name}.json"), version)
    with pytest.raises(UnknownVersionError, match=f"unknown format version.*expected 1; found {version}") as caught:
        decode_document(data, type(DOCUMENTS[name]), 1, name, PATH)
    assert caught.value.ids == {"path": PATH}


def test_store_of_a_format_before_the_first_release_is_rejected_by_name() -> None:
    marker = msgspec.structs.replace(samples.MARKER, format="distcommit-store")
    with pytest.raises(UnknownVersionError, match=r"never released.*found format distcommit-store"):
        READ["store marker"].read(encode_document(marker))


def read_logs(folder: Path) -> None:
    store = store_at(folder)
    for log in (store.job_log(), store.bucket_log(0), store.bucket_log(1)):
        log.refresh()


def files_in(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("version", OTHER_VERSIONS)
@pytest.mark.parametrize("place", ["store.json", "log/job/*.seg", "log/bucket=00001/*.seg"])
def test_store_with_a_file_of_another_version_is_rejected_and_left_alone(
    place: str, version: int, tmp_path: Path
) -> None:
    folder = checked_out(GOLDEN / "job", tmp_path / "job")
    path = max((folder / "store").glob(place))
    path.write_bytes(of_version(path.read_bytes(), version))
    before = files_in(folder)
    with pytest.raises(UnknownVersionError) as caught:
        read_logs(folder)
    assert caught.value.ids == {"path": str(path)}
    assert caught.value.exit_code == 5
    assert files_in(folder) == before


@pytest.mark.parametrize("digit", [b"0", b"2", b"3", b"9"])
@pytest.mark.parametrize("name", ["segments/fence.seg", "documents/store.json", "documents/manifest.json"])
def test_damaged_version_is_reported_as_damage_where_a_checksum_covers_it(name: str, digit: bytes) -> None:
    reader = "segment" if name.endswith(".seg") else dict(JSON)[name]
    for label in (b"distcommit-segment ", b'"version": '):
        data = golden(name).replace(label + b"1", label + digit, 1)
        if data != golden(name):
            with pytest.raises(CorruptError, match="do not match their checksum") as caught:
                READ[reader].read(data)
            assert type(caught.value) is CorruptError


def refused(reader: str, data: bytes) -> bool:
    """Return whether the reader raised the documented error, with the path in it."""
    try:
        READ[reader].read(data)
    except CorruptError as error:
        return "path" in error.ids or not READ[reader].names_path
    except ConfigurationError:
        return reader == "store marker"  # whole, but another job's
    return False


@pytest.mark.parametrize(("name", "reader"), [*CHECKED, *JSON])
def test_file_truncated_anywhere_is_corrupt(name: str, reader: str) -> None:
    data = golden(name)
    assert [n for n in range(len(data)) if not refused(reader, data[:n])] == []


@pytest.mark.parametrize(("name", "reader"), TABLES)
def test_table_truncated_anywhere_is_corrupt(name: str, reader: str) -> None:
    data = golden(name)
    assert [n for n in range(0, len(data), 7) if not refused(reader, data[:n])] == []
    assert [n for n in range(len(data) - 20, len(data)) if not refused(reader, data[:n])] == []


@pytest.mark.parametrize(("name", "reader"), CHECKED)
@pytest.mark.parametrize("bits", [0x01, 0xFF])
def test_changed_byte_anywhere_is_detected(name: str, reader: str, bits: int) -> None:
    data = golden(name)
    assert [n for n in range(len(data)) if not refused(reader, changed(data, n, bits))] == []


@pytest.mark.parametrize(("name", "reader"), TABLES)
def test_changed_byte_of_a_table_is_detected_by_the_checksum_in_its_name(name: str, reader: str) -> None:
    data = golden(name)
    path = table_name("writer-000001", data)
    assert check_table(data, path) == data
    for place in range(0, len(data), 3):
        damaged = changed(data, place, 0x01)
        with pytest.raises(CorruptError):
            check_table(damaged, path)
        with suppress(CorruptError):
            READ[reader].read(damaged)


@pytest.mark.parametrize(("name", "reader"), JSON)
@pytest.mark.parametrize("bits", [0x01, 0x80, 0xFF])
def test_changed_byte_of_a_json_file_raises_only_the_documented_error(name: str, reader: str, bits: int) -> None:
    """The lock has no checksum, so a changed letter is another name."""
    data = golden(name)
    for place in range(len(data)):
        refused(reader, changed(data, place, bits))


@pytest.mark.parametrize("reader", [reader for _, reader in (*CHECKED[-2:], *TABLES, *JSON)])
@pytest.mark.parametrize(
    "data",
    [b"", b"\n", b"\0" * 4096, b"PAR1PAR1", b"distcommit-segment 1 ", b"Obj\x01", b"\xff" * 300, b"{}", b"null", b"[]"],
)
def test_foreign_bytes_raise_the_corruption_error(reader: str, data: bytes) -> None:
    assert refused(reader, data)


def test_size_stated_by_a_segment_is_not_trusted() -> None:
    body = zlib.compress(b"\0" * (1 << 22))
    for declared in (1, 1 << 20, 10**12 - 1):
        with pytest.raises(CorruptError, match=re.escape(f"not {declared} bytes long")):
            decode_segment(checked_segment(body, declared), PATH)


def test_offsets_with_a_matching_checksum_over_other_bytes_are_corrupt_or_sets() -> None:
    """The checksum is verified first. Below it the bitmap library must also reject invalid bytes."""
    text = msgspec.json.decode(golden("texts/offsets.txt"))
    text["partitions"]["0"] = base64.b64encode(b"\xff" * 40).decode()
    with pytest.raises(CorruptError, match="checksum"):
        OffsetSets.from_text(msgspec.json.encode(text).decode())


def changed(data: bytes, place: int, bits: int) -> bytes:
    return data[:place] + bytes([data[place] ^ bits]) + data[place + 1 :]

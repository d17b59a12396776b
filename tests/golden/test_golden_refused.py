"""Golden files of other versions, and damaged ones: refused by name, and nothing else is taken for what was written."""

from __future__ import annotations

import base64
import re
import zlib
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from distcommit.model.errors import ConfigurationError, CorruptError, UnknownVersionError
from distcommit.sinks.files.offsets import OffsetSets
from distcommit.stores.segment import decode_segment
from distcommit.stores.tables import (
    check_table,
    table_name,
)
from tests.golden import samples
from tests.golden.make import (
    GOLDEN_7,
    GOLDEN_10,
    GOLDEN_12,
    GOLDEN_19,
    GOLDEN_REPLACED,
    GOLDEN_RETAINED,
)
from tests.golden.stored_bytes import PATH, READERS
from tests.golden.test_golden import golden
from tests.simulation.damage import checked_segment, of_version

READ = {reader.name: reader for reader in READERS}
SEGMENTS = sorted(samples.SEGMENTS)
CHECKED = [*((f"segments/{name}.seg", "segment") for name in SEGMENTS), ("offsets.txt", "offsets")]
"""Files with a checksum over all of it: no change at all goes unseen."""
TABLES = [("plan.parquet", "plan"), ("task_states.parquet", "task states")]
JSON = [
    (f"../{GOLDEN_19.name}/manifest.json", "manifest"),
    (f"../{GOLDEN_12.name}/tombstone.json", "tombstone"),
    (f"../{GOLDEN_REPLACED.name}/replacement.json", "tombstone"),
    (f"../{GOLDEN_RETAINED.name}/retained.json", "tombstone"),
    ("store.json", "store marker"),
    ("footer.txt", "footer"),
]


def another_table_version(name: str, version: bytes) -> bytes:
    table = pq.read_table(pa.BufferReader(golden(name)))
    sink = pa.BufferOutputStream()
    pq.write_table(table.replace_schema_metadata({b"distcommit-table-version": version}), sink)
    return bytes(sink.getvalue())


def case(reader: str, data: Callable[[], bytes]) -> Any:
    return pytest.param(reader, data)


OTHER_VERSIONS = [
    case("segment", lambda: of_version(golden("segments/fence.seg"), 6)),
    case("store marker", lambda: of_version(golden("store.json"), 2)),
    case("store marker", lambda: of_version(b'{"version": 1, "all": "else"}\nxxh3 ', 2)),
    case("run record", lambda: of_version((GOLDEN_7 / "run.json").read_bytes(), 2)),
    case("tombstone", lambda: of_version((GOLDEN_12 / "tombstone.json").read_bytes(), 4)),
    case("footer", lambda: golden("footer.txt").replace(b'"version":1', b'"version":5', 1)),
    case("footer", lambda: b'{"version":5,"all":"else"}'),
    case("offsets", lambda: golden("offsets.txt").replace(b'"version":1', b'"version":2', 1)),
    case("offsets", lambda: b'{"version":2}'),
    case("manifest", lambda: golden("manifest.json")),  # of a run that is over: no run reads another's
    case("manifest", (GOLDEN_10 / "manifest.json").read_bytes),
    case("manifest", lambda: of_version((GOLDEN_19 / "manifest.json").read_bytes(), 4)),
    case("plan", lambda: another_table_version("plan.parquet", b"2")),
    case("task states", lambda: another_table_version("task_states.parquet", b"7")),
]


@pytest.mark.parametrize(("reader", "data"), OTHER_VERSIONS)
def test_an_unknown_version_is_refused_by_name(reader: str, data: Callable[[], bytes]) -> None:
    with pytest.raises(UnknownVersionError, match=r"found [1-7]|version [2-4]") as caught:
        READ[reader].read(data())
    if READ[reader].names_path:
        assert "path" in caught.value.ids


@pytest.mark.parametrize("digit", [b"0", b"2", b"3", b"9"])
@pytest.mark.parametrize("name", ["segments/fence.seg", "store.json", "manifest.json"])
def test_a_damaged_version_is_told_as_damage_where_a_checksum_covers_it(name: str, digit: bytes) -> None:
    reader = {"segments/fence.seg": "segment", "store.json": "store marker", "manifest.json": "manifest"}[name]
    for label in (b"distcommit-segment ", b'"version": '):
        data = golden(name).replace(label + b"1", label + digit, 1)
        if data != golden(name):
            with pytest.raises(CorruptError, match="do not match their checksum") as caught:
                READ[reader].read(data)
            assert type(caught.value) is CorruptError


def refused(reader: str, data: bytes) -> bool:
    """Whether the bytes were answered by the documented error, with the path in it."""
    try:
        READ[reader].read(data)
    except CorruptError as error:
        return "path" in error.ids or not READ[reader].names_path
    except ConfigurationError:
        return reader == "store marker"  # whole, but another job's
    return False


@pytest.mark.parametrize(("name", "reader"), [*CHECKED, *JSON])
def test_a_file_cut_short_anywhere_is_corrupt(name: str, reader: str) -> None:
    data = golden(name)
    assert [n for n in range(len(data)) if not refused(reader, data[:n])] == []


@pytest.mark.parametrize(("name", "reader"), TABLES)
def test_a_table_cut_short_anywhere_is_corrupt(name: str, reader: str) -> None:
    data = golden(name)
    assert [n for n in range(0, len(data), 7) if not refused(reader, data[:n])] == []
    assert [n for n in range(len(data) - 20, len(data)) if not refused(reader, data[:n])] == []


@pytest.mark.parametrize(("name", "reader"), CHECKED)
@pytest.mark.parametrize("bits", [0x01, 0xFF])
def test_a_changed_byte_anywhere_is_seen(name: str, reader: str, bits: int) -> None:
    data = golden(name)
    assert [n for n in range(len(data)) if not refused(reader, changed(data, n, bits))] == []


@pytest.mark.parametrize(("name", "reader"), TABLES)
def test_a_changed_byte_of_a_table_is_seen_by_the_checksum_in_its_name(name: str, reader: str) -> None:
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
def test_a_changed_byte_of_a_json_file_raises_nothing_else(name: str, reader: str, bits: int) -> None:
    """The lock has no checksum: a changed letter is another name."""
    data = golden(name)
    for place in range(len(data)):
        refused(reader, changed(data, place, bits))


@pytest.mark.parametrize("reader", [reader for _, reader in (*CHECKED[-2:], *TABLES, *JSON)])
@pytest.mark.parametrize(
    "data",
    [b"", b"\n", b"\0" * 4096, b"PAR1PAR1", b"distcommit-segment 1 ", b"Obj\x01", b"\xff" * 300, b"{}", b"null", b"[]"],
)
def test_foreign_bytes_are_corrupt(reader: str, data: bytes) -> None:
    assert refused(reader, data)


def test_what_a_segment_says_of_its_size_is_not_believed() -> None:
    body = zlib.compress(b"\0" * (1 << 22))
    for declared in (1, 1 << 20, 10**12 - 1):
        with pytest.raises(CorruptError, match=re.escape(f"not {declared} bytes long")):
            decode_segment(checked_segment(body, declared), PATH)


def test_offsets_whose_checksum_is_right_over_other_bytes_are_corrupt_or_sets() -> None:
    """The checksum comes first; below it the bitmap library has to hold too."""
    text = msgspec.json.decode(golden("offsets.txt"))
    text["partitions"]["0"] = base64.b64encode(b"\xff" * 40).decode()
    with pytest.raises(CorruptError, match="checksum"):
        OffsetSets.from_text(msgspec.json.encode(text).decode())


def changed(data: bytes, place: int, bits: int) -> bytes:
    return data[:place] + bytes([data[place] ^ bits]) + data[place + 1 :]

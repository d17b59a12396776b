"""Golden files: each stored format is decoded to the value that was encoded, and encoded to the same bytes."""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest

from distcommit.core.errors import CorruptError
from distcommit.core.interfaces.commit_step import StepContext
from distcommit.core.records.log_records import Intent, Record
from distcommit.core.records.maintenance_units import maintenance_kind
from distcommit.core.watermark import Watermark
from distcommit.core.work_units import WorkUnit
from distcommit.fs.local_disk.local_file_system import LocalFileSystem
from distcommit.fs.object_stores.staged_upload_marker import decode_marker, encode_marker
from distcommit.protocol.paths.shared_names import OWNERSHIP_FOLDER
from distcommit.sinks.files.content_sum import as_text, content_sum
from distcommit.sinks.files.footer import METADATA_KEY, Footer, read_footer, read_records
from distcommit.sinks.files.offset_sets import OffsetSets
from distcommit.sinks.table_formats.ledger_files import Ledgers
from distcommit.steps.rename_step import FsRenameCommitStep
from distcommit.steps.sink_step import SinkCommitStep
from distcommit.steps.step_registry import dump_steps, load_steps
from distcommit.stores.history.run_table import decode_task_rows, encode_task_rows
from distcommit.stores.logs.segment_format import decode_segment, encode_segment
from distcommit.stores.snapshots.snapshot_deltas import checksum_of
from distcommit.stores.state.checksummed_json import decode_document, encode_document
from distcommit.stores.state.job_lock import LockRecord
from distcommit.stores.state.plan_and_task_state_encoding import (
    decode_plan,
    decode_task_states,
    encode_plan,
    encode_task_states,
)
from tests.golden import samples
from tests.golden.make import DOCUMENTS, GOLDEN, WRITERS, data_samples, make
from tests.golden.stored_bytes import PATH, READERS, SampleSink, _file_system
from tests.simulation.damage import sealed_segment

READ = {reader.name: reader for reader in READERS}
SEGMENTS = sorted(samples.SEGMENTS)
TABLES: dict[str, tuple[Callable[[bytes, str], Any], Callable[[Any], bytes], Any]] = {
    "plan": (decode_plan, encode_plan, samples.PLAN),
    "task_states": (decode_task_states, encode_task_states, samples.TASK_STATES),
    "run_table": (decode_task_rows, encode_task_rows, samples.TASK_ROWS),
}


def golden(name: str) -> bytes:
    return (GOLDEN / name).read_bytes()


def raw_record(name: str) -> Any:
    """Return the plain value of the record in a golden segment."""
    return msgspec.msgpack.decode(zlib.decompress(golden(f"segments/{name}.seg").partition(b"\n")[2]))


@pytest.mark.parametrize("name", SEGMENTS)
def test_segment_is_decoded_to_the_encoded_value(name: str) -> None:
    segment = decode_segment(golden(f"segments/{name}.seg"), PATH)
    assert segment == samples.SEGMENTS[name]
    assert decode_segment(encode_segment(segment), PATH) == segment
    assert raw_record(name)[0] == type(segment.record).__name__


def test_each_kind_of_record_has_a_golden_segment() -> None:
    assert {type(segment.record) for segment in samples.SEGMENTS.values()} == set(get_args(Record))


@pytest.mark.parametrize("name", DOCUMENTS)
def test_document_is_decoded_and_encoded_unchanged(name: str) -> None:
    document, data = DOCUMENTS[name], golden(f"documents/{name}.json")
    assert decode_document(data, type(document), 1, name, PATH) == document
    assert encode_document(document) == data


def test_upload_marker_and_lock_are_decoded_and_encoded_unchanged() -> None:
    assert decode_marker(golden("documents/upload.json"), PATH) == samples.UPLOAD
    assert encode_marker(samples.UPLOAD) == golden("documents/upload.json")
    assert msgspec.json.decode(golden("documents/lock.json"), type=LockRecord) == samples.LOCK
    assert msgspec.json.encode(samples.LOCK) == golden("documents/lock.json")


@pytest.mark.parametrize("name", TABLES)
def test_table_is_decoded_to_the_encoded_value(name: str) -> None:
    decode, encode, rows = TABLES[name]
    assert decode(golden(f"tables/{name}.parquet"), PATH) == rows
    assert decode(encode(rows), PATH) == rows


@pytest.mark.parametrize(
    ("name", "footer"), [("footer", samples.footer()), ("footer-replacing", samples.footer_of_replacing())]
)
def test_footer_is_decoded_and_encoded_unchanged(name: str, footer: Footer) -> None:
    text = golden(f"texts/{name}.txt").decode()
    assert Footer.from_metadata({METADATA_KEY: text}) == footer
    assert footer.to_metadata() == {METADATA_KEY: text}


def test_offsets_are_decoded_to_the_encoded_value() -> None:
    assert OffsetSets.from_text(golden("texts/offsets.txt").decode()) == samples.offsets()
    assert OffsetSets.from_text(samples.offsets().to_text()) == samples.offsets()


@pytest.mark.parametrize("name", samples.ledger_parts())
def test_part_of_a_ledger_is_decoded_and_encoded_unchanged(name: str) -> None:
    part, data = samples.ledger_parts()[name], golden(f"ledgers/{name}.json")
    assert READ[name.replace("-", " ")].read(data) == part
    assert msgspec.json.encode(part) == data


def test_covered_records_of_a_database_are_decoded_and_encoded_unchanged() -> None:
    row = msgspec.structs.replace(samples.ledger_row(), covered=samples.covered())
    assert READ["database covered"].read(golden("ledgers/database-covered.json")) == row
    assert msgspec.json.encode(row.covered) == golden("ledgers/database-covered.json")


def test_ledger_of_a_table_is_read_from_its_text_and_files() -> None:
    """The names of the files are the SHA-256 of their bytes."""
    data = golden("ledgers/table-file.json")
    name = f"{sha256(data).hexdigest()}.json"
    ledgers = Ledgers(_file_system(f"/output/.distcommit/ledgers/{name}", data), "/output", samples.STORE_ID)
    assert ledgers.name == f"distcommit.{samples.STORE_ID}"
    by_file = ledgers.read(f'{{"base":"{name}"}}', samples.TABLE_ID)
    by_text = ledgers.read(golden("ledgers/table-text.json").decode(), samples.TABLE_ID)
    assert by_file.rows == by_text.rows
    assert (by_file.files, by_text.files) == ((name,), ())
    assert next(iter(by_text.rows.values())) == samples.ledger_row()


@pytest.mark.parametrize("name", samples.MAINTENANCE)
def test_property_of_a_maintenance_unit_is_decoded_to_the_encoded_value(name: str) -> None:
    text = golden(f"properties/{name}.json").decode()
    unit = WorkUnit("", "orders", Watermark({}), Watermark({}), 3, {"maintenance": text})
    assert maintenance_kind(unit) == samples.MAINTENANCE[name]
    assert samples.MAINTENANCE[name].unit("orders", "", 3).properties == {"maintenance": text}


def test_steps_of_a_sequence_are_decoded_and_encoded_unchanged() -> None:
    record = decode_segment(golden("segments/intent.seg"), PATH).record
    assert isinstance(record, Intent)
    context = StepContext(LocalFileSystem(), "/staging", "/output", SampleSink().committers)
    *renames, commit = load_steps(record.sequences[0].steps, context)
    assert [step.file for step in renames if isinstance(step, FsRenameCommitStep)] == list(samples.RENAMES)
    assert isinstance(commit, SinkCommitStep)
    request = commit.request
    assert (request.branch, request.infos) == ("main", samples.TASK_STATES[0].branches[1].infos)
    assert (request.bases, request.infos_version, request.attempts) == ((0, 5), 2, ("a1",))
    assert dump_steps([*renames, commit]) == record.sequences[0].steps


def test_total_of_a_snapshot_delta_does_not_depend_on_the_order_of_datasets() -> None:
    assert checksum_of(samples.PIECE.datasets) == "003e179a6be4b232"
    assert checksum_of(dict(reversed(samples.PIECE.datasets.items()))) == "003e179a6be4b232"


@pytest.mark.parametrize("extension", data_samples())
def test_records_of_a_data_file_have_the_sum_that_its_footer_states(extension: str) -> None:
    """Another checksum of the same records would mark every file as altered."""
    fs, path, rows = LocalFileSystem(), str(GOLDEN / "files" / f"records.{extension}"), data_samples()[extension]
    footer, records = read_footer(fs, path), read_records(fs, path)
    assert footer is not None
    expected = samples.footer()
    assert msgspec.structs.replace(footer, records=expected.records, content_sum=expected.content_sum) == expected
    assert records.schema.names == rows.schema.names
    assert as_text(content_sum(records)) == as_text(content_sum(rows)) == footer.content_sum


@pytest.mark.parametrize(
    ("name", "shortened", "expected"),
    [
        (
            "intent-held",
            lambda record: record[2][0].__delitem__(slice(5, None)),
            samples.SEGMENTS["intent-held"].record,
        ),
        ("intent-held", lambda record: record.pop(), samples.NOT_HELD),
        ("checkpoint", lambda record: record[4][1].__delitem__(slice(1, None)), samples.SEGMENTS["checkpoint"].record),
    ],
)
def test_missing_last_fields_take_their_defaults(name: str, shortened: Callable[[Any], None], expected: Record) -> None:
    raw = raw_record(name)
    shortened(raw)
    assert decode_segment(sealed_segment(msgspec.msgpack.encode(raw)), PATH).record == expected


@pytest.mark.parametrize("name", SEGMENTS)
def test_fields_behind_the_known_ones_are_skipped(name: str) -> None:
    raw = [*raw_record(name), "a field of tomorrow", [1, {"a": 2}]]
    assert decode_segment(sealed_segment(msgspec.msgpack.encode(raw)), PATH).record == samples.SEGMENTS[name].record


def test_open_sequence_that_is_idle_is_corrupt() -> None:
    raw = raw_record("checkpoint")
    raw[4][0][1][0] = "idle"
    with pytest.raises(CorruptError, match="an open sequence must not be idle"):
        decode_segment(sealed_segment(msgspec.msgpack.encode(raw)), PATH)


@pytest.mark.parametrize("name", [name for name in WRITERS if name not in ("job", "jobs")])
def test_golden_folder_equals_the_files_written_now(name: str, tmp_path: Path) -> None:
    """Compressed bytes depend on the version of a library. All other bytes must be equal."""
    make(tmp_path, name)
    created, committed = (
        {path.name: path.read_bytes() for path in folder.iterdir()} for folder in (tmp_path / name, GOLDEN / name)
    )
    assert set(created) == set(committed)
    if name in ("documents", "texts", "ledgers", "properties"):
        assert created == committed


def test_golden_job_is_written_the_same_each_time(tmp_path: Path) -> None:
    """Compare two jobs that are created alike, and compare their names with those of the committed job. Folder claims
    are excluded, because they contain a random id and a path.
    """
    make(tmp_path / "once", "job")
    make(tmp_path / "again", "job")
    once, again = (
        {
            path.relative_to(tmp_path / name): path.read_bytes()
            for path in (tmp_path / name).rglob("*.*")
            if path.is_file() and path.parent.name != OWNERSHIP_FOLDER
        }
        for name in ("once", "again")
    )
    assert once == again
    committed = (
        path.relative_to(GOLDEN)
        for path in (GOLDEN / "job").rglob("*.*")
        if path.is_file() and path.parent.name != OWNERSHIP_FOLDER
    )
    assert set(map(stable_name, once)) == set(map(stable_name, committed))


def stable_name(path: Path) -> str:
    """Return a file's name without a table's checksum, which covers file ids, and without random ids."""
    name = str(path.parent if "staging" in path.parts else path)
    return re.sub(r"(?<=[/.-])[0-9a-f]{32}(?=[.-]|$)|-[0-9a-f]{16}(?=\.(parquet|json)$)", "", name)

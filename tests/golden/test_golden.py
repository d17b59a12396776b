"""Golden files: what version 1 wrote is read as what it was, and nothing else is taken for it."""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from distcommit.stores.stored_records import StoredRecord, StoredState

from distcommit.fs.local import LocalFileSystem
from distcommit.fs.upload_marker import decode_marker
from distcommit.model.errors import CorruptError, UnknownVersionError
from distcommit.model.flow_counts import BranchFailures, CheckCounts, FlowCounts
from distcommit.model.log_records import (
    Gate,
    Head,
    Intent,
    LeftSequence,
    Record,
    SealedSequence,
    SequenceName,
    StepBatch,
)
from distcommit.model.steps import StepContext
from distcommit.model.unread import FailedReading, UnreadDataset
from distcommit.model.watermark import Watermark
from distcommit.model.work import ConstructCounts, SkippedRange
from distcommit.protocol.paths.parts import CLAIM_FOLDER
from distcommit.sinks.files.content import as_text, content_sum
from distcommit.sinks.files.file_tail import Said
from distcommit.sinks.files.footer import METADATA_KEY, Footer, read_footer, read_records
from distcommit.sinks.files.offsets import OffsetSets
from distcommit.steps.registry import dump_steps, load_steps
from distcommit.steps.rename import FsRenameCommitStep
from distcommit.steps.sink import SinkCommitStep
from distcommit.stores.claims import Owner
from distcommit.stores.documents import decode_document, encode_document
from distcommit.stores.job_lock import LockRecord
from distcommit.stores.job_store import StoreMarker
from distcommit.stores.kept_schemas import KeptSchema
from distcommit.stores.pinned import RecordedSettings
from distcommit.stores.plans import Manifest
from distcommit.stores.run_datasets import RunDataset
from distcommit.stores.run_records import (
    CancelRequest,
    RecordedPhase,
    RecordedReason,
    RecordedReasons,
    RunBeginning,
    RunFacts,
    RunRecord,
)
from distcommit.stores.segment import Segment, decode_segment, encode_segment
from distcommit.stores.table_schemas import PLAN_SCHEMA, TASK_STATE_SCHEMA
from distcommit.stores.tables import (
    decode_plan,
    decode_task_states,
    encode_plan,
    encode_task_states,
)
from distcommit.stores.tombstones import ReplacedRecords, RetiredFile, Tombstone
from distcommit.testing.simulation.damage import sealed_segment
from tests.golden import samples
from tests.golden.make import (
    GOLDEN,
    GOLDEN_2,
    GOLDEN_3,
    GOLDEN_4,
    GOLDEN_5,
    GOLDEN_6,
    GOLDEN_7,
    GOLDEN_8,
    GOLDEN_9,
    GOLDEN_10,
    GOLDEN_11,
    GOLDEN_12,
    GOLDEN_13,
    GOLDEN_14,
    GOLDEN_17,
    GOLDEN_18,
    GOLDEN_19,
    GOLDEN_FORMATS,
    GOLDEN_REPLACED,
    make,
    make_2,
    make_3,
    make_4,
    make_5,
    make_6,
    make_7,
    make_8,
    make_9,
    make_10,
    make_12,
    make_13,
    make_14,
    make_17,
    make_19,
    make_formats,
    make_replaced,
    samples_at_the_end,
    samples_of_content,
)
from tests.golden.stored_bytes import PATH, SampleSink

SEGMENTS = sorted(samples.SEGMENTS)


SPECIFICATION = (GOLDEN.parent / "README.md").read_text(encoding="utf-8")
STRUCTS: list[type[msgspec.Struct]] = [
    *get_args(StoredRecord),
    *(Head, SealedSequence, SequenceName, LeftSequence, StepBatch, SkippedRange, Watermark, StoredState),
    *(UnreadDataset, FailedReading),
    *(StoreMarker, RecordedSettings, KeptSchema, Manifest, LockRecord, Footer, Said, Owner),
    *(FlowCounts, ConstructCounts, CheckCounts, BranchFailures),
    *(Tombstone, RetiredFile, ReplacedRecords),
    *(RunRecord, RecordedPhase, RecordedReasons, RecordedReason, RunBeginning, RunFacts, CancelRequest, RunDataset),
]


def written(segment: Segment) -> Any:
    return in_segment(encode_segment(segment))


def in_segment(data: bytes) -> Any:
    return msgspec.msgpack.decode(zlib.decompress(data.partition(b"\n")[2]))


def golden(name: str) -> bytes:
    return (GOLDEN / name).read_bytes()


@pytest.mark.parametrize("name", SEGMENTS)
def test_a_segment_is_read_as_what_was_written(name: str) -> None:
    segment = decode_segment(golden(f"segments/{name}.seg"), PATH)
    assert segment == samples.SEGMENTS[name]
    assert decode_segment(encode_segment(segment), PATH) == segment


def test_there_is_a_golden_segment_of_each_kind_of_record() -> None:
    known = (samples.SEGMENTS, samples.SEGMENTS_2, samples.SEGMENTS_3, samples.SEGMENTS_4, samples.SEGMENTS_5)
    segments = [segment for some in known for segment in some.values()]
    assert {type(segment.record) for segment in segments} == set(get_args(Record))


@pytest.mark.parametrize("name", sorted(samples.SEGMENTS_2))
def test_segments_of_version_2_are_read_as_what_was_written(name: str) -> None:
    segment = decode_segment((GOLDEN_3 / "segments" / f"{name}.seg").read_bytes(), PATH)
    assert segment == samples.SEGMENTS_2[name]
    assert encode_segment(segment).startswith(b"distcommit-segment 2 ")


@pytest.mark.parametrize(
    ("name", "version"), [("left", 3), ("by-hand-quarantine", 3), ("by-hand-given-up", 3), ("checkpoint-outage", 1)]
)
def test_what_came_with_reasons_of_the_pending_is_read_as_what_was_written(name: str, version: int) -> None:
    assert decode_segment((GOLDEN_5 / f"{name}.seg").read_bytes(), PATH) == samples.SEGMENTS_3[name]
    assert encode_segment(samples.SEGMENTS_3[name]).startswith(f"distcommit-segment {version} ".encode())


@pytest.mark.parametrize("name", sorted(samples.SEGMENTS_4))
def test_segments_of_version_4_are_read_as_what_was_written(name: str) -> None:
    assert decode_segment((GOLDEN_9 / f"{name}.seg").read_bytes(), PATH) == samples.SEGMENTS_4[name]
    assert encode_segment(samples.SEGMENTS_4[name]).startswith(b"distcommit-segment 4 ")


@pytest.mark.parametrize(("name", "version"), [("unread", 5), ("by-hand-read-again", 5), ("checkpoint-unread", 1)])
def test_what_came_with_what_could_not_be_read_is_read_as_what_was_written(name: str, version: int) -> None:
    assert decode_segment((GOLDEN_14 / f"{name}.seg").read_bytes(), PATH) == samples.SEGMENTS_5[name]
    assert encode_segment(samples.SEGMENTS_5[name]).startswith(f"distcommit-segment {version} ".encode())


def test_records_that_version_1_knew_are_written_for_programs_that_know_no_other() -> None:
    assert all(encode_segment(segment).startswith(b"distcommit-segment 1 ") for segment in samples.SEGMENTS.values())


def test_a_segment_of_at_least_once_is_read_as_what_was_written() -> None:
    data = (GOLDEN_4 / "intent-published.seg").read_bytes()
    assert decode_segment(data, PATH) == samples.PUBLISHED_SEGMENT
    assert encode_segment(samples.PUBLISHED_SEGMENT).startswith(b"distcommit-segment 1 ")


def test_who_owns_a_folder_is_read_as_what_was_written() -> None:
    data = (GOLDEN_3 / "owner.json").read_bytes()
    assert decode_document(data, Owner, 1, "owner", PATH) == samples.OWNER


def test_recorded_settings_are_read_as_what_was_written() -> None:
    data = (GOLDEN_5 / "settings.json").read_bytes()
    assert decode_document(data, RecordedSettings, 1, "settings", PATH) == samples.RECORDED_SETTINGS
    assert encode_document(samples.RECORDED_SETTINGS) == data


def test_an_inferred_schema_is_read_as_what_was_written() -> None:
    data = (GOLDEN_18 / "schema.json").read_bytes()
    assert decode_document(data, KeptSchema, 1, "schema", PATH) == samples.KEPT_SCHEMA
    assert encode_document(samples.KEPT_SCHEMA) == data


def test_the_record_of_a_run_is_read_as_what_was_written() -> None:
    data = (GOLDEN_7 / "run.json").read_bytes()
    assert decode_document(data, RunRecord, 1, "run", PATH) == samples.RUN_RECORD
    assert decode_document(encode_document(samples.RUN_RECORD), RunRecord, 1, "run", PATH) == samples.RUN_RECORD


def test_tables_are_read_as_what_was_written() -> None:
    plan, states = decode_plan(golden("plan.parquet"), PATH), decode_task_states(golden("task_states.parquet"), PATH)
    assert plan == samples.PLAN
    assert states == samples.TASK_STATES
    assert decode_plan(encode_plan(plan), PATH) == plan
    assert decode_task_states(encode_task_states(states), PATH) == states


def test_renames_of_version_2_are_read_as_what_was_written() -> None:
    segment = decode_segment((GOLDEN_2 / "intent-rename.seg").read_bytes(), PATH)
    assert segment == samples.RENAME_SEGMENT
    assert isinstance(segment.record, Intent)
    context = StepContext(LocalFileSystem(), "/staging", "/output")
    steps = list(load_steps(segment.record.sequences[0].steps, context))
    assert [step.file for step in steps if isinstance(step, FsRenameCommitStep)] == list(samples.RENAMES)
    assert dump_steps(steps) == segment.record.sequences[0].steps


def test_what_came_with_sinks_is_read_as_what_was_written() -> None:
    data = (GOLDEN_2 / "task_states.parquet").read_bytes()
    assert pq.read_schema(pa.BufferReader(data)).metadata[b"distcommit-table-version"] == b"2"
    assert decode_task_states(data, PATH) == samples.TASK_STATES_WITH_INFOS
    segment = decode_segment((GOLDEN_2 / "intent-sink.seg").read_bytes(), PATH)
    assert segment == samples.SINK_SEGMENT
    assert isinstance(segment.record, Intent)
    (sealed,) = segment.record.sequences
    step = sink_step(sealed)
    assert (step.request.branch, step.request.infos) == ("main", samples.TASK_STATES_WITH_INFOS[0].branches[0].infos)


def test_what_came_with_branches_is_read_as_what_was_written() -> None:
    data = (GOLDEN_6 / "task_states.parquet").read_bytes()
    assert pq.read_schema(pa.BufferReader(data)).metadata[b"distcommit-table-version"] == b"4"
    assert decode_task_states(data, PATH) == samples.TASK_STATES_WITH_BRANCHES
    segment = decode_segment((GOLDEN_6 / "intent-sink.seg").read_bytes(), PATH)
    assert segment == samples.SINK_SEGMENT_2
    assert isinstance(segment.record, Intent)
    (sealed,) = segment.record.sequences
    step = sink_step(sealed)
    assert (step.request.branch, step.request.bases, step.request.infos_version) == ("main", (), 1)


def test_what_came_with_bases_is_read_as_what_was_written() -> None:
    segment = decode_segment((GOLDEN_17 / "intent-sink.seg").read_bytes(), PATH)
    assert segment == samples.SINK_SEGMENT_3
    assert isinstance(segment.record, Intent)
    (sealed,) = segment.record.sequences
    step = sink_step(sealed)
    assert (step.request.bases, step.request.infos_version, step.request.attempts) == ((0, 5), 2, ("a1",))
    assert dump_steps([step]) == sealed.steps


def test_what_came_with_constructs_is_read_as_what_was_written() -> None:
    data = (GOLDEN_11 / "task_states.parquet").read_bytes()
    assert pq.read_schema(pa.BufferReader(data)).metadata[b"distcommit-table-version"] == b"5"
    assert decode_task_states(data, PATH) == samples.TASK_STATES_WITH_CONSTRUCTS
    footer = Footer.from_metadata({METADATA_KEY: (GOLDEN_11 / "footer.txt").read_text(encoding="utf-8")})
    assert footer == samples.footer_with_branches()


def test_what_came_with_reprocess_is_read_as_what_was_written() -> None:
    data = (GOLDEN_12 / "tombstone.json").read_bytes()
    assert decode_document(data, Tombstone, 1, "a tombstone", PATH) == samples.TOMBSTONE
    assert encode_document(samples.TOMBSTONE) == data
    footer = Footer.from_metadata({METADATA_KEY: (GOLDEN_12 / "footer.txt").read_text(encoding="utf-8")})
    assert footer == samples.footer_of_replaced()
    assert '"version":2' in samples.footer_with_branches().to_metadata()[METADATA_KEY], (
        "for programs that know no other"
    )


def test_what_came_with_publishers_that_replace_is_read_as_what_was_written() -> None:
    data = (GOLDEN_REPLACED / "replacement.json").read_bytes()
    assert decode_document(data, Tombstone, 2, "a tombstone", PATH) == samples.REPLACEMENT
    assert encode_document(samples.REPLACEMENT) == data
    footer = Footer.from_metadata({METADATA_KEY: (GOLDEN_REPLACED / "footer.txt").read_text(encoding="utf-8")})
    assert footer == samples.footer_of_replacing()
    assert '"version":3' in samples.footer_of_replaced().to_metadata()[METADATA_KEY], "for programs that know no other"


def test_what_came_with_optional_branches_is_read_as_what_was_written() -> None:
    data = (GOLDEN_13 / "task_states.parquet").read_bytes()
    assert pq.read_schema(pa.BufferReader(data)).equals(TASK_STATE_SCHEMA, check_metadata=True)
    assert decode_task_states(data, PATH) == samples.TASK_STATES_WITH_OPTIONAL


@pytest.mark.parametrize("name", samples.SEGMENTS_WITH_SCHEMAS)
def test_what_came_with_schemas_is_read_as_what_was_written(name: str) -> None:
    data = (GOLDEN_13 / f"{name}.seg").read_bytes()
    assert decode_segment(data, PATH) == samples.SEGMENTS_WITH_SCHEMAS[name]


@pytest.mark.parametrize("name", samples.SEGMENTS_WITH_TARGETS)
def test_what_came_with_targets_is_read_as_what_was_written(name: str) -> None:
    data = (GOLDEN_17 / f"{name}.seg").read_bytes()
    assert decode_segment(data, PATH) == samples.SEGMENTS_WITH_TARGETS[name]
    assert data.startswith(b"distcommit-segment 1 "), "programs that know no targets pass them over"


def sink_step(sealed: SealedSequence) -> SinkCommitStep:
    context = StepContext(LocalFileSystem(), "/staging", "/output", SampleSink().committers)
    (step,) = load_steps(sealed.steps, context)
    assert isinstance(step, SinkCommitStep)
    return step


def test_what_came_with_holes_is_read_as_what_was_written() -> None:
    data = (GOLDEN_3 / "task_states.parquet").read_bytes()
    assert pq.read_schema(pa.BufferReader(data)).metadata[b"distcommit-table-version"] == b"3"
    assert decode_task_states(data, PATH) == samples.TASK_STATES_WITH_HOLES
    segment = decode_segment((GOLDEN_3 / "intent-holes.seg").read_bytes(), PATH)
    assert segment == samples.HOLES_SEGMENT
    assert isinstance(segment.record, Intent)
    assert [skip.is_hole for skip in segment.record.sequences[0].skipped] == [False, True]
    footer = Footer.from_metadata({METADATA_KEY: (GOLDEN_3 / "footer.txt").read_text(encoding="utf-8")})
    assert footer == samples.footer_with_holes()
    assert list(OffsetSets.from_text(footer.holes).offsets("1")) == [3, 4]


def test_what_came_with_content_sums_is_read_as_what_was_written() -> None:
    for name, segment in samples.SEGMENTS_WITH_CONTENT.items():
        stored = (GOLDEN_8 / f"{name}.seg").read_bytes()
        assert decode_segment(stored, PATH) == segment
        assert stored.startswith(b"distcommit-segment 1 "), "programs that know no sums pass them over"
    footer = Footer.from_metadata({METADATA_KEY: (GOLDEN_8 / "footer.txt").read_text(encoding="utf-8")})
    assert footer == samples.footer_with_content()


@pytest.mark.parametrize("extension", ["parquet", "avro"])
def test_records_come_to_what_they_came_to_when_sums_were_new(extension: str) -> None:
    """Another sum of the same records would make every file an altered one."""
    fs, path = LocalFileSystem(), str(GOLDEN_8 / f"records.{extension}")
    footer, records = read_footer(fs, path), read_records(fs, path)
    assert footer is not None
    assert records.num_columns == len(samples_of_content()[extension].columns)
    assert as_text(content_sum(records)) == footer.content_sum
    assert as_text(content_sum(samples_of_content()[extension])) == footer.content_sum


@pytest.mark.parametrize(
    ("name", "kind", "expected"),
    [
        (f"../{GOLDEN_19.name}/manifest.json", Manifest, samples.MANIFEST),
        ("store.json", StoreMarker, samples.MARKER),
        ("lock.json", LockRecord, samples.LOCK),
    ],
)
def test_json_files_are_read_as_what_was_written(name: str, kind: type, expected: object) -> None:
    data = golden(name)
    version = getattr(expected, "version", 1)
    found: object = (
        decode_document(data, kind, version, name, name) if b"xxh3" in data else msgspec.json.decode(data, type=kind)
    )
    assert found == expected


def test_markers_of_uploads_are_read_as_what_was_written() -> None:
    assert decode_marker((GOLDEN_2 / "upload.json").read_bytes(), PATH) == samples.UPLOAD
    newer = b'{"version": 2, "upload": {}}'
    with pytest.raises(UnknownVersionError, match=f"path={PATH}.*expected 1; found 2"):
        decode_marker(newer, PATH)


def test_footers_and_offsets_are_read_as_what_was_written() -> None:
    footer = Footer.from_metadata({METADATA_KEY: golden("footer.txt").decode()})
    assert footer == samples.footer()
    assert OffsetSets.from_text(golden("offsets.txt").decode()) == samples.offsets()
    assert Footer.from_metadata(footer.to_metadata()) == footer
    assert OffsetSets.from_text(samples.offsets().to_text()) == samples.offsets()


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
def test_fields_that_an_older_program_did_not_have_take_their_defaults(
    name: str, shortened: Callable[[Any], None], expected: Record
) -> None:
    raw = record_of(name)
    shortened(raw)
    assert decode_segment(sealed_segment(msgspec.msgpack.encode(raw)), PATH).record == expected


@pytest.mark.parametrize("name", SEGMENTS)
def test_fields_that_a_newer_program_adds_at_the_end_are_passed_over(name: str) -> None:
    known = samples.SEGMENTS[name].record
    raw = [*written(samples.SEGMENTS[name]), "a field of tomorrow", [1, {"a": 2}]]
    assert decode_segment(sealed_segment(msgspec.msgpack.encode(raw)), PATH).record == known


@pytest.mark.parametrize(("held", "published", "gate"), [(0, 0, Gate.OPEN), (1, 0, Gate.HELD), (0, 1, Gate.PASSED)])
def test_an_intent_is_written_with_a_field_for_each_gate_that_is_not_open(
    held: int, published: int, gate: Gate
) -> None:
    segment = msgspec.structs.replace(samples.NOT_HELD, gate=gate)
    raw = ["Intent", 7, written(samples.SEGMENTS["intent-held"])[2], bool(held), bool(published)]
    assert written(Segment(7, samples.WRITER_ID, segment)) == raw
    assert decode_segment(sealed_segment(msgspec.msgpack.encode(raw)), PATH).record == segment


def test_an_intent_that_is_both_held_and_published_is_corrupt() -> None:
    raw = ["Intent", 7, [], True, True]
    with pytest.raises(CorruptError, match="both held and published"):
        decode_segment(sealed_segment(msgspec.msgpack.encode(raw)), PATH)


@pytest.mark.parametrize(
    ("status", "sequence"), [("pending", None), ("idle", written(samples.SEGMENTS["intent"])[2][0])]
)
def test_a_state_whose_status_does_not_go_with_its_sequence_is_corrupt(status: str, sequence: Any) -> None:
    raw = ["Checkpoint", 9, "run", [], [["a", status, sequence]], 1]
    with pytest.raises(CorruptError, match=f"a dataset that is {status} with"):
        decode_segment(sealed_segment(msgspec.msgpack.encode(raw)), PATH)


def record_of(name: str) -> Any:
    return in_segment(golden(f"segments/{name}.seg"))


@pytest.mark.parametrize("extension", samples_at_the_end())
def test_files_that_say_at_their_end_what_they_hold_are_read_as_what_was_written(extension: str) -> None:
    fs, path, rows = LocalFileSystem(), str(GOLDEN_FORMATS / f"records.{extension}"), samples_at_the_end()[extension]
    footer = read_footer(fs, path)
    assert footer is not None
    assert msgspec.structs.replace(footer, records=samples.footer().records, content_sum="") == samples.footer()
    found = read_records(fs, path)
    assert found.schema.names == rows.schema.names
    assert as_text(content_sum(found)) == as_text(content_sum(rows)) == footer.content_sum


def test_the_files_are_made_the_same_each_time(tmp_path: Path) -> None:
    """Compare two jobs that are made alike, and their names with those of the committed job.

    Claims of folders hold a random id and a path, and are left out; `owner.json` of format 3 has their bytes.
    """
    make(tmp_path / "once")
    make(tmp_path / "again")
    once, again = (
        {
            path.relative_to(tmp_path / name): path.read_bytes()
            for path in (tmp_path / name).rglob("*.*")
            if path.is_file() and path.parent.name != CLAIM_FOLDER
        }
        for name in ("once", "again")
    )
    assert once == again
    committed = (path.relative_to(GOLDEN) for path in GOLDEN.rglob("*.*") if path.is_file())
    assert set(map(stable_name, once)) == set(map(stable_name, committed))
    make_2(tmp_path / "2")
    assert {path.name for path in (tmp_path / "2").iterdir()} == {path.name for path in GOLDEN_2.iterdir()}
    make_4(tmp_path / "4")
    assert {path.name for path in (tmp_path / "4").iterdir()} == {path.name for path in GOLDEN_4.iterdir()}
    make_5(tmp_path / "5")
    assert {path.name for path in (tmp_path / "5").iterdir()} == {path.name for path in GOLDEN_5.iterdir()}
    make_6(tmp_path / "6")
    assert {path.name for path in (tmp_path / "6").iterdir()} == {path.name for path in GOLDEN_6.iterdir()}
    make_7(tmp_path / "7")
    assert {path.name for path in (tmp_path / "7").iterdir()} == {path.name for path in GOLDEN_7.iterdir()}
    make_8(tmp_path / "8")
    assert {path.name for path in (tmp_path / "8").iterdir()} == {path.name for path in GOLDEN_8.iterdir()}
    make_9(tmp_path / "9")
    assert {path.name for path in (tmp_path / "9").iterdir()} == {path.name for path in GOLDEN_9.iterdir()}
    make_10(tmp_path / "10")
    assert {path.name for path in (tmp_path / "10").iterdir()} == {path.name for path in GOLDEN_10.iterdir()}
    make_12(tmp_path / "12")
    assert {path.name for path in (tmp_path / "12").iterdir()} == {path.name for path in GOLDEN_12.iterdir()}
    make_replaced(tmp_path / "replaced")
    made = {path.name: path.read_bytes() for path in (tmp_path / "replaced").iterdir()}
    assert made == {path.name: path.read_bytes() for path in GOLDEN_REPLACED.iterdir()}
    make_13(tmp_path / "13")
    assert {path.name for path in (tmp_path / "13").iterdir()} == {path.name for path in GOLDEN_13.iterdir()}
    make_14(tmp_path / "14")
    assert {path.name for path in (tmp_path / "14").iterdir()} == {path.name for path in GOLDEN_14.iterdir()}
    make_17(tmp_path / "17")
    assert {path.name for path in (tmp_path / "17").iterdir()} == {path.name for path in GOLDEN_17.iterdir()}
    make_19(tmp_path / "19")
    assert {path.name for path in (tmp_path / "19").iterdir()} == {path.name for path in GOLDEN_19.iterdir()}
    make_formats(tmp_path / "formats")
    assert {path.name for path in (tmp_path / "formats").iterdir()} == {path.name for path in GOLDEN_FORMATS.iterdir()}
    make_3(tmp_path / "3")
    assert {path.name for path in (tmp_path / "3").rglob("*")} == {path.name for path in GOLDEN_3.rglob("*")}


def stable_name(path: Path) -> str:
    """A table's name without its checksum, which covers file ids: these count how often the disk was looked at; and
    without random ids, which count how many were drawn. What a staged file is called is its writer's choice: its name
    is in its task state. Epochs are numbers of segments, and runs may write more of them than they did. What is beside
    tables had no underscore when these files were made, and plans and task states lay by bucket."""
    name = str(path.parent if "staging" in path.parts else path)
    name = re.sub(r"(?<=/)_(?=manifest\.json$)", "", name)
    if "plans" in path.parts or "task_states" in path.parts:
        name = re.sub(r"/(bucket|partition)=[^/]*", "", name)
    name = re.sub(r"(?<=/)\d{10}(?=/|-\d{5}_)|\d{12}(?=\.seg)", "NUMBER", name)
    return re.sub(r"(?<=[/.-])[0-9a-f]{32}(?=[.-]|$)|-[0-9a-f]{16}(?=\.parquet$)", "", name)


@pytest.mark.parametrize("kind", STRUCTS, ids=lambda kind: kind.__name__)
def test_the_specification_names_each_field_in_its_order(kind: type[msgspec.Struct]) -> None:
    name = kind.__struct_config__.tag or kind.__name__.replace("Stored", "Dataset")
    assert f"\n| {name} | {', '.join(kind.__struct_fields__)} |\n" in SPECIFICATION


BRANCH = TASK_STATE_SCHEMA.field("branches").type.value_type


@pytest.mark.parametrize(
    ("table", "names"),
    [
        ("plan", PLAN_SCHEMA.names),
        ("task states", TASK_STATE_SCHEMA.names),
        ("branches", [field.name for field in BRANCH]),
        ("files", [field.name for field in BRANCH.field("files").type.value_type]),
        ("checks", [field.name for field in BRANCH.field("checks").type.value_type]),
        ("constructs", [field.name for field in TASK_STATE_SCHEMA.field("constructs").type.value_type]),
    ],
)
def test_the_specification_names_each_column_in_its_order(table: str, names: list[str]) -> None:
    assert f"\n| {table} | {', '.join(names)} |\n" in SPECIFICATION

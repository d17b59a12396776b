"""A value of each stored format with all fields set, for golden files and the fuzzer."""

from __future__ import annotations

import msgspec

from distcommit.core.dataset_urn import folder_of
from distcommit.core.interfaces.ledger import Covered, LedgerRow
from distcommit.core.records.bucket_and_dataset_snapshots import BucketSnapshot, DatasetSnapshot
from distcommit.core.records.deferred_records import deferred
from distcommit.core.records.job_log_records import Cut, CutPhase, Decide, Generation, Head, Heads, Rebucket
from distcommit.core.records.log_records import (
    Checkpoint,
    DatasetState,
    DatasetStatus,
    Done,
    Dropped,
    EarlierReading,
    Failed,
    Fence,
    Gate,
    Intent,
    Moved,
    OpenSequence,
    OperatorAction,
    OperatorDecision,
    Postponed,
    Rebuilt,
    Record,
    SetWatermark,
    SetWatermarks,
)
from distcommit.core.records.maintenance_units import (
    CompactedFiles,
    ExpiryCutoff,
    MaintenanceKind,
    ReprocessedFiles,
)
from distcommit.core.records.previous_run import PreviousRun, WorkUnitResult
from distcommit.core.records.read_failure_records import DatasetReadFailure, ReadFailure, ReadFailures
from distcommit.core.records.run_counts import (
    BranchFailures,
    CheckCounts,
    FlowCounts,
    RunCounts,
    SinkCounter,
    SinkCounts,
)
from distcommit.core.records.run_outcome import RunOutcome
from distcommit.core.records.run_reasons import Reason, Reasons
from distcommit.core.records.sealed_sequences import PostponedSequence, SealedSequence, SequenceName, StepBatch
from distcommit.core.task_properties import TaskProperties
from distcommit.core.watermark import Watermark
from distcommit.core.work_units import (
    MAIN_BRANCH,
    BranchResult,
    CheckOutcome,
    ConstructCounts,
    DatasetPlan,
    SkippedRange,
    StagedFile,
    TaskOutcome,
    TaskState,
    WorkUnit,
)
from distcommit.engine.run_events import Progressed
from distcommit.fs.object_stores.staged_upload_marker import UploadMarker
from distcommit.sinks.delta import ledger as delta_ledger
from distcommit.sinks.files.footer import Footer
from distcommit.sinks.files.offset_sets import OffsetSets
from distcommit.sinks.table_formats import ledger_files
from distcommit.stores.folders.folder_ownership import Owner
from distcommit.stores.folders.tombstones import ReplacedRecords, SupersededFile, Tombstone
from distcommit.stores.history.run_records import CancelRequest, RecordedPhase, RunBeginning, RunFacts, RunRecord
from distcommit.stores.history.run_table import (
    DatasetOutcome,
    RowKind,
    TableRow,
    TaskIdentity,
    TaskRows,
    outcome_row,
)
from distcommit.stores.logs.segment_format import Segment
from distcommit.stores.operator.schedule_requests import ScheduleRequest
from distcommit.stores.schemas.schema_store import StoredSchema
from distcommit.stores.snapshots.expiry_requests import ExpiryRequest
from distcommit.stores.snapshots.snapshot_deltas import SnapshotDelta
from distcommit.stores.snapshots.snapshot_manifests import SnapshotBucket, SnapshotManifest
from distcommit.stores.state.job_lock import LockRecord
from distcommit.stores.state.job_store import STORE_FORMAT, StoreMarker
from distcommit.stores.state.recorded_fixed_settings import RecordedSettings
from distcommit.stores.state.run_plans import LentUnits, Manifest
from distcommit.stores.state.work_units_being_read import ReadingNote
from tests.simulation.log_watch import ANOTHERS_ID

RUN_ID = "20260102T030405-0123456789ab"
WRITER_ID = ANOTHERS_ID
_URN = "topic/ü:0"
_LOW = Watermark({"0": 5, "1": 7}, "topic-id")
_HIGH = Watermark({"0": 9, "1": 7, "2": 3}, "topic-id")
_SKIPPED = SkippedRange("1", 2, 5, "expired")
_FILE = StagedFile(
    "0000000007/bucket=00003/00003_000001.aabb/0001.parquet",
    "topic%2F%C3%BC%3A0/0000000007-00003_000001-aabb-0001.parquet",
    1954,
    2**63 + 1,
    4711,
    1_700_000_000_000_000_001,
    4,
)
SINK = "testing-sample"
"""The name of the sink whose commit is sealed in the segment `intent-sink`."""
_INFOS = ({"staged": "rows-1", "records": 4, "ratio": 0.5, "whole": True}, [2**64 - 1, -1, None, b"\xff"], "ü")
RENAMES = (
    StagedFile(
        "0000000007/bucket=00003/u.a/x-0001.parquet",
        "orders/x-0001.parquet",
        10,
        1 << 63,
        5,
        1_700_000_000_000_000_000,
        3,
    ),
    StagedFile("0000000007/bucket=00003/u.a/x-0002.parquet", "orders/x-0002.parquet", 11, 2, 0, -1, 0),
    StagedFile("0000000007/bucket=00003/u.b/1.avro", "_rejected/orders/x-0003.avro", 12, 3, 7, 8, 9),
)
_RENAME_ROWS = msgspec.msgpack.encode(
    [
        [
            *("0000000007/bucket=00003/u.a", "orders"),
            [
                ["x-0001.parquet", 10, 1 << 63, 5, 1_700_000_000_000_000_000, 3, ""],
                ["x-0002.parquet", 11, 2, 0, -1, 0, ""],
            ],
        ],
        [*("0000000007/bucket=00003/u.b", "_rejected/orders"), [["x-0003.avro", 12, 3, 7, 8, 9, "1.avro"]]],
    ]
)
_SINK_ROWS = msgspec.msgpack.encode([[SINK, _URN, 7, list(_INFOS), "main", [0, 5], 2, ["a1"]]])
_MARK = Watermark({"": "2026-01-02T03:04:05Z"})
_COMPOSITE = Watermark({"": (1_700_000_000_000_000_001, "a/ü b.csv", 2.5), "0": ()})
_SCHEMAS = {"avro": (7, 2_147_483_647), "late.protobuf#2": (1,)}
_TARGETS = {"main": (7,), "late": (0, 5), "older": ()}
_CONTENT = "00a1b2c3d4e5f607"
_HOLE = SkippedRange("0", 8, 9, "no record", True, "topic-id")
_PROPERTIES: TaskProperties = {"source": {"etag": "ü", "pages": 3}, "main.writer": {"ratio": 0.5, "full": True}}
_RUN = PreviousRun(
    7,
    (
        WorkUnitResult("00003_000001", TaskOutcome.FAILED, False, 2, _LOW, _HIGH, _LOW),
        WorkUnitResult("00003_000000", TaskOutcome.SUCCEEDED, True, 1, _LOW, _HIGH, _HIGH, _PROPERTIES),
    ),
    4,
)
_SEQUENCE = SealedSequence(
    dataset_urn=_URN,
    epoch=7,
    low=_LOW,
    high=_HIGH,
    steps=(StepBatch("fs-rename", 1, _RENAME_ROWS), StepBatch("sink-commit", 1, _SINK_ROWS)),
    start={"2": 0},
    skipped=(_SKIPPED, _HOLE),
    records=4,
    files=1,
    partial_reason="2 of 3 work units",
    content_sum=_CONTENT,
    schemas=_SCHEMAS,
    targets=_TARGETS,
    replaces=True,
    run=_RUN,
)
_FIRST = SealedSequence(
    "b", 7, None, _MARK, (StepBatch("high-watermark", 1, msgspec.msgpack.encode([["b", None, _MARK]])),)
)


def _with_steps(*steps: StepBatch) -> SealedSequence:
    return msgspec.structs.replace(_SEQUENCE, steps=steps)


_NAME = SequenceName(_URN, 7)
NOT_HELD = Intent(7, (_FIRST,))
_HEADS = (Head(0, 12, "00000000deadbeef"), Head(3, 1, "0123456789abcdef", False))
_REBUCKET = Rebucket(9, 1, 64, {"source.dataset": "topic"})
_UNREAD = ReadFailure(9, 3, _HIGH, "SourceError: gone", True, True)
_DATASET = DatasetState(
    dataset_urn=_URN,
    open=OpenSequence(DatasetStatus.QUARANTINED, _SEQUENCE, True, (8, 9), "a staged file is lost"),
    watermark=_LOW,
    closed_epoch=7,
    done_epoch=6,
    origin={"0": 0, "1": 1},
    skipped=(_SKIPPED,),
    accepted_epochs=(3,),
    done_records=10,
    done_files=2,
    done_partial_reason="1 of 2 work units",
    done_content_sum=_CONTENT,
    read_failure=_UNREAD,
    schemas=_SCHEMAS,
    targets=_TARGETS,
    unset_watermark=_COMPOSITE,
    replacement=5,
    earlier_readings=(EarlierReading(_MARK, {"": 0}),),
    previous_run=_RUN,
)
_OUTAGE = DatasetState("c", OpenSequence(DatasetStatus.PENDING, _FIRST, reason="no answer", outage=True, changes=2))
_RECORDS: dict[str, tuple[int, Record]] = {
    "fence": (7, Fence(7, RUN_ID)),
    "intent": (7, Intent(7, (_SEQUENCE, _FIRST))),
    "intent-held": (7, Intent(7, (_FIRST,), Gate.HELD)),
    "intent-passed": (7, Intent(7, (_FIRST,), Gate.PASSED)),
    "intent-rename": (7, Intent(7, (_with_steps(StepBatch("fs-rename", 1, _RENAME_ROWS)),))),
    "intent-sink": (7, Intent(7, (_with_steps(StepBatch("sink-commit", 1, _SINK_ROWS)),))),
    "done": (8, Done(8, (_NAME, SequenceName("b", 7)))),
    "failed": (8, Failed(8, _NAME, True, "a staged file is lost")),
    "postponed": (
        9,
        Postponed(9, (PostponedSequence(_URN, 7, "the output is full"), PostponedSequence("b", 7, "locked")), True),
    ),
    "postponed-changed": (
        9,
        Postponed(
            9,
            (PostponedSequence(_URN, 7, "two parts remain", 3, {0: StepBatch("sink-commit", 1, _SINK_ROWS)}),),
        ),
    ),
    "read-failed": (
        9,
        ReadFailures(
            9,
            (
                DatasetReadFailure(_URN, _LOW, _HIGH, "SourceError: gone", stops=True, run=_RUN),
                DatasetReadFailure("b", None, _MARK, "TransientError: no answer", outage=True),
            ),
        ),
    ),
    "decide": (7, Decide(7)),
    "dropped": (8, Dropped(8, (SequenceName("b", 7),))),
    **{
        f"by-hand-{action.value}": (0, OperatorDecision(action, _NAME, "ann@host", (_SKIPPED,)))
        for action in OperatorAction
    },
    "set-watermark": (0, SetWatermark(_URN, _COMPOSITE, "ann@host")),
    "set-watermarks": (0, SetWatermarks({_URN: _LOW, "b": _MARK}, "ann@host")),
    "rebuilt": (9, Rebuilt(9, (_DATASET, DatasetState("b")), "ann@host")),
    "cut-began": (9, Cut(9, CutPhase.BEGAN, _HEADS)),
    "cut-ended": (9, Cut(9, CutPhase.ENDED, _HEADS)),
    "heads": (0, Heads(_HEADS[:1], "ann@host")),
    "rebucket": (9, _REBUCKET),
    "moved": (9, Moved(9, 1)),
    "generation": (9, Generation(9, 1)),
    "checkpoint": (9, Checkpoint(9, RUN_ID, (5, 7), (_DATASET, DatasetState("b"), _OUTAGE), 12)),
    "checkpoint-job": (9, Checkpoint(9, RUN_ID, (5, 7), (), 3, (9, 8), _HEADS, 1, 64, _REBUCKET)),
}
SEGMENTS = {name: Segment(epoch, WRITER_ID, record) for name, (epoch, record) in _RECORDS.items()}
"""A segment of each kind of record. Records of operators have epoch 0."""

RECORDED_SETTINGS = RecordedSettings(
    1, {"source.type": "kafka", "source.dataset": "topic", "sink.type": "files"}, {"source.cluster": "cluster/ü"}
)
RUN_RECORD = RunRecord(
    version=1,
    job="samples",
    run_id=RUN_ID,
    epoch=7,
    command="run",
    requested_by="ann@host",
    began_ms=1_700_000_000_000,
    ended_ms=1_700_000_012_345,
    outcome=RunOutcome.INCOMPLETE,
    error_kind="",
    error="ingest: task 1 failed: no space",
    phases=(
        RecordedPhase("recover", 1.25, True, RunCounts(buckets=4, datasets_quarantined=1)),
        RecordedPhase("plan", 0.5, False, RunCounts(datasets_planned=2)),
    ),
    totals=RunCounts(
        buckets=4,
        datasets_quarantined=1,
        datasets_planned=2,
        deferred=deferred("größe/1", "greatest value", 3, is_minimum=True),
        flow=FlowCounts(
            (ConstructCounts("", "json", 4, 3, 1, 0, 0, 0.25),),
            (CheckCounts("main", "row_count", True, 1, 1),),
            (BranchFailures("hourly", "not_null", 1),),
            (SinkCounts("main", "files", 3, 1), SinkCounts("hourly", "postgresql:{dataset}", 2, 0, 3, 1, 2, 0, 1, 70)),
            (SinkCounter("hourly", "postgresql:{dataset}", "größe", 2),),
        ),
    ),
    quarantined=Reasons((Reason("größe/1", "quarantined", "a sealed commit step is lost"),), 0),
    held=Reasons((), 3),
    reasons=Reasons((Reason("bucket 3", "CorruptError", "cut"),), 2),
)
RUN_BEGINNING = RunBeginning(
    version=1,
    job="samples",
    run_id=RUN_ID,
    epoch=7,
    command="run",
    requested_by="ann@host",
    began_ms=1_700_000_000_000,
    facts=RunFacts(
        config={"job": "samples", "source": {"type": "kafka", "client": {"sasl.password": "***"}}},
        versions={"python": "3.11.7"},
        host="host",
        pid=4711,
        job_file="/jobs/größe.yaml",
        is_locked=False,
        retained_runs=100,
        retained_tables=10,
    ),
)
READING_NOTE = ReadingNote(
    1, 7, "orders", "00003_000001", Watermark({"0": 5}), Watermark({"0": 9}), is_alone=True, has_died=False
)
CANCEL_REQUEST = CancelRequest(1, 7, "ann@host", 1_700_000_000_001)
SCHEDULE_REQUEST = ScheduleRequest(1, "ann@host", 1_700_000_000_001)
TASK_ROWS = TaskRows(
    TaskIdentity("ingest", 3, WRITER_ID, "host", 4711, 4700),
    [
        TableRow(
            RowKind.TASK,
            began_ms=1_700_000_000_000,
            ended_ms=1_700_000_009_000,
            counts=RunCounts(work_units=2, storage_requests=17),
        ),
        TableRow(
            RowKind.DATASET,
            "größe/1",
            began_ms=1_700_000_008_000,
            ended_ms=1_700_000_008_500,
            counts=RunCounts(
                datasets_committed=1,
                records_published=20,
                files_published=2,
                storage_requests=9,
                commit_attempts=3,
                commit_successes=1,
                commit_retries=2,
                commit_in_doubt=1,
                target_ms=70,
            ),
        ),
        TableRow(RowKind.DATASET, "b", began_ms=1_700_000_008_001),
        TableRow(
            RowKind.COMMITS,
            began_ms=1_700_000_007_900,
            ended_ms=1_700_000_008_600,
            counts=RunCounts(datasets_committed=1),
        ),
        outcome_row(
            "größe/1",
            3,
            DatasetOutcome.PUBLISHED,
            RunCounts(records_published=20, files_published=2, positions_lost=1),
        ),
        outcome_row("b", 0, DatasetOutcome.FAILED, kind="failed", reason="1 of 2 work units failed"),
    ],
)
PROGRESS = Progressed("ingest", RunCounts(records_read=3), 1, 2)
OWNER = Owner(1, "0f" * 16, "samples", "/data/stores/samples")

PLAN = [
    DatasetPlan(
        _URN,
        _LOW,
        Watermark({"2": 0}, "topic-id"),
        (
            WorkUnit("00003_000000", _URN, Watermark({"0": 5}), Watermark({"0": 9}), 4, {"max_bytes": "10"}),
            WorkUnit("00003_000001", _URN, Watermark({"2": 0}), Watermark({"2": 3}), 3),
        ),
        (_SKIPPED,),
    ),
    DatasetPlan("b", None, Watermark({"": 0}), (WorkUnit("00003_000002", "b", Watermark({}), Watermark({}), 0),)),
    DatasetPlan(
        "c",
        _COMPOSITE,
        Watermark({"1": 0}),
        (WorkUnit("00003_000003", "c", Watermark({"": _COMPOSITE.positions[""], "1": 0}), Watermark({}), 4),),
    ),
]
"""The last dataset's positions are lists, and the end of its work unit is unknown."""

TASK_STATES = [
    TaskState(
        run_id=RUN_ID,
        epoch=7,
        dataset_urn=_URN,
        work_unit_id="00003_000000",
        attempt="aabb",
        outcome=TaskOutcome.SUCCEEDED,
        low=Watermark({"0": 5}),
        expected_high=Watermark({"0": 9}),
        actual_high=Watermark({"0": 8}),
        branches=(
            BranchResult(
                MAIN_BRANCH,
                "files",
                (_FILE, msgspec.structs.replace(_FILE, final_path="_rejected/x.parquet", records=1)),
                records_written=3,
                records_rejected=1,
                holes=(_HOLE,),
                content_sum=_CONTENT,
                checks=(
                    CheckOutcome("row_count", True, True, "2 records"),
                    CheckOutcome("fresh", False, False, "old"),
                ),
            ),
            BranchResult(
                "late",
                SINK,
                infos=_INFOS,
                records_written=2,
                error="ZeroDivisionError: division by zero",
                error_construct="sql#2",
            ),
            BranchResult("errors/late", "files", (_FILE,), records_rejected=2),
        ),
        records_read=4,
        bytes_read=100,
        started_ms=1_700_000_000_000,
        finished_ms=1_700_000_000_250,
        constructs=(
            ConstructCounts("", "json", 4, 3, 1, 0, 0, 0.25),
            ConstructCounts("hourly", "not_null", 3, 2, 0, 1),
        ),
        schemas=_SCHEMAS,
        properties=_PROPERTIES,
    ),
    TaskState(
        run_id=RUN_ID,
        epoch=7,
        dataset_urn="b",
        work_unit_id="00003_000002",
        attempt="ccdd",
        outcome=TaskOutcome.FAILED,
        low=Watermark({}),
        expected_high=Watermark({}),
        actual_high=Watermark({}),
        branches=(BranchResult(MAIN_BRANCH, ""),),
        error="SourceError: gone",
    ),
]

MANIFEST = Manifest(
    1,
    RUN_ID,
    7,
    {3: "ffee.parquet", 12: "ddcc.parquet", 28: "ddcc.parquet"},
    (((3, "00003_000000"), (12, "x")), ()),
    (LentUnits(1, 12, 40, 90), LentUnits(2, 12, 90, 1 << 53)),
)
MARKER = StoreMarker(STORE_FORMAT, 1, "job", 16, "0123456789abcdef0123456789abcdef")
UPLOAD = UploadMarker(
    1,
    "upload-id",
    "/output/ü/0000000007-x.parquet",
    WRITER_ID,
    True,
    ("8d777f385d3dfec8815d20f7496026dc",),
    4,
    2**63 + 1,
)
LOCK = LockRecord(WRITER_ID, RUN_ID, "host", 4711, "123456", 1_700_000_000_000, 30.0)


def offsets() -> OffsetSets:
    """Return sets of offsets: a gap-free range, one with holes, and one beyond 32 bits."""
    sets = OffsetSets()
    sets.add_range("0", 5, 9)
    for first in (0, 2, 7, 2**40):
        sets.add_range("1", first, first + 1)
    sets.add_range("ü", 2**32 - 2, 2**32 + 2)
    return sets


def footer() -> Footer:
    """Return a data file's footer."""
    holes = OffsetSets()
    holes.add_range("1", 3, 5)
    return Footer(
        version=1,
        dataset_urn=_URN,
        epoch=7,
        run_id=RUN_ID,
        work_unit_id="00003_000000",
        attempt="aabb",
        records=12,
        offsets=offsets().to_text(),
        holes=holes.to_text(),
        incarnation="h5drPULeSTOCj/uzUbU6qg",
        content_sum=_CONTENT,
        branch="hourly",
        branches=("hourly", "daily"),
        makes_several=True,
        stripped=True,
        filtered={"daily": offsets().to_text()},
        filtered_by={"daily.filter": 12},
        number=2,
    )


def footer_of_replacing() -> Footer:
    """Return the footer of reprocessed records that replace others."""
    return msgspec.structs.replace(footer(), kind="rejected", replaces=(4, 6), publish="replace")


TOMBSTONE = Tombstone(
    version=1,
    dataset_urn=_URN,
    epoch=7,
    run_id=RUN_ID,
    work_unit_id="00003_000000",
    attempt="aabb",
    base=6,
    branch="daily",
    records_reprocessed=12,
    records_written=10,
    records_rejected=3,
    files=(
        SupersededFile(
            f"_rejected/{folder_of(_URN)}/daily/0000000004-00003_000001-ccdd-0001.parquet", 4096, "0" * 16, 5
        ),
        SupersededFile(
            f"_rejected/{folder_of(_URN)}/daily/0000000006-00003_000000-eeff-0001.parquet", 8192, "f" * 16, 7
        ),
    ),
)

REPLACEMENT = Tombstone(
    version=1,
    dataset_urn=_URN,
    epoch=7,
    run_id=RUN_ID,
    work_unit_id="00003_000000",
    attempt="aabb",
    base=6,
    branch="",
    records_reprocessed=0,
    records_written=0,
    records_rejected=0,
    files=(
        SupersededFile(f"{folder_of(_URN)}/0000000006-00003_000000-eeff-0001.parquet", 8192, "", 7),
        SupersededFile(f"_rejected/{folder_of(_URN)}/_0000000006-00003_000000-{'a' * 32}.tombstone", 512, "", 0),
    ),
    publish="replace",
    published=(f"{folder_of(_URN)}/0000000007-00003_000000-ccdd-0001.parquet",),
    replaced=(ReplacedRecords("topic-id", ("main",), {"main": offsets().to_text()}),),
)

RETAINED = msgspec.structs.replace(
    REPLACEMENT,
    epoch=8,
    base=7,
    publish="expire",
    published=(),
    replaced=(
        *REPLACEMENT.replaced,
        ReplacedRecords("topic-id", ("main",), {"main": offsets().to_text()}, is_expired=True),
    ),
)
COMPACTION = msgspec.structs.replace(REPLACEMENT, files=REPLACEMENT.files[:1], publish="compact", replaced=())
HORIZON = ExpiryRequest(
    version=1, cutoff_ms=1_690_000_000_000, requested_ms=1_700_000_000_000, requested_by="á@host", after_epoch=7
)

KEPT_SCHEMA = StoredSchema(
    version=1,
    dataset=_URN,
    converter="late.json#2",
    schema={
        "id": "int64",
        "tags": ["string"],
        "buyer": {"name": "string", "seen": [{"ü": "bool"}]},
        "price": "float64",
    },
)

PIECE = SnapshotDelta(
    version=1,
    bucket=3,
    is_base=True,
    datasets={
        "orders": DatasetSnapshot(7, Watermark({"0": 1200, "1": 800}, "topic-id")),
        "café/東京": DatasetSnapshot(5, Watermark({"part": ("2024-01-01", 3)})),
        "empty": DatasetSnapshot(6, None),
    },
)
SEEN = BucketSnapshot(
    bucket=3,
    number=41,
    checksum="0123456789abcdef",
    deltas=("0000000007-00003-000000000041-fedcba9876543210.json",),
    total="00112233aabbccdd",
    open=1,
    decided_open=False,
)
ROOT = SnapshotManifest(
    version=1,
    epoch=7,
    phase=CutPhase.ENDED,
    run_id="20240101T000000-0123456789ab",
    time_ms=1_704_067_200_000,
    generation=1,
    parent=(7, 1),
    repeats_parent=False,
    is_settled=False,
    buckets={3: SnapshotBucket(7, SEEN)},
)


TABLE_ID = "0b9f1c52-7a44-4a57-9a3b-0d8f3a4c1e11"
"""The id of the table whose ledger the samples are."""
STORE_ID = "0f" * 16


def covered() -> tuple[Covered, ...]:
    """Return the input records of a ledger row: of an older incarnation, and of the present one in a fork."""
    holes = OffsetSets()
    holes.add_range("1", 3, 5)
    return (
        Covered(incarnation="older", offsets=offsets().to_text(), rows=9),
        Covered(
            incarnation="topic-id",
            branches=("late", "main"),
            offsets=offsets().to_text(),
            holes=holes.to_text(),
            filtered={"late": holes.to_text()},
            rows=11,
            duplicates=1,
            makes_several=True,
        ),
    )


def ledger_row() -> LedgerRow:
    """Return a ledger row with all fields set."""
    return LedgerRow(
        dataset_urn=_URN, branch="main", epoch=7, base=5, revoked=6, commit_id="0123456789abcdef" * 2, covered=covered()
    )


def ledger_parts() -> dict[str, msgspec.Struct]:
    """Return the parts of the ledgers of tables and of Kafka, by the name of their golden file."""
    rows = (ledger_row(), LedgerRow(dataset_urn="b", branch="main"))
    text = ledger_files._LedgerRoot(base=f"{'0a' * 32}.json", deltas=(f"{'0b' * 32}.json",))
    return {
        "table-text": ledger_files._LedgerRoot(rows=rows),
        "table-text-files": text,
        "table-file": ledger_files._File(table=TABLE_ID, store=STORE_ID, nonce=WRITER_ID, rows=rows),
        "delta-file": delta_ledger._File(
            table=TABLE_ID, store=STORE_ID, nonce=WRITER_ID, text=msgspec.json.encode(text).decode()
        ),
        "kafka-row": ledger_row(),
    }


MAINTENANCE: dict[str, MaintenanceKind] = {
    "maintenance-reprocess": ReprocessedFiles(
        "late", ("late", "main"), 5, (3, 4), ("_rejected/orders/0000000004-u-a-0001.parquet",)
    ),
    "maintenance-expire": ExpiryCutoff(1_700_000_000_000, 5),
    "maintenance-compact": CompactedFiles(
        "main", 5, ("orders/0000000003-u-a-0001.parquet", "orders/0000000004-u-b-0001.parquet")
    ),
}
"""Each kind of maintenance unit, by the name of the golden file with its property."""

"""One value of each stored format with all of its fields set: for golden files and for the fuzzer."""

from __future__ import annotations

import msgspec

from distcommit.fs.upload_marker import UploadMarker
from distcommit.model.log_records import (
    ByHand,
    Checkpoint,
    Cut,
    CutPhase,
    DatasetState,
    DatasetStatus,
    Decide,
    Done,
    Dropped,
    Failed,
    Fence,
    Gate,
    Generation,
    HandAction,
    Head,
    Heads,
    Intent,
    Left,
    LeftSequence,
    Moved,
    OpenSequence,
    Rebucket,
    Rebuilt,
    SealedSequence,
    SequenceName,
    SetWatermark,
    SetWatermarks,
    StepBatch,
)
from distcommit.model.run_outcome import RunOutcome
from distcommit.model.unread import FailedReading, Unread, UnreadDataset
from distcommit.model.urn import folder_of
from distcommit.model.watermark import Watermark
from distcommit.model.work import (
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
from distcommit.sinks.files.footer import Footer
from distcommit.sinks.files.offsets import OffsetSets
from distcommit.stores.claims import Owner
from distcommit.stores.horizons import RetentionHorizon
from distcommit.stores.job_lock import LockRecord
from distcommit.stores.job_store import StoreMarker
from distcommit.stores.kept_schemas import KeptSchema
from distcommit.stores.pinned import RecordedSettings
from distcommit.stores.plans import Lent, Manifest
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
from distcommit.stores.run_times import RunTime, TimeKind
from distcommit.stores.schedule_requests import ScheduleRequest
from distcommit.stores.segment import Segment
from distcommit.stores.tombstones import ReplacedRecords, RetiredFile, Tombstone
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
_ROWS = msgspec.msgpack.encode([list(msgspec.structs.astuple(_FILE))])
_SEQUENCE = SealedSequence(
    dataset_urn=_URN,
    epoch=7,
    low=_LOW,
    high=_HIGH,
    steps=(StepBatch("fs-rename", 1, _ROWS),),
    start={"2": 0},
    skipped=(_SKIPPED,),
    records=4,
    files=1,
    left_out="2 of 3 work units",
)
_MARK = Watermark({"": "2026-01-02T03:04:05Z"})
_FIRST = SealedSequence(
    "b", 7, None, _MARK, (StepBatch("high-watermark", 1, msgspec.msgpack.encode([["b", None, _MARK]])),)
)
_NAME = SequenceName(_URN, 7)

_HELD = Intent(7, (_FIRST,), Gate.HELD)
NOT_HELD = Intent(7, (_FIRST,))
"""As `intent-held`, from a program that knew of no holding."""

SEGMENTS = {
    "fence": Segment(7, WRITER_ID, Fence(7, RUN_ID)),
    "intent": Segment(7, WRITER_ID, Intent(7, (_SEQUENCE, _FIRST))),
    "intent-held": Segment(7, WRITER_ID, _HELD),
    "done": Segment(8, WRITER_ID, Done(8, (_NAME, SequenceName("b", 7)))),
    "failed": Segment(8, WRITER_ID, Failed(8, _NAME, True, "a staged file is lost")),
    "decide": Segment(7, WRITER_ID, Decide(7)),
    "dropped": Segment(8, WRITER_ID, Dropped(8, (SequenceName("b", 7),))),
    "by-hand": Segment(0, WRITER_ID, ByHand(HandAction.ACCEPT, _NAME, "ann@host")),
    "set-watermark": Segment(0, WRITER_ID, SetWatermark(_URN, Watermark({"0": 2.5}), "ann@host")),
    "checkpoint": Segment(
        9,
        WRITER_ID,
        Checkpoint(
            9,
            RUN_ID,
            (5, 7),
            (
                DatasetState(
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
                    done_left_out="1 of 2 work units",
                ),
                DatasetState("b"),
            ),
            12,
        ),
    ),
}

RECORDED_SETTINGS = RecordedSettings(
    1, {"source.type": "kafka", "source.dataset": "topic", "sink.type": "files"}, {"source.cluster": "cluster/ü"}
)
RUN_RECORD = RunRecord(
    version=1,
    job="samples",
    run_id=RUN_ID,
    epoch=7,
    command="run",
    who="ann@host",
    began_ms=1_700_000_000_000,
    ended_ms=1_700_000_012_345,
    outcome=RunOutcome.INCOMPLETE,
    error_kind="",
    error="ingest: task 1 failed: no space",
    phases=(
        RecordedPhase("recover", 1.25, True, {"buckets": 4, "datasets_quarantined": 1}),
        RecordedPhase("plan", 0.5, False, {"datasets_planned": 2}),
    ),
    totals={"buckets": 4, "datasets_quarantined": 1, "datasets_planned": 2},
    quarantined=RecordedReasons((RecordedReason("größe/1", "quarantined", "a sealed commit step is lost"),), 0),
    held=RecordedReasons((), 3),
    reasons=RecordedReasons((RecordedReason("bucket 3", "CorruptError", "cut"),), 2),
)
RUN_BEGINNING = RunBeginning(
    version=1,
    job="samples",
    run_id=RUN_ID,
    epoch=7,
    command="run",
    who="ann@host",
    began_ms=1_700_000_000_000,
    facts=RunFacts(
        config={"job": "samples", "source": {"type": "kafka", "client": {"sasl.password": "***"}}},
        versions={"python": "3.11.7"},
        host="host",
        pid=4711,
        job_file="/jobs/größe.yaml",
        locked=False,
        kept_runs=100,
        kept_tables=10,
    ),
)
CANCEL_REQUEST = CancelRequest(1, 7, "ann@host", 1_700_000_000_001)
SCHEDULE_REQUEST = ScheduleRequest(1, "ann@host", 1_700_000_000_001)
RUN_DATASETS = [
    RunDataset("größe/1", 3, "published", 20, 2, 1),
    RunDataset("b", 0, "failed", kind="failed", reason="1 of 2 work units failed"),
]
RUN_TIMES = [
    RunTime("ingest", 3, "host", 4711, 4700, TimeKind.TASK, "", 1_700_000_000_000, 1_700_000_009_000, 2),
    RunTime("ingest", 3, "host", 4711, 4700, TimeKind.PUBLISHED, "größe/1", 1_700_000_008_000, 1_700_000_008_500, 20),
    RunTime("ingest", 3, "host", 4711, 4700, TimeKind.SEALED, "b", 1_700_000_008_001, 1_700_000_008_001),
    RunTime("ingest", 3, "host", 4711, 4700, TimeKind.COMMITS, "", 1_700_000_007_900, 1_700_000_008_600, 1),
]
OWNER = Owner(1, "0f" * 16, "samples", "/data/stores/samples")

SEGMENTS_2 = {
    "set-watermarks": Segment(0, WRITER_ID, SetWatermarks({_URN: _LOW, "b": _MARK}, "ann@host")),
    "rebuilt": Segment(
        9,
        WRITER_ID,
        Rebuilt(
            9,
            (
                DatasetState(_URN, watermark=_LOW, closed_epoch=9, done_epoch=6, origin={"0": 0}, skipped=(_SKIPPED,)),
                DatasetState("b"),
            ),
            "ann@host",
        ),
    ),
}
"""Segments of version 2."""

SEGMENTS_3 = {
    "left": Segment(
        9, WRITER_ID, Left(9, (LeftSequence(_URN, 7, "the output is full"), LeftSequence("b", 7, "locked")), True)
    ),
    "by-hand-quarantine": Segment(0, WRITER_ID, ByHand(HandAction.QUARANTINE, _NAME, "ann@host")),
    "by-hand-given-up": Segment(0, WRITER_ID, ByHand(HandAction.GIVEN_UP, _NAME, "ann@host")),
    "checkpoint-outage": Segment(
        9,
        WRITER_ID,
        Checkpoint(
            9,
            RUN_ID,
            (),
            (DatasetState(_URN, OpenSequence(DatasetStatus.PENDING, _SEQUENCE, reason="x", outage=True)),),
            12,
        ),
    ),
}
"""Segments that came with reasons of what is pending: of version 3, and a checkpoint that shows one."""

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
]

_COMPOSITE = Watermark({"": (1_700_000_000_000_000_001, "a/ü b.csv", 2.5), "0": ()})
COMPOSITE_SEGMENT = Segment(0, WRITER_ID, SetWatermark(_URN, _COMPOSITE, "ann@host"))
OPEN_ENDED_PLAN = [
    DatasetPlan(
        _URN,
        _COMPOSITE,
        Watermark({"1": 0}),
        (WorkUnit("00003_000000", _URN, Watermark({"": _COMPOSITE.positions[""], "1": 0}), Watermark({}), 4),),
    )
]
"""A plan that does not know how far its work unit goes."""

_RESULT = BranchResult(
    MAIN_BRANCH,
    "",
    (_FILE, msgspec.structs.replace(_FILE, final_path="_rejected/x.parquet", records=1)),
    records_written=3,
    records_diverted=1,
)
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
        branches=(_RESULT,),
        records_read=4,
        bytes_read=100,
        started_ms=1_700_000_000_000,
        finished_ms=1_700_000_000_250,
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

_INFOS = ({"staged": "rows-1", "records": 4, "ratio": 0.5, "whole": True}, [2**64 - 1, -1, None, b"\xff"], "ü")
TASK_STATES_WITH_INFOS = [
    msgspec.structs.replace(TASK_STATES[0], branches=(msgspec.structs.replace(_RESULT, files=(), infos=_INFOS),)),
    TASK_STATES[1],
]
"""What the writers of a sink of the user's own report."""
SINK = "testing-sample"
"""The name of the sink whose commit is sealed in `SINK_SEGMENT`."""
_SINK_ROWS = msgspec.msgpack.encode([[SINK, _URN, 7, list(_INFOS)]])
_SINK_SEQUENCE = SealedSequence(
    _URN, 7, _LOW, _HIGH, (StepBatch("sink-commit", 1, _SINK_ROWS),), start={"2": 0}, records=4
)
SINK_SEGMENT = Segment(7, WRITER_ID, Intent(7, (_SINK_SEQUENCE,)))

_SINK_ROWS_2 = msgspec.msgpack.encode([[SINK, _URN, 7, list(_INFOS), "main"]])
SINK_SEGMENT_2 = Segment(
    7,
    WRITER_ID,
    Intent(7, (msgspec.structs.replace(_SINK_SEQUENCE, steps=(StepBatch("sink-commit", 2, _SINK_ROWS_2),)),)),
)
"""The same with branches."""

_SINK_ROWS_3 = msgspec.msgpack.encode([[SINK, _URN, 7, list(_INFOS), "main", [0, 5], 2, ["a1"]]])
SINK_SEGMENT_3 = Segment(
    7,
    WRITER_ID,
    Intent(7, (msgspec.structs.replace(_SINK_SEQUENCE, steps=(StepBatch("sink-commit", 3, _SINK_ROWS_3),)),)),
)
"""The same with what the target's ledger may have before, the version of the infos, and whose they are."""

_HOLE = SkippedRange("0", 8, 9, "no record", True, "topic-id")
TASK_STATES_WITH_HOLES = [
    msgspec.structs.replace(TASK_STATES[0], branches=(msgspec.structs.replace(_RESULT, holes=(_HOLE,)),)),
    TASK_STATES[1],
]
"""What is reported of positions without a record that no file could name."""
TASK_STATES_WITH_BRANCHES = [
    msgspec.structs.replace(
        TASK_STATES[0],
        branches=(
            msgspec.structs.replace(_RESULT, sink="files", holes=(_HOLE,), content_sum="00a1b2c3d4e5f607"),
            BranchResult("late", SINK, infos=_INFOS, records_written=2),
        ),
    ),
    TASK_STATES[1],
]
"""What is reported of two branches, and of none."""
TASK_STATES_WITH_CONSTRUCTS = [
    msgspec.structs.replace(
        TASK_STATES[0],
        branches=(
            BranchResult(
                "hourly",
                "files",
                (_FILE,),
                records_written=2,
                checks=(CheckOutcome("row_count", True, True, "2 records"), CheckOutcome("fresh", False, False, "old")),
            ),
            BranchResult("errors/hourly", "files", (_FILE,), records_diverted=1),
        ),
        constructs=(
            ConstructCounts("", "json", 4, 3, 1, 0, 0, 0.25),
            ConstructCounts("hourly", "not_null", 3, 2, 0, 1),
        ),
    ),
    TASK_STATES[1],
]
"""What is reported of constructs and checks."""
TASK_STATES_WITH_OPTIONAL = [
    msgspec.structs.replace(
        TASK_STATES[0],
        branches=(
            BranchResult("hourly", "files", (_FILE,), records_written=2),
            BranchResult("late", SINK, error="ZeroDivisionError: division by zero", error_construct="sql#2"),
            BranchResult("errors/late", "files", (_FILE,), records_diverted=2),
        ),
        schemas={"avro": (7, 2_147_483_647), "late.protobuf#2": (1,)},
    ),
    TASK_STATES[1],
]
"""What is reported of an optional branch that failed, and of schemas."""
HOLES_SEGMENT = Segment(7, WRITER_ID, Intent(7, (msgspec.structs.replace(_SEQUENCE, skipped=(_SKIPPED, _HOLE)),)))
"""Seals such holes."""
_CONTENT = "00a1b2c3d4e5f607"
SEGMENTS_WITH_CONTENT = {
    "intent-content": Segment(7, WRITER_ID, Intent(7, (msgspec.structs.replace(_SEQUENCE, content_sum=_CONTENT),))),
    "checkpoint-content": Segment(
        9,
        WRITER_ID,
        Checkpoint(9, RUN_ID, (), (DatasetState(_URN, done_epoch=7, done_files=1, done_content_sum=_CONTENT),), 12),
    ),
}
"""Seal such a sum, and remember it of what is done."""
_SCHEMAS = {"avro": (7, 2_147_483_647), "late.protobuf#2": (1,)}
SEGMENTS_WITH_SCHEMAS = {
    "intent-schemas": Segment(7, WRITER_ID, Intent(7, (msgspec.structs.replace(_SEQUENCE, schemas=_SCHEMAS),))),
    "checkpoint-schemas": Segment(
        9, WRITER_ID, Checkpoint(9, RUN_ID, (), (DatasetState(_URN, done_epoch=7, schemas=_SCHEMAS),), 12)
    ),
}
"""Seal schemas, and remember them."""
_TARGETS = {"main": (7,), "late": (0, 5), "older": ()}
SEGMENTS_WITH_TARGETS = {
    "intent-targets": Segment(7, WRITER_ID, Intent(7, (msgspec.structs.replace(_SEQUENCE, targets=_TARGETS),))),
    "checkpoint-targets": Segment(
        9, WRITER_ID, Checkpoint(9, RUN_ID, (), (DatasetState(_URN, done_epoch=7, targets=_TARGETS),), 12)
    ),
}
"""Seal what targets' ledgers may have, and remember it."""
PUBLISHED_SEGMENT = Segment(7, WRITER_ID, Intent(7, (msgspec.structs.replace(_SEQUENCE, steps=()),), Gate.PASSED))
"""Seals and closes what at-least-once has published."""

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
_RENAME_SEQUENCE = SealedSequence(
    _URN, 7, _LOW, _HIGH, (StepBatch("fs-rename", 2, _RENAME_ROWS),), start={"2": 0}, records=12, files=3
)
RENAME_SEGMENT = Segment(7, WRITER_ID, Intent(7, (_RENAME_SEQUENCE,)))
"""Seals the renames of `RENAMES`, as version 2 of them is stored."""

MANIFEST = Manifest(
    3,
    RUN_ID,
    7,
    {3: "ffee.parquet", 12: "ddcc.parquet", 28: "ddcc.parquet"},
    (((3, "00003_000000"), (12, "x")), ()),
    (Lent(1, 12, 40, 90), Lent(2, 12, 90, 1 << 53)),
)
MARKER = StoreMarker("distcommit-store", 1, "job", 16, "0123456789abcdef0123456789abcdef")
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
    """A gap-free range, a set with holes, and offsets beyond 32 bits."""
    made = OffsetSets()
    made.add_range("0", 5, 9)
    for first in (0, 2, 7, 2**40):
        made.add_range("1", first, first + 1)
    made.add_range("ü", 2**32 - 2, 2**32 + 2)
    return made


def footer_with_holes() -> Footer:
    """A data file's footer that names holes, and the topic that offsets count in."""
    holes = OffsetSets()
    holes.add_range("1", 3, 5)
    return msgspec.structs.replace(footer(), holes=holes.to_text(), incarnation="h5drPULeSTOCj/uzUbU6qg")


def footer_with_content() -> Footer:
    """A data file's footer that says what its records come to."""
    return msgspec.structs.replace(footer_with_holes(), content_sum=_CONTENT)


def footer() -> Footer:
    """A data file's footer."""
    return Footer(
        version=1,
        dataset_urn=_URN,
        epoch=7,
        run_id=RUN_ID,
        work_unit_id="00003_000000",
        attempt="aabb",
        records=12,
        offsets=offsets().to_text(),
    )


def footer_with_branches() -> Footer:
    """Of a file behind a fork, that names what was filtered."""
    return msgspec.structs.replace(
        footer(),
        version=2,
        branch="hourly",
        branches=("hourly", "daily"),
        makes_several=True,
        stripped=True,
        filtered={"daily": offsets().to_text()},
        filtered_by={"daily.filter": 12},
        number=2,
    )


def footer_of_replaced() -> Footer:
    """Of records that were fed again, of error files of two epochs."""
    return msgspec.structs.replace(footer_with_branches(), version=3, replaces=(4, 6))


def footer_of_replacing() -> Footer:
    """Of records that took the place of others."""
    return msgspec.structs.replace(footer_with_branches(), version=4, publish="replace")


TOMBSTONE = Tombstone(
    version=1,
    dataset_urn=_URN,
    epoch=7,
    run_id=RUN_ID,
    work_unit_id="00003_000000",
    attempt="aabb",
    base=6,
    branch="daily",
    fed=12,
    written=10,
    rejected=3,
    files=(
        RetiredFile(f"_rejected/{folder_of(_URN)}/daily/0000000004-00003_000001-ccdd-0001.parquet", 4096, "0" * 16, 5),
        RetiredFile(f"_rejected/{folder_of(_URN)}/daily/0000000006-00003_000000-eeff-0001.parquet", 8192, "f" * 16, 7),
    ),
)

REPLACEMENT = Tombstone(
    version=2,
    dataset_urn=_URN,
    epoch=7,
    run_id=RUN_ID,
    work_unit_id="00003_000000",
    attempt="aabb",
    base=6,
    branch="",
    fed=0,
    written=0,
    rejected=0,
    files=(
        RetiredFile(f"{folder_of(_URN)}/0000000006-00003_000000-eeff-0001.parquet", 8192, "", 7),
        RetiredFile(f"_rejected/{folder_of(_URN)}/_0000000006-00003_000000-{'a' * 32}.tombstone", 512, "", 0),
    ),
    publish="replace",
    published=(f"{folder_of(_URN)}/0000000007-00003_000000-ccdd-0001.parquet",),
    replaced=(ReplacedRecords("topic-id", ("main",), {"main": offsets().to_text()}),),
)

RETAINED = msgspec.structs.replace(
    REPLACEMENT,
    version=3,
    epoch=8,
    base=7,
    publish="retain",
    published=(),
    replaced=(
        *REPLACEMENT.replaced,
        ReplacedRecords("topic-id", ("main",), {"main": offsets().to_text()}, retained=True),
    ),
)
HORIZON = RetentionHorizon(
    version=1, before_ms=1_690_000_000_000, asked_ms=1_700_000_000_000, who="á@host", after_epoch=7
)

KEPT_SCHEMA = KeptSchema(
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

_HEADS = (Head(0, 12, "00000000deadbeef"), Head(3, 1, "0123456789abcdef", False))
_REBUCKET = Rebucket(9, 1, 64, {"source.dataset": "topic"})
SEGMENTS_4 = {
    "cut-began": Segment(9, WRITER_ID, Cut(9, CutPhase.BEGAN, _HEADS)),
    "cut-ended": Segment(9, WRITER_ID, Cut(9, CutPhase.ENDED, _HEADS)),
    "heads": Segment(0, WRITER_ID, Heads(_HEADS[:1], "ann@host")),
    "rebucket": Segment(9, WRITER_ID, _REBUCKET),
    "moved": Segment(9, WRITER_ID, Moved(9, 1)),
    "generation": Segment(9, WRITER_ID, Generation(9, 1)),
    "checkpoint-job": Segment(9, WRITER_ID, Checkpoint(9, RUN_ID, (5, 7), (), 3, (9, 8), _HEADS, 1, 64, _REBUCKET)),
}
"""What came with anchors and generations."""

_UNREAD = FailedReading(9, 3, _HIGH, "SourceError: gone", True)
SEGMENTS_5 = {
    "unread": Segment(
        9,
        WRITER_ID,
        Unread(
            9,
            (
                UnreadDataset(_URN, _LOW, _HIGH, "SourceError: gone", stops=True),
                UnreadDataset("b", None, _MARK, "TransientError: no answer", outage=True),
            ),
        ),
    ),
    "by-hand-read-again": Segment(0, WRITER_ID, ByHand(HandAction.READ_AGAIN, SequenceName(_URN, 9), "ann@host")),
    "checkpoint-unread": Segment(
        9, WRITER_ID, Checkpoint(9, RUN_ID, (), (DatasetState(_URN, watermark=_LOW, unread=_UNREAD),), 12)
    ),
}
"""Segments that came with what could not be read: of version 5, and a checkpoint that shows it."""

"""Stored names: renaming a class, field or enum member must not change a format.

The tables below repeat tags, keys, values and names of the formats as text. If a test fails here after a rename, give
the class an explicit tag, or the field an explicit stored name. Any other change is a new format version.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Iterable, Iterator
from enum import Enum
from importlib import import_module
from typing import get_args

import msgspec
import pyarrow as pa
import pytest

from distcommit.core.interfaces.file_system import FileStatus, FolderEntry
from distcommit.core.interfaces.ledger import LEDGER_VERSION, Covered, LedgerRow
from distcommit.core.interfaces.source_table import EXTRACT, Extract, TableType
from distcommit.core.interfaces.work_unit_settings import SETTINGS
from distcommit.core.records import maintenance_units
from distcommit.core.records.bucket_and_dataset_snapshots import BucketSnapshot, DatasetSnapshot
from distcommit.core.records.deferred_records import DeferredCause, DeferredCounts
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
    SetWatermark,
    SetWatermarks,
)
from distcommit.core.records.maintenance_units import CompactedFiles, ExpiryCutoff, MaintenanceKind, ReprocessedFiles
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
from distcommit.core.records.run_reasons import Cause, Reason, Reasons
from distcommit.core.records.sealed_sequences import PostponedSequence, SealedSequence, SequenceName, StepBatch
from distcommit.core.watermark import Watermark
from distcommit.core.work_units import (
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
from distcommit.engine.planning import read_priority
from distcommit.engine.run_events import DatasetQuarantined, SequenceDone, SequenceSealed, WorkUnitDone
from distcommit.fs.fsspec_based.input_files import InputFile
from distcommit.fs.object_stores.staged_upload_marker import MARKER_VERSION, UploadMarker
from distcommit.pipeline import converter_schema_ids, task_attempt
from distcommit.protocol.paths import output, shared_names, store
from distcommit.sinks.delta import ledger as delta_ledger
from distcommit.sinks.files import offset_sets
from distcommit.sinks.files.footer import FOOTER_VERSION, Footer
from distcommit.sinks.files.formats.file_tail import TAIL_VERSION, FileTail
from distcommit.sinks.files.offset_sets import OFFSETS_VERSION
from distcommit.sinks.table_formats.ledger_files import LedgerFile, _File, _LedgerRoot
from distcommit.sources.files.plan_dataset import LISTED
from distcommit.sources.files.progress import ListedFile
from distcommit.sources.kafka import topics
from distcommit.sources.micro_batch import spooled_batch
from distcommit.sources.micro_batch.spool import SpoolIndex
from distcommit.sources.spark.staged_row_files import StagedFrame, StagedPart
from distcommit.steps.rename_step import FsRenameCommitStep, _FileRow, _FolderRow
from distcommit.steps.sink_step import SinkCommitStep
from distcommit.steps.watermark_step import HighWatermarkCommitStep
from distcommit.stores.folders.folder_ownership import OWNER_VERSION, Owner
from distcommit.stores.folders.run_markers import Marker
from distcommit.stores.folders.tombstones import TOMBSTONE_VERSION, ReplacedRecords, SupersededFile, Tombstone
from distcommit.stores.history.attempt_counts import Attempt
from distcommit.stores.history.run_records import (
    BEGINNING_VERSION,
    CANCEL_VERSION,
    RECORD_VERSION,
    CancelRequest,
    RecordedPhase,
    RunBeginning,
    RunFacts,
    RunRecord,
)
from distcommit.stores.history.run_table import DatasetOutcome, RowKind, TableRow, TaskIdentity, TaskRows
from distcommit.stores.logs.segment_format import FORMAT_VERSION
from distcommit.stores.operator.schedule_requests import REQUEST_VERSION, ScheduleRequest
from distcommit.stores.schemas.schema_store import SCHEMA_VERSION, StoredSchema
from distcommit.stores.snapshots.expiry_requests import EXPIRY_REQUEST_VERSION, ExpiryRequest
from distcommit.stores.snapshots.snapshot_deltas import DELTA_VERSION, SnapshotDelta
from distcommit.stores.snapshots.snapshot_manifests import SNAPSHOT_VERSION, SnapshotBucket, SnapshotManifest
from distcommit.stores.state.job_lock import LockRecord
from distcommit.stores.state.job_store import STORE_VERSION, StoreMarker
from distcommit.stores.state.recorded_fixed_settings import SETTINGS_VERSION, RecordedSettings, RecordMark
from distcommit.stores.state.run_plans import MANIFEST_VERSION, LentUnits, Manifest
from distcommit.stores.state.table_schemas import (
    PLAN_SCHEMA,
    RUN_TABLE_SCHEMA,
    TASK_STATE_SCHEMA,
    VERSION_KEY,
)
from distcommit.stores.state.work_units_being_read import NOTE_VERSION, ReadingNote

STRUCTS: list[tuple[type[msgspec.Struct], str | None, bool, str]] = [
    (Fence, "Fence", True, "epoch run_id"),
    (Intent, "Intent", True, "epoch sequences gate"),
    (Done, "Done", True, "epoch sequences"),
    (Failed, "Failed", True, "epoch sequence quarantine reason"),
    (Postponed, "Postponed", True, "epoch sequences outage"),
    (Decide, "Decide", True, "epoch"),
    (Dropped, "Dropped", True, "epoch sequences"),
    (OperatorDecision, "OperatorDecision", True, "action sequence requested_by skipped"),
    (SetWatermark, "SetWatermark", True, "dataset_urn watermark requested_by"),
    (SetWatermarks, "SetWatermarks", True, "watermarks requested_by"),
    (Rebuilt, "Rebuilt", True, "epoch datasets requested_by"),
    (Cut, "Cut", True, "epoch phase heads"),
    (Heads, "Heads", True, "heads requested_by"),
    (Rebucket, "Rebucket", True, "epoch generation buckets settings"),
    (Moved, "Moved", True, "epoch generation"),
    (Generation, "Generation", True, "epoch generation"),
    (
        Checkpoint,
        "Checkpoint",
        True,
        "fence_epoch fence_run_id decided_epochs datasets previous cut_epochs heads generation buckets "
        "pending_rebucket",
    ),
    (Head, None, True, "bucket number checksum is_complete"),
    (
        SealedSequence,
        None,
        True,
        "dataset_urn epoch low high steps start skipped records files partial_reason content_sum schemas targets "
        "replaces run",
    ),
    (SequenceName, None, True, "dataset_urn epoch"),
    (PostponedSequence, None, True, "dataset_urn epoch reason change steps"),
    (StepBatch, None, True, "type_name version rows"),
    (OpenSequence, None, True, "status sequence held tried_epochs reason outage changes"),
    (EarlierReading, None, True, "watermark origin"),
    (
        DatasetState,
        None,
        True,
        "dataset_urn open watermark closed_epoch done_epoch origin skipped accepted_epochs done_records "
        "done_files done_partial_reason done_content_sum read_failure schemas targets unset_watermark replacement "
        "earlier_readings previous_run",
    ),
    (PreviousRun, None, True, "epoch work_units omitted_count"),
    (
        WorkUnitResult,
        None,
        True,
        "work_unit_id outcome is_committed attempts low expected_high actual_high properties",
    ),
    (ReadFailures, "ReadFailures", True, "epoch datasets"),
    (DatasetReadFailure, None, True, "dataset_urn low expected_high reason stops outage run"),
    (ReadFailure, None, True, "epoch failed_runs expected_high reason stopped outage"),
    (SkippedRange, None, True, "partition low high reason is_hole incarnation"),
    (StagedFile, None, True, "staged_path final_path size_bytes checksum file_id mtime_ns records"),
    (Watermark, None, True, "positions incarnation"),
    (BucketSnapshot, None, False, "bucket number checksum deltas total open decided_open"),
    (DatasetSnapshot, None, True, "done_epoch watermark"),
    (
        RunCounts,
        None,
        False,
        "buckets sequences_replayed sequences_postponed sequences_dropped executions_failed datasets_planned "
        "datasets_skipped datasets_committed datasets_published datasets_partial datasets_sealed datasets_held "
        "datasets_failed datasets_unchanged datasets_quarantined work_units work_units_failed work_units_suspected "
        "attempts attempts_failed attempt_ms records_read records_written records_rejected records_published "
        "positions_lost bytes_read files_published files_swept steps_executed commit_attempts commit_successes "
        "commit_retries commit_failures commit_in_doubt target_ms size_planned storage_requests deferred flow",
    ),
    (DeferredCounts, None, False, "causes"),
    (DeferredCause, None, False, "cause datasets records is_minimum largest"),
    (
        ConstructCounts,
        None,
        True,
        "branch construct records_in records_out rejected filtered noted seconds",
    ),
    (FlowCounts, None, False, "constructs checks failures sinks counters"),
    (
        SinkCounts,
        None,
        False,
        "branch sink records_written files_written commit_attempts commit_successes commit_retries commit_failures "
        "commit_in_doubt target_ms",
    ),
    (SinkCounter, None, False, "branch sink name count"),
    (CheckCounts, None, True, "branch checker mandatory passed failed"),
    (BranchFailures, None, True, "branch construct work_units"),
    (LedgerRow, None, False, "dataset_urn branch epoch base revoked commit_id covered"),
    (Covered, None, False, "incarnation branches offsets holes filtered rows duplicates makes_several"),
    (StoreMarker, None, False, "format version job buckets store_id"),
    (RecordedSettings, None, False, "version settings source_facts unfixed_values mark"),
    (Owner, None, False, "version store_id job store"),
    (Manifest, None, False, "version run_id epoch files large_units lent_ranges"),
    (LentUnits, None, True, "partition bucket begin end"),
    (
        SnapshotManifest,
        None,
        False,
        "version epoch phase run_id time_ms generation parent repeats_parent is_settled buckets",
    ),
    (SnapshotBucket, None, False, "epoch snapshot"),
    (SnapshotDelta, None, False, "version bucket is_base datasets"),
    (StoredSchema, None, False, "version dataset converter schema"),
    (ExpiryRequest, None, False, "version cutoff_ms requested_ms requested_by after_epoch"),
    (
        Tombstone,
        None,
        False,
        "version dataset_urn epoch run_id work_unit_id attempt base branch records_reprocessed records_written "
        "records_rejected files "
        "publish published replaced",
    ),
    (SupersededFile, None, False, "path size_bytes checksum records"),
    (ReplacedRecords, None, False, "incarnation branches offsets is_expired"),
    (
        RunRecord,
        None,
        False,
        "version job run_id epoch command requested_by began_ms ended_ms outcome error_kind error phases totals "
        "quarantined held reasons notes",
    ),
    (RunBeginning, None, False, "version job run_id epoch command requested_by began_ms facts"),
    (
        RunFacts,
        None,
        False,
        "config versions host pid job_file is_locked retained_runs retained_tables settings_digest",
    ),
    (CancelRequest, None, False, "version epoch requested_by at_ms"),
    (ReadingNote, None, False, "version epoch dataset_urn work_unit_id low expected_high is_alone has_died"),
    (RecordedPhase, None, False, "name seconds completed counts"),
    (Reasons, None, False, "entries omitted_count"),
    (Reason, None, False, "subject kind text remedy"),
    (ScheduleRequest, None, False, "version requested_by at_ms"),
    (LockRecord, None, False, "owner_id run_id host pid process_start renewed_ms lease_ttl_s released"),
    (UploadMarker, None, False, "version upload_id target object_id closed parts size_bytes checksum"),
    (
        Footer,
        None,
        False,
        "version dataset_urn epoch run_id work_unit_id attempt records offsets kind holes incarnation "
        "content_sum branch branches makes_several stripped filtered filtered_by number replaces publish "
        "checksum",
    ),
    (FileTail, None, False, "version metadata schema others_checksum"),
    (WorkUnitDone, "WorkUnitDone", False, "dataset work_unit started_ms finished_ms counts error"),
    (SequenceSealed, "SequenceSealed", False, "dataset epoch records files held at_ms"),
    (SequenceDone, "SequenceDone", False, "dataset epoch records files at_ms"),
    (DatasetQuarantined, "DatasetQuarantined", False, "dataset epoch reason at_ms"),
    (ListedFile, None, True, "pattern path size_bytes mtime_ns etag"),
    (ReprocessedFiles, "reprocess", False, "branch branches base epochs files"),
    (ExpiryCutoff, "expire", False, "cutoff_ms base"),
    (CompactedFiles, "compact", False, "branch base files"),
    (Extract, None, False, "namespace table type keys delta_fields"),
    (SpoolIndex, None, False, "rows unnamed"),
    (StagedFrame, None, False, "parts column kind bound end error remedy reader greatest"),
    (StagedPart, None, False, "attempt files rows nulls newest"),
    (_FolderRow, None, True, "staged final files"),
    (_FileRow, None, True, "name size_bytes checksum file_id mtime_ns records staged_name"),
    (offset_sets._Text, None, False, "version checksum partitions"),
    (_LedgerRoot, None, False, "version rows base deltas"),
    (_File, None, False, "version table store nonce rows"),
    (delta_ledger._File, None, False, "version table store nonce text"),
]
"""Stored structures: the tag, whether it is an array, and the fields in order or the keys."""

NOT_STORED: list[type[msgspec.Struct]] = [
    *(FileStatus, FolderEntry, InputFile, Cause, MaintenanceKind, LedgerFile),
    *(WorkUnit, DatasetPlan, TaskState, BranchResult, CheckOutcome),  # columns of tables
    *(Attempt, TableRow, TaskIdentity, TaskRows),  # columns of the run table
]
"""Structures of the packages below that are never encoded, or only as parts of the structures and tables above."""

STORING = ("avro", "core", "fs", "pipeline", "protocol", "schemas", "sinks", "sources", "steps", "stores")
"""Packages whose structures are stored, unless they are in `NOT_STORED`."""

ENUMS: list[tuple[type[Enum], list[str | int]]] = [
    (Gate, ["open", "held", "passed"]),
    (OperatorAction, ["retry", "accept", "revoking", "restored", "abandoned", "quarantine", "given-up", "read-again"]),
    (DatasetStatus, ["idle", "pending", "quarantined", "revoking"]),
    (CutPhase, [1, 2]),
    (RunOutcome, ["succeeded", "incomplete", "held back", "fenced", "interrupted", "failed"]),
    (RecordMark, ["announced", "final"]),
    (TaskOutcome, ["succeeded", "failed", "partial"]),
    (
        TableType,
        ["snapshot_only", "append_only", "snapshot_append"],
    ),
    (Marker, ["began", "ended", "clean", "rebuild", "unsealed"]),
    (RowKind, ["task", "commits", "dataset", "outcome"]),
    (
        DatasetOutcome,
        [
            "",
            "replayed",
            "published",
            "partly published",
            "unchanged",
            "held",
            "failed",
            "postponed",
            "quarantined",
            "skipped",
            "read",
        ],
    ),
]
"""The stored values of enums."""

TABLES: list[tuple[pa.Schema, list[str]]] = [
    (
        PLAN_SCHEMA,
        [
            "dataset_urn string",
            "planned_low string",
            "start string",
            "skipped string",
            "work_unit_id string",
            "low string",
            "expected_high string",
            "size int64",
            "properties string",
        ],
    ),
    (
        TASK_STATE_SCHEMA,
        [
            "run_id string",
            "epoch int64",
            "dataset_urn string",
            "work_unit_id string",
            "attempt string",
            "outcome string",
            "low string",
            "expected_high string",
            "actual_high string",
            "branches[].branch string",
            "branches[].sink string",
            "branches[].files[].staged_path string",
            "branches[].files[].final_path string",
            "branches[].files[].size_bytes int64",
            "branches[].files[].checksum uint64",
            "branches[].files[].file_id uint64",
            "branches[].files[].mtime_ns int64",
            "branches[].files[].records int64",
            "branches[].infos[] binary",
            "branches[].records_written int64",
            "branches[].records_rejected int64",
            "branches[].holes string",
            "branches[].content_sum string",
            "branches[].checks[].checker string",
            "branches[].checks[].passed bool",
            "branches[].checks[].mandatory bool",
            "branches[].checks[].detail string",
            "branches[].error string",
            "branches[].error_construct string",
            "records_read int64",
            "bytes_read int64",
            "error string",
            "started_ms int64",
            "finished_ms int64",
            "constructs[].branch string",
            "constructs[].construct string",
            "constructs[].records_in int64",
            "constructs[].records_out int64",
            "constructs[].rejected int64",
            "constructs[].filtered int64",
            "constructs[].noted int64",
            "constructs[].seconds double",
            "schemas string",
            "properties string",
        ],
    ),
    (
        RUN_TABLE_SCHEMA,
        [
            "row_kind string",
            "phase string",
            "task int32",
            "writer string",
            "host string",
            "pid int64",
            "daemon_pid int64",
            "dataset string",
            "bucket int32",
            "began_ms int64",
            "ended_ms int64",
            "outcome string",
            "kind string",
            "reason string",
            "work_units int64",
            "datasets_committed int64",
            "records_published int64",
            "files_published int64",
            "positions_lost int64",
            "storage_requests int64",
            "commit_attempts int64",
            "commit_successes int64",
            "commit_retries int64",
            "commit_failures int64",
            "commit_in_doubt int64",
            "target_ms int64",
        ],
    ),
]
"""The columns of tables, with their types."""

_NAMES = """
    STORE_MARKER=store.json SETTINGS=settings JOB_LOG=log/job GENERATIONS=log/generations PLANS=plans
    TASK_STATES=task_states PROGRESS=progress SET_ASIDE=set_aside RUNS=runs SCHEDULE=schedule PAUSED=paused.json
    EXPIRY_REQUESTS=expiry_requests RUN_TABLES=run_tables LOCK=lock SCHEMAS=schemas SNAPSHOTS=snapshots
    SNAPSHOT_DELTAS=snapshots/deltas MANIFEST=_manifest.json INGEST_ENDED=_INGEST_ENDED BEGUN=begun CANCEL=cancel
    SEGMENT_SUFFIX=.seg
"""
FOLDERS = dict(pair.split("=", 1) for pair in _NAMES.split())
"""Names of folders and files in the store, by constant."""


@pytest.mark.parametrize(("kind", "tag", "is_array", "fields"), STRUCTS, ids=[kind.__name__ for kind, *_ in STRUCTS])
def test_struct_is_stored_under_these_names(
    kind: type[msgspec.Struct], tag: str | None, is_array: bool, fields: str
) -> None:
    config = kind.__struct_config__
    assert (config.tag, config.array_like) == (tag, is_array)
    assert kind.__struct_encode_fields__ == tuple(fields.split())


def structures() -> Iterator[type[msgspec.Struct]]:
    """Yield the structures that the storing packages define. Those named `_Version` have the field `version` only."""
    for package in STORING:
        root = import_module(f"distcommit.{package}")
        for module in pkgutil.walk_packages(root.__path__, f"{root.__name__}."):
            for value in vars(import_module(module.name)).values():
                if isinstance(value, type) and issubclass(value, msgspec.Struct) and value.__module__ == module.name:
                    yield value


def test_each_structure_is_pinned_or_is_not_stored() -> None:
    pinned = [kind for kind, *_ in STRUCTS]
    defined = {kind for kind in structures() if kind.__name__ != "_Version"}
    assert {kind.__qualname__ for kind in defined - {*pinned, *NOT_STORED}} == set()
    assert set(pinned).isdisjoint(NOT_STORED)


def test_work_unit_properties_are_stored_under_these_names() -> None:
    assert (EXTRACT, SETTINGS, LISTED) == ("extract", "settings", "files")
    assert maintenance_units._KEY == "maintenance"
    assert converter_schema_ids._PROPERTY == "converter_schemas"
    assert read_priority._PROPERTY == "urgency"
    assert task_attempt.MAX_BYTES == topics.MAX_BYTES == "max_bytes"
    assert (spooled_batch._ATTEMPTS, spooled_batch._ROWS) == ("attempts", "rows")


def test_property_of_a_maintenance_unit_names_its_kind() -> None:
    kinds = get_args(maintenance_units._KINDS)
    assert {kind.__struct_config__.tag_field for kind in kinds} == {"kind"}
    assert {kind for kind, tag, *_ in STRUCTS if issubclass(kind, MaintenanceKind)} == set(kinds)


@pytest.mark.parametrize(("kind", "values"), ENUMS, ids=[kind.__name__ for kind, _ in ENUMS])
def test_enum_is_stored_by_these_values(kind: type[Enum], values: list[str | int]) -> None:
    assert [member.value for member in kind] == values


def columns_of(fields: Iterable[pa.Field], above: str = "") -> Iterator[str]:
    """Yield the columns with their types; fields of structures are named by their paths."""
    for field in fields:
        kind, name = field.type, above + field.name
        if pa.types.is_list(kind):
            kind, name = kind.value_type, f"{name}[]"
        if pa.types.is_struct(kind):
            yield from columns_of(kind, f"{name}.")
        else:
            yield f"{name} {kind}"


@pytest.mark.parametrize(("schema", "columns"), TABLES, ids=["plan", "task states", "run table"])
def test_table_has_these_columns(schema: pa.Schema, columns: list[str]) -> None:
    assert [*columns_of(schema)] == columns
    assert schema.metadata == {VERSION_KEY: b"1"}
    assert VERSION_KEY == b"distcommit-table-version"


def test_store_has_these_names() -> None:
    assert {name: getattr(store, name) for name in FOLDERS} == FOLDERS
    assert (shared_names.OWNERSHIP_FOLDER, shared_names.OWNER) == (".distcommit", "owner.json")
    assert output.REJECTED_FOLDER == "_rejected"
    assert store.run_name("x") == "run=x"
    assert store.partition_name(1, 2) == "partition=00001-of-00002"
    assert store.log_folder(0, 3) == "log/bucket=00003"
    assert store.log_folder(2, 3) == "log/generations/00002/bucket=00003"


def test_commit_steps_are_stored_under_these_names_and_versions() -> None:
    kinds = (FsRenameCommitStep, SinkCommitStep, HighWatermarkCommitStep)
    assert [(kind.type_name, kind.version) for kind in kinds] == [
        ("fs-rename", 1),
        ("sink-commit", 1),
        ("high-watermark", 1),
    ]


def test_every_format_has_version_1() -> None:
    versions = {
        FORMAT_VERSION,
        STORE_VERSION,
        SETTINGS_VERSION,
        OWNER_VERSION,
        MANIFEST_VERSION,
        SNAPSHOT_VERSION,
        DELTA_VERSION,
        SCHEMA_VERSION,
        EXPIRY_REQUEST_VERSION,
        TOMBSTONE_VERSION,
        RECORD_VERSION,
        BEGINNING_VERSION,
        CANCEL_VERSION,
        REQUEST_VERSION,
        MARKER_VERSION,
        FOOTER_VERSION,
        TAIL_VERSION,
        OFFSETS_VERSION,
        NOTE_VERSION,
        LEDGER_VERSION,
    }
    assert versions == {1}

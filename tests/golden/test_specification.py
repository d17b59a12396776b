"""The format specification names each stored field and column, in order."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import msgspec
import pytest

from distcommit.core.records.bucket_and_dataset_snapshots import BucketSnapshot, DatasetSnapshot
from distcommit.core.records.deferred_records import DeferredCause, DeferredCounts
from distcommit.core.records.job_log_records import Head
from distcommit.core.records.log_records import DatasetState, EarlierReading, OpenSequence, Record
from distcommit.core.records.read_failure_records import DatasetReadFailure, ReadFailure
from distcommit.core.records.run_counts import (
    BranchFailures,
    CheckCounts,
    FlowCounts,
    RunCounts,
    SinkCounter,
    SinkCounts,
)
from distcommit.core.records.run_reasons import Reason, Reasons
from distcommit.core.records.sequences import PostponedSequence, SealedSequence, SequenceName, StepBatch
from distcommit.core.watermark import Watermark
from distcommit.core.work_units import ConstructCounts, SkippedRange
from distcommit.sinks.files.footer import Footer
from distcommit.sinks.files.formats.file_tail import FileTail
from distcommit.stores.folders.folder_claims import Owner
from distcommit.stores.folders.tombstones import ReplacedRecords, SupersededFile, Tombstone
from distcommit.stores.history.run_records import CancelRequest, RecordedPhase, RunBeginning, RunFacts, RunRecord
from distcommit.stores.operator.schedule_requests import ScheduleRequest
from distcommit.stores.schemas.schema_store import StoredSchema
from distcommit.stores.snapshots.expiry_requests import ExpiryRequest
from distcommit.stores.snapshots.snapshot_deltas import SnapshotDelta
from distcommit.stores.snapshots.snapshot_manifests import SnapshotBucket, SnapshotManifest
from distcommit.stores.state.job_lock import LockRecord
from distcommit.stores.state.job_store import StoreMarker
from distcommit.stores.state.recorded_fixed_settings import RecordedSettings
from distcommit.stores.state.run_plans import Manifest
from distcommit.stores.state.table_schemas import PLAN_SCHEMA, RUN_TABLE_SCHEMA, TASK_STATE_SCHEMA
from distcommit.stores.state.work_units_being_read import ReadingNote

PAGE = (Path(__file__).parent / "README.md").read_text(encoding="utf-8")
STRUCTS: list[type[msgspec.Struct]] = [
    *get_args(Record),
    *(Head, SealedSequence, SequenceName, PostponedSequence, StepBatch, SkippedRange, Watermark),
    *(DatasetReadFailure, ReadFailure, OpenSequence, EarlierReading, DatasetState),
    *(StoreMarker, RecordedSettings, StoredSchema, Manifest, LockRecord, Footer, FileTail, Owner),
    *(RunCounts, DeferredCounts, DeferredCause, FlowCounts, ConstructCounts, CheckCounts, BranchFailures),
    *(SinkCounts, SinkCounter),
    *(Tombstone, SupersededFile, ReplacedRecords, ExpiryRequest, ScheduleRequest),
    *(RunRecord, RecordedPhase, Reasons, Reason, RunBeginning, RunFacts, CancelRequest, ReadingNote),
    *(SnapshotManifest, SnapshotBucket, BucketSnapshot, SnapshotDelta, DatasetSnapshot),
]
BRANCH = TASK_STATE_SCHEMA.field("branches").type.value_type


@pytest.mark.parametrize("kind", STRUCTS, ids=lambda kind: kind.__name__)
def test_specification_names_each_field_in_its_order(kind: type[msgspec.Struct]) -> None:
    name = kind.__struct_config__.tag or kind.__name__
    assert f"\n| {name} | {', '.join(kind.__struct_fields__)} |\n" in PAGE


@pytest.mark.parametrize(
    ("table", "names"),
    [
        ("plan", PLAN_SCHEMA.names),
        ("task states", TASK_STATE_SCHEMA.names),
        ("run table", RUN_TABLE_SCHEMA.names),
        ("branches", [field.name for field in BRANCH]),
        ("files", [field.name for field in BRANCH.field("files").type.value_type]),
        ("checks", [field.name for field in BRANCH.field("checks").type.value_type]),
        ("constructs", [field.name for field in TASK_STATE_SCHEMA.field("constructs").type.value_type]),
    ],
)
def test_specification_names_each_column_in_its_order(table: str, names: list[str]) -> None:
    assert f"\n| {table} | {', '.join(names)} |\n" in PAGE

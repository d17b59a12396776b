"""The pages on stored formats name each stored field and column, in order."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import msgspec
import pytest

import distcommit
from distcommit.core.interfaces.ledger import Covered, LedgerRow
from distcommit.core.interfaces.source_table import EXTRACT, Extract
from distcommit.core.interfaces.work_unit_settings import SETTINGS
from distcommit.core.records import maintenance_units
from distcommit.core.records.bucket_and_dataset_snapshots import BucketSnapshot, DatasetSnapshot
from distcommit.core.records.deferred_records import DeferredCause, DeferredCounts
from distcommit.core.records.job_log_records import Head
from distcommit.core.records.log_records import DatasetState, EarlierReading, OpenSequence, Record
from distcommit.core.records.maintenance_units import CompactedFiles, ExpiryCutoff, ReprocessedFiles
from distcommit.core.records.previous_run import PreviousRun, WorkUnitResult
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
from distcommit.core.records.sealed_sequences import PostponedSequence, SealedSequence, SequenceName, StepBatch
from distcommit.core.watermark import Watermark
from distcommit.core.work_units import ConstructCounts, SkippedRange
from distcommit.engine.planning import read_priority
from distcommit.fs.object_stores.staged_upload_marker import UploadMarker
from distcommit.pipeline import converter_schema_ids, task_attempt
from distcommit.sinks.databases.row_loading_committer import LEDGER_COLUMNS
from distcommit.sinks.delta import ledger as delta_ledger
from distcommit.sinks.files import offset_sets
from distcommit.sinks.files.footer import Footer
from distcommit.sinks.files.formats.file_tail import FileTail
from distcommit.sinks.table_formats import ledger_files
from distcommit.sources.files.plan_dataset import LISTED
from distcommit.sources.files.progress import ListedFile
from distcommit.stores.folders.folder_ownership import Owner
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

REFERENCE = Path(distcommit.__file__).parents[1] / "conf" / "docs" / "reference"
PAGES = "\n".join(
    page.read_text(encoding="utf-8") for page in (*sorted(REFERENCE.glob("formats*.md")), REFERENCE / "log-records.md")
)
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
    *(PreviousRun, WorkUnitResult, UploadMarker, Extract, ListedFile, LedgerRow, Covered),
    *(ReprocessedFiles, ExpiryCutoff, CompactedFiles),
]
NAMED = {
    "text": ledger_files._LedgerRoot,
    "file": ledger_files._File,
    "file of a Delta text": delta_ledger._File,
    "OffsetSets": offset_sets._Text,
}
"""Structures whose names in the code are private, by their name on the pages."""
BRANCH = TASK_STATE_SCHEMA.field("branches").type.value_type


@pytest.mark.parametrize("kind", STRUCTS, ids=lambda kind: kind.__name__)
def test_specification_names_each_field_in_its_order(kind: type[msgspec.Struct]) -> None:
    name = kind.__struct_config__.tag or kind.__name__
    assert f"\n| {name} | {', '.join(kind.__struct_fields__)} |\n" in PAGES


@pytest.mark.parametrize("name", NAMED)
def test_specification_names_each_field_of_a_private_structure(name: str) -> None:
    assert f"\n| {name} | {', '.join(NAMED[name].__struct_fields__)} |\n" in PAGES


def test_specification_names_the_columns_of_a_ledger_in_a_database() -> None:
    assert PAGES.count(f" store, {LEDGER_COLUMNS}, target, ") == 3


def test_specification_names_each_property_of_a_work_unit() -> None:
    known = (maintenance_units._KEY, EXTRACT, SETTINGS, converter_schema_ids._PROPERTY, read_priority._PROPERTY)
    for name in (*known, task_attempt.MAX_BYTES, LISTED):
        assert f"\n| `{name}` | " in PAGES


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
    assert f"\n| {table} | {', '.join(names)} |\n" in PAGES

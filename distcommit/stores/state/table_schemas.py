"""The columns of stored tables."""

from __future__ import annotations

import pyarrow as pa

from distcommit.core.records.run_counts import COMMIT_COUNTS

STAGED_FILE = pa.struct(
    [
        pa.field("staged_path", pa.string(), nullable=False),
        pa.field("final_path", pa.string(), nullable=False),
        pa.field("size_bytes", pa.int64(), nullable=False),
        pa.field("checksum", pa.uint64(), nullable=False),
        pa.field("file_id", pa.uint64(), nullable=False),
        pa.field("mtime_ns", pa.int64(), nullable=False),
        pa.field("records", pa.int64(), nullable=False),
    ]
)
VERSION_KEY = b"distcommit-table-version"


def _required(name: str, kind: pa.DataType) -> pa.Field:
    return pa.field(name, kind, nullable=False)


def _many(kind: pa.DataType) -> pa.DataType:
    return pa.list_(_required("element", kind))


CHECK = pa.struct(
    [
        _required("checker", pa.string()),
        _required("passed", pa.bool_()),
        _required("mandatory", pa.bool_()),
        _required("detail", pa.string()),
    ]
)
BRANCH = [
    _required("branch", pa.string()),
    _required("sink", pa.string()),
    _required("files", _many(STAGED_FILE)),
    _required("infos", _many(pa.binary())),
    _required("records_written", pa.int64()),
    _required("records_rejected", pa.int64()),
    _required("holes", pa.string()),
    _required("content_sum", pa.string()),
    _required("checks", _many(CHECK)),
    _required("error", pa.string()),
    _required("error_construct", pa.string()),
]
CONSTRUCT = pa.struct(
    [
        _required("branch", pa.string()),
        _required("construct", pa.string()),
        *(_required(name, pa.int64()) for name in ("records_in", "records_out", "rejected", "filtered", "noted")),
        _required("seconds", pa.float64()),
    ]
)


TASK_STATE_SCHEMA = pa.schema(
    [
        _required("run_id", pa.string()),
        _required("epoch", pa.int64()),
        _required("dataset_urn", pa.string()),
        _required("work_unit_id", pa.string()),
        _required("attempt", pa.string()),
        _required("outcome", pa.string()),
        _required("low", pa.string()),
        _required("expected_high", pa.string()),
        _required("actual_high", pa.string()),
        _required("branches", _many(pa.struct(BRANCH))),
        _required("records_read", pa.int64()),
        _required("bytes_read", pa.int64()),
        _required("error", pa.string()),
        _required("started_ms", pa.int64()),
        _required("finished_ms", pa.int64()),
        _required("constructs", _many(CONSTRUCT)),
        _required("schemas", pa.string()),
        _required("properties", pa.string()),
    ],
    metadata={VERSION_KEY: b"1"},
)
"""A row for each attempt at a work unit. Watermarks, holes, schemas and properties are JSON (a watermark is
`[{partition: position}, incarnation]`); each commit info is MessagePack."""

PLAN_SCHEMA = pa.schema(
    [
        pa.field("dataset_urn", pa.string(), nullable=False),
        ("planned_low", pa.string()),
        pa.field("start", pa.string(), nullable=False),
        pa.field("skipped", pa.string(), nullable=False),
        pa.field("work_unit_id", pa.string(), nullable=False),
        pa.field("low", pa.string(), nullable=False),
        pa.field("expected_high", pa.string(), nullable=False),
        pa.field("size", pa.int64(), nullable=False),
        pa.field("properties", pa.string(), nullable=False),
    ],
    metadata={VERSION_KEY: b"1"},
)
"""A row for each work unit, with its dataset's values."""

RUN_TABLE_SCHEMA = pa.schema(
    [
        _required("row_kind", pa.string()),
        _required("phase", pa.string()),
        _required("task", pa.int32()),
        _required("writer", pa.string()),
        _required("host", pa.string()),
        _required("pid", pa.int64()),
        _required("daemon_pid", pa.int64()),
        _required("dataset", pa.string()),
        _required("bucket", pa.int32()),
        _required("began_ms", pa.int64()),
        _required("ended_ms", pa.int64()),
        _required("outcome", pa.string()),
        _required("kind", pa.string()),
        _required("reason", pa.string()),
        _required("work_units", pa.int64()),
        _required("datasets_committed", pa.int64()),
        _required("records_published", pa.int64()),
        _required("files_published", pa.int64()),
        _required("positions_lost", pa.int64()),
        _required("storage_requests", pa.int64()),
        *(_required(name, pa.int64()) for name in COMMIT_COUNTS),
    ],
    metadata={VERSION_KEY: b"1"},
)
"""A row for each task attempt with work, each commit pass, each dataset with commits or requests, and each outcome."""

"""The columns of plans and task states, in each version of their format."""

from __future__ import annotations

import pyarrow as pa

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


_HEAD = [
    _required("run_id", pa.string()),
    _required("epoch", pa.int64()),
    _required("dataset_urn", pa.string()),
    _required("work_unit_id", pa.string()),
    _required("attempt", pa.string()),
    _required("outcome", pa.string()),
    _required("low", pa.string()),
    _required("expected_high", pa.string()),
    _required("actual_high", pa.string()),
]
_TAIL = [
    _required("bytes_read", pa.int64()),
    _required("error", pa.string()),
    _required("started_ms", pa.int64()),
    _required("finished_ms", pa.int64()),
]
UNCHECKED_BRANCH = [
    _required("branch", pa.string()),
    _required("sink", pa.string()),
    _required("files", _many(STAGED_FILE)),
    _required("infos", _many(pa.binary())),
    _required("records_written", pa.int64()),
    _required("records_diverted", pa.int64()),
    _required("holes", pa.string()),
    _required("content_sum", pa.string()),
]
CHECK = pa.struct(
    [
        _required("checker", pa.string()),
        _required("passed", pa.bool_()),
        _required("mandatory", pa.bool_()),
        _required("detail", pa.string()),
    ]
)
_MANDATORY_BRANCH = [*UNCHECKED_BRANCH, _required("checks", _many(CHECK))]
_BRANCH = [*_MANDATORY_BRANCH, _required("error", pa.string()), _required("error_construct", pa.string())]
CONSTRUCT = pa.struct(
    [
        _required("branch", pa.string()),
        _required("construct", pa.string()),
        *(_required(name, pa.int64()) for name in ("taken", "made", "rejected", "filtered", "noted")),
        _required("seconds", pa.float64()),
    ]
)


def _with_branches(branch: list[pa.Field]) -> list[pa.Field]:
    return [*_HEAD, _required("branches", _many(pa.struct(branch))), _required("records_read", pa.int64()), *_TAIL]


TASK_STATE_SCHEMA = pa.schema(
    [*_with_branches(_BRANCH), _required("constructs", _many(CONSTRUCT)), _required("schemas", pa.string())],
    metadata={VERSION_KEY: b"6"},
)
"""One row for each attempt at a work unit. Watermarks are JSON: `[{partition: position}, incarnation]`, and so are
holes and schemas; commit infos are MessagePack, each by itself."""

_MANDATORY = pa.schema(
    [*_with_branches(_MANDATORY_BRANCH), _required("constructs", _many(CONSTRUCT))], metadata={VERSION_KEY: b"5"}
)
"""As it was before a branch could fail alone."""

_UNCHECKED = pa.schema(_with_branches(UNCHECKED_BRANCH), metadata={VERSION_KEY: b"4"})
"""As it was before constructs had counts and checks outcomes."""

_WITHOUT_BRANCHES = pa.schema(
    [
        *_HEAD,
        _required("outputs", _many(STAGED_FILE)),
        _required("records_read", pa.int64()),
        _required("records_written", pa.int64()),
        _required("records_diverted", pa.int64()),
        *_TAIL,
    ],
    metadata={VERSION_KEY: b"1"},
)
"""As it was before there were branches: files in a column of the row; version 2 also has commit infos, and version 3
holes. Read, no longer written."""

_WITH_INFOS = _WITHOUT_BRANCHES.append(_required("commit_infos", _many(pa.binary()))).with_metadata({VERSION_KEY: b"2"})
_WITH_HOLES = _WITH_INFOS.append(_required("holes", pa.string())).with_metadata({VERSION_KEY: b"3"})

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
"""One row for each work unit; what concerns its dataset is repeated on each row."""

RUN_DATASETS_SCHEMA = pa.schema(
    [
        _required("dataset", pa.string()),
        _required("bucket", pa.int32()),
        _required("outcome", pa.string()),
        _required("records", pa.int64()),
        _required("files", pa.int64()),
        _required("positions_lost", pa.int64()),
        _required("kind", pa.string()),
        _required("reason", pa.string()),
    ],
    metadata={VERSION_KEY: b"1"},
)
"""One row for each dataset that a phase of a run has something to tell of."""

RUN_TIMES_SCHEMA = pa.schema(
    [
        _required("phase", pa.string()),
        _required("task", pa.int32()),
        _required("host", pa.string()),
        _required("pid", pa.int64()),
        _required("daemon_pid", pa.int64()),
        _required("kind", pa.string()),
        _required("dataset", pa.string()),
        _required("began_ms", pa.int64()),
        _required("ended_ms", pa.int64()),
        _required("count", pa.int64()),
    ],
    metadata={VERSION_KEY: b"2"},
)
"""One row for each task of a phase that had something to commit, for each time over its buckets in which it did, and
for each dataset that it has sealed or published, or that took requests."""

TASK_STATES = {
    b"1": _WITHOUT_BRANCHES,
    b"2": _WITH_INFOS,
    b"3": _WITH_HOLES,
    b"4": _UNCHECKED,
    b"5": _MANDATORY,
    b"6": TASK_STATE_SCHEMA,
}
PLANS = {b"1": PLAN_SCHEMA}

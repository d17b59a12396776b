"""The Parquet form of plans and task states: one file, whole or absent, readable by Spark, DuckDB or pandas."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from operator import attrgetter
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from xxhash import xxh3_64_hexdigest

from distcommit.model.errors import CorruptError, UnknownVersionError
from distcommit.model.sink import check_plain
from distcommit.model.watermark import Watermark
from distcommit.model.work import DatasetPlan, SkippedRange, StagedFile, TaskOutcome, TaskState, WorkUnit

_STAGED_FILE = pa.struct(
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
_VERSION_KEY = b"distcommit-table-version"

TASK_STATE_SCHEMA = pa.schema(
    [
        pa.field("run_id", pa.string(), nullable=False),
        pa.field("epoch", pa.int64(), nullable=False),
        pa.field("dataset_urn", pa.string(), nullable=False),
        pa.field("work_unit_id", pa.string(), nullable=False),
        pa.field("attempt", pa.string(), nullable=False),
        pa.field("outcome", pa.string(), nullable=False),
        pa.field("low", pa.string(), nullable=False),
        pa.field("expected_high", pa.string(), nullable=False),
        pa.field("actual_high", pa.string(), nullable=False),
        pa.field("outputs", pa.list_(pa.field("element", _STAGED_FILE, nullable=False)), nullable=False),
        pa.field("records_read", pa.int64(), nullable=False),
        pa.field("records_written", pa.int64(), nullable=False),
        pa.field("records_diverted", pa.int64(), nullable=False),
        pa.field("bytes_read", pa.int64(), nullable=False),
        pa.field("error", pa.string(), nullable=False),
        pa.field("started_ms", pa.int64(), nullable=False),
        pa.field("finished_ms", pa.int64(), nullable=False),
    ],
    metadata={_VERSION_KEY: b"1"},
)
"""One row for each attempt at a work unit. Watermarks are JSON: `[{partition: position}, incarnation]`."""

TASK_STATE_SCHEMA_2 = TASK_STATE_SCHEMA.append(
    pa.field("commit_infos", pa.list_(pa.field("element", pa.binary(), nullable=False)), nullable=False)
).with_metadata({_VERSION_KEY: b"2"})
"""With the commit infos of a sink, each in MessagePack. Written only where there are any, so that all other rows stay
readable for programs that know version 1."""

TASK_STATE_SCHEMA_3 = TASK_STATE_SCHEMA_2.append(pa.field("holes", pa.string(), nullable=False)).with_metadata(
    {_VERSION_KEY: b"3"}
)
"""With holes that no file names, as JSON. Written only where there are any."""

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
    metadata={_VERSION_KEY: b"1"},
)
"""One row for each work unit; what concerns its dataset is repeated on each row."""

_TASK_STATES = {b"1": TASK_STATE_SCHEMA, b"2": TASK_STATE_SCHEMA_2, b"3": TASK_STATE_SCHEMA_3}
_PLANS = {b"1": PLAN_SCHEMA}
_WATERMARKS = ("low", "expected_high", "actual_high")
_JSON = (*_WATERMARKS, "holes")
_encode = msgspec.json.Encoder(order="sorted").encode
_watermark = msgspec.json.Decoder(Watermark).decode
_file = attrgetter(*(field.name for field in _STAGED_FILE))
_skipped = msgspec.json.Decoder(tuple[SkippedRange, ...]).decode


def table_name(stem: str, data: bytes) -> str:
    """The name of a table file. It ends in the checksum of the bytes: Parquet's own covers pages, not their headers."""
    return f"{stem}-{xxh3_64_hexdigest(data)}.parquet"


def check_table(data: bytes, path: str) -> bytes:
    """Returns the bytes of a table file if they are those that its name was made for.

    Raises:
        CorruptError: if they are others.
    """
    if not path.endswith(f"-{xxh3_64_hexdigest(data)}.parquet"):
        raise _corrupt(path, "bytes that do not match the checksum in the name")
    return data


def encode_task_states(states: Sequence[TaskState]) -> bytes:
    """The rows as a Parquet file."""
    schema = TASK_STATE_SCHEMA_2 if any(state.commit_infos for state in states) else TASK_STATE_SCHEMA
    if any(state.holes for state in states):
        schema = TASK_STATE_SCHEMA_3
    rows = [tuple(_stored(name, getattr(state, name)) for name in schema.names) for state in states]
    batch = pa.RecordBatch.from_struct_array(pa.array(rows, pa.struct(list(schema))))
    return _write(pa.Table.from_batches([batch.replace_schema_metadata(schema.metadata)]))


def _stored(name: str, value: Any) -> Any:
    """The value of a task state's column."""
    if name == "outputs":
        return [*map(_file, value)]
    if name == "commit_infos":
        return [*map(msgspec.msgpack.encode, value)]
    return _encode(value).decode() if name in _JSON else value


def decode_task_states(data: bytes, path: str) -> list[TaskState]:
    """The rows of a file.

    Raises:
        CorruptError: if the file is not one that `encode_task_states` wrote.
    """
    stored = _read(data, path, _TASK_STATES)
    try:
        outputs = stored["outputs"].combine_chunks()
        if isinstance(outputs, pa.ChunkedArray):
            outputs = outputs.chunk(0) if outputs.num_chunks else pa.array([], TASK_STATE_SCHEMA.field("outputs").type)
        bounds = outputs.offsets.to_pylist()
        files = [
            StagedFile(*row)
            for row in zip(*(outputs.values.field(i).to_pylist() for i in range(_STAGED_FILE.num_fields)), strict=True)
        ]
        columns: dict[str, list[Any]] = {
            name: column.to_pylist() for name, column in stored.items() if name != "outputs"
        }
        for name in _WATERMARKS:
            columns[name] = [_watermark(text) for text in columns[name]]
        columns["outcome"] = [TaskOutcome(text) for text in columns["outcome"]]
        columns["outputs"] = [tuple(files[low:high]) for low, high in pairwise(bounds)]
        if "commit_infos" in columns:
            columns["commit_infos"] = [tuple(map(_plain, infos)) for infos in columns["commit_infos"]]
        if "holes" in columns:
            columns["holes"] = [_skipped(text) for text in columns["holes"]]
        return [TaskState(*row) for row in zip(*(columns[name] for name in stored), strict=True)]
    except (msgspec.DecodeError, TypeError, ValueError, RecursionError, pa.ArrowException) as error:
        raise _corrupt(path, str(error)) from error


def encode_plan(plans: Sequence[DatasetPlan]) -> bytes:
    """The plans of one bucket as a Parquet file."""
    rows = [(plan, unit) for plan in plans for unit in plan.work_units]
    columns = {
        "dataset_urn": [plan.dataset_urn for plan, _ in rows],
        "planned_low": [_encode(plan.planned_low).decode() if plan.planned_low else None for plan, _ in rows],
        "start": [_encode(plan.start).decode() for plan, _ in rows],
        "skipped": [_encode(plan.skipped).decode() for plan, _ in rows],
        "work_unit_id": [unit.work_unit_id for _, unit in rows],
        "low": [_encode(unit.low).decode() for _, unit in rows],
        "expected_high": [_encode(unit.expected_high).decode() for _, unit in rows],
        "size": [unit.size for _, unit in rows],
        "properties": [_encode(unit.properties).decode() for _, unit in rows],
    }
    return _write(pa.table(columns, schema=PLAN_SCHEMA))


def decode_plan(data: bytes, path: str) -> list[DatasetPlan]:
    """The plans of a bucket, work units in their order.

    Raises:
        CorruptError: if the file is not one that `encode_plan` wrote.
    """
    stored = _read(data, path, _PLANS)
    try:
        units: dict[str, list[WorkUnit]] = {}
        heads: dict[str, tuple[Watermark | None, Watermark, tuple[SkippedRange, ...]]] = {}
        for row in zip(*(column.to_pylist() for column in stored.values()), strict=True):
            urn, planned_low, start, skipped, unit_id, low, high, size, properties = row
            if urn not in heads:
                heads[urn] = (
                    _watermark(planned_low) if planned_low is not None else None,
                    _watermark(start),
                    _skipped(skipped),
                )
            units.setdefault(urn, []).append(
                WorkUnit(
                    unit_id,
                    urn,
                    _watermark(low),
                    _watermark(high),
                    size,
                    msgspec.json.decode(properties, type=dict[str, str]),
                )
            )
        return [DatasetPlan(urn, head[0], head[1], tuple(units[urn]), head[2]) for urn, head in heads.items()]
    except (msgspec.DecodeError, TypeError, ValueError, RecursionError) as error:
        raise _corrupt(path, str(error)) from error


def _write(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(
        table,
        sink,
        compression="snappy",  # zstd costs half a millisecond a file in set-up alone, and these files are small
        write_statistics=False,
        use_dictionary=False,
        write_page_checksum=True,
    )
    return bytes(sink.getvalue())


def _plain(data: bytes) -> Any:
    value = msgspec.msgpack.decode(data)
    check_plain(value)
    return value


def _read(data: bytes, path: str, schemas: Mapping[bytes, pa.Schema]) -> dict[str, pa.ChunkedArray]:
    """The columns in the order of their schema."""
    try:
        table = pq.ParquetFile(pa.BufferReader(data), page_checksum_verification=True).read(use_threads=False)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise _corrupt(path, str(error)) from error
    version = (table.schema.metadata or {}).get(_VERSION_KEY, b"")
    schema = schemas.get(version)
    if schema is None and version.isdigit():
        raise UnknownVersionError(
            "a table file has an unknown format version",
            path=path,
            expected=b" or ".join(schemas).decode(),
            found=version.decode(),
            todo="run the version of distcommit that wrote it, or a newer one",
        )
    if schema is None or not table.schema.equals(schema):
        raise _corrupt(path, f"columns {table.schema.names}")
    columns = dict(zip(schema.names, table.itercolumns(), strict=True))
    if any(column.null_count and not schema.field(name).nullable for name, column in columns.items()):
        raise _corrupt(path, "nulls where there can be none")
    return columns


def _corrupt(path: str, found: str) -> CorruptError:
    return CorruptError(
        "a table file is corrupt",
        path=path,
        expected="a Parquet file of this version's columns",
        found=found[:500],
        todo="restore or delete the file; a run without it plans and reads its data again",
    )

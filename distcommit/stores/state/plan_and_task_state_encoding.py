"""The Parquet format of plans and task states."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from operator import attrgetter
from typing import Any, Literal

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from xxhash import xxh3_64_hexdigest

from distcommit.core.errors import CorruptError, UnknownVersionError
from distcommit.core.interfaces.committer import check_plain
from distcommit.core.support.decoding import json_decoder
from distcommit.core.task_properties import TaskProperties
from distcommit.core.watermark import Watermark
from distcommit.core.work_units import (
    BranchResult,
    CheckOutcome,
    ConstructCounts,
    DatasetPlan,
    SchemaIds,
    SkippedRange,
    StagedFile,
    TaskOutcome,
    TaskState,
    WorkUnit,
)
from distcommit.protocol.paths.store import has_checksum, table_file_name
from distcommit.stores.state.table_schemas import (
    BRANCH,
    CHECK,
    CONSTRUCT,
    PLAN_SCHEMA,
    STAGED_FILE,
    TASK_STATE_SCHEMA,
    VERSION_KEY,
)

_WATERMARKS = ("low", "expected_high", "actual_high")
_encode = msgspec.json.Encoder(order="sorted").encode
_CODES: dict[pa.DataType, Literal["q", "Q"]] = {pa.int64(): "q", pa.uint64(): "Q"}
_properties = json_decoder(dict[str, str]).decode
_task_properties = json_decoder(TaskProperties).decode
_watermark = json_decoder(Watermark).decode
_file_values = attrgetter(*(field.name for field in STAGED_FILE))
_check_values = attrgetter(*(field.name for field in CHECK))
_construct_values = attrgetter(*(field.name for field in CONSTRUCT))
_skipped = json_decoder(tuple[SkippedRange, ...]).decode
_schemas = json_decoder(SchemaIds).decode


def table_name(start: str, data: bytes) -> str:
    """Return a file name that ends in a checksum of the bytes, because Parquet's own checksums do not cover page
    headers."""
    return table_file_name(start, xxh3_64_hexdigest(data))


def check_table(data: bytes, path: str) -> bytes:
    """Return the bytes of a file. Raise CorruptError if they do not match the checksum in its name."""
    if not has_checksum(path, xxh3_64_hexdigest(data)):
        raise _corrupt(path, "bytes that do not match the checksum in the name")
    return data


def encode_task_states(states: Sequence[TaskState]) -> bytes:
    names = TASK_STATE_SCHEMA.names
    rows = [tuple(_column_value(name, getattr(state, name)) for name in names) for state in states]
    batch = pa.RecordBatch.from_struct_array(pa.array(rows, pa.struct(list(TASK_STATE_SCHEMA))))
    return _write(pa.Table.from_batches([batch.replace_schema_metadata(TASK_STATE_SCHEMA.metadata)]))


def _column_value(name: str, value: Any) -> Any:
    if name == "branches":
        return [*map(_branch_value, value)]
    if name == "constructs":
        return [*map(_construct_values, value)]
    return _encode(value).decode() if name in (*_WATERMARKS, "schemas", "properties") else value


def _branch_value(result: BranchResult) -> tuple[Any, ...]:
    return (
        result.branch,
        result.sink,
        [*map(_file_values, result.files)],
        [*map(msgspec.msgpack.encode, result.infos)],
        result.records_written,
        result.records_rejected,
        _encode(result.holes).decode(),
        result.content_sum,
        [*map(_check_values, result.checks)],
        result.error,
        result.error_construct,
    )


def decode_task_states(data: bytes, path: str) -> list[TaskState]:
    """Return the task states in a file. Raise UnknownVersionError or CorruptError."""
    stored = _read(data, path, TASK_STATE_SCHEMA)
    try:
        columns = {name: column.to_pylist() for name, column in stored.items() if name != "branches"}
        columns["schemas"] = [*map(_schemas, columns["schemas"])]
        columns["properties"] = [*map(_task_properties, columns["properties"])]
        columns["constructs"] = [tuple(ConstructCounts(**row) for row in rows) for rows in columns["constructs"]]
        for name in _WATERMARKS:
            columns[name] = [_watermark(text) for text in columns[name]]
        columns["outcome"] = [TaskOutcome(text) for text in columns["outcome"]]
        columns["branches"] = _branches(stored["branches"])
        return [TaskState(*row) for row in zip(*(columns[name] for name in TASK_STATE_SCHEMA.names), strict=True)]
    except (msgspec.DecodeError, TypeError, ValueError, RecursionError, pa.ArrowException) as error:
        raise _corrupt(path, str(error)) from error


def _branches(column: pa.ChunkedArray) -> list[tuple[BranchResult, ...]]:
    rows = _combined(column)
    columns = {field.name: rows.values.field(at) for at, field in enumerate(rows.values.type)}
    results = [
        BranchResult(
            branch,
            sink,
            files,
            tuple(map(_plain, infos)),
            written,
            records_rejected,
            _skipped(holes),
            content_sum,
            tuple(CheckOutcome(**check) for check in checks),
            *error,
        )
        for branch, sink, files, infos, written, records_rejected, holes, content_sum, checks, *error in zip(
            columns["branch"].to_pylist(),
            columns["sink"].to_pylist(),
            _files(columns["files"]),
            *(columns[field.name].to_pylist() for field in BRANCH[3:]),
            strict=True,
        )
    ]
    return [tuple(results[low:high]) for low, high in pairwise(rows.offsets.to_pylist())]


def _combined(column: pa.ChunkedArray) -> pa.ListArray:
    combined = column.combine_chunks()
    if isinstance(combined, pa.ChunkedArray):
        combined = combined.chunk(0) if combined.num_chunks else pa.array([], column.type)
    return combined


def _files(lists: pa.ListArray) -> list[tuple[StagedFile, ...]]:
    rows = zip(*(_values(lists.values.field(at)) for at in range(STAGED_FILE.num_fields)), strict=True)
    files = [StagedFile(*row) for row in rows]
    return [tuple(files[low:high]) for low, high in pairwise(lists.offsets.to_pylist())]


def _values(array: pa.Array) -> list[Any]:
    code = _CODES.get(array.type)
    if not code or array.null_count:
        return list(array.to_pylist())
    begin, end = 8 * array.offset, 8 * (array.offset + len(array))
    return memoryview(array.buffers()[1] or b"")[begin:end].cast(code).tolist()


def encode_plan(plans: Sequence[DatasetPlan]) -> bytes:
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
    """Return the plans in a file, with work units in order. Raise UnknownVersionError or CorruptError."""
    stored = _read(data, path, PLAN_SCHEMA)
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
                    _properties(properties),
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
        compression="snappy",  # zstd costs half a millisecond per file in set-up, and these files are small
        write_statistics=False,
        use_dictionary=False,
        write_page_checksum=True,
    )
    return bytes(sink.getvalue())


def _plain(data: bytes) -> Any:
    value = msgspec.msgpack.decode(data)
    check_plain(value)
    return value


def _read(data: bytes, path: str, schema: pa.Schema) -> dict[str, pa.ChunkedArray]:
    try:
        table = pq.ParquetFile(pa.BufferReader(data), page_checksum_verification=True).read(use_threads=False)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise _corrupt(path, str(error)) from error
    version, supported = (table.schema.metadata or {}).get(VERSION_KEY, b""), schema.metadata[VERSION_KEY]
    if version.isdigit() and version != supported:
        raise UnknownVersionError(
            "a table file has an unknown format version",
            path=path,
            expected=supported.decode(),
            found=version.decode(),
            todo="run the version of distcommit that wrote it",
        )
    if version != supported or not table.schema.equals(schema):
        raise _corrupt(path, f"columns {table.schema.names}")
    columns = dict(zip(schema.names, table.itercolumns(), strict=True))
    if any(column.null_count and not schema.field(name).nullable for name, column in columns.items()):
        raise _corrupt(path, "nulls in a column that must have none")
    return columns


def _corrupt(path: str, actual: str) -> CorruptError:
    return CorruptError(
        "a table file is corrupt",
        path=path,
        expected="a Parquet file with this version's columns",
        found=actual[:500],
        todo="restore or delete the file; a run without it plans and reads its data again",
    )

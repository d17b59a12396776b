"""The Parquet form of what executors leave of a run for people: no checksum in the name, and nothing depends on it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import json as pa_json

from distcommit.model.errors import CorruptError, UnknownVersionError
from distcommit.stores.table_schemas import VERSION_KEY


def encode_rows(schema: pa.Schema, columns: Mapping[str, Sequence[Any]]) -> bytes:
    """The columns as a Parquet file.

    By way of JSON: of lists of Python Arrow makes columns only once it has imported pandas, for which a new process has
    to wait 0.2 s: as long as for its part of a drain.
    """
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    sink = pa.BufferOutputStream()
    pq.write_table(_table(schema, rows), sink, compression="snappy", write_page_checksum=True)
    return bytes(sink.getvalue())


def _table(schema: pa.Schema, rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    if not rows:
        return schema.empty_table()
    lines = msgspec.json.Encoder().encode_lines(rows)
    found = pa_json.read_json(
        pa.BufferReader(lines),
        read_options=pa_json.ReadOptions(use_threads=False, block_size=len(lines) + 1),  # a row has to be in one block
        parse_options=pa_json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="error"),
    )
    return found.cast(schema)  # with what is noted in it


def decode_rows(
    data: bytes, schema: pa.Schema, what: str, path: str, *, older: Sequence[bytes] = ()
) -> list[tuple[Any, ...]]:
    """The rows of a file, in the order of the schema's columns.

    Args:
        older: versions whose columns are the same.

    Raises:
        UnknownVersionError, CorruptError: if the file is not one that `encode_rows` wrote with that schema.
    """
    try:
        table = pq.ParquetFile(pa.BufferReader(data), page_checksum_verification=True).read(use_threads=False)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise _corrupt(what, path, str(error)) from error
    version, ours = (table.schema.metadata or {}).get(VERSION_KEY, b""), schema.metadata[VERSION_KEY]
    if version.isdigit() and version not in (ours, *older):
        raise UnknownVersionError(
            f"{what} has an unknown format version",
            path=path,
            expected=ours.decode(),
            found=version.decode(),
            todo="run the version of distcommit that wrote it, or a newer one",
        )
    if not table.schema.equals(schema) or any(column.null_count for column in table.itercolumns()):
        raise _corrupt(what, path, f"columns {table.schema.names}")
    try:
        return list(zip(*(column.to_pylist() for column in table.itercolumns()), strict=True))
    except ValueError as error:  # text that is no UTF-8
        raise _corrupt(what, path, str(error)) from error


def _corrupt(what: str, path: str, found: str) -> CorruptError:
    return CorruptError(f"{what} is corrupt", path=path, found=found[:500], todo="delete it: nothing depends on it")

"""The Parquet format of run history that executors write. Names have no checksum, as nothing depends on these files."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from distcommit.core.errors import CorruptError, UnknownVersionError
from distcommit.stores.state.table_schemas import VERSION_KEY

_CODES = {pa.int32(): "i", pa.int64(): "q"}


def encode_rows(schema: pa.Schema, columns: Mapping[str, Sequence[Any]]) -> bytes:
    """Return the columns as a Parquet file.

    Arrow arrays are made from buffers. From Python lists Arrow makes them only after it has imported pandas, which
    costs a new process 0.2 s: as long as its part of a drain.
    """
    arrays = [_array(field.type, columns[field.name]) for field in schema]
    sink = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_arrays(arrays, schema=schema), sink, compression="snappy", write_page_checksum=True)
    return bytes(sink.getvalue())


def _array(kind: pa.DataType, values: Sequence[Any]) -> pa.Array:
    """Return an array of 32- or 64-bit integers, or of text, without nulls."""
    if kind != pa.string():
        return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(array(_CODES[kind], values))])
    texts = [value.encode() for value in values]
    ends = array(_CODES[pa.int32()], accumulate(map(len, texts), initial=0))
    return pa.Array.from_buffers(kind, len(texts), [None, pa.py_buffer(ends), pa.py_buffer(b"".join(texts))])


def decode_rows(data: bytes, schema: pa.Schema, what: str, path: str) -> list[tuple[Any, ...]]:
    """Return the rows of a file, in the order of the schema's columns.

    Raises:
        UnknownVersionError, CorruptError: if `encode_rows` did not write the file with that schema.
    """
    try:
        table = pq.ParquetFile(pa.BufferReader(data), page_checksum_verification=True).read(use_threads=False)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise _corrupt(what, path, str(error)) from error
    version, supported = (table.schema.metadata or {}).get(VERSION_KEY, b""), schema.metadata[VERSION_KEY]
    if version.isdigit() and version != supported:
        raise UnknownVersionError(
            f"{what} has an unknown format version",
            path=path,
            expected=supported.decode(),
            found=version.decode(),
            todo="run the version of distcommit that wrote it",
        )
    if not table.schema.equals(schema) or any(column.null_count for column in table.itercolumns()):
        raise _corrupt(what, path, f"columns {table.schema.names}")
    try:
        return list(zip(*(column.to_pylist() for column in table.itercolumns()), strict=True))
    except ValueError as error:  # text that is not UTF-8
        raise _corrupt(what, path, str(error)) from error


def _corrupt(what: str, path: str, found: str) -> CorruptError:
    return CorruptError(
        f"{what} is corrupt",
        id="RUN_STATISTICS_CORRUPT",
        path=path,
        found=found[:500],
        todo="delete it: nothing depends on it",
    )

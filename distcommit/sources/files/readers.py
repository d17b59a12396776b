"""Batches of the rows of one file."""

from __future__ import annotations

import gzip
import io
from collections.abc import Iterator
from threading import Lock
from typing import BinaryIO, Literal, cast

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from distcommit.sources.files.avro import read_avro

FileFormat = Literal["jsonl", "csv", "parquet", "avro"]
VALUE = pa.field("value", pa.binary())
"""The column of a line's bytes."""

_BLOCK_BYTES = 4 << 20
_MOST_LINE_BYTES = 256 << 20
_BATCH_ROWS = 64 << 10
_NEWLINE = 10


def batches(stream: BinaryIO, format_: FileFormat, is_compressed: bool, delimiter: str) -> Iterator[pa.RecordBatch]:
    """The rows of a file, in its order; the same batches each time.

    JSON lines are bytes, one row for each line that is not empty; all columns of CSV are text, named by its first line.

    Raises:
        Exception: of whatever reads the format; if it is compressed, or damaged, otherwise.
    """
    if is_compressed and format_ in ("jsonl", "csv"):
        stream = cast("BinaryIO", io.BufferedReader(gzip.GzipFile(fileobj=stream), _BLOCK_BYTES))
    match format_:
        case "jsonl":
            return _lines(stream)
        case "csv":
            return _csv(stream, delimiter)
        case "parquet":
            return _parquet(stream)
        case "avro":
            return read_avro(stream)


def _lines(stream: BinaryIO) -> Iterator[pa.RecordBatch]:
    begun = b""
    while block := stream.read(_BLOCK_BYTES):
        whole, newline, rest = block.rpartition(b"\n")
        if newline:
            yield from _of_lines(begun + whole + newline)
            begun = rest
        else:
            begun += rest
        if len(begun) > _MOST_LINE_BYTES:
            raise ValueError(f"a line of more than {_MOST_LINE_BYTES:,} bytes")
    if begun:
        yield from _of_lines(begun + b"\n")


def _of_lines(data: bytes) -> Iterator[pa.RecordBatch]:
    """Lines, each with its end, as a column that has all their bytes but these."""
    found = np.frombuffer(data, np.uint8)
    ends = np.flatnonzero(found == _NEWLINE)
    offsets = np.concatenate(([0], ends - np.arange(len(ends)))).astype(np.int32)
    column = pa.BinaryArray.from_buffers(
        pa.binary(), len(ends), [None, pa.py_buffer(offsets), pa.py_buffer(found[found != _NEWLINE])]
    )
    is_full = np.diff(offsets) > 0
    rows = pa.RecordBatch.from_arrays([column if is_full.all() else column.filter(pa.array(is_full))], ["value"])
    if rows.num_rows:
        yield rows


def _csv(stream: BinaryIO, delimiter: str) -> Iterator[pa.RecordBatch]:
    if not stream.read(1):
        return
    read = pa_csv.ReadOptions(use_threads=False, block_size=_BLOCK_BYTES)
    parse = pa_csv.ParseOptions(delimiter=delimiter, newlines_in_values=True)
    with _Unclosed(stream) as begun:
        names = pa_csv.open_csv(pa.PythonFile(begun, "r"), read, parse).schema.names
    texts = pa_csv.ConvertOptions(column_types=dict.fromkeys(names, pa.string()), strings_can_be_null=False)
    with _Unclosed(stream) as whole:
        yield from pa_csv.open_csv(pa.PythonFile(whole, "r"), read, parse, texts)


class _Unclosed(io.RawIOBase):
    """A stream from its beginning, for a reader that can't close it, and that has nothing of it once this is left: it
    reads ahead, by a thread of its own, and would take what the next reader is to have."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream, self._has_ended, self._reading = stream, False, Lock()
        stream.seek(0)

    def __exit__(self, *error: object) -> None:
        with self._reading:
            self._has_ended = True

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        with self._reading:
            return b"" if self._has_ended else self._stream.read(size)


def _parquet(stream: BinaryIO) -> Iterator[pa.RecordBatch]:
    file = pq.ParquetFile(stream)
    for group in range(file.num_row_groups):
        try:
            yield from file.iter_batches(_BATCH_ROWS, row_groups=[group], use_threads=False)
        except Exception as error:
            raise ValueError(f"row group {group}: {type(error).__name__}: {error}") from error

"""Readers of single files."""

from __future__ import annotations

import codecs
import gzip
import io
from collections.abc import Iterator
from threading import Lock
from typing import BinaryIO, Literal, cast

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from distcommit.avro import container_reader
from distcommit.sources.files.csv_dialect import Dialect, QuoteCheck
from distcommit.sources.files.csv_rows import BYTE_ORDER_MARK, UTF_16_MARKS, read_csv_rows, read_header

FileFormat = Literal["jsonl", "csv", "parquet", "avro"]
VALUE = pa.field("value", pa.binary())
"""Column with the bytes of one JSON line."""

_BLOCK_BYTES = 4 << 20
_MOST_LINE_BYTES = 256 << 20
_BATCH_ROWS = 64 << 10
_NEWLINE = 10


def batches(stream: BinaryIO, format_: FileFormat, is_compressed: bool, dialect: Dialect) -> Iterator[pa.RecordBatch]:
    """Yield a file's rows, always in the same batches.

    JSON lines are bytes, and CSV columns are text. Unreadable CSV rows are in the added columns of `csv_rows`.

    Raises:
        Exception: of any class, if the file is damaged or not compressed as stated.
    """
    match format_:
        case "jsonl":
            return _lines(_uncompressed(stream) if is_compressed else stream)
        case "csv":
            return _csv(_csv_stream(stream, is_compressed, dialect), dialect)
        case "parquet":
            return _parquet(stream)
        case "avro":
            return container_reader.read_batches(stream)


def _csv_stream(stream: BinaryIO, is_compressed: bool, dialect: Dialect) -> BinaryIO:
    plain = _uncompressed(stream) if is_compressed else stream
    return plain if codecs.lookup(dialect.encoding).name == "utf-8" else cast("BinaryIO", _Transcoded(plain, dialect))


def _uncompressed(stream: BinaryIO) -> BinaryIO:
    return cast("BinaryIO", io.BufferedReader(gzip.GzipFile(fileobj=stream), _BLOCK_BYTES))


class _Transcoded(io.RawIOBase):
    """Stream that converts text to UTF-8. It can only be rewound to its start."""

    def __init__(self, stream: BinaryIO, dialect: Dialect) -> None:
        self._stream, self._encoding = stream, dialect.encoding
        self._decoder, self._bytes_read = codecs.getincrementaldecoder(self._encoding)(), 0

    def readable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = 0) -> int:
        if offset or whence:
            raise io.UnsupportedOperation("seek within transcoded text")
        self._decoder.reset()
        self._bytes_read = 0
        return self._stream.seek(0)

    def read(self, size: int = -1) -> bytes:
        while True:
            block = self._stream.read(size)
            try:
                text = self._decoder.decode(block, final=not block)
            except UnicodeDecodeError as error:
                at = f"in the {len(block):,} bytes after byte {self._bytes_read:,}"
                raise ValueError(f"not {self._encoding}, {at}: {error.reason}") from error
            self._bytes_read += len(block)
            if text or not block:
                return text.encode()


def _lines(stream: BinaryIO) -> Iterator[pa.RecordBatch]:
    started, is_first = b"", True
    while block := stream.read(_BLOCK_BYTES):
        if is_first:
            block, is_first = _without_mark(block), False
        complete, newline, remainder = block.rpartition(b"\n")
        if newline:
            yield from _of_lines(started + complete + newline)
            started = remainder
        else:
            started += remainder
        if len(started) > _MOST_LINE_BYTES:
            raise ValueError(f"a line of more than {_MOST_LINE_BYTES:,} bytes")
    if started:
        yield from _of_lines(started + b"\n")


def _without_mark(block: bytes) -> bytes:
    if block.startswith(UTF_16_MARKS):
        raise ValueError("it is UTF-16; it must be UTF-8")
    return block.removeprefix(BYTE_ORDER_MARK)


def _of_lines(data: bytes) -> Iterator[pa.RecordBatch]:
    array = np.frombuffer(data, np.uint8)
    ends = np.flatnonzero(array == _NEWLINE)
    offsets = np.concatenate(([0], ends - np.arange(len(ends)))).astype(np.int32)
    column = pa.BinaryArray.from_buffers(
        pa.binary(), len(ends), [None, pa.py_buffer(offsets), pa.py_buffer(array[array != _NEWLINE])]
    )
    is_full = np.diff(offsets) > 1
    is_full[~is_full] = [value not in (b"", b"\r") for value in column.filter(pa.array(~is_full)).to_pylist()]
    rows = pa.RecordBatch.from_arrays([column if is_full.all() else column.filter(pa.array(is_full))], ["value"])
    if rows.num_rows:
        yield rows


def _csv(stream: BinaryIO, dialect: Dialect) -> Iterator[pa.RecordBatch]:
    names = read_header(stream, dialect)
    if not names:
        return
    own_names = None if dialect.has_header else list(names)
    read = pa_csv.ReadOptions(use_threads=False, block_size=_BLOCK_BYTES, column_names=own_names)
    yielded, last, check = 0, None, QuoteCheck(dialect)
    try:
        with _Unclosed(stream, check) as complete:
            options = dialect.parsing(), dialect.as_text(names)
            for batch in pa_csv.open_csv(pa.PythonFile(complete, "r"), read, *options) if check.passes else ():
                if not check.passes:
                    break
                if last is not None:
                    yielded += last.num_rows
                    yield last
                last = batch
        is_whole = check.passes and (last is None or not _may_be_open(last))
    except pa.ArrowInvalid:  # an unreadable row, or one larger than a block
        is_whole = False
    if not is_whole:
        yield from read_csv_rows(stream, names, dialect, yielded)
    elif last is not None:
        yield last


def _may_be_open(last: pa.RecordBatch) -> bool:
    return bool(last.num_rows) and str(last.columns[-1][-1]).endswith(("\n", "\r"))


class _Unclosed(io.RawIOBase):
    """Stream with a line end appended, whose `close` leaves the file open.

    After the `with` block it returns no bytes, because Arrow's thread, which reads ahead, would take them from the
    file's next reader.
    """

    def __init__(self, stream: BinaryIO, check: QuoteCheck) -> None:
        self._check = check
        self._stream, self._has_ended, self._reading = stream, False, Lock()
        self._added = b"\n"
        stream.seek(0)

    def __exit__(self, *error: object) -> None:
        with self._reading:
            self._has_ended = True

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        with self._reading:
            if self._has_ended:
                return b""
            block = self._stream.read(size)
            if not block:
                block, self._added = self._added, b""
            self._check.see(block)
            return block


def _parquet(stream: BinaryIO) -> Iterator[pa.RecordBatch]:
    file = pq.ParquetFile(stream)
    for group in range(file.num_row_groups):
        try:
            yield from file.iter_batches(_BATCH_ROWS, row_groups=[group], use_threads=False)
        except Exception as error:
            raise ValueError(f"row group {group}: {type(error).__name__}: {error}") from error

"""CSV row by row, for files that can't be read block by block: rows that can't be read are among the others, as bytes.

A row is what Arrow's reader takes for one: a quote counts where a column begins, and lines without a byte are none.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from typing import BinaryIO, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv

from distcommit.model.constructs import Converted, Converter

UNPARSED = pa.field("_unparsed", pa.binary())
"""The bytes of a row that can't be read; null for others. Only where there are such rows: then theirs have no column
but this one. What a file has by itself is text."""
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_BLOCK_BYTES = 4 << 20
_MOST_ROW_BYTES = 64 << 20
_BATCH_ROWS = 64 << 10


class _Patterns(NamedTuple):
    """A row; one with its end (`end`), wherever it is; and one column, with what parts it from the one before. `open`:
    that a quote is not closed."""

    row: re.Pattern[bytes]
    ended: re.Pattern[bytes]
    column: re.Pattern[bytes]


@lru_cache
def _patterns(delimiter: str) -> _Patterns:
    between = re.escape(delimiter.encode())
    quoted = rb'(?:"[^"]*+(?:""[^"]*+)*+(?:"|(?P<open>\Z)))?+'
    column = rb"%s[^%s\r\n]*+" % (quoted, between)
    row = rb"%s(?:%s%s)*+" % (column, between, column.replace(b"?P<open>", b"?P<late>"))
    return _Patterns(
        re.compile(row),
        re.compile(row + rb"(?P<end>\r\n|\n|\r|\Z)"),
        re.compile(rb"(?:\A|%s)%s" % (between, column)),
    )


def names_in(stream: BinaryIO, delimiter: str) -> Sequence[str]:
    """The names of a file's columns, by its first row; none if it has nothing but ends of lines.

    Raises:
        ValueError: if that row can't be read.
    """
    stream.seek(0)
    header = next(_rows(stream, delimiter), None)
    if header is None:
        return []
    if _is_open(header, delimiter):
        raise ValueError("a quote in its first row is not closed")
    names: list[str] = pa_csv.read_csv(pa.BufferReader(header + b"\n"), parse_options=parsing(delimiter)).schema.names
    return names


def row_by_row(stream: BinaryIO, names: Sequence[str], delimiter: str, skip: int) -> Iterator[pa.RecordBatch]:
    """The rows of a file behind the first `skip` ones and its header, whose names those are.

    Raises:
        ValueError: if a row has more than 64 MiB: then it is not known where the next one begins.
    """
    stream.seek(0)
    rows = islice(_rows(stream, delimiter), 1 + skip, None)
    held, size = list[bytes](), 0
    for row in rows:
        held.append(row)
        size += len(row)
        if size >= _BLOCK_BYTES or len(held) >= _BATCH_ROWS:
            yield _batch(held, names, delimiter)
            held, size = [], 0
    if held:
        yield _batch(held, names, delimiter)


def problem_of(row: bytes, columns: int, delimiter: str) -> str:
    """Why a row can't be read as one of so many columns; empty if it can."""
    has_quotes = b'"' in row
    if has_quotes and _is_open(row, delimiter):
        return "a quote that is not closed"
    try:
        if not row.isascii():
            row.decode()
    except UnicodeDecodeError as error:
        return f"no UTF-8: {error}"
    found = len(_patterns(delimiter).column.findall(row)) if has_quotes else row.count(delimiter.encode()) + 1
    return "" if found == columns else f"{found} columns, and not {columns}"


def _is_open(row: bytes, delimiter: str) -> bool:
    found = _patterns(delimiter).row.fullmatch(row)
    return found is None or found["open"] is not None or found["late"] is not None


@dataclass(frozen=True, slots=True)
class UnparsedRows(Converter):
    """Turns rows away that could not be read. `added`: columns that no file has by itself, among them those that say
    the file, and the row of it."""

    delimiter: str
    added: Sequence[str]
    file: str
    row: str

    def convert_schema(self, schema: pa.Schema) -> pa.Schema | None:
        at = _unparsed_in(schema)
        return schema if at < 0 else schema.remove(at)

    def convert(self, batch: pa.RecordBatch) -> Iterator[Converted]:
        at = _unparsed_in(batch.schema)
        if at < 0:
            yield Converted(batch)
            return
        unparsed = batch.column(at)
        is_bad = unparsed.is_valid().to_numpy(zero_copy_only=False)
        good = pa.array(np.flatnonzero(~is_bad))
        columns = len([name for name in batch.schema.names if name not in (*self.added, UNPARSED.name)])
        rejected = {
            row: f"{batch[self.file][row]}, row {batch[self.row][row]}:"
            f" {problem_of(unparsed[row].as_py(), columns, self.delimiter)}"
            for row in np.flatnonzero(is_bad).tolist()
        }
        yield Converted(batch.remove_column(at).take(good), good, rejected)


def _unparsed_in(schema: pa.Schema) -> int:
    at = schema.get_field_index(UNPARSED.name)
    return at if at >= 0 and schema.field(at).type == UNPARSED.type else -1


def _rows(stream: BinaryIO, delimiter: str) -> Iterator[bytes]:
    """All rows of a file, the header first, without their ends. One whose quote is not closed goes on to the file's
    end."""
    ended, at, has_ended = _patterns(delimiter).ended, 0, False
    data = stream.read(_BLOCK_BYTES).removeprefix(_BYTE_ORDER_MARK)
    while at < len(data) or not has_ended:
        found = ended.match(data, at)
        if found is None:
            raise AssertionError("any bytes are a row")
        if found.end() < len(data) or has_ended:
            if found.start("end") > at:
                yield data[at : found.start("end")]
            at = found.end()
            continue
        if len(data) - at > _MOST_ROW_BYTES:
            raise ValueError(f"a row of more than {_MOST_ROW_BYTES:,} bytes, or a quote that is not closed")
        block = stream.read(_BLOCK_BYTES)
        data, at, has_ended = data[at:] + block, 0, not block


def _batch(rows: Sequence[bytes], names: Sequence[str], delimiter: str) -> pa.RecordBatch:
    is_bad = np.array([bool(problem_of(row, len(names), delimiter)) for row in rows])
    good = _parsed([row for row, bad in zip(rows, is_bad, strict=True) if not bad], names, delimiter)
    if not is_bad.any():
        return good
    at = pa.array(np.cumsum(~is_bad) - 1, mask=is_bad)
    unparsed = pa.array([row if bad else None for row, bad in zip(rows, is_bad, strict=True)], UNPARSED.type)
    columns = [*(column.take(at) for column in good.columns), unparsed]
    return pa.RecordBatch.from_arrays(columns, schema=good.schema.append(UNPARSED))


def _parsed(rows: Sequence[bytes], names: Sequence[str], delimiter: str) -> pa.RecordBatch:
    """Rows that can be read, as Arrow reads them."""
    if not rows:
        return pa.RecordBatch.from_arrays([pa.array([], pa.string())] * len(names), list(names))
    data = b"".join(row + b"\n" for row in rows)
    read = pa_csv.ReadOptions(use_threads=False, column_names=list(names), block_size=len(data) + 1)
    found = pa_csv.read_csv(pa.BufferReader(data), read, parsing(delimiter), as_text(names))
    if found.num_rows != len(rows):
        raise ValueError(f"rows that can't be told apart: {found.num_rows}, and not {len(rows)}")
    return found.combine_chunks().to_batches()[0]


def parsing(delimiter: str) -> pa_csv.ParseOptions:
    """How a file is split into rows and columns."""
    return pa_csv.ParseOptions(delimiter=delimiter, newlines_in_values=True)


def as_text(names: Sequence[str]) -> pa_csv.ConvertOptions:
    """All columns as text."""
    return pa_csv.ConvertOptions(column_types=dict.fromkeys(names, pa.string()), strings_can_be_null=False)

"""Row-by-row CSV reader for files that Arrow's block reader cannot read. It splits rows as Arrow does."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv

from distcommit.core.interfaces.constructs import Converted, Converter
from distcommit.core.work_units import WorkUnit
from distcommit.sources.files.csv_dialect import Dialect, patterns

UNPARSED = pa.field("_unparsed", pa.binary())
"""Added column with the bytes of unreadable rows, absent if there are none. Its binary type identifies it, because
columns of CSV are text."""
UNPARSED_LINE = pa.field("_unparsed_line", pa.int64())
"""Added column before `UNPARSED`: the first line of an unreadable row, from 1. Rows and lines differ, because rows may
have line breaks in quotes."""
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
UTF_16_MARKS = (b"\xff\xfe", b"\xfe\xff")
_BLOCK_BYTES = 4 << 20
_MOST_ROW_BYTES = 64 << 20
_BATCH_ROWS = 64 << 10


class LineError(ValueError):
    def __init__(self, line: int, problem: object) -> None:
        super().__init__(f"line {line}: {problem}")


def read_header(stream: BinaryIO, dialect: Dialect) -> Sequence[str]:
    """Return the column names of header or dialect; none if the file has no rows.

    Raises:
        LineError: if the file is UTF-16, or the header is unreadable, has a name twice, or other names than required.
    """
    stream.seek(0)
    first = next(_numbered_rows(stream, dialect), None)
    if first is None:
        return []
    line, header = first
    if header.startswith(UTF_16_MARKS):
        raise LineError(line, "it is UTF-16; it must be UTF-8 (or set source.encoding)")
    if not dialect.has_header:
        return dialect.names
    if problem := _quoting_problem(header, dialect):
        raise LineError(line, f"its first row has {problem}")
    try:
        names: list[str] = pa_csv.read_csv(
            pa.BufferReader(header + b"\n"), parse_options=dialect.parsing()
        ).schema.names
    except UnicodeDecodeError as error:
        raise LineError(line, f"its first row is not UTF-8: {error}") from error
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise LineError(line, f"two columns of one name: {', '.join(map(repr, twice))}")
    if dialect.names and set(names) != set(dialect.names):
        raise LineError(line, f"the header has the columns {names}; it must have {list(dialect.names)}")
    return names


def read_csv_rows(stream: BinaryIO, names: Sequence[str], dialect: Dialect, skip: int) -> Iterator[pa.RecordBatch]:
    """Yield the rows after the header and the first `skip` rows. Unreadable rows are in `UNPARSED`.

    Raises:
        LineError: if a row has more than 64 MiB, so that the next row's start is unknown.
    """
    stream.seek(0)
    pending, size = list[tuple[int, bytes]](), 0
    for line, row in islice(_numbered_rows(stream, dialect), dialect.header_rows + skip, None):
        pending.append((line, row))
        size += len(row)
        if size >= _BLOCK_BYTES or len(pending) >= _BATCH_ROWS:
            yield _batch(pending, names, dialect)
            pending, size = [], 0
    if pending:
        yield _batch(pending, names, dialect)


def problem_of(row: bytes, columns: int, dialect: Dialect) -> str:
    """Return why a row cannot be read; empty if it can."""
    if problem := _quoting_problem(row, dialect):
        return problem
    try:
        if not row.isascii():
            row.decode()
    except UnicodeDecodeError as error:
        return f"not UTF-8: {error}"
    is_plain = not any(name and name.encode() in row for name in (dialect.quote, dialect.escape))
    count = row.count(dialect.delimiter.encode()) + 1 if is_plain else len(patterns(dialect).column.findall(row))
    return "" if count == columns else f"{count} columns; it must have {columns}"


def _quoting_problem(row: bytes, dialect: Dialect) -> str:
    if not dialect.quote or dialect.quote.encode() not in row:
        return ""
    match = patterns(dialect).row.fullmatch(row)
    if match is None or match["open"] is not None or match["late"] is not None:
        return "a quote that is not closed"
    return "" if patterns(dialect).strict.fullmatch(row) else "text behind a closing quote"


@dataclass(frozen=True, slots=True)
class UnparsedRows(Converter):
    """Converter that rejects unreadable CSV rows, with file, line and reason.

    Attributes:
        dialect: the dialect of the files.
        added: all columns that the source adds to those of the file.
        file: the added column with the file's name.
    """

    dialect: Dialect
    added: Sequence[str]
    file: str

    def convert_schema(self, schema: pa.Schema, unit: WorkUnit | None) -> pa.Schema | None:
        at = _unparsed_in(schema)
        return schema if at < 0 else schema.remove(at).remove(schema.get_field_index(UNPARSED_LINE.name))

    def convert(self, output_schema: pa.Schema | None, batch: pa.RecordBatch, unit: WorkUnit) -> Iterator[Converted]:
        at = _unparsed_in(batch.schema)
        if at < 0:
            yield Converted(batch)
            return
        unparsed, lines = batch.column(at), batch[UNPARSED_LINE.name]
        is_bad = unparsed.is_valid().to_numpy(zero_copy_only=False)
        good = pa.array(np.flatnonzero(~is_bad))
        readable = batch.drop_columns([UNPARSED.name, UNPARSED_LINE.name])
        columns = len([name for name in readable.schema.names if name not in self.added])
        rejected = {
            row: f"{batch[self.file][row]}, line {lines[row]}:"
            f" {problem_of(unparsed[row].as_py(), columns, self.dialect)}"
            for row in np.flatnonzero(is_bad).tolist()
        }
        yield Converted(readable.take(good), good, rejected)


def first_unparsed(batch: pa.RecordBatch, dialect: Dialect) -> LineError | None:
    """Return the error of the first unreadable row, or None. `batch` must not have the columns for partition, offset,
    file and row yet."""
    at = _unparsed_in(batch.schema)
    if at < 0:
        return None
    unparsed = batch.column(at)
    row = int(np.flatnonzero(unparsed.is_valid().to_numpy(zero_copy_only=False))[0])
    problem = problem_of(unparsed[row].as_py(), batch.num_columns - 2, dialect)
    return LineError(batch[UNPARSED_LINE.name][row].as_py(), problem)


def _unparsed_in(schema: pa.Schema) -> int:
    at = schema.get_field_index(UNPARSED.name)
    return at if at >= 0 and schema.field(at).type == UNPARSED.type else -1


def _numbered_rows(stream: BinaryIO, dialect: Dialect) -> Iterator[tuple[int, bytes]]:
    """Yield the first line number and the bytes of each non-empty row, without its line end.

    If a quote is not closed, the row ends with the file.
    """
    ended, at, has_ended, line = patterns(dialect).ended, 0, False, 1
    data = stream.read(_BLOCK_BYTES).removeprefix(BYTE_ORDER_MARK)
    while at < len(data) or not has_ended:
        row = ended.match(data, at)
        if row is None:
            raise AssertionError("every byte sequence is a row")
        if row.end() < len(data) or has_ended:
            if row.start("end") > at:
                content = data[at : row.start("end")]
                yield line, content
                line += len(content.splitlines()) - 1
            line, at = line + 1, row.end()
            continue
        if len(data) - at > _MOST_ROW_BYTES:
            raise LineError(line, f"a row of more than {_MOST_ROW_BYTES:,} bytes, or a quote that is not closed")
        block = stream.read(_BLOCK_BYTES)
        data, at, has_ended = data[at:] + block, 0, not block


def _batch(rows: Sequence[tuple[int, bytes]], names: Sequence[str], dialect: Dialect) -> pa.RecordBatch:
    is_bad = np.array([bool(problem_of(row, len(names), dialect)) for _, row in rows])
    good = _parsed([row for (_, row), bad in zip(rows, is_bad, strict=True) if not bad], names, dialect)
    if not is_bad.any():
        return good
    at = pa.array(np.cumsum(~is_bad) - 1, mask=is_bad)
    numbered = [(line, row) if bad else (None, None) for (line, row), bad in zip(rows, is_bad, strict=True)]
    lines = pa.array([line for line, _ in numbered], UNPARSED_LINE.type)
    unparsed = pa.array([row for _, row in numbered], UNPARSED.type)
    columns = [*(column.take(at) for column in good.columns), lines, unparsed]
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema([*good.schema, UNPARSED_LINE, UNPARSED]))


def _parsed(rows: Sequence[bytes], names: Sequence[str], dialect: Dialect) -> pa.RecordBatch:
    if not rows:
        return pa.RecordBatch.from_arrays([pa.array([], pa.string())] * len(names), list(names))
    data = b"".join(row + b"\n" for row in rows)
    read = pa_csv.ReadOptions(use_threads=False, column_names=list(names), block_size=len(data) + 1)
    parsed = pa_csv.read_csv(pa.BufferReader(data), read, dialect.parsing(), dialect.as_text(names))
    if parsed.num_rows != len(rows):
        raise ValueError(f"Arrow reads {parsed.num_rows} rows where {len(rows)} are")
    return parsed.combine_chunks().to_batches()[0]

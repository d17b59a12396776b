"""CSV read row by row, for files that can't be read block by block. Unreadable rows are kept as bytes among the others.

Rows are those of Arrow's reader: a quote counts at the start of a column, and empty lines are not rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv

from distcommit.core.interfaces.constructs import Converted, Converter
from distcommit.sources.files.csv_dialect import Dialect, patterns

UNPARSED = pa.field("_unparsed", pa.binary())
"""Column of the bytes of unreadable rows, null for other rows. Only batches with unreadable rows have it. The other
columns of an unreadable row are null. A file's own columns are text, so that no file has this column itself."""
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
UTF_16_MARKS = (b"\xff\xfe", b"\xfe\xff")
_BLOCK_BYTES = 4 << 20
_MOST_ROW_BYTES = 64 << 20
_BATCH_ROWS = 64 << 10


def names_in(stream: BinaryIO, dialect: Dialect) -> Sequence[str]:
    """Return the names of a file's columns by its first row; none if it has only line ends.

    Raises:
        ValueError: if the first row can't be read.
    """
    stream.seek(0)
    header = next(_rows(stream, dialect), None)
    if header is None:
        return []
    if header.startswith(UTF_16_MARKS):
        raise ValueError("it is UTF-16; it must be UTF-8")
    if problem := _quoting_problem(header, dialect):
        raise ValueError(f"its first row has {problem}")
    names: list[str] = pa_csv.read_csv(pa.BufferReader(header + b"\n"), parse_options=dialect.parsing()).schema.names
    return names


def read_csv_rows(stream: BinaryIO, names: Sequence[str], dialect: Dialect, skip: int) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a file after its header and `skip` rows. `names` are the names of the header.

    Raises:
        ValueError: if a row has more than 64 MiB, because the start of the next one is unknown then.
    """
    stream.seek(0)
    rows = islice(_rows(stream, dialect), 1 + skip, None)
    pending, size = list[bytes](), 0
    for row in rows:
        pending.append(row)
        size += len(row)
        if size >= _BLOCK_BYTES or len(pending) >= _BATCH_ROWS:
            yield _batch(pending, names, dialect)
            pending, size = [], 0
    if pending:
        yield _batch(pending, names, dialect)


def problem_of(row: bytes, columns: int, dialect: Dialect) -> str:
    """Return why a row can't be read as one of `columns` columns; empty if it can."""
    if problem := _quoting_problem(row, dialect):
        return problem
    try:
        if not row.isascii():
            row.decode()
    except UnicodeDecodeError as error:
        return f"no UTF-8: {error}"
    is_plain = not any(name and name.encode() in row for name in (dialect.quote, dialect.escape))
    count = row.count(dialect.delimiter.encode()) + 1 if is_plain else len(patterns(dialect).column.findall(row))
    return "" if count == columns else f"{count} columns, and not {columns}"


def _quoting_problem(row: bytes, dialect: Dialect) -> str:
    """Return the problem of a row's quotes; empty if there is none."""
    if not dialect.quote or dialect.quote.encode() not in row:
        return ""
    match = patterns(dialect).row.fullmatch(row)
    if match is None or match["open"] is not None or match["late"] is not None:
        return "a quote that is not closed"
    return "" if patterns(dialect).strict.fullmatch(row) else "text behind a closing quote"


@dataclass(frozen=True, slots=True)
class UnparsedRows(Converter):
    """Converter that rejects unreadable rows. `added`: columns of the source, which name the file and the row."""

    dialect: Dialect
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
            f" {problem_of(unparsed[row].as_py(), columns, self.dialect)}"
            for row in np.flatnonzero(is_bad).tolist()
        }
        yield Converted(batch.remove_column(at).take(good), good, rejected)


def _unparsed_in(schema: pa.Schema) -> int:
    at = schema.get_field_index(UNPARSED.name)
    return at if at >= 0 and schema.field(at).type == UNPARSED.type else -1


def _rows(stream: BinaryIO, dialect: Dialect) -> Iterator[bytes]:
    """Yield all rows of a file without their ends, the header first. A row with an open quote ends with the file."""
    ended, at, has_ended = patterns(dialect).ended, 0, False
    data = stream.read(_BLOCK_BYTES).removeprefix(BYTE_ORDER_MARK)
    while at < len(data) or not has_ended:
        row = ended.match(data, at)
        if row is None:
            raise AssertionError("every byte sequence is a row")
        if row.end() < len(data) or has_ended:
            if row.start("end") > at:
                yield data[at : row.start("end")]
            at = row.end()
            continue
        if len(data) - at > _MOST_ROW_BYTES:
            raise ValueError(f"a row of more than {_MOST_ROW_BYTES:,} bytes, or a quote that is not closed")
        block = stream.read(_BLOCK_BYTES)
        data, at, has_ended = data[at:] + block, 0, not block


def _batch(rows: Sequence[bytes], names: Sequence[str], dialect: Dialect) -> pa.RecordBatch:
    is_bad = np.array([bool(problem_of(row, len(names), dialect)) for row in rows])
    good = _parsed([row for row, bad in zip(rows, is_bad, strict=True) if not bad], names, dialect)
    if not is_bad.any():
        return good
    at = pa.array(np.cumsum(~is_bad) - 1, mask=is_bad)
    unparsed = pa.array([row if bad else None for row, bad in zip(rows, is_bad, strict=True)], UNPARSED.type)
    columns = [*(column.take(at) for column in good.columns), unparsed]
    return pa.RecordBatch.from_arrays(columns, schema=good.schema.append(UNPARSED))


def _parsed(rows: Sequence[bytes], names: Sequence[str], dialect: Dialect) -> pa.RecordBatch:
    """Parse readable rows with Arrow's reader."""
    if not rows:
        return pa.RecordBatch.from_arrays([pa.array([], pa.string())] * len(names), list(names))
    data = b"".join(row + b"\n" for row in rows)
    read = pa_csv.ReadOptions(use_threads=False, column_names=list(names), block_size=len(data) + 1)
    parsed = pa_csv.read_csv(pa.BufferReader(data), read, dialect.parsing(), dialect.as_text(names))
    if parsed.num_rows != len(rows):
        raise ValueError(f"Arrow reads {parsed.num_rows} rows where {len(rows)} are")
    return parsed.combine_chunks().to_batches()[0]

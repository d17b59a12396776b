"""Compressed JSON lines and CSV, with schema and metadata behind the text (`file_tail`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec
import pyarrow as pa
from xxhash import xxh3_64_hexdigest

from distcommit.core.support.decoding import json_decoder
from distcommit.sinks.files.formats.file_tail import GZIP, ZSTD, Frames, file_tail_of
from distcommit.sinks.files.formats.text_values import array_of, csv_text, from_text, plain_fields, values_of

TextFormat = Literal["jsonl", "csv"]
TextCodec = Literal["gzip", "zstd"]
CODECS: dict[str, TextCodec] = {".gz": "gzip", ".zst": "zstd"}

_FRAMES: dict[TextCodec, Frames] = {"gzip": GZIP, "zstd": ZSTD}
_ROWS = 4096  # rows at a time, which are converted to Python
_NULL = ""
"""Null in CSV; an empty text is in quotes."""


def text_of(rows: pa.Table, file_format: TextFormat, *, first: bool) -> bytes:
    """Return rows as text; the `first` rows of a CSV file begin with a header."""
    if file_format == "jsonl":
        encode = msgspec.json.Encoder().encode_lines
        return b"".join(encode(_objects(batch)) for batch in rows.to_batches(max_chunksize=_ROWS))
    import pyarrow.csv as pa_csv  # noqa: PLC0415 - of this format alone

    out = pa.BufferOutputStream()
    for number, batch in enumerate(rows.to_batches() or [pa.RecordBatch.from_pylist([], schema=rows.schema)]):
        texts = pa.RecordBatch.from_arrays([csv_text(column) for column in batch.columns], names=batch.schema.names)
        pa_csv.write_csv(texts, out, pa_csv.WriteOptions(include_header=first and number == 0))
    written: bytes = out.getvalue().to_pybytes()
    return written


def tail(codec: TextCodec, schema: pa.Schema, metadata: Mapping[str, str], text_checksum: str) -> bytes:
    """Return schema and metadata for the end of the file; `text_checksum` is the xxh3-64 of the compressed text."""
    return _FRAMES[codec].framed(file_tail_of(dict(metadata), plain_fields(schema), text_checksum))


def read_metadata(file: pa.NativeFile, codec: TextCodec) -> dict[str, str]:
    """Return the metadata; empty if the file is truncated or another program's. Raises ValueError if it is damaged."""
    tail_and_end = _FRAMES[codec].read(file, file.size())
    return {} if tail_and_end is None else tail_and_end[0].metadata


def read_table(file: pa.NativeFile, codec: TextCodec, file_format: TextFormat) -> pa.Table:
    """Read all records; raises ValueError or other built-in errors if the file is damaged."""
    tail_and_end = _FRAMES[codec].read(file, file.size())
    if tail_and_end is None:
        raise ValueError("it has no metadata with its columns")
    file_tail, end = tail_and_end
    data = file.read_at(end, 0)
    if xxh3_64_hexdigest(data) != file_tail.others_checksum:
        raise ValueError("its text has changed since it was written")
    with pa.CompressedInputStream(pa.BufferReader(data), codec) as stream:
        text = stream.read()
    return (_from_lines if file_format == "jsonl" else _from_csv)(text, file_tail.arrow_schema)


def _objects(batch: pa.RecordBatch) -> list[dict[str, object]]:
    names = batch.schema.names
    columns = [values_of(column) for column in batch.columns]
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


def _from_lines(text: bytes, schema: pa.Schema) -> pa.Table:
    rows = json_decoder(dict[str, object]).decode_lines(text)
    names = set(schema.names)
    if any(row.keys() != names for row in rows):
        raise ValueError("a line of other columns than the schema's")
    columns = [array_of([row[field.name] for row in rows], field.type) for field in schema]
    return pa.Table.from_arrays(columns, schema=schema)


def _from_csv(text: bytes, schema: pa.Schema) -> pa.Table:
    import pyarrow.csv as pa_csv  # noqa: PLC0415 - of this format alone

    read = pa_csv.read_csv(
        pa.BufferReader(text),
        read_options=pa_csv.ReadOptions(use_threads=False, block_size=min(len(text) + 1, (1 << 31) - 1)),
        parse_options=pa_csv.ParseOptions(newlines_in_values=True, ignore_empty_lines=False),
        convert_options=pa_csv.ConvertOptions(
            column_types=dict.fromkeys(schema.names, pa.large_string()),
            null_values=[_NULL],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        ),
    )
    if read.schema.names != schema.names:
        raise ValueError("its header does not name the schema's columns")
    columns = [from_text(read.column(field.name).combine_chunks(), field.type) for field in schema]
    return pa.Table.from_arrays(columns, schema=schema)

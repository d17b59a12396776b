"""ORC files with metadata at their end (`file_tail`).

pyarrow's reader crashes on damaged files, so it reads only files whose checksum is correct.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from xxhash import xxh3_64_hexdigest

from distcommit.core.errors import ConfigurationError
from distcommit.schemas.storable_types import (
    TypeTable,
    UnstorableTypeError,
    contains_type,
    inner_fields,
    is_decimal128_in_scale,
    is_text,
)
from distcommit.sinks.files.content_sum import content_sum
from distcommit.sinks.files.formats.file_tail import ORC, ORC_NOT_COMPRESSED, FileTail, Frames, file_tail_of, varint
from distcommit.sinks.files.formats.text_values import plain_fields

_CODECS = {"zstd": "zstd", "snappy": "snappy", "gzip": "zlib", "none": "uncompressed"}
_FOOTER_LENGTH = 1 << 3  # PostScript.footerLength, its first field
_NOT_COMPRESSED = b"\x10\x00"  # PostScript.compression = NONE, its second one
_MAX_POSTSCRIPT = 256
_TYPES = TypeTable(
    {pa.uint8(): pa.int16(), pa.uint16(): pa.int32(), pa.uint32(): pa.int64()},
    (
        *(pa.types.is_signed_integer, pa.types.is_float32, pa.types.is_float64, pa.types.is_boolean),
        *(is_text, pa.types.is_date32, pa.types.is_timestamp),
        is_decimal128_in_scale,  # pyarrow crashes at a scale above the precision
    ),
)
_NS_PER = {"s": 1_000_000_000, "ms": 1_000_000, "us": 1_000}


def check_columns(schema: pa.Schema) -> None:
    for field in schema:
        _stored(field)


def write_table(rows: pa.Table, compression: str, metadata: Mapping[str, str], bloom_filters: Container[str]) -> bytes:
    """Return the bytes of a file. Raises ConfigurationError if pyarrow would read back other timestamps or structs."""
    import pyarrow.orc as pa_orc  # noqa: PLC0415 - of this format alone

    stored = pa.schema([pa.field(f.name, _stored(f), f.nullable) for f in rows.schema])
    for field, column in zip(rows.schema, rows.columns, strict=True):
        for chunk in column.chunks:
            _check_times(chunk, field.name)
    out = pa.BufferOutputStream()
    remaining, has_structs = rows.cast(stored), any(contains_type(kind, pa.types.is_struct) for kind in stored.types)
    if has_structs:  # pyarrow 26 writes a slice of structs with the nulls of earlier rows
        remaining = remaining.take(pa.array(range(remaining.num_rows), pa.int64()))
    filters = [number for number, name in _numbered(stored) if name in bloom_filters]
    with pa_orc.ORCWriter(out, compression=_CODECS[compression], bloom_filter_columns=filters) as writer:
        writer.write(remaining)
    if has_structs:
        _check_structs(out.getvalue(), rows)
    return _with_file_tail(out.getvalue().to_pybytes(), file_tail_of(dict(metadata), plain_fields(rows.schema)))


def read_metadata(file: pa.NativeFile) -> dict[str, str]:
    """Return the metadata; empty for another program's file. Raises ValueError if it is damaged."""
    tail_and_bounds = _read_file_tail(file)
    return {} if tail_and_bounds is None else tail_and_bounds[0].metadata


def read_table(file: pa.NativeFile) -> pa.Table:
    """Read all records in their original types; raises ValueError if the file is damaged."""
    import pyarrow.orc as pa_orc  # noqa: PLC0415 - of this format alone

    tail_and_bounds = _read_file_tail(file)
    if tail_and_bounds is None:
        raise ValueError("it has no metadata with its columns")
    tail, start, end = tail_and_bounds
    other_bytes = file.read_at(start, 0) + file.read_at(file.size() - end, end)
    if xxh3_64_hexdigest(other_bytes) != tail.others_checksum:
        raise ValueError("its bytes have changed since it was written")
    return pa_orc.ORCFile(file).read().cast(tail.arrow_schema)


def _numbered(schema: pa.Schema) -> Iterator[tuple[int, str]]:
    number = 1
    for field in schema:
        yield number, field.name
        number += _columns_in(field.type)


def _columns_in(kind: pa.DataType) -> int:
    return 1 + sum(_columns_in(field.type) for field in inner_fields(kind))


def _check_structs(file: pa.Buffer, rows: pa.Table) -> None:
    """Raise ConfigurationError if structs are read back changed, as pyarrow 26 does for a null struct in a struct."""
    import pyarrow.orc as pa_orc  # noqa: PLC0415 - of this format alone

    if content_sum(pa_orc.ORCFile(pa.BufferReader(file)).read().cast(rows.schema)) != content_sum(rows):
        raise ConfigurationError(
            "pyarrow writes wrong values of these records to ORC",
            id="COLUMN_UNSUPPORTED",
            expected="the same values when they are read back",
            found=f"other values in a column with structs: {rows.schema.to_string()[:300]}",
            todo="write this branch as parquet or avro, or replace structs by columns with the converter `flatten`",
        )


def _with_file_tail(file: bytes, tail: FileTail) -> bytes:
    end = len(file) - 1 - file[-1]
    postscript = file[end:-1]
    if postscript[0] != _FOOTER_LENGTH:
        raise ValueError("an ORC postscript that does not begin with the footer's length")
    length, remainder = _first_number(postscript)
    frames = _frames_of(remainder)
    longer = bytes([_FOOTER_LENGTH]) + varint(length + len(frames.framed(tail))) + remainder
    behind = longer + bytes([len(longer)])
    tail = msgspec.structs.replace(tail, others_checksum=xxh3_64_hexdigest(file[:end] + behind))
    return file[:end] + frames.framed(tail) + behind


def _read_file_tail(file: pa.NativeFile) -> tuple[FileTail, int, int] | None:
    size = file.size()
    last = file.read_at(min(size, _MAX_POSTSCRIPT), max(0, size - _MAX_POSTSCRIPT))
    if not last or last[-1] + 1 > len(last) or last[-4:-1] != b"ORC":
        raise ValueError("this does not end like an ORC file")
    end = size - 1 - last[-1]
    tail_and_start = _frames_of(_first_number(last[-1 - last[-1] : -1])[1]).read(file, end)
    return None if tail_and_start is None else (*tail_and_start, end)


def _frames_of(postscript: bytes) -> Frames:
    return ORC_NOT_COMPRESSED if postscript.startswith(_NOT_COMPRESSED) else ORC


def _first_number(postscript: bytes) -> tuple[int, bytes]:
    number = 0
    for index, byte in enumerate(postscript[1:11]):
        number |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return number, postscript[index + 2 :]
    raise ValueError("this does not end like an ORC file")


def _stored(field: pa.Field) -> pa.DataType:
    try:
        return _TYPES.stored(field.type, field.name)
    except UnstorableTypeError as error:
        raise ConfigurationError(
            "a column can't be written to ORC",
            id="COLUMN_UNSUPPORTED",
            expected="text, binary, bool, int (no uint64), float32, float64, decimal of at most 38 digits and a scale"
            " from 0 to as many, date32, timestamp, or lists and structs of these",
            found=str(error.kind),
            todo="convert the column, or write Parquet",
            column=error.path,
        ) from None


def _check_times(array: pa.Array, column: str) -> None:
    kind = array.type
    if pa.types.is_struct(kind):
        for field, below in zip(kind, array.flatten(), strict=True):
            _check_times(below, f"{column}.{field.name}")
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
        _check_times(array.flatten(), column)
    elif pa.types.is_timestamp(kind) and kind.unit != "ns":
        numbers = pc.min_max(array.view(pa.int64())).as_py()
        limit = (1 << 63) // _NS_PER[kind.unit] - 1
        if numbers["min"] is not None and (numbers["min"] < -limit or numbers["max"] > limit):
            raise ConfigurationError(
                "a timestamp can't be written to ORC",
                id="RECORDS_NOT_STORABLE",
                expected="one of the years 1677 to 2262",
                found=f"{numbers['min']} to {numbers['max']} {kind.unit} since 1970",
                todo="reject such records with the row checker range, or write Parquet",
                column=column,
            )

"""Encoders of files. Avro and ORC files are written as a whole, others in row groups."""

from __future__ import annotations

import contextlib
import gzip
import io
from abc import ABC, abstractmethod
from collections.abc import Collection, Container, Mapping
from functools import lru_cache
from typing import Any, Literal, Protocol

import pyarrow as pa
import pyarrow.parquet as pq
from xxhash import xxh3_64

from distcommit.avro.compression import AvroCodec
from distcommit.avro.container_writer import write_table as write_avro
from distcommit.avro.schemas_from_arrow import avro_schema
from distcommit.core.errors import ConfigurationError
from distcommit.core.interfaces.file_system import StagedWriter
from distcommit.sinks.files.formats.orc_container import check_columns as check_orc_columns
from distcommit.sinks.files.formats.orc_container import write_table as orc_bytes
from distcommit.sinks.files.formats.parquet_dictionary_choice import leaves, rarely_repeating_columns
from distcommit.sinks.files.formats.text_files import TextCodec, TextFormat, text_of
from distcommit.sinks.files.formats.text_files import tail as text_tail
from distcommit.sinks.files.formats.text_values import check_columns

FileFormat = Literal["parquet", "avro", "orc", "jsonl", "csv"]
Compression = Literal["zstd", "snappy", "gzip", "none"]

WHOLE_FILE_FORMATS: frozenset[FileFormat] = frozenset({"avro", "orc"})
"""Formats whose files are written as a whole, once the metadata is known."""

AVRO_CODECS: dict[Compression, AvroCodec] = {
    "zstd": "zstandard",
    "snappy": "snappy",
    "gzip": "deflate",
    "none": "null",
}

TEXT_CODECS: dict[Compression, TextCodec] = {"zstd": "zstd", "gzip": "gzip"}
"""Codecs of JSON lines and CSV. Uncompressed text has no place for a footer."""

_ROW_GROUP_BYTES = 64 << 20  # at most; below twice that rows are written in one group
_GZIP_LEVEL = 6
_UNCOMPRESSED_BELOW = 16 << 10
_ENCODED_IN_MEMORY_BELOW = 1 << 20


class Encoder(Protocol):
    def append(self, rows: pa.Table, sink: StagedWriter) -> None:
        """Write rows as a row group. Formats in `WHOLE_FILE_FORMATS` raise ValueError."""

    def finish(self, rows: pa.Table | None, metadata: Mapping[str, str], sink: StagedWriter) -> None:
        """Write the last rows and the metadata, without closing the file. Raises ValueError if no rows were written at
        all."""

    def abandon(self) -> None:
        """Release resources without writing."""


def encoder_of(
    file_format: FileFormat,
    schema: pa.Schema,
    compression: Compression,
    options: Mapping[str, Any] | None = None,
    bloom_filters: Container[str] = (),
    configured_dictionaries: Collection[str] = (),
) -> Encoder:
    """Return a new encoder. Raises ConfigurationError if the format has no type for a column. `options` are pyarrow's
    options for Parquet, and `configured_dictionaries` the columns whose dictionary these options decide.
    `bloom_filters` are the columns of ORC with a Bloom filter."""
    if file_format == "avro":
        return AvroEncoder(schema, compression)
    if file_format == "orc":
        return OrcEncoder(schema, compression, bloom_filters)
    if file_format in ("jsonl", "csv"):
        return TextEncoder(file_format, schema, TEXT_CODECS[compression])
    return ParquetEncoder(schema, compression, options or {}, configured_dictionaries)


def _writer(target: pa.NativeFile, schema: pa.Schema, compression: str, options: Mapping[str, Any]) -> pq.ParquetWriter:
    return pq.ParquetWriter(target, schema, **{"compression": compression, "write_page_checksum": True, **options})


@lru_cache(256)
def _check_parquet(schema: pa.Schema) -> None:
    """Raise ConfigurationError if Parquet lacks a column's type; pyarrow's own error may look like a disk error."""
    if _refusal(schema):
        refusals = ((field, _refusal(pa.schema([field]))) for field in schema)
        field, actual = next((item for item in refusals if item[1]), (schema.field(0), _refusal(schema)))
        raise ConfigurationError(
            "a column can't be written to Parquet",
            id="COLUMN_UNSUPPORTED",
            column=field.name,
            expected="a type that Parquet and this pyarrow have",
            found=f"{field.type}: {actual}",
            todo="convert the column in a converter, or drop it",
        )


def _refusal(schema: pa.Schema) -> str:
    try:
        pq.ParquetWriter(pa.BufferOutputStream(), schema).close()
    except (OSError, TypeError, ValueError, pa.ArrowException) as error:
        return str(error)
    return ""


class ParquetEncoder:
    """Encoder of Parquet files, in row groups.

    A file of less than 1 MiB is encoded in memory; below 16 KiB it is not compressed. In larger files, columns whose
    values rarely repeat have no dictionary.
    """

    def __init__(
        self,
        schema: pa.Schema,
        compression: Compression,
        options: Mapping[str, Any],
        configured_dictionaries: Collection[str] = (),
    ) -> None:
        _check_parquet(schema)
        self._schema, self._compression, self._options = schema, compression, options
        self._configured_dictionaries = configured_dictionaries
        self._writer: pq.ParquetWriter | None = None
        self._stream: _Stream | None = None

    def append(self, rows: pa.Table, sink: StagedWriter) -> None:
        if self._writer is None:
            self._stream = _Stream(sink)
            target = pa.PythonFile(self._stream, "w")
            self._writer = _writer(target, self._schema, self._compression, self._options_for(rows))
        self._writer.write_table(rows, row_group_size=max(1, rows.num_rows // max(1, rows.nbytes // _ROW_GROUP_BYTES)))

    def finish(self, rows: pa.Table | None, metadata: Mapping[str, str], sink: StagedWriter) -> None:
        plain_bytes = 0 if rows is None else rows.nbytes
        if rows is not None and self._writer is None and plain_bytes < _ENCODED_IN_MEMORY_BELOW:
            options = self._options
            if plain_bytes < _UNCOMPRESSED_BELOW:
                options = {**options, "compression": "none"}
            memory = pa.BufferOutputStream()
            with _writer(memory, self._schema, self._compression, options) as writer:
                writer.write_table(rows, row_group_size=max(1, rows.num_rows))  # a file may have a footer only
                writer.add_key_value_metadata(dict(metadata))
            sink.write(memoryview(memory.getvalue()))
            return
        if rows is not None:
            self.append(rows, sink)
        if self._writer is None:
            raise ValueError("no rows were written to this file")
        self._writer.add_key_value_metadata(dict(metadata))
        self._writer.close()

    def _options_for(self, rows: pa.Table) -> Mapping[str, Any]:
        plain = rarely_repeating_columns(rows, self._configured_dictionaries)
        if not plain:
            return self._options
        paths = self._options.get("use_dictionary", leaves(self._schema))
        return {**self._options, "use_dictionary": [path for path in paths if path not in plain]}

    def abandon(self) -> None:
        if self._stream is not None and self._writer is not None:
            # Otherwise pyarrow writes a valid footer later, when the writer is garbage-collected.
            self._stream.is_discarded = True
            with contextlib.suppress(OSError, ValueError, pa.ArrowException):
                self._writer.close()


class _WholeFileEncoder(ABC):
    def append(self, rows: pa.Table, sink: StagedWriter) -> None:
        raise ValueError("files of this format are written as a whole")

    def finish(self, rows: pa.Table | None, metadata: Mapping[str, str], sink: StagedWriter) -> None:
        if rows is None:
            raise ValueError("no rows were written to this file")
        self._write(rows, metadata, sink)

    @abstractmethod
    def _write(self, rows: pa.Table, metadata: Mapping[str, str], sink: StagedWriter) -> None: ...

    def abandon(self) -> None:
        return


class AvroEncoder(_WholeFileEncoder):
    """Encoder of whole files, because Avro's metadata is at the beginning."""

    def __init__(self, schema: pa.Schema, compression: Compression) -> None:
        avro_schema(schema)  # refuses columns before any row waits
        self._codec = AVRO_CODECS[compression]

    def _write(self, rows: pa.Table, metadata: Mapping[str, str], sink: StagedWriter) -> None:
        write_avro(rows, self._codec, metadata, sink.write)


class OrcEncoder(_WholeFileEncoder):
    """Encoder of whole files, because pyarrow's writer keeps up to 64 MiB for each open file."""

    def __init__(self, schema: pa.Schema, compression: Compression, bloom_filters: Container[str] = ()) -> None:
        check_orc_columns(schema)
        self._compression, self._bloom_filters = compression, bloom_filters

    def _write(self, rows: pa.Table, metadata: Mapping[str, str], sink: StagedWriter) -> None:
        sink.write(orc_bytes(rows, self._compression, metadata, self._bloom_filters))


class TextEncoder:
    """Encoder of JSON lines or CSV, as one compressed stream with a footer."""

    def __init__(self, file_format: TextFormat, schema: pa.Schema, codec: TextCodec) -> None:
        check_columns(schema, file_format, nested=file_format == "jsonl")
        self._format, self._schema, self._codec = file_format, schema, codec
        self._packed: pa.NativeFile | gzip.GzipFile | None = None
        self._stream: _ChecksummedStream | None = None

    def append(self, rows: pa.Table, sink: StagedWriter) -> None:
        first = self._packed is None
        packed = self._begin(sink)
        packed.write(text_of(rows, self._format, first=first))
        packed.flush()  # so that the file's size is known

    def finish(self, rows: pa.Table | None, metadata: Mapping[str, str], sink: StagedWriter) -> None:
        if rows is not None:
            self.append(rows, sink)
        if self._packed is None or self._stream is None:
            raise ValueError("no rows were written to this file")
        self._packed.close()
        sink.write(text_tail(self._codec, self._schema, metadata, self._stream.sum.hexdigest()))

    def abandon(self) -> None:
        if self._packed is not None and self._stream is not None:
            self._stream.is_discarded = True
            with contextlib.suppress(OSError, ValueError, pa.ArrowException):
                self._packed.close()

    def _begin(self, sink: StagedWriter) -> pa.NativeFile | gzip.GzipFile:
        if self._packed is None:
            self._stream = _ChecksummedStream(sink)
            if self._codec == "gzip":  # pyarrow has level 9 alone, at a third of the speed
                self._packed = gzip.GzipFile(fileobj=self._stream, mode="wb", compresslevel=_GZIP_LEVEL, mtime=0)
            else:
                self._packed = pa.CompressedOutputStream(pa.PythonFile(self._stream, "w"), self._codec)
        return self._packed


class _Stream(io.RawIOBase):
    """Stream into a staged file. Closing the stream leaves the file open."""

    def __init__(self, sink: StagedWriter) -> None:
        self._sink = sink
        self.is_discarded = False

    def writable(self) -> bool:
        return True

    def write(self, data: bytes) -> int:  # type: ignore[override]
        return len(data) if self.is_discarded else self._sink.write(data)

    def tell(self) -> int:
        return self._sink.size_bytes


class _ChecksummedStream(_Stream):
    def __init__(self, sink: StagedWriter) -> None:
        super().__init__(sink)
        self.sum = xxh3_64()

    def write(self, data: bytes) -> int:  # type: ignore[override]
        self.sum.update(data)
        return super().write(data)

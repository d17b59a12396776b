"""Settings of the layout of files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal

import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import BeforeValidator, Field, TypeAdapter

from distcommit.core.errors import ConfigurationError
from distcommit.core.support.settings_model import SettingError, SettingsModel, rule
from distcommit.schemas.column_names import check_fields
from distcommit.sinks.files.formats.encoders import (
    TEXT_CODECS,
    WHOLE_FILE_FORMATS,
    Compression,
    Encoder,
    FileFormat,
    encoder_of,
)
from distcommit.sinks.files.formats.parquet_dictionary_choice import leaves
from distcommit.sinks.files.split_by_field import FieldPartition, Partition, check_partitions
from distcommit.sinks.files.split_by_time import TimePartition, folder_end_ms

_ENDINGS = {"zstd": "zst", "gzip": "gz"}


class SortKey(SettingsModel):
    """A column that the records of a file are sorted by; null comes last.

    Attributes:
        column: the column's name.
        order: `ascending` or `descending`.
    """

    column: str
    order: Literal["ascending", "descending"] = "ascending"


class ColumnSettings(SettingsModel):
    """Encoding of a column of Parquet files. For missing settings those of the file apply. ORC has `bloom_filter` only.

    Attributes:
        encoding: Parquet's encoding; it excludes a dictionary.
        dictionary: whether values are written with a dictionary. By default they are, unless the first rows of a file
            have many short values that hardly ever repeat.
        compression: compression of this column.
        bloom_filter: whether the column has a Bloom filter.
    """

    encoding: (
        Literal["plain", "byte_stream_split", "delta_binary_packed", "delta_length_byte_array", "delta_byte_array"]
        | None
    ) = None
    dictionary: bool | None = None
    compression: Compression | None = None
    bloom_filter: bool = False


def _partitions(value: Any) -> Any:
    if value is None or isinstance(value, TimePartition | FieldPartition):
        return value
    if isinstance(value, Mapping):
        return (FieldPartition if "field" in value else TimePartition).model_validate(value)
    if isinstance(value, Sequence) and not isinstance(value, str) and value:
        return _PARTITION_LIST.validate_python(value)
    raise SettingError("must be a section with field, or with column, granularity and time_zone, or a list of these")


_PARTITION_LIST = TypeAdapter[Any](tuple[Annotated[Partition, BeforeValidator(_partitions)], ...])


class FileLayout(SettingsModel):
    """Layout of files of records.

    All formats but text support all compressions (Avro's names are zstandard, snappy, deflate, null; ORC's are zstd,
    snappy, zlib, none). Parquet files of less than 16 KiB are never compressed.

    Attributes:
        format: file format.
        compression: compression of the files; for `jsonl` and `csv` it must be `zstd` or `gzip`.
        partition_by: folders in the dataset's folder: by time (`column`, `granularity`, `time_zone`), by a field
            (`field`), or a list of these for nested folders.
        max_partitions: the most folders that the records of an attempt may go to, if any folder is by a field.
        sort_by: columns that the rows of each file are sorted by.
        columns: encoding of single columns by their names, for Parquet; for ORC, Bloom filters.
        target_file_bytes: size at which a file is closed. It counts written bytes, which exceed it by at most one row
            group; for Avro, ORC and sorted files it counts bytes in memory before compression, at most 256 MiB.
    """

    format: FileFormat = "parquet"
    compression: Compression = "zstd"
    partition_by: Annotated[
        TimePartition | FieldPartition | tuple[Partition, ...] | None, BeforeValidator(_partitions)
    ] = None
    max_partitions: int = Field(default=1000, gt=0)
    sort_by: tuple[SortKey, ...] = ()
    columns: dict[str, ColumnSettings] = {}
    target_file_bytes: int = Field(default=512 << 20, gt=0)

    @rule
    def _fits_format(self) -> Iterator[SettingError]:
        if self.format in ("jsonl", "csv") and self.compression not in TEXT_CODECS:
            yield SettingError(
                f"must be {' or '.join(TEXT_CODECS)} with format: {self.format}, whose footer is in frames of its"
                " compression",
                "compression",
                actual=self.compression,
            )
        if self.columns and self.format not in ("parquet", "orc"):
            yield SettingError("must only be set with format: parquet or orc", "columns")
        for column, supplied in self.columns.items() if self.format == "orc" else ():
            for name in sorted(supplied.model_fields_set - {"bloom_filter"}):
                yield SettingError("must not be set with format: orc, unlike bloom_filter", "columns", column, name)

    @property
    def partitions(self) -> Sequence[Partition]:
        partition_by = self.partition_by
        return () if partition_by is None else partition_by if isinstance(partition_by, tuple) else (partition_by,)

    @property
    def has_fields(self) -> bool:
        return any(isinstance(partition, FieldPartition) for partition in self.partitions)

    @property
    def sort_keys(self) -> list[tuple[str, str]]:
        return [(key.column, key.order) for key in self.sort_by]

    @property
    def streams(self) -> bool:
        """Whether a file is written in parts; otherwise it is written from memory as a whole."""
        return self.format not in WHOLE_FILE_FORMATS and not self.sort_by

    @property
    def ending(self) -> str:
        packed = f".{_ENDINGS[self.compression]}" if self.format in ("jsonl", "csv") else ""
        return f".{self.format}{packed}"

    def folder_end_ms(self, path: str) -> int | None:
        """Return the end of the outermost time folder, in ms since 1970; None without one."""
        levels = self.partitions
        folders = path.split("/")[:-1][-len(levels) :] if levels else []
        for level, folder in zip(levels, folders, strict=False):
            if isinstance(level, TimePartition):
                return folder_end_ms(folder, level)
        return None

    def required_columns(self) -> Sequence[str]:
        by = [
            partition.column if isinstance(partition, TimePartition) else partition.field
            for partition in self.partitions
        ]
        return tuple(dict.fromkeys([*by, *(key.column for key in self.sort_by), *self.columns]))

    def check_schema(self, schema: pa.Schema) -> None:
        """Raise ConfigurationError if a column is missing or the format does not support it."""
        self.check_names(schema)
        check_partitions(schema, self.partitions)
        self.encoder(schema)

    def check_names(self, schema: pa.Schema) -> None:
        check_fields(schema, f"a file of format {self.format}")

    def encoder(self, schema: pa.Schema) -> Encoder:
        """Return a new encoder; raises the errors of `check_schema`."""
        for key in self.sort_by:
            _check_sorted(schema, key.column)
        _check_there(schema, self.columns)
        if self.format == "orc":
            return encoder_of("orc", schema, self.compression, bloom_filters=_orc_filters(schema, self.columns))
        options = _parquet_options(schema, self) if self.format == "parquet" and (self.columns or self.sort_by) else {}
        configured = {
            name for name, settings in self.columns.items() if settings.encoding or settings.dictionary is not None
        }
        return encoder_of(self.format, schema, self.compression, options, configured_dictionaries=configured)


def _check_sorted(schema: pa.Schema, name: str) -> None:
    result = schema.names.count(name)
    kind = schema.field(name).type if result == 1 else None
    if kind is not None and not pa.types.is_nested(kind) and not pa.types.is_dictionary(kind):
        return
    raise ConfigurationError(
        "records can't be sorted",
        id="SINK_COLUMN_INVALID",
        expected="one column of that name, which is not a list, struct, map or dictionary",
        found=str(kind) if kind is not None else f"columns {', '.join(schema.names)}",
        todo="set sink.sort_by to such columns",
        column=name,
    )


def _check_there(schema: pa.Schema, columns: Mapping[str, ColumnSettings]) -> None:
    missing = [name for name in columns if schema.names.count(name) != 1]
    if missing:
        raise ConfigurationError(
            "a setting names a column that the records do not have",
            id="SINK_COLUMN_INVALID",
            expected=f"one of {', '.join(schema.names)}",
            found=missing[0],
            todo="correct sink.columns",
            column=missing[0],
        )


def _orc_filters(schema: pa.Schema, columns: Mapping[str, ColumnSettings]) -> Sequence[str]:
    results = [name for name, settings in columns.items() if settings.bloom_filter]
    for name in results:
        if pa.types.is_nested(schema.field(name).type):
            raise _not_for(schema.field(name), "a column that is not a list, struct or map, for a Bloom filter")
    return results


def _parquet_options(schema: pa.Schema, layout: FileLayout) -> dict[str, Any]:
    options: dict[str, Any] = {}
    if layout.sort_by:
        options["sorting_columns"] = pq.SortingColumn.from_ordering(schema, layout.sort_keys, "at_end")
    if not layout.columns:
        return options
    for name, settings in layout.columns.items():
        _try(schema.field(name), _options_of([name], {name: settings}, layout.compression))
    return {**options, **_options_of(leaves(schema), layout.columns, layout.compression)}


def _options_of(
    paths: Sequence[str], columns: Mapping[str, ColumnSettings], compression: Compression
) -> dict[str, Any]:
    plain = [name for name, settings in columns.items() if settings.encoding or settings.dictionary is False]
    blooms = {name: True for name, settings in columns.items() if settings.bloom_filter}
    codecs = {name: settings.compression for name, settings in columns.items() if settings.compression}
    return {
        "use_dictionary": [path for path in paths if path not in plain],
        "column_encoding": {name: settings.encoding.upper() for name, settings in columns.items() if settings.encoding}
        or None,
        **({"compression": {path: codecs.get(path, compression) for path in paths}} if codecs else {}),
        **({"bloom_filter_options": blooms} if blooms else {}),
    }


def _try(field: pa.Field, options: Mapping[str, Any]) -> None:
    try:
        if pa.types.is_nested(field.type):
            raise ValueError("a list, struct or map")
        schema = pa.schema([pa.field(field.name, field.type)])
        with pq.ParquetWriter(pa.BufferOutputStream(), schema, **{"compression": "zstd", **options}) as writer:
            writer.write_table(pa.table([pa.nulls(1, field.type)], schema=schema))
    except (OSError, TypeError, ValueError, pa.ArrowException) as error:
        expected = "an encoding, a dictionary and a bloom filter that Parquet and this pyarrow have for its type"
        raise _not_for(field, expected, f": {error}") from error


def _not_for(field: pa.Field, expected: str, reason: str = "") -> ConfigurationError:
    return ConfigurationError(
        "a setting of sink.columns does not apply to this column",
        id="SINK_COLUMN_INVALID",
        expected=expected,
        found=f"{field.type}{reason}",
        todo="correct sink.columns",
        column=field.name,
    )

"""Partitioning of rows into folders by fields or time."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
from pydantic import Field

from distcommit.core.errors import ConfigurationError
from distcommit.core.support.settings_model import SettingsModel
from distcommit.sinks.files.split_by_time import TimePartition, check_time_column, split_by_time
from distcommit.sinks.table_formats.partition_value_checker import NO_VALUE, PartitionValues

_ESCAPED = re.compile("[\0-\x1f\x7f\"#%'*/:=?\\\\{[\\]^<>|]|\\A[.]|[. ]\\Z")
"""Characters that Hive escapes or Windows forbids, and the leading dot of hidden folders."""
_MAX_NAME_BYTES = 240


class FieldPartition(SettingsModel):
    """Folders by a field: `country=DE`, as in Hive, Spark and DuckDB. The files keep the column.

    Attributes:
        field: a column of text, whole numbers, dates or booleans. Values that differ by case or Unicode form have
            different folders. If the file system does not distinguish these, one folder has the rows of both, and
            readers must use the column in the files.
    """

    field: str = Field(min_length=1)


Partition = TimePartition | FieldPartition


def check_partitions(schema: pa.Schema, partitions: Sequence[Partition]) -> None:
    """Raise ConfigurationError if such rows can't be split into folders."""
    for partition in partitions:
        if isinstance(partition, TimePartition):
            check_time_column(schema, partition.column)
        else:
            _check_field(schema, partition.field)


def split(batch: pa.RecordBatch, partitions: Sequence[Partition]) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Yield each folder's path and its rows in order. Raises ConfigurationError for an unsuitable column, or a value
    that is too long for a folder's name."""
    if not partitions:
        yield "", batch
        return
    first, *remaining = partitions
    for folder, rows in _split_by(batch, first):
        for below, result in split(rows, remaining):
            yield (f"{folder}/{below}" if below else folder), result


def _split_by(batch: pa.RecordBatch, partition: Partition) -> Iterator[tuple[str, pa.RecordBatch]]:
    if isinstance(partition, TimePartition):
        yield from split_by_time(batch, partition)
        return
    if batch.num_rows == 0:
        return
    _check_field(batch.schema, partition.field)
    column = batch.column(partition.field)
    if not pa.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    folders = [_folder(partition.field, value) for value in column.dictionary.cast(pa.string()).to_pylist()]
    missing = len(folders)
    codes = column.indices.fill_null(missing).to_numpy(zero_copy_only=False)
    numbers: dict[str, int] = {}
    names = [*folders, _folder(partition.field, None)]
    keys = np.array([numbers.setdefault(name, len(numbers)) for name in names])[codes]
    if (keys == keys[0]).all():
        yield names[codes[0]], batch
        return
    order = np.argsort(keys, kind="stable")
    ends = np.cumsum(np.bincount(keys, minlength=len(numbers)))
    for name, rows in zip(numbers, np.split(order, ends[:-1]), strict=True):
        if len(rows):
            yield name, batch.take(pa.array(rows))


def folder_names(partitions: Sequence[Partition]) -> PartitionValues | None:
    """Return the checker that rejects values that can't name folders; None without fields."""
    fields = tuple(partition.field for partition in partitions if isinstance(partition, FieldPartition))
    rule = f"a value that a folder can be named after: at most {_MAX_NAME_BYTES} bytes, and not {NO_VALUE}"
    return PartitionValues(fields, _can_be_folder, rule) if fields else None


def _can_be_folder(field: str, value: str) -> bool:
    return value != NO_VALUE and len(f"{_escaped(field)}={_escaped(value)}".encode()) <= _MAX_NAME_BYTES


def _folder(field: str, value: str | None) -> str:
    name = f"{_escaped(field)}={_escaped(value) if value else NO_VALUE}"
    if len(name.encode()) <= _MAX_NAME_BYTES:
        return name
    raise ConfigurationError(
        "a value is too long for the name of a folder",
        id="RECORDS_NOT_STORABLE",
        expected=f"at most {_MAX_NAME_BYTES} bytes",
        found=f"{len(name.encode())} bytes: {name[:80]}...",
        todo="shorten it with a converter, reject such records with a row checker, or remove the field from"
        " sink.partition_by",
        column=field,
    )


def _escaped(text: str) -> str:
    return _ESCAPED.sub(lambda match: f"%{ord(match[0]):02X}", text)


def _check_field(schema: pa.Schema, name: str) -> None:
    result = schema.names.count(name)
    kind = schema.field(name).type if result == 1 else None
    if kind is not None and pa.types.is_dictionary(kind):
        kind = kind.value_type
    types = pa.types
    if kind is not None and (
        types.is_string(kind)
        or types.is_large_string(kind)
        or types.is_integer(kind)
        or types.is_boolean(kind)
        or types.is_date32(kind)
    ):
        return
    raise ConfigurationError(
        "records can't be partitioned by a field",
        id="PARTITIONING_INVALID",
        expected="one column of that name, of text, int, bool or date32",
        found=str(kind) if kind is not None else f"columns {', '.join(schema.names)}",
        todo="set sink.partition_by to such columns; a time is a partition by `column` and `granularity`",
        column=name,
    )

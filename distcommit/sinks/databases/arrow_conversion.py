"""Conversion of Arrow columns to types that databases have."""

from __future__ import annotations

import json
import re

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from distcommit.core.errors import ConfigurationError
from distcommit.schemas.storable_types import ALL_LISTS, TypeTable, is_extension
from distcommit.sinks.databases.table_committer import RefusedError
from distcommit.sinks.files.formats.text_values import values_of

MAX_DIGITS = 38
_NEGATIVE_ZERO = re.compile(r"-0(\.0+)?(e[-+]?\d+)?(?![\d.])", re.IGNORECASE)
_TEXT = re.compile(r'"(?:[^"\\]|\\.)*"')
_INTEGER_DIGITS = pa.decimal128(20, 0)
PLAIN_TYPES = TypeTable(
    {
        **{pa.int8(): pa.int16(), pa.uint8(): pa.int16(), pa.uint16(): pa.int32(), pa.uint32(): pa.int64()},
        **{pa.uint64(): _INTEGER_DIGITS, pa.float16(): pa.float32(), pa.date64(): pa.date32()},
        **dict.fromkeys((pa.large_string(), pa.string_view()), pa.string()),
        **dict.fromkeys((pa.large_binary(), pa.binary_view()), pa.binary()),
        **dict.fromkeys((pa.time32("s"), pa.time32("ms"), pa.time64("ns")), pa.time64("us")),
        **dict.fromkeys((pa.duration("s"), pa.duration("ms"), pa.duration("ns")), pa.duration("us")),
    },
    unchanged=(lambda _: True,),
    derived={
        is_extension: lambda kind: plain_type(kind.storage_type),
        pa.types.is_timestamp: lambda kind: pa.timestamp("us", "UTC" if kind.tz else None),
        pa.types.is_fixed_size_binary: lambda kind: kind if kind.byte_width == 16 else pa.binary(),
        pa.types.is_decimal256: lambda kind: (
            pa.decimal128(kind.precision, kind.scale) if kind.precision <= MAX_DIGITS else kind
        ),
    },
    lists=ALL_LISTS,
    structs=False,
    item_name="item",
    all_nullable=True,
)


def plain_type(kind: pa.DataType) -> pa.DataType:
    """Return the type that databases store, such as signed integers and times in microseconds."""
    return PLAIN_TYPES.stored(kind)


def decoded(array: pa.Array) -> pa.Array:
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    return array.storage if isinstance(array, pa.ExtensionArray) else array


def as_json(array: pa.Array, column: str, shown: str, *, negative_zeros: bool = True) -> pa.Array:
    """Return lists, structs or maps as JSON texts; a map becomes a list of keys and values. Without `negative_zeros`,
    raise RefusedError for `-0.0`."""
    values = values_of(array.cast(_pairs(array.type)) if pa.types.is_map(array.type) else array)
    texts = [None if value is None else json.dumps(value) for value in values]
    if not negative_zeros and any(text and _NEGATIVE_ZERO.search(_TEXT.sub("", text)) for text in texts):
        raise refused_value(column, shown, "-0.0, which is stored as 0.0")
    return pa.array(texts, pa.string())


def has_negative_zero(array: pa.Array) -> bool:
    zeros = array.filter(pc.equal(array, 0)).drop_null().to_numpy(zero_copy_only=False)
    return bool(np.signbit(zeros).any())


def converted(array: pa.Array, kind: pa.DataType, column: str, shown: str) -> pa.Array:
    """Cast a column; raises RefusedError if a value would change."""
    if array.type == kind:
        return array
    if pa.types.is_decimal(kind) and pa.types.is_integer(array.type):
        array = array.cast(_INTEGER_DIGITS)  # the cast checks the type's range, not the values
    try:
        return array.cast(kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise refused_value(column, shown, str(error)) from error


def refused_value(column: str, shown: str, reason: str) -> RefusedError:
    return RefusedError(
        f"a value of column {column!r} does not go into the table's {shown}: {reason}. Alter the table and release the"
        " dataset with retry; or abandon it and convert or reject such values"
    )


def no_type(database: str, field: pa.Field) -> ConfigurationError:
    return ConfigurationError(
        f"{database} has no type for this column",
        id="COLUMN_UNSUPPORTED",
        column=field.name,
        found=str(field.type),
        todo="convert it with the converter `cast`, or drop it",
    )


def refused_type(column: str, kind: pa.DataType, shown: str) -> RefusedError:
    return RefusedError(
        f"column {column!r} has the type {kind}, which does not go into the table's {shown}; convert it with the"
        " converter `cast`, or alter the table, then release the dataset"
    )


def _pairs(kind: pa.DataType) -> pa.DataType:
    return pa.list_(pa.struct([("key", kind.key_type), ("value", kind.item_type)]))

"""Lossless conversion of Arrow columns to values of JSON and CSV.

Binary values are base64. Times are text of ISO 8601, with timestamps in UTC. Times outside the years 1 to 9999 or
outside a day are Arrow's numbers. Decimals, `NaN`, `Infinity` and `-Infinity` are text.
"""

from __future__ import annotations

import base64
import itertools
import math
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from distcommit.core.errors import ConfigurationError
from distcommit.schemas.storable_types import OFFSET_LISTS, TypeTable, UnstorableTypeError, is_bytes, is_text

_DAY_S = 86_400
_FIRST_S = -62_135_596_800  # 0001-01-01
_LAST_S = 253_402_300_799  # 9999-12-31 23:59:59
_PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
_NOT_NUMBERS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_DIGITS = r"^-?\d+$"
_CSV_TYPES = TypeTable(
    {},
    (
        *(pa.types.is_integer, pa.types.is_float32, pa.types.is_float64, pa.types.is_boolean, pa.types.is_decimal),
        *(pa.types.is_date32, pa.types.is_time, pa.types.is_timestamp),
        *(is_text, pa.types.is_fixed_size_binary),
    ),
    lists=(),
    structs=False,
    nested_dictionaries=False,
)
_JSON_TYPES = replace(_CSV_TYPES, lists=OFFSET_LISTS, structs=True)


def check_columns(schema: pa.Schema, file_format: str, *, nested: bool) -> None:
    """Raise ConfigurationError if a column's type has no conversion. `nested` permits lists and structs."""
    for field in schema:
        try:
            (_JSON_TYPES if nested else _CSV_TYPES).stored(field.type, field.name)
        except UnstorableTypeError as error:
            raise ConfigurationError(
                f"a column can't be written to {file_format}",
                id="COLUMN_UNSUPPORTED",
                expected="text, binary, bool, int, float32, float64, decimal, date32, time or timestamp"
                + (", or lists and structs of these" if nested else ""),
                found=str(error.kind),
                todo="convert the column, or write Parquet",
                column=error.path,
            ) from None


def plain_fields(schema: pa.Schema) -> pa.Schema:
    return pa.schema([pa.field(f.name, _without_dictionaries(f.type), f.nullable) for f in schema])


def values_of(array: pa.Array) -> list[Any]:
    kind = array.type
    if pa.types.is_dictionary(kind):
        return values_of(array.dictionary_decode())
    if pa.types.is_struct(kind):
        names = [field.name for field in kind]
        rows = zip(*(values_of(child) for child in array.flatten()), strict=True)
        created = (dict(zip(names, row, strict=True)) for row in rows)
        return [row if present else None for row, present in zip(created, array.is_valid().to_pylist(), strict=True)]
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        below = iter(values_of(array.flatten()))
        lengths = pc.list_value_length(array).to_pylist()
        return [None if length is None else list(itertools.islice(below, length)) for length in lengths]
    result: list[Any] = to_text(array).to_pylist()
    if pa.types.is_floating(kind) and not _all_finite(array):
        return [result if result is None or math.isfinite(result) else _name_of(result) for result in result]
    return result


def array_of(values: list[Any], kind: pa.DataType) -> pa.Array:
    """Return a column of results of `values_of`. Raises ValueError or other built-in errors if a value does not fit."""
    if pa.types.is_struct(kind):
        fields = [kind.field(index) for index in range(kind.num_fields)]
        missing = [value is None for value in values]
        names = {field.name for field in fields}
        if any(value is not None and value.keys() != names for value in values):
            raise ValueError(f"an object does not have the fields {', '.join(sorted(names))}")
        children = [
            array_of([None if value is None else value[field.name] for value in values], field.type) for field in fields
        ]
        return pa.StructArray.from_arrays(children, fields=fields, mask=pa.array(missing, pa.bool_()))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        below = array_of([item for value in values if value is not None for item in value], kind.value_type)
        ends = list(itertools.accumulate((0 if value is None else len(value) for value in values), initial=0))
        large = pa.types.is_large_list(kind)
        starts = pa.array(ends, pa.int64() if large else pa.int32())
        missing = pa.array([value is None for value in values], pa.bool_())
        return (pa.LargeListArray if large else pa.ListArray).from_arrays(starts, below, type=kind, mask=missing)
    if pa.types.is_floating(kind):
        values = [_NOT_NUMBERS[value] if isinstance(value, str) else value for value in values]
    return from_text(pa.array(values, _text_type(kind)), kind)


def to_text(array: pa.Array) -> pa.Array:
    """Return a column of text, numbers and booleans."""
    kind = array.type
    if pa.types.is_dictionary(kind):
        return to_text(array.dictionary_decode())
    if _is_binary(kind):
        texts = [None if value is None else base64.b64encode(value).decode() for value in array.to_pylist()]
        return pa.array(texts, pa.large_string())
    if pa.types.is_temporal(kind):
        return _time_text(array)
    return array.cast(_text_type(kind))


def from_text(text: pa.Array, kind: pa.DataType) -> pa.Array:
    if _is_binary(kind):
        results = [None if value is None else base64.b64decode(value, validate=True) for value in text.to_pylist()]
        return pa.array(results, kind)
    if pa.types.is_temporal(kind):
        return _times(text, kind)
    return text.cast(kind)


def csv_text(array: pa.Array) -> pa.Array:
    """Return `to_text` for CSV: floats are text if any is not finite."""
    result = to_text(array)
    if not pa.types.is_floating(result.type) or _all_finite(result):
        return result
    names = pa.array([None if f is None or math.isfinite(f) else _name_of(f) for f in result.to_pylist()], pa.string())
    return pc.coalesce(names, result.cast(pa.string()))


def _time_text(array: pa.Array) -> pa.Array:
    kind = array.type
    numbers = array.view(_integers(kind)).cast(pa.int64())
    low, high = _bounds(kind)
    inside = pc.and_(pc.greater_equal(numbers, low), pc.less_equal(numbers, high))
    zoned = pa.types.is_timestamp(kind) and kind.tz
    plain = array.cast(pa.timestamp(kind.unit, "UTC")) if zoned else array
    if pc.all(inside).as_py() in (True, None):
        return _iso(plain)
    existing = _iso(pc.if_else(inside, plain, pa.scalar(None, plain.type)))
    return pc.coalesce(existing, numbers.cast(pa.string()))


def _iso(array: pa.Array) -> pa.Array:
    return pc.replace_substring(array.cast(pa.string()), " ", "T", max_replacements=1)


def _times(text: pa.Array, kind: pa.DataType) -> pa.Array:
    text = text.cast(pa.string())
    is_number = pc.match_substring_regex(text, _DIGITS)
    empty = pa.scalar(None, pa.string())
    numbers = pc.if_else(is_number, text, empty).cast(pa.int64()).cast(_integers(kind)).view(kind)
    texts = pc.if_else(is_number, empty, text)
    if pa.types.is_time(kind):
        combined = pc.binary_join_element_wise(pa.scalar("1970-01-01T"), texts, "")
        times = combined.cast(pa.timestamp(kind.unit)).cast(pa.int64()).cast(_integers(kind)).view(kind)
    elif pa.types.is_timestamp(kind) and kind.tz:
        times = texts.cast(pa.timestamp(kind.unit, "UTC")).cast(kind)
    else:
        times = texts.cast(kind)
    return pc.coalesce(times, numbers)


def _bounds(kind: pa.DataType) -> tuple[int, int]:
    if pa.types.is_date32(kind):
        return _FIRST_S // _DAY_S, _LAST_S // _DAY_S
    factor = _PER_SECOND[kind.unit]
    if pa.types.is_time(kind):
        return 0, _DAY_S * factor - 1
    low, high = _FIRST_S * factor, _LAST_S * factor + factor - 1
    if kind.unit != "ns":
        return low, high
    last = (1 << 63) - 1
    return -(last // factor * factor), last  # Arrow reads no text of nanoseconds in the second before these


def _integers(kind: pa.DataType) -> pa.DataType:
    return pa.int32() if kind.bit_width == 32 else pa.int64()


def _text_type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind):
        return kind
    return pa.large_string()


def _is_binary(kind: pa.DataType) -> bool:
    return is_bytes(kind) or bool(pa.types.is_fixed_size_binary(kind))


def _all_finite(array: pa.Array) -> bool:
    return pc.all(pc.is_finite(array)).as_py() in (True, None)


def _name_of(number: float) -> str:
    return "NaN" if math.isnan(number) else "Infinity" if number > 0 else "-Infinity"


def _without_dictionaries(kind: pa.DataType) -> pa.DataType:
    return _without_dictionaries(kind.value_type) if pa.types.is_dictionary(kind) else kind

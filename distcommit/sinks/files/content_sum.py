"""The content sum: a checksum of a file's records that does not depend on their order.

It is the sum modulo 2^64 of one hash for each record, which covers all of its columns together. The sums of files add
up to the sum of a dataset's sequence. The keys are in this module, so deliberate changes are not detected.

It is computed from Arrow data before writing, and again after reading. So it covers only what all formats preserve:

- names of columns and of struct fields, and which values are null;
- the bytes of text and binary values;
- numbers by value and not by width (all NaN are equal, and -0.0 is 0.0); decimals by their digits without the scale;
- dates, times, timestamps and durations by their number in the stored unit, without zone (times and timestamps in
  seconds as milliseconds, dates as days);
- lists and maps with lengths and order, structs with their fields;
- the values of dictionaries, and the storage of extension types.

Columns that are all null, or of types that no format supports, are not covered.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from xxhash import xxh3_64_digest, xxh3_64_intdigest

_Hashes = npt.NDArray[np.uint64]

_ROWS = 8192  # rows at a time, so that a column fits into the processor's cache
_FEW_ROWS = 1024  # smaller batches are combined first, as each costs some 50 calls
_SOME_ROWS = 64  # sample that shows whether a column has few values
_SLICE_BYTES = 256 << 10  # of values that are converted to Python, within the cache
_SLICE_ROWS = 1024
_SPLIT = np.uint64(0x9E3779B97F4A7C15)
_LENGTH = np.uint64(0xD6E8FEB86659FD93)
_STRUCT = np.uint64(0xA0761D6478BD642F)
_MIX = (np.uint64(0xFF51AFD7ED558CCD), np.uint64(0xC4CEB9FE1A85EC53))
_SHIFT = np.uint64(33)
_INTEGERS = {32: pa.int32(), 64: pa.int64()}


def content_sum(rows: pa.Table | pa.RecordBatch) -> int:
    """Return the sum of these records, from 0 (no records) to 2^64 - 1."""
    table = pa.Table.from_batches([rows]) if isinstance(rows, pa.RecordBatch) else rows
    chunks = table.column(0).num_chunks if table.num_columns else 0
    if chunks > 1 and table.num_rows < chunks * _FEW_ROWS:
        table = table.combine_chunks()
    total = 0
    for batch in table.to_batches(max_chunksize=_ROWS):
        if batch.num_rows:
            total += int(_mixed(_together(batch.schema.names, batch.columns, batch.num_rows)).sum())
    return total % (1 << 64)


def as_text(total: int) -> str:
    return f"{total % (1 << 64):016x}"


def _together(names: Sequence[str], columns: Sequence[pa.Array], rows: int) -> _Hashes:
    retained: list[tuple[str, pa.Array, _Hashes]] = []
    for name, result in zip(names, columns, strict=True):
        column = _plain(result)
        hashes = _hashes(column)
        if hashes is not None:
            retained.append((name, column, hashes))
    mixed = np.empty((len(retained), rows), np.uint64)
    for index, (name, _, hashes) in enumerate(retained):
        np.bitwise_xor(hashes, _key(name), out=mixed[index])
    mixed *= _MIX[0]
    mixed ^= mixed >> _SHIFT
    mixed *= _MIX[1]
    for index, (_, column, _) in enumerate(retained):
        if column.null_count:
            mixed[index] *= column.is_valid().cast(pa.uint64()).to_numpy()
    total: _Hashes = mixed.sum(axis=0, dtype=np.uint64)
    total += _STRUCT
    return total


def _mixed(hashes: _Hashes) -> _Hashes:
    hashes ^= hashes >> _SHIFT
    hashes *= _MIX[0]
    hashes ^= hashes >> _SHIFT
    hashes *= _MIX[1]
    hashes ^= hashes >> _SHIFT
    return hashes


@lru_cache(maxsize=4096)
def _key(name: str) -> np.uint64:
    return np.uint64(xxh3_64_intdigest(name.encode("utf-8", "surrogatepass")))


def _plain(array: pa.Array) -> pa.Array:
    while isinstance(array.type, pa.BaseExtensionType):
        array = array.storage
    if pa.types.is_dictionary(array.type) and (array.dictionary.null_count or len(array.dictionary) > len(array)):
        array = array.dictionary_decode()
    return array


def _hashes(array: pa.Array) -> _Hashes | None:
    if array.null_count == len(array):
        return None
    existing = array.type.id
    if existing not in _BY_ID:
        _BY_ID[existing] = next((of for is_of, of in _BY_TYPE if is_of(array.type)), _not_bound)
    return _BY_ID[existing](array)


def _not_bound(array: pa.Array) -> None:
    return None


def _is_time(kind: pa.DataType) -> bool:
    return bool(pa.types.is_temporal(kind)) and not pa.types.is_interval(kind)


def _is_list(kind: pa.DataType) -> bool:
    return isinstance(
        kind, (pa.ListType, pa.LargeListType, pa.FixedSizeListType, pa.ListViewType, pa.LargeListViewType, pa.MapType)
    )


def _is_other_binary(kind: pa.DataType) -> bool:
    types = pa.types
    return bool(types.is_fixed_size_binary(kind) or types.is_binary_view(kind) or types.is_string_view(kind))


def _of_numbers(array: pa.Array) -> _Hashes:
    kind = array.type
    if pa.types.is_date64(kind):
        array = array.cast(pa.date32(), safe=False)
    elif pa.types.is_boolean(kind):
        array = array.cast(pa.uint8())
    if pa.types.is_temporal(array.type):
        array = array.view(_INTEGERS[array.type.bit_width])
    numbers = (array.fill_null(0) if array.null_count else array).to_numpy()
    if kind == pa.time32("s") or (pa.types.is_timestamp(kind) and kind.unit == "s"):
        numbers = numbers * numbers.dtype.type(1000)  # as Parquet stores it, including overflow
    result: _Hashes = numbers.astype(np.int64 if numbers.dtype.kind == "i" else np.uint64).view(np.uint64)
    return result


def _of_floats(array: pa.Array) -> _Hashes:
    if array.null_count:
        array = array.fill_null(pa.scalar(0, array.type))
    numbers: npt.NDArray[np.float64] = array.to_numpy().astype(np.float64) + 0.0
    numbers[np.isnan(numbers)] = np.nan
    return numbers.view(np.uint64)


def _of_decimals(array: pa.Array) -> _Hashes:
    width = array.type.byte_width
    dtype, parts = (np.int32, 1) if width == 4 else (np.int64, width // 8)
    stored = np.frombuffer(array.buffers()[1], dtype)[array.offset * parts : (array.offset + len(array)) * parts]
    words = stored.reshape(-1, parts).astype(np.int64)
    sign = words[:, -1] >> 63
    result = np.full(len(array), _LENGTH)
    for index in range(4):
        result ^= (words[:, index] if index < parts else sign).view(np.uint64)
        _mixed(result)
    return result


def _of_dictionary(array: pa.Array) -> _Hashes | None:
    hashes = _hashes(array.dictionary)
    return None if hashes is None else _taken_hashes(hashes, array.indices)


def _taken_hashes(hashes: _Hashes, indices: pa.Array) -> _Hashes:
    existing = (indices.fill_null(0) if indices.null_count else indices).to_numpy()
    selected: _Hashes = hashes.take(existing, mode="clip")  # a null may have any index
    return selected


def _of_texts(array: pa.Array) -> _Hashes | None:
    return _hashes(array.view(pa.binary() if pa.types.is_string(array.type) else pa.large_binary()))


def _of_binaries(array: pa.Array) -> _Hashes:
    buffers, rows, end = array.buffers(), len(array), array.offset + len(array)
    width = np.dtype(np.int64 if pa.types.is_large_binary(array.type) else np.int32)
    bounds: npt.NDArray[np.signedinteger] = np.frombuffer(buffers[1], width)[array.offset : end + 1]
    size = int(bounds[-1] - bounds[0]) // rows
    if rows > 1 and size and not array.null_count and array[0].equals(array[-1]):
        data = np.frombuffer(buffers[2], np.uint8)[bounds[0] : bounds[-1]]
        if ((bounds[1:] - bounds[:-1]) == size).all() and np.array_equal(data[size:], data[:-size]):
            return _of_bytes(array[:1], 1).repeat(rows)  # for instance the kind of a timestamp
    if rows >= _FEW_ROWS and len(array[:_SOME_ROWS].unique()) <= _SOME_ROWS // 4:  # for instance states
        encoded = array.dictionary_encode()
        if len(encoded.dictionary) <= rows // 4:
            return _taken_hashes(_of_bytes(encoded.dictionary, _SLICE_ROWS), encoded.indices)
    return _of_bytes(array, min(_SLICE_ROWS, max(_SLICE_BYTES // (size + 1), 1)))


def _of_bytes(array: pa.Array, at_a_time: int) -> _Hashes:
    digests: list[bytes] = []
    for start in range(0, len(array), at_a_time):
        part = array[start : start + at_a_time]
        values = (part.fill_null(b"") if part.null_count else part).to_numpy(zero_copy_only=False).tolist()
        digests.append(b"".join(map(xxh3_64_digest, values)))
    return np.frombuffer(b"".join(digests), ">u8").astype(np.uint64)


def _of_lists(array: pa.Array) -> _Hashes:
    if isinstance(array.type, (pa.ListType, pa.LargeListType, pa.MapType)):
        offsets = array.offsets.to_numpy()
        parts = [array.keys, array.items] if pa.types.is_map(array.type) else [array.values]
        parts = [part[int(offsets[0]) : int(offsets[-1])] for part in parts]
        values = parts[0] if len(parts) == 1 else pa.StructArray.from_arrays(parts, ["key", "value"])
        lengths = np.diff(offsets).astype(np.int64)
    else:
        values = array.flatten()
        lengths = pc.list_value_length(array).fill_null(0).to_numpy().astype(np.int64)
    ends = np.cumsum(lengths)
    starts = ends - lengths
    sums = np.zeros(len(values) + 1, np.uint64)
    if len(values):
        result = _together([""], [values], len(values))
        positions = np.arange(len(values), dtype=np.int64) - np.repeat(starts, lengths)
        result += positions.view(np.uint64) * _SPLIT
        np.cumsum(_mixed(result), out=sums[1:])
    total: _Hashes = sums[ends] - sums[starts]
    total += lengths.view(np.uint64) * _LENGTH
    return total


def _of_structs(array: pa.Array) -> _Hashes:
    fields = [array.field(index) for index in range(array.type.num_fields)]
    return _together([field.name for field in array.type], fields, len(array))


_BY_TYPE: tuple[tuple[Callable[[pa.DataType], bool], Callable[[pa.Array], _Hashes | None]], ...] = (
    (pa.types.is_binary, _of_binaries),
    (pa.types.is_large_binary, _of_binaries),
    (pa.types.is_integer, _of_numbers),
    (pa.types.is_string, _of_texts),
    (pa.types.is_large_string, _of_texts),
    (pa.types.is_boolean, _of_numbers),
    (_is_time, _of_numbers),
    (pa.types.is_floating, _of_floats),
    (pa.types.is_dictionary, _of_dictionary),
    (_is_other_binary, lambda array: _of_binaries(array.cast(pa.large_binary()))),
    (pa.types.is_decimal, _of_decimals),
    (pa.types.is_struct, _of_structs),
    (_is_list, _of_lists),
)
_BY_ID: dict[int, Callable[[pa.Array], _Hashes | None]] = {}

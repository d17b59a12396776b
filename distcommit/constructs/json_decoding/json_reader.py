"""Reader of JSON text into given columns.

The result is always that of msgspec; Arrow's reader is faster, so it reads a batch if its result is known to be equal.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Literal

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from distcommit.constructs.calendar_times import OUTSIDE_CALENDAR, are_uniform_utc_times, are_within_calendar
from distcommit.constructs.json_decoding.exact_values import exact_value, python_type
from distcommit.constructs.json_decoding.unfit_value_search import located
from distcommit.core.support.decoding import json_decoder
from distcommit.schemas.column_types import stored_type
from distcommit.schemas.storable_types import contains_type, inner_fields, replace_types

_NOT_FINITE = re.compile(rb"(NaN|Inf(inity)?)\s*[,\]}]")
_TINY = re.compile(rb'[:,\[\s"][-+]?[\d.]+[eE]-\d{2,}\s*[,}\]"]')
_UNDERFLOW = re.compile(rb"[eE]-\d{3}")
_SURE_DIGITS = 15
"""Number of decimal digits that float64 always holds exactly."""
_DATE = r"^([1-8]\d|9[0-8])\d\d-\d\d-\d\d"  # with any zone, the year stays in the range of both readers
_NAIVE = _DATE + r"T([01]\d|2[0-3]):[0-5]\d:[0-5]\d(\.\d{1,6})?"
_ZONED = _NAIVE + r"(Z|[+-](0\d|1[0-4]):[0-5]\d)"
_SHALLOW = 300
"""Levels of nesting that both readers accept."""
_PART_BYTES = 256 << 10
_BY_RECORD = (msgspec.DecodeError, pa.ArrowException, OverflowError, RecursionError, ValueError)


@dataclass(frozen=True, slots=True)
class JsonRecords:
    """Decoded records.

    Attributes:
        columns: a column for each field.
        rows: the input row of each record; None if each record has the number of its input row.
        rejected: rejection reasons by input row.
    """

    columns: list[pa.Array]
    rows: pa.Array | None = None
    rejected: dict[int, str] = field(default_factory=dict)


class JsonReader:
    """Reader of JSON objects with the fields of a schema. Not picklable.

    Args:
        schema: the columns, of the types in `column_types`, or `arrow.json` for values that are kept as JSON text.
        exact_floats: whether to reject a number that float64 would round. If false, the number is rounded.

    Raises:
        ValueError: if JSON cannot represent a type, such as binary.
    """

    def __init__(self, schema: pa.Schema, *, exact_floats: bool = False) -> None:
        self._schema, self._struct = schema, pa.struct(list(schema))
        self._stored: pa.StructType = stored_type(self._struct)
        self._has_json_text = self._stored != self._struct
        self._exact_floats = exact_floats and contains_type(self._struct, pa.types.is_floating)
        self._decoder = json_decoder(python_type(self._struct, self._exact_floats))
        self._wire = pa.schema([(f.name, _wire_type(f.type)) for f in self._stored])
        self._has_map = self._has_json_text or contains_type(self._struct, pa.types.is_map)
        self._has_decimal = contains_type(self._struct, pa.types.is_decimal)
        self._is_exact = self._has_decimal or self._has_json_text or self._exact_floats
        self._has_others = False

    def read(self, values: pa.Array) -> JsonRecords:
        """Read an object from each value. A null value has null fields. Unreadable values are rejected."""
        at_once = None if self._has_map or not len(values) else self._at_once(values)
        return JsonRecords(at_once) if at_once is not None else self._one_by_one(values)

    def read_if_no_new_field(self, values: pa.Array, expected: pa.Schema) -> JsonRecords | None:
        """Read all values at once by Arrow. Return None if there is a field outside `expected`, or Arrow may not be
        reliable. The caller then infers fields and calls `read`.

        Args:
            expected: the schema's fields, then the fields without a value so far.
        """
        at_once = None if self._has_map or not len(values) else self._at_once(values, expected)
        return None if at_once is None else JsonRecords(at_once)

    def _one_by_one(self, values: pa.Array) -> JsonRecords:
        records: list[Any] = []
        rows: list[int] = []
        rejected: dict[int, str] = {}
        for row, value in enumerate(values.to_pylist()):
            try:
                record = {} if value is None else self._decoder.decode(_text(value))
                records.append(exact_value(record, self._struct) if self._is_exact else record)
                rows.append(row)
            except _BY_RECORD as error:
                rejected[row] = self._rejection_reason(error, value)
        try:
            array = _within_calendar(records, self._stored)
        except _BY_RECORD:
            valid = []
            for row, record in zip(rows, records, strict=True):
                try:
                    _within_calendar([record], self._stored)
                    valid.append((row, record))
                except _BY_RECORD as error:
                    rejected[row] = self._rejection_reason(error, values[row].as_py())
            rows = [row for row, _ in valid]
            array = pa.array([record for _, record in valid], self._stored)
        return JsonRecords(array.flatten(), pa.array(rows, pa.int64()) if rejected else None, rejected)

    def _rejection_reason(self, error: Exception, value: bytes | str) -> str:
        return f"{located(value, self._struct, self._unfit_reason) or error}: record {value[:100]!r}"

    def _unfit_reason(self, value: msgspec.Raw, kind: pa.DataType) -> str:
        try:
            decoded = _decoder_of(kind, self._exact_floats).decode(value)
            _within_calendar([exact_value(decoded, kind)], stored_type(kind))
        except _BY_RECORD as error:
            return str(error)
        return ""

    def _at_once(self, values: pa.Array, expected: pa.Schema | None = None) -> list[pa.Array] | None:
        """Read values by Arrow. Return None if the decoder's result might differ, or a field is outside `expected`.

        Arrow ignores line breaks between objects, but each line is one object. It fails at a line break within a
        string, so every value, from `{` to `}`, ends outside of strings. An object left open would continue with `{`
        after `}`, which fails, too. So it is sufficient to compare the numbers of objects and values.

        With "error", Arrow fails at other fields, so no such field can hide `NaN` or deep nesting.
        """
        try:
            texts, text = _joined(values)
            if text is None or (self._has_decimal and _has_tiny(text)):
                return None
            if self._exact_floats and _may_be_rounded(text):
                return None
            if expected is not None:
                return None if _may_be_deep(expected) else self._by_arrow(text, expected, "error", len(values))
            if not (self._has_others or _may_be_deep(self._wire)):
                try:
                    return self._by_arrow(text, self._wire, "error", len(values))
                except pa.ArrowException:  # only its text would show whether another field is the reason
                    pass
            if _may_hide(texts, text):
                return None
            columns = self._by_arrow(text, self._wire, "ignore", len(values))
            self._has_others = True
        except (pa.ArrowException, UnicodeDecodeError, _MightDifferError):
            return None
        return columns

    def _by_arrow(
        self, text: pa.Buffer, wire: pa.Schema, on_other_fields: Literal["error", "ignore"], rows: int
    ) -> list[pa.Array] | None:
        """Read JSON by Arrow. Return None if the number of objects is not `rows`.

        Args:
            text: one object on each line.
            wire: schema with some values, such as times, as text to cast.

        Raises:
            pa.ArrowException: if Arrow's reader fails, or a value does not fit its column.
            _MightDifferError: if `self._decoder` might reject a value or convert it differently.
        """
        read = pj.read_json(
            pa.BufferReader(text),
            read_options=pj.ReadOptions(use_threads=False, block_size=len(text) + 1),
            parse_options=pj.ParseOptions(explicit_schema=wire, unexpected_field_behavior=on_other_fields),
        )
        if read.num_rows != rows:
            return None
        return [_typed(_single_chunk(read.column(f.name)), f.type) for f in self._schema]


@lru_cache(256)
def _decoder_of(kind: pa.DataType, exact_floats: bool) -> msgspec.json.Decoder[Any]:
    decoded = python_type(kind, exact_floats)
    return json_decoder(decoded if decoded is msgspec.Raw else decoded | None)


class _MightDifferError(Exception):
    """Error of a value that Arrow accepts, but the decoder might reject or convert differently."""


def _within_calendar(records: list[Any], kind: pa.DataType) -> pa.Array:
    array = pa.array(records, kind)
    if not are_within_calendar(array):
        raise ValueError(OUTSIDE_CALENDAR)
    return array


def _text(value: bytes | str) -> str:
    return value.decode() if isinstance(value, bytes) else value


def _joined(values: pa.Array) -> tuple[pa.Array, pa.Buffer | None]:
    """Return the values, and all of them as one text of lines. The text is None if the readers might differ.

    Raises:
        pa.ArrowInvalid: if a value is not UTF-8.
    """
    texts = values.cast(pa.binary())
    if texts.null_count:
        texts = pc.fill_null(texts, b"{}")
    if not pc.all(pc.and_(pc.starts_with(texts, "{"), pc.ends_with(texts, "}"))).as_py():
        return texts, None
    one = pa.ListArray.from_arrays(pa.array([0, len(texts)], pa.int32()), texts)
    _, bounds, data = pc.binary_join(one, b"\n").buffers()
    joined = data.slice(0, int(np.frombuffer(bounds, np.int32)[1]))  # a scalar would copy the text
    text = np.frombuffer(joined, np.uint8)
    if text.view(np.int8).min() <= 0:
        if not text.all():  # Arrow's reader (26.0) stops at a NUL, with an error that is not documented
            return texts, None
        texts.cast(pa.string())
    return texts, joined


def _may_hide(texts: pa.Array, joined: pa.Buffer) -> bool:
    """Return whether an ignored field may contain a value that the decoder rejects."""
    opened, is_finite = 0, True
    for part in _parts(joined, 2):
        opened += int(np.count_nonzero(_opens(part)))
        is_finite = is_finite and not (_has(part, b"NaN") or _has(part, b"Inf"))
    if not is_finite and _NOT_FINITE.search(joined):
        return True
    return opened - (len(texts) - 1) > _SHALLOW and _is_deep(texts, joined)  # each value opens at least one


def _may_be_deep(schema: pa.Schema) -> bool:
    return any(_levels(column.type) >= _SHALLOW for column in schema)


def _levels(kind: pa.DataType) -> int:
    return 1 + max((_levels(field.type) for field in inner_fields(kind)), default=0)


def _is_deep(texts: pa.Array, joined: pa.Buffer) -> bool:
    lengths = pc.binary_length(texts).to_numpy()
    if lengths.max() <= 2 * _SHALLOW:
        return False
    openings = np.flatnonzero(_opens(np.frombuffer(joined, np.uint8)))
    before = np.searchsorted(openings, np.cumsum(lengths.astype(np.int64) + 1))
    return bool(np.diff(before, prepend=0).max() > _SHALLOW)


def _opens(text: npt.NDArray[np.uint8]) -> npt.NDArray[np.bool_]:
    """Return for each byte whether it is `{` or `[`, which differ by one bit."""
    opens: npt.NDArray[np.bool_] = (text | 0x20) == ord("{")
    return opens


def _has_tiny(text: pa.Buffer) -> bool:
    """Return whether the text has a number near zero. Arrow reads it as a decimal zero, or kills the process."""
    return (_contains(text, b"e-") or _contains(text, b"E-")) and bool(_TINY.search(text))


def _may_be_rounded(text: pa.Buffer) -> bool:
    """Return whether float64 might round a number, also to zero."""
    for part in _parts(text, _SURE_DIGITS + 1):
        between = np.flatnonzero((part - ord("0") > 9) & (part != ord(".")))
        if np.diff(between, prepend=-1, append=len(part)).max() > _SURE_DIGITS + 1:
            return True
    return (_contains(text, b"e-") or _contains(text, b"E-")) and bool(_UNDERFLOW.search(text))


def _contains(text: pa.Buffer, requested: bytes) -> bool:
    return any(_has(part, requested) for part in _parts(text, len(requested) - 1))


def _has(part: npt.NDArray[np.uint8], requested: bytes) -> bool:
    """Return whether the bytes contain a text; faster than `in` for a rare first letter."""
    positions = np.flatnonzero(part[: len(part) - len(requested) + 1] == requested[0])
    for index, letter in enumerate(requested[1:], 1):
        positions = positions[part[positions + index] == letter]
    return len(positions) > 0


def _parts(text: pa.Buffer, overlap: int = 0) -> Iterator[npt.NDArray[np.uint8]]:
    """Yield parts that fit the processor's cache, each with `overlap` bytes of the next."""
    data = np.frombuffer(text, np.uint8)
    for begin in range(0, len(data), _PART_BYTES):
        yield data[begin : begin + _PART_BYTES + overlap]


def _single_chunk(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _typed(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """Cast Arrow's result; raises _MightDifferError or pa.ArrowInvalid if the decoder's result might differ."""
    if pa.types.is_struct(kind):
        below = [_typed(array.field(index), f.type) for index, f in enumerate(kind)]
        return pa.StructArray.from_arrays(below, fields=list(kind), mask=array.is_null())
    if pa.types.is_list(kind):
        items = _typed(array.values, kind.value_type)
        return pa.ListArray.from_arrays(array.offsets, items, type=kind, mask=array.is_null())
    if pa.types.is_floating(kind):
        numbers = array.drop_null().to_numpy()
        if not np.isfinite(numbers).all() or np.any((numbers == 0) & np.signbit(numbers)):  # it reads -0 as 0.0
            raise _MightDifferError
    if pa.types.is_decimal(kind):
        array.validate(full=True)  # Arrow's reader accepts too many digits
    if pa.types.is_temporal(kind):
        if (pa.types.is_timestamp(kind) and are_uniform_utc_times(array)) or _all_match(
            array, _DATE if pa.types.is_date(kind) else _ZONED
        ):
            return array.cast(kind)
        if pa.types.is_date(kind) or not _all_match(array, _NAIVE):
            raise _MightDifferError
        return array.cast(pa.timestamp("us")).cast(kind)
    return array


def _all_match(array: pa.Array, pattern: str) -> bool:
    matches: bool = pc.all(pc.match_substring_regex(array, pattern + "$"), min_count=0).as_py()
    return matches


def _wire_type(kind: pa.DataType) -> pa.DataType:
    """Replace dates and times by text, because Arrow accepts other forms of them than the decoder."""
    return replace_types(kind, lambda inner: pa.string() if pa.types.is_temporal(inner) else inner)

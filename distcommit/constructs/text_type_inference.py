"""Parser of numbers and times in text, and inference of types."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import pyarrow as pa
import pyarrow.compute as pc

from distcommit.constructs.converters.cast import exact_cast
from distcommit.schemas.column_types import arrow_type

_BOOL = r"^(?i:true|false)$"
_INTEGER = r"^-?(0|[1-9]\d{0,37})$"
"""A whole number. Leading zeros and `+` are text: such values are codes and telephone numbers."""
_CODE = r"^[+-]?\d+$"
_FLOAT = r"^-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?$"
_DATE = r"^\d{4}-\d\d-\d\d$"
_TIME = r"^(\d{4}-\d\d-\d\d)[ T]\d\d:\d\d"


@dataclass(frozen=True, slots=True)
class TextForms:
    """Notation of numbers, dates and times in text.

    Attributes:
        decimal: decimal point.
        thousands: separator of groups of three digits; empty for none.
        dates: formats of dates as for `strptime`, besides `YYYY-MM-DD`.
        timestamps: formats of timestamps as for `strptime`, besides ISO 8601.
    """

    decimal: str = "."
    thousands: str = ""
    dates: tuple[str, ...] = ()
    timestamps: tuple[str, ...] = ()

    def parse(self, column: pa.Array, kind: pa.DataType) -> pa.Array:
        """Parse texts as a type. Empty text becomes null, unless the type is text.

        Raises:
            pa.ArrowInvalid: if a value does not fit the type.
        """
        texts = column.cast(pa.string())
        if pa.types.is_string(kind):
            return texts
        texts = pc.utf8_trim_whitespace(texts)
        texts = pc.if_else(pc.equal(texts, ""), pa.scalar(None, pa.string()), texts)
        if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
            texts = self._plain_numbers(texts)
        elif pa.types.is_date(kind):
            return _times(texts, self.dates, kind, _iso_dates)
        elif pa.types.is_timestamp(kind):
            return _times(texts, self.timestamps, kind, _iso_times)
        return exact_cast(texts, kind)

    def infer(self, column: pa.Array) -> str | None:
        """Return the narrowest type that fits all values; None if there are no values."""
        texts = pc.utf8_trim_whitespace(column.cast(pa.string()).drop_null()).unique()
        texts = texts.filter(pc.not_equal(texts, ""))
        if not len(texts):
            return None
        numbers = self._numbers_or_none(texts)
        if _all(texts, _BOOL):
            return "bool"
        if numbers is not None and _all(numbers, _INTEGER):
            return "int64" if self._fits(texts, "int64") else "decimal(38, 0)"
        if numbers is not None and _all(numbers, _FLOAT) and self._fits(texts, "float64"):
            return "float64"
        return next((name for name in ("date", "timestamp") if self._fits(texts, name)), "string")

    def first_word(self, column: pa.Array) -> int | None:
        """Return the index of the first value that is neither number nor code, if over half of the values are numbers;
        otherwise None."""
        texts = pc.fill_null(pc.utf8_trim_whitespace(column.cast(pa.string())), "")
        plain = pc.replace_substring(texts, self.thousands, "") if self.thousands else texts
        is_number = pc.match_substring_regex(pc.replace_substring(plain, self.decimal, "."), _FLOAT)
        is_word = pc.invert(pc.or_(pc.or_(is_number, pc.match_substring_regex(texts, _CODE)), pc.equal(texts, "")))
        count = pc.sum(pc.not_equal(texts, "")).as_py() or 0
        index = pc.index(is_word, True).as_py()
        return index if index >= 0 and 2 * (pc.sum(is_number).as_py() or 0) > count else None

    def _fits(self, texts: pa.Array, name: str) -> bool:
        try:
            self.parse(texts, arrow_type(name))
        except pa.ArrowException:
            return False
        return True

    def _numbers_or_none(self, texts: pa.Array) -> pa.Array | None:
        try:
            return self._plain_numbers(texts)
        except pa.ArrowInvalid:
            return None

    def _plain_numbers(self, texts: pa.Array) -> pa.Array:
        if self.thousands:
            separator, decimal = re.escape(self.thousands), re.escape(self.decimal)
            grouped = rf"^[+-]?\d{{1,3}}({separator}\d{{3}})+({decimal}\d*)?$"
            has_groups = pc.match_substring(texts, self.thousands)
            if not pc.all(pc.or_(pc.invert(has_groups), pc.match_substring_regex(texts, grouped)), min_count=0).as_py():
                raise pa.ArrowInvalid(f"digits not grouped in thousands by {self.thousands!r}")
            texts = pc.replace_substring(texts, self.thousands, "")
        if self.decimal != ".":
            if pc.any(pc.match_substring(texts, ".")).as_py():
                raise pa.ArrowInvalid(f"a point, where the decimal point is {self.decimal!r}")
            texts = pc.replace_substring(texts, self.decimal, ".")
        return texts


def _all(texts: pa.Array, pattern: str) -> bool:
    return bool(pc.all(pc.match_substring_regex(texts, pattern), min_count=0).as_py())


def _times(
    texts: pa.Array, formats: Sequence[str], kind: pa.DataType, iso: Callable[[pa.Array, pa.DataType], pa.Array]
) -> pa.Array:
    if not formats:
        return iso(texts, kind)
    distinct = texts.dictionary_encode()
    values: list[datetime | None] = [_parsed(text, formats) for text in distinct.dictionary.to_pylist()]
    parsed = pa.array(values, pa.timestamp("us", "UTC")).cast(pa.timestamp("us", "UTC"))
    known = (parsed.cast(pa.date32()) if pa.types.is_date(kind) else parsed.cast(kind)).take(distinct.indices)
    others = iso(texts.filter(pc.and_(texts.is_valid(), known.is_null())), kind)
    return pc.replace_with_mask(known, pc.and_(texts.is_valid(), known.is_null()), others) if len(others) else known


def _parsed(text: str, formats: Sequence[str]) -> datetime | None:
    for form in formats:
        try:
            time = datetime.strptime(text, form)
        except ValueError:
            continue
        return time.replace(tzinfo=UTC) if time.tzinfo is None else time
    return None


def _iso_dates(texts: pa.Array, kind: pa.DataType) -> pa.Array:
    if not _all(texts, _DATE):
        raise pa.ArrowInvalid("not a date")
    return exact_cast(texts, kind)


def _iso_times(texts: pa.Array, kind: pa.DataType) -> pa.Array:
    if not _all(texts, _TIME):
        raise pa.ArrowInvalid("not a timestamp")
    return exact_cast(texts, kind)

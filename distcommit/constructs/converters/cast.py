"""The converter `cast`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field, field_validator

from distcommit.constructs.bad_record_bisection import ConvertedPart, convert_or_bisect
from distcommit.constructs.calendar_times import OUTSIDE_CALENDAR, are_within_calendar, display_text
from distcommit.constructs.construct_settings import ConverterSettings
from distcommit.core.errors import ConfigurationError
from distcommit.core.interfaces.constructs import Converted
from distcommit.core.support.settings_model import SettingError, raise_all
from distcommit.core.work_units import WorkUnit
from distcommit.schemas.column_types import ColumnType, arrow_type
from distcommit.schemas.known_columns import UNKNOWN, Columns, find_column, with_column_type
from distcommit.schemas.storable_types import is_text

_PLAIN = r"^[+-]?\d{0,38}(\.\d{0,38})?$"
"""Text that Arrow can cast to a decimal. `1e-999999999` kills the process (26.0)."""
_INFINITY = r"^[+-]?(?i:inf(inity)?)$"
_NOT_ZERO = r"^[^eE]*[1-9]"
_LONG = r"^[+-]?\d{16,310}$"
_HAS_ZONE = r"[T ].*(Z|[+-]\d\d(:?\d\d)?)$"
_MOST_DIGITS = 20
"""Maximum number of digits of a 64-bit integer."""


class Cast(ConverterSettings):
    """Converter that casts columns in place.

    A record is rejected if a value does not fit its new type. Such values are: text that is not a number or a date,
    numbers out of range, decimals with too many digits, fractions as whole numbers, whole numbers that `float64` would
    round, numbers other than 0 and 1 as `bool`, times outside the years 1 to 9999. Text of a decimal must not have an
    exponent, text of a whole number must not be hexadecimal. Fractions are rounded if text or a decimal becomes
    `float64`, or a floating-point number becomes a decimal.

    Text of a timestamp is ISO 8601. A timestamp without a zone is in UTC: `2024-02-29T12:00:00` is 12:00 UTC, and
    `2024-02-29T12:00:00+01:00` is 11:00 UTC. A timestamp becomes the date in its own zone.

    Attributes:
        columns: `{NAME: TYPE}`, without lists, structs and maps.
    """

    type: Literal["cast"]
    columns: dict[str, ColumnType] = Field(min_length=1)

    @field_validator("columns")
    @classmethod
    def _are_scalars(cls, columns: dict[str, object]) -> dict[str, object]:
        raise_all(
            SettingError("must not be a list, a struct or a map", name)
            for name, written in columns.items()
            if pa.types.is_nested(arrow_type(written))
        )
        return columns

    def convert_columns(self, columns: Columns) -> Columns:
        for name, written in self.columns.items():
            kind = arrow_type(written)
            field = find_column(columns, name, "cast")
            try:
                pa.nulls(0, field.type if field.type != UNKNOWN else pa.null()).cast(kind)
            except (pa.ArrowException, TypeError) as error:
                raise ConfigurationError(
                    "a column can't be cast to this type",
                    id="CONSTRUCT_SETTINGS_INVALID",
                    construct="cast",
                    column=name,
                    expected=str(kind),
                    found=f"{field.type} ({error})",
                    todo="correct the type, or cast to an intermediate type first",
                ) from error
            columns = with_column_type(columns, name, kind)
        return columns

    def convert(self, output_schema: pa.Schema | None, batch: pa.RecordBatch, unit: WorkUnit) -> Iterator[Converted]:
        assert output_schema is not None

        def cast(part: pa.RecordBatch) -> ConvertedPart:
            supplied = zip(part.columns, output_schema, strict=True)
            return pa.RecordBatch.from_arrays([_cast(column, f) for column, f in supplied], schema=output_schema), None

        def describe(error: Exception, row: int) -> str:
            assert isinstance(error, _CastError)
            return f"{error}: {display_text(batch.column(error.column), row)[:100]}"

        yield convert_or_bisect(batch, cast, output_schema, _CastError, describe)


class _CastError(Exception):
    """Error of a value that does not fit its column's type. `column` is the column's name."""

    def __init__(self, field: pa.Field, reason: object) -> None:
        super().__init__(f"column {field.name!r} as {field.type}: {reason}")
        self.column = field.name


def _cast(column: pa.Array, field: pa.Field) -> pa.Array:
    if column.type == field.type:
        return column
    try:
        return exact_cast(column.dictionary_decode() if pa.types.is_dictionary(column.type) else column, field.type)
    except pa.ArrowException as error:
        raise _CastError(field, error) from None


def exact_cast(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """Cast a column by the rules of `Cast`; raises pa.ArrowException if a value does not fit."""
    t, types = column.type, pa.types
    is_number = types.is_integer(t) or types.is_floating(t) or types.is_decimal(t)
    if types.is_temporal(t) and not types.is_integer(kind) and not are_within_calendar(column):
        raise pa.ArrowInvalid(OUTSIDE_CALENDAR)
    if types.is_decimal(kind) and types.is_integer(t):
        column = column.cast(pa.decimal256(_MOST_DIGITS + kind.scale, kind.scale))
    elif types.is_decimal(kind) and not is_number:
        column = column.cast(pa.string())
        if not pc.all(pc.match_substring_regex(column, _PLAIN), min_count=0).as_py():
            raise pa.ArrowInvalid("not a number without exponent")
    elif types.is_integer(kind) and is_text(t) and pc.any(pc.match_substring_regex(column, "[xX]")).as_py():
        raise pa.ArrowInvalid("not a decimal number")
    elif types.is_timestamp(kind) and is_text(t):
        texts = column.cast(pa.string())
        has_zone = pc.match_substring_regex(texts, _HAS_ZONE)
        column = pc.if_else(has_zone, texts, pc.binary_join_element_wise(texts, "Z", ""))
    cast = column.cast(kind)
    if types.is_floating(kind) and is_text(t):
        _check_floats(column.cast(pa.string()), cast)
    if types.is_boolean(kind) and is_number and not pc.all(_are_bits(column), min_count=0).as_py():
        raise pa.ArrowInvalid("neither 0 nor 1")
    if not are_within_calendar(cast):
        raise pa.ArrowInvalid(OUTSIDE_CALENDAR)
    return cast


def _are_bits(numbers: pa.Array) -> pa.Array:
    return pc.or_(*(pc.equal(numbers, pa.scalar(bit, numbers.type)) for bit in (0, 1)))


def _check_floats(texts: pa.Array, numbers: pa.Array) -> None:
    finite = pc.invert(pc.match_substring_regex(texts, _INFINITY))
    if pc.any(pc.and_(pc.is_inf(numbers), finite)).as_py():
        raise pa.ArrowInvalid("too large for a floating-point number")
    if pc.any(pc.and_(pc.equal(numbers, 0.0), pc.match_substring_regex(texts, _NOT_ZERO))).as_py():
        raise pa.ArrowInvalid("too close to zero for a floating-point number")
    is_long = pc.fill_null(pc.match_substring_regex(texts, _LONG), False)
    long_texts, long_numbers = texts.filter(is_long).to_pylist(), numbers.filter(is_long).to_pylist()
    if any(int(text) != int(number) for text, number in zip(long_texts, long_numbers, strict=True)):
        raise pa.ArrowInvalid("a whole number with more digits than a floating-point number can represent")

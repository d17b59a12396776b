"""Conversion of messages to one canonical encoding by the official parser, which defines values and rejections.

Values that a column cannot hold are rejected as well: incomplete dates, times outside a day, timestamps and durations
outside their range, unknown numbers of a closed enum.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from google.protobuf import message, message_factory
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.unknown_fields import UnknownFieldSet

from distcommit.schemas.schema_size_limits import MAX_RECORD_VALUES

Check = Callable[[Any], None]
_MIN_TIMESTAMP_S, _MAX_TIMESTAMP_S = -62_135_596_800, 253_402_300_799
_MAX_DURATION_S = 315_576_000_000
_MAX_NANOS = 999_999_999
_F = FieldDescriptor


def is_timestamp(seconds: Any, nanos: Any) -> Any:
    """Return whether a timestamp is in the years 1 to 9999. This and the next functions take numbers or arrays."""
    return (seconds >= _MIN_TIMESTAMP_S) & (seconds <= _MAX_TIMESTAMP_S) & (nanos >= 0) & (nanos <= _MAX_NANOS)


def is_duration(seconds: Any, nanos: Any) -> Any:
    """Return whether a duration has one sign, and at most 10000 years."""
    has_one_sign = (seconds == 0) | (nanos == 0) | ((seconds < 0) == (nanos < 0))
    is_short = (seconds >= -_MAX_DURATION_S) & (seconds <= _MAX_DURATION_S)
    return has_one_sign & is_short & (nanos >= -_MAX_NANOS) & (nanos <= _MAX_NANOS)


def is_date(year: Any, month: Any, day: Any) -> Any:
    is_leap_year = (year % 4 == 0) & ((year % 100 != 0) | (year % 400 == 0))
    is_long_month = (month + month // 8) % 2 == 1
    is_in_month = (
        (day <= 28) | ((day <= 30) & (month != 2)) | ((day == 31) & is_long_month) | ((day == 29) & is_leap_year)
    )
    return (year >= 1) & (year <= 9999) & (month >= 1) & (month <= 12) & (day >= 1) & is_in_month


def is_time(hours: Any, minutes: Any, seconds: Any, nanos: Any) -> Any:
    is_minute = (hours >= 0) & (hours < 24) & (minutes >= 0) & (minutes < 60)
    return is_minute & (seconds >= 0) & (seconds < 60) & (nanos >= 0) & (nanos <= _MAX_NANOS)


def _check_timestamp(value: Any) -> None:
    if not is_timestamp(value.seconds, value.nanos):
        raise ValueError(f"a timestamp of {value.seconds} s and {value.nanos} ns is not within the years 1 to 9999")


def _check_duration(value: Any) -> None:
    if not is_duration(value.seconds, value.nanos):
        raise ValueError(f"{value.seconds} s and {value.nanos} ns are not a duration of at most 10000 years")


def _check_date(value: Any) -> None:
    if not is_date(value.year, value.month, value.day):
        raise ValueError(f"{value.year}-{value.month}-{value.day} is not a full date")


def _check_time(value: Any) -> None:
    if not is_time(value.hours, value.minutes, value.seconds, value.nanos):
        shown = f"{value.hours}:{value.minutes}:{value.seconds} and {value.nanos} ns"
        raise ValueError(f"{shown} is not a time within a day")


_WRAPPED = {
    "Double": _F.TYPE_DOUBLE,
    "Float": _F.TYPE_FLOAT,
    "Int64": _F.TYPE_INT64,
    "UInt64": _F.TYPE_UINT64,
    "Int32": _F.TYPE_INT32,
    "UInt32": _F.TYPE_UINT32,
    "Bool": _F.TYPE_BOOL,
    "String": _F.TYPE_STRING,
    "Bytes": _F.TYPE_BYTES,
}
KNOWN_FIELDS: Mapping[str, tuple[tuple[str, int], ...]] = {
    "google.protobuf.Timestamp": (("seconds", _F.TYPE_INT64), ("nanos", _F.TYPE_INT32)),
    "google.protobuf.Duration": (("seconds", _F.TYPE_INT64), ("nanos", _F.TYPE_INT32)),
    "google.type.Date": tuple((name, _F.TYPE_INT32) for name in ("year", "month", "day")),
    "google.type.TimeOfDay": tuple((name, _F.TYPE_INT32) for name in ("hours", "minutes", "seconds", "nanos")),
    **{f"google.protobuf.{name}Value": (("value", kind),) for name, kind in _WRAPPED.items()},
}
"""Well-known types that become one value, with names and types of their fields from number 1 on."""
_CHECKS: Mapping[str, Check] = {
    "google.protobuf.Timestamp": _check_timestamp,
    "google.protobuf.Duration": _check_duration,
    "google.type.Date": _check_date,
    "google.type.TimeOfDay": _check_time,
}


def is_google_type(source: Descriptor) -> bool:
    """Return whether a type has the name and fields of a well-known type."""
    fields = tuple((field.name, field.type) for field in source.fields if not field.is_repeated)
    numbers = [field.number for field in source.fields]
    return KNOWN_FIELDS.get(source.full_name) == fields and numbers == [*range(1, len(fields) + 1)]


def is_map(field: FieldDescriptor) -> bool:
    return field.message_type is not None and bool(field.message_type.GetOptions().map_entry)


@dataclass(frozen=True, slots=True)
class CheckedType:
    """Checks of a message type and of its inner messages.

    Attributes:
        checks: checks of the message itself, in order; empty if only inner messages are checked.
        fields: message fields to check as well, each with its message type.
    """

    checks: tuple[Check, ...]
    fields: tuple[tuple[FieldDescriptor, Descriptor], ...]


class Comparison(Protocol):
    """Check that a message has the same values if it is read as another type."""

    @property
    def is_exact(self) -> bool:
        """Whether values can't differ."""

    def compare(self, body: bytes, read: Any) -> None:
        """Raise ValueError if a value differs."""


class MessageParser:
    """Parser of messages of one type.

    Args:
        widths: number of columns by message type.
        pinned_schema: comparison with the type that wrote the messages; None if that is `source`.
    """

    def __init__(self, source: Descriptor, widths: Mapping[str, int], pinned_schema: Comparison | None = None) -> None:
        self._widths, self._widest = widths, max(widths.values(), default=0)
        self._pinned = None if pinned_schema is None or pinned_schema.is_exact else pinned_schema
        self._class: Any = message_factory.GetMessageClass(source)
        self._name = source.full_name
        self._types = checked_types(source)

    def canonical(self, body: bytes) -> bytes:
        """Return the canonical encoding of a message.

        Raises:
            ValueError: if it is rejected, a column can't hold a value, a required field is missing, or it has more than
                `MAX_RECORD_VALUES` values.
        """
        try:
            parsed = self._class.FromString(body)
            if len(body) * self._widest > MAX_RECORD_VALUES and (values := self._values(parsed)) > MAX_RECORD_VALUES:
                raise ValueError(f"it expands to {values} values, and at most {MAX_RECORD_VALUES} are allowed")
            if self._types:
                self._check(parsed, (self._name,))
            if self._pinned is not None:
                self._pinned.compare(body, parsed)
            if not parsed.IsInitialized():
                raise ValueError("a required field is missing")
            # SerializeToString ends the process to name a missing field (protobuf 7.36)
            return bytes(parsed.SerializePartialToString(deterministic=True))
        except message.Error as error:
            raise ValueError(str(error)) from error

    def _values(self, parsed: Any) -> int:
        total, waiting = 0, [parsed]
        while waiting:
            item = waiting.pop()
            for field in item.DESCRIPTOR.fields:
                below = message_of(field)
                if below is None or below.full_name not in self._widths:
                    continue
                values = _messages(item, field)
                waiting += values
                total += len(values) * self._widths[below.full_name] if field.is_repeated else 0
                if total > MAX_RECORD_VALUES:
                    return total
        return total

    def _check(self, parsed: Any, within: tuple[str, ...]) -> None:
        """Raise ValueError if a column can't hold a value.

        Args:
            within: enclosing types, whose fields are kept as bytes and not checked.
        """
        checked = self._types.get(within[-1])
        if checked is None:
            return
        for check in checked.checks:
            check(parsed)
        for field, below in checked.fields:
            if below.full_name in within:
                continue
            for value in _messages(parsed, field):
                self._check(value, (*within, below.full_name))


def message_types(root: Descriptor) -> dict[str, Descriptor]:
    """Return a message type and all types within it, by name."""
    types: dict[str, Descriptor] = {}
    waiting = [root]
    while waiting:
        source = waiting.pop()
        if source.full_name not in types:
            types[source.full_name] = source
            waiting += [child for field in source.fields if (child := message_of(field)) is not None]
    return types


def checked_types(root: Descriptor) -> dict[str, CheckedType]:
    """Return checks by name of type, without types that need none."""
    types: dict[str, CheckedType] = {}
    for name, source in message_types(root).items():
        below = [(field, child) for field in source.fields if (child := message_of(field)) is not None]
        checks: list[Check] = [_CHECKS[name]] if name in _CHECKS and is_google_type(source) else []
        numbers = frozenset(field.number for field in source.fields if _may_be_set_aside(field))
        if numbers:
            checks.append(MisplacedValueCheck(source, numbers))
        types[name] = CheckedType(tuple(checks), tuple(below))
    checked = {name for name, checked_type in types.items() if checked_type.checks}
    size = -1
    while size < len(checked):
        size = len(checked)
        checked |= {
            n
            for n, checked_type in types.items()
            if any(child.full_name in checked for _, child in checked_type.fields)
        }
    return {
        name: CheckedType(
            checked_type.checks, tuple(pair for pair in checked_type.fields if pair[1].full_name in checked)
        )
        for name, checked_type in types.items()
        if name in checked
    }


def _messages(parsed: Any, field: FieldDescriptor) -> list[Any]:
    value = getattr(parsed, field.name)
    if is_map(field):
        return [*value.values()]
    if field.is_repeated:
        return [*value]
    return [value] if parsed.HasField(field.name) else []


def message_of(field: FieldDescriptor) -> Descriptor | None:
    if is_map(field):
        return message_of(field.message_type.fields_by_name["value"])
    return field.message_type


def _may_be_set_aside(field: FieldDescriptor) -> bool:
    return is_map(field) or (field.enum_type is not None and field.enum_type.is_closed)


@dataclass(frozen=True, slots=True)
class MisplacedValueCheck:
    """Check that the official parser keeps no value of a known field as an unknown field. The parser does so for a
    number that a closed enum does not have, and for a map's entry with such a number or another field.

    Attributes:
        source: the message type.
        numbers: numbers of the known fields whose values the parser could treat as unknown.
    """

    source: Descriptor
    numbers: frozenset[int]

    def __call__(self, parsed: Any) -> None:
        for unknown in UnknownFieldSet(parsed):
            if unknown.field_number in self.numbers:
                name = self.source.fields_by_number[unknown.field_number].name
                raise ValueError(f"{self.source.full_name}.{name} has a value that is not of its type")

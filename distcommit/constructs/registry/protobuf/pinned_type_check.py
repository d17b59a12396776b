"""The check that no number changes if a message is read as the pinned type."""

from __future__ import annotations

from typing import Any

from google.protobuf import message_factory
from google.protobuf.descriptor import Descriptor, FieldDescriptor

from distcommit.constructs.registry.protobuf.message_parser import is_map
from distcommit.schemas.schema_size_limits import UnusableSchemaError

_F = FieldDescriptor
_KINDS = [
    {_F.TYPE_INT32, _F.TYPE_INT64, _F.TYPE_UINT32, _F.TYPE_UINT64, _F.TYPE_BOOL, _F.TYPE_ENUM},
    {_F.TYPE_SINT32, _F.TYPE_SINT64},
    {_F.TYPE_FIXED32, _F.TYPE_SFIXED32},
    {_F.TYPE_FIXED64, _F.TYPE_SFIXED64},
    {_F.TYPE_STRING, _F.TYPE_BYTES},
]
_TEXTS = frozenset(_KINDS[-1])
_Pair = tuple[str, str]
"""Names of the written type, and of the type that it is read as."""


def _kind(field: FieldDescriptor) -> int:
    """Return a number that fields of compatible encodings share (Protobuf's rules of updating messages)."""
    return next((-number for number, kinds in enumerate(_KINDS, 1) if field.type in kinds), int(field.type))


class PinnedTypeCheck:
    """Check that messages of one type have the same values if they are read as another type.

    Protobuf truncates numbers to the reader's type: 2**32 + 1 of an int64 is 1 as an int32.

    Raises:
        UnusableSchemaError: if the encodings of a field are not compatible.
    """

    def __init__(self, writer: Descriptor, reader: Descriptor) -> None:
        self._root = writer.full_name, reader.full_name
        self._class: Any = message_factory.GetMessageClass(writer)
        self._fields: dict[_Pair, list[tuple[FieldDescriptor, FieldDescriptor]]] = {}
        self._compared: set[_Pair] = set()
        self._prepare(writer, reader)

    @property
    def is_exact(self) -> bool:
        """Whether the reader's types can hold each value of the writer's."""
        return not self._compared

    def compare(self, body: bytes, read: Any) -> None:
        """Raise ValueError, with the field, if a number differs."""
        self._compare(self._class.FromString(body), read, self._root)

    def _prepare(self, writer: Descriptor, reader: Descriptor) -> None:
        waiting = [(writer, reader)]
        while waiting:
            writer, reader = waiting.pop()
            pair = writer.full_name, reader.full_name
            if pair in self._fields:
                continue
            self._fields[pair] = []
            for number, field in reader.fields_by_number.items():
                written = writer.fields_by_number.get(number)
                if written is None:
                    continue
                if _kind(written) != _kind(field) or written.is_repeated != field.is_repeated:
                    raise UnusableSchemaError(
                        f"field {number} ({writer.full_name}.{written.name}) is of another kind than {field.name} of "
                        "the pinned"
                    )
                if field.message_type is not None:
                    waiting.append((written.message_type, field.message_type))
                    self._fields[pair].append((written, field))
                elif written.type != field.type and field.type not in _TEXTS:
                    self._compared.add(pair)
                    self._fields[pair].append((written, field))
        self._mark_holders()

    def _mark_holders(self) -> None:
        """Find the types that contain compared ones and must be searched."""
        size = -1
        while size < len(self._compared):
            size = len(self._compared)
            self._compared |= {
                p for p, fields in self._fields.items() if any(_pair(*f) in self._compared for f in fields)
            }

    def _compare(self, written: Any, read: Any, pair: _Pair) -> None:
        if pair not in self._compared:
            return
        for translated, other_value in self._fields[pair]:
            values = _values(written, translated), _values(read, other_value)
            if translated.message_type is None or not _holds_messages(other_value):
                if values[0] != values[1]:
                    raise ValueError(
                        f"{translated.full_name} has a value that the pinned {other_value.name} can't hold"
                    )
                continue
            if len(values[0]) != len(values[1]) or (
                isinstance(values[0], dict) and values[0].keys() != values[1].keys()
            ):
                raise ValueError(f"{translated.full_name} has a key that the pinned {other_value.name} can't hold")
            of = _pair(_value_field(translated), _value_field(other_value))
            for key in values[0]:
                self._compare(values[0][key], values[1][key], of)


def _pair(written: FieldDescriptor, read: FieldDescriptor) -> _Pair:
    if written.message_type is None or read.message_type is None:
        return "", ""
    return written.message_type.full_name, read.message_type.full_name


def _value_field(field: FieldDescriptor) -> FieldDescriptor:
    return field.message_type.fields_by_name["value"] if is_map(field) else field


def _holds_messages(field: FieldDescriptor) -> bool:
    return _value_field(field).message_type is not None


def _values(message: Any, field: FieldDescriptor) -> dict[Any, Any]:
    if is_map(field):
        return dict(getattr(message, field.name))
    if field.is_repeated:
        return dict(enumerate(getattr(message, field.name)))
    has_it = not field.has_presence or message.HasField(field.name)
    return {0: getattr(message, field.name)} if has_it else {}

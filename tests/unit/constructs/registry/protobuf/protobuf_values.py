"""Expected column values of Protobuf messages, derived only from the official parser."""

from __future__ import annotations

import datetime
from typing import Any

import numpy as np
import pyarrow as pa
from google.protobuf import descriptor_pb2, descriptor_pool, message, message_factory
from google.protobuf.descriptor import Descriptor, FieldDescriptor, FileDescriptor

from distcommit.constructs.registry.protobuf.protobuf_decoder import ProtobufDecoder
from distcommit.constructs.registry.registry_client import RegisteredSchema
from distcommit.constructs.registry.wire_format import Framed

_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
REJECTED = "rejected"


def pool_of(*files: descriptor_pb2.FileDescriptorProto) -> FileDescriptor:
    """Return the last of the files, in a pool with all of them and Google's own."""
    from google.protobuf import duration_pb2, struct_pb2, timestamp_pb2, wrappers_pb2
    from google.type import date_pb2, timeofday_pb2  # type: ignore[import-untyped]

    pool = descriptor_pool.DescriptorPool()
    for module in (timestamp_pb2, duration_pb2, wrappers_pb2, struct_pb2, date_pb2, timeofday_pb2):
        google_file = descriptor_pb2.FileDescriptorProto()
        module.DESCRIPTOR.CopyToProto(google_file)
        pool.Add(google_file)
    for file in files:
        pool.Add(file)
    return pool.FindFileByName(files[-1].name)


def decoded(decoder: ProtobufDecoder, bodies: list[bytes]) -> list[Any]:
    """Return the product's record of each message, or `REJECTED`."""
    data = b"".join(b"\0" + body for body in bodies)
    ends = np.cumsum([len(body) + 1 for body in bodies])
    begins = np.concatenate([[0], ends[:-1]])
    framed = Framed(1, np.frombuffer(data, np.uint8), begins, ends, np.arange(len(bodies)))
    values: list[Any] = [REJECTED] * len(bodies)
    for piece in decoder.decode(framed):
        assert piece.records.schema.equals(decoder.schema)
        piece.records.validate(full=True)
        numbers = range(len(bodies)) if piece.numbers is None else piece.numbers.tolist()
        for number, value in zip(numbers, piece.records.to_pylist(maps_as_pydicts="strict"), strict=True):
            if number not in piece.wrong:
                values[number] = value
    return values


def expected(source: Descriptor, body: bytes) -> Any:
    """Return the record of a message, or `REJECTED` if the official parser or the value rules reject it."""
    try:
        parsed = message_factory.GetMessageClass(source).FromString(body)
        return _record(parsed, (source.full_name,)) if parsed.IsInitialized() else REJECTED
    except (message.Error, ValueError):
        return REJECTED


def _record(parsed: Any, within: tuple[str, ...]) -> dict[str, Any]:
    return {field.name: _field(parsed, field, within) for field in parsed.DESCRIPTOR.fields}


def _field(parsed: Any, field: FieldDescriptor, within: tuple[str, ...]) -> Any:
    value = getattr(parsed, field.name)
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        of = field.message_type.fields_by_name["value"]
        return {key: _value(value[key], of, within) for key in value}
    if field.is_repeated:
        return [_value(item, field, within) for item in value]
    if field.has_presence and not parsed.HasField(field.name):
        return None
    return _value(value, field, within)


def _value(value: Any, field: FieldDescriptor, within: tuple[str, ...]) -> Any:
    kind = field.message_type
    if field.enum_type is not None:
        named = field.enum_type.values_by_number.get(value)
        return str(value) if named is None else named.name
    if field.type == FieldDescriptor.TYPE_STRING and isinstance(value, bytes):
        raise ValueError("the text is not UTF-8")
    if kind is None:
        return float(np.float32(value)) if field.type == FieldDescriptor.TYPE_FLOAT else value
    if kind.full_name == "google.protobuf.Timestamp":
        if not (-62_135_596_800 <= value.seconds < 253_402_300_800 and 0 <= value.nanos < 10**9):
            raise ValueError
        return _EPOCH + datetime.timedelta(seconds=value.seconds, microseconds=value.nanos // 1000)
    if kind.full_name == "google.protobuf.Duration":
        value.ToJsonString()  # raises for an invalid value
        return datetime.timedelta(seconds=value.seconds, microseconds=int(value.nanos / 1000))
    if kind.full_name == "google.type.Date":
        return datetime.date(value.year, value.month, value.day)
    if kind.full_name == "google.type.TimeOfDay":
        return datetime.time(value.hours, value.minutes, value.seconds, _microseconds(value.nanos))
    if kind.full_name.startswith("google.protobuf.") and [member.name for member in kind.fields] == ["value"]:
        return _value(value.value, kind.fields[0], within)
    if kind.full_name in within or not kind.fields:
        return value.SerializePartialToString(deterministic=True)
    return _record(value, (*within, kind.full_name))


def _microseconds(nanos: int) -> int:
    if not 0 <= nanos < 10**9:
        raise ValueError
    return nanos // 1000


def text_schema(text: str, *references: tuple[str, str]) -> RegisteredSchema:
    """Return a schema as a registry stores it."""
    return RegisteredSchema(1, "PROTOBUF", text, references)


def schema_names(schema: pa.Schema) -> list[str]:
    """Return names and types, one text each."""
    return [f"{field.name}: {field.type}" for field in schema]

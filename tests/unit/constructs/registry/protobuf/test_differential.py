"""Random Protobuf messages, intact or damaged: each has the values of the official parser, or is rejected."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest
from google.protobuf import descriptor_pb2, message_factory
from google.protobuf.descriptor import Descriptor
from hypothesis import given, settings
from hypothesis import strategies as st

from distcommit.constructs.registry.protobuf.protobuf_decoder import ProtobufDecoder
from tests.unit.constructs.registry.protobuf.protobuf_values import REJECTED, decoded, expected, pool_of

_F = descriptor_pb2.FieldDescriptorProto
SCALARS = [1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 13, 15, 16, 17, 18]
KEYS = [kind for kind in SCALARS if kind not in (1, 2, 12)]
KNOWN = [
    "google.protobuf.Timestamp",
    "google.protobuf.Duration",
    "google.type.Date",
    "google.type.TimeOfDay",
    "google.protobuf.Int64Value",
    "google.protobuf.StringValue",
    "google.protobuf.Struct",
]
FILES = ["timestamp", "duration", "wrappers", "struct"]
NUMBERS = [0, 1, -1, 2, 23, 29, 60, 2**31 - 1, -(2**31), 2**63 - 1, -(2**63), 2**64 - 1, 2023, 999_999_999, 10**9]


def schema(seed: int, syntax: str) -> descriptor_pb2.FileDescriptorProto:
    """Return a file with three messages that contain each other and themselves, with fields of all kinds."""
    dice = random.Random(seed)
    file = descriptor_pb2.FileDescriptorProto(name="made.proto", package="made", syntax=syntax)
    if syntax == "editions":
        file.edition = descriptor_pb2.EDITION_2023
    file.dependency.extend(f"google/protobuf/{name}.proto" for name in FILES)
    file.dependency.extend(["google/type/date.proto", "google/type/timeofday.proto"])
    kind = file.enum_type.add(name="Kind")
    for name, number in (("ZERO", 0), ("ONE", 1), ("BIG", 2**31 - 1), ("MINUS", -1)):
        kind.value.add(name=name, number=number)
    for name in ("A", "B", "C"):
        message_type = file.message_type.add(name=name)
        message_type.oneof_decl.add(name="choice")
        for number in range(1, dice.randint(2, 7)):
            _add_field(dice, message_type, number, syntax)
        if not any(field.HasField("oneof_index") for field in message_type.field):
            message_type.field.add(name="chosen", number=50, type=9, label=1, oneof_index=0)
    return file


def _add_field(dice: random.Random, message_type: Any, number: int, syntax: str) -> None:
    name = f"f{number}"
    field = message_type.field.add(name=name, number=number, label=dice.choice([1, 1, 3]))
    what = dice.choice(["scalar", "scalar", "enum", "message", "known", "map"])
    if what == "map":
        entry = message_type.nested_type.add(name=f"F{number}Entry")
        entry.options.map_entry = True
        entry.field.add(name="key", number=1, label=1, type=dice.choice(KEYS))
        value = entry.field.add(name="value", number=2, label=1)
        _set_type(dice, value, dice.choice(["scalar", "enum", "message", "known"]))
        field.label, field.type, field.type_name = 3, 11, f".made.{message_type.name}.F{number}Entry"
        return
    _set_type(dice, field, what)
    if field.label == 1 and dice.random() < 0.4:
        field.oneof_index = 0
    elif syntax == "proto2" and field.label == 1 and field.type != 11 and dice.random() < 0.2:
        field.label = 2
    elif syntax == "editions" and field.label == 1 and field.type != 11 and dice.random() < 0.5:
        field.options.features.field_presence = descriptor_pb2.FeatureSet.IMPLICIT


def _set_type(dice: random.Random, field: Any, what: str) -> None:
    if what == "scalar":
        field.type = dice.choice(SCALARS)
    elif what == "enum":
        field.type, field.type_name = 14, ".made.Kind"
    else:
        named = dice.choice(KNOWN) if what == "known" else f"made.{dice.choice('ABC')}"
        field.type, field.type_name = 11, f".{named}"


def varint(value: int) -> bytes:
    value &= 2**64 - 1
    encoded = bytearray()
    while value > 127:
        encoded.append(value & 127 | 128)
        value >>= 7
    return bytes([*encoded, value])


def wire(dice: random.Random, source: Descriptor, depth: int = 0) -> bytes:
    """Return a message's bytes, field by field: also two members of a oneof, repeated fields, half map entries."""
    body = b""
    fields = [field for field in source.fields if dice.random() < 0.7]
    for field in [*fields, *dice.choices(fields, k=len(fields) and dice.randint(0, 2))]:
        for _ in range(dice.randint(1, 2) if field.is_repeated else 1):
            if dice.random() < 0.05:
                body += varint(dice.randint(60, 70) << 3) + varint(dice.choice(NUMBERS))  # an unknown field
            body += _one(dice, field, depth)
    return body


def _one(dice: random.Random, field: Any, depth: int) -> bytes:
    number, kind = field.number, field.type
    if kind in (3, 4, 5, 8, 13, 14, 17, 18):
        values = [varint(dice.choice(NUMBERS)) for _ in range(3)]
        if field.is_repeated and dice.random() < 0.5:
            body = b"".join(values)
            return varint(number << 3 | 2) + varint(len(body)) + body
        return varint(number << 3) + values[0]
    if kind in (1, 6, 16):
        return varint(number << 3 | 1) + dice.randbytes(8)
    if kind in (2, 7, 15):
        return varint(number << 3 | 5) + dice.randbytes(4)
    if kind == 9:
        body = dice.choice(["", "a", "é", "\U0001f600"]).encode()
    elif kind == 12:
        body = dice.randbytes(dice.randint(0, 3))
    else:
        body = wire(dice, field.message_type, depth + 1) if depth < 4 else b""
    return varint(number << 3 | 2) + varint(len(body)) + body


def damaged(dice: random.Random, body: bytes) -> bytes:
    changed = bytearray(body)
    for _ in range(dice.randint(1, 2)):
        if changed and dice.random() < 0.5:
            changed[dice.randrange(len(changed))] = dice.randrange(256)
        elif changed and dice.random() < 0.7:
            del changed[dice.randrange(len(changed)) :]
        else:
            changed.insert(dice.randint(0, len(changed)), dice.randrange(256))
    return bytes(changed)


def plain(value: Any) -> Any:
    """Return a value that can be compared: NaN equals itself."""
    if isinstance(value, float) and math.isnan(value):
        return "NaN"
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, list) else value


def compare(seed: int, syntax: str, messages: int) -> tuple[int, int]:
    """Compare messages of one schema; return how many were read and how many were rejected."""
    dice = random.Random(seed)
    file = pool_of(schema(seed, syntax))
    source = file.message_types_by_name["A"]
    bodies = [wire(dice, source) for _ in range(messages)]
    bodies += [damaged(dice, body) for body in bodies]
    right = [plain(expected(source, body)) for body in bodies]
    results = [plain(record) for record in decoded(ProtobufDecoder(file, None), bodies)]
    rejected = 0
    for body, ours, theirs in zip(bodies, results, right, strict=True):
        rejected += ours == REJECTED
        assert ours in (REJECTED, theirs), (seed, syntax, body)
        if ours == REJECTED and theirs != REJECTED:
            assert _has_unknown_fields(source, body), (seed, syntax, body)
    return len(bodies) - rejected, rejected


def _has_unknown_fields(source: Descriptor, body: bytes) -> bool:
    """Return whether the parser stores an unknown value: the only case in which the product rejects more messages."""
    parsed = message_factory.GetMessageClass(source).FromString(body)
    before = parsed.ByteSize()
    parsed.DiscardUnknownFields()
    return bool(parsed.ByteSize() < before)


@pytest.mark.parametrize("syntax", ["proto2", "proto3", "editions"])
def test_messages_are_equal_to_the_official_parser_s_or_rejected(syntax: str) -> None:
    totals = [compare(seed, syntax, 40) for seed in range(25)]
    assert sum(read for read, _ in totals) > 300
    assert sum(rejected for _, rejected in totals) > 100


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32), st.sampled_from(["proto2", "proto3", "editions"]))
def test_any_bytes_of_any_schema_are_equal_to_the_official_parser_s_or_rejected(seed: int, syntax: str) -> None:
    compare(seed, syntax, 5)

"""Protobuf messages as columns, without a registry."""

from __future__ import annotations

import base64

import numpy as np
import pyarrow as pa
from google.protobuf import descriptor_pb2

from distcommit.constructs.evolution import compared
from distcommit.constructs.registry.client import FoundSchema
from distcommit.constructs.registry.protobuf_schema import ProtobufDecoder, schema_of
from distcommit.constructs.registry.wire import Framed

LINE = b"\x0a\x01a\x10\x02"


def orders(*fields: str) -> ProtobufDecoder:
    """Of a message that repeats another, whose fields are text or, if they begin with `n`, numbers, and has one of it
    by name."""
    file = descriptor_pb2.FileDescriptorProto(name="shop.proto", package="shop", syntax="proto3")
    order, line = file.message_type.add(name="Order"), file.message_type.add(name="Line")
    order.field.add(name="lines", number=1, type=11, label=3, type_name=".shop.Line")
    order.field.add(name="first", number=2, type=11, label=1, type_name=".shop.Line")
    for number, name in enumerate(fields, 1):
        line.field.add(name=name, number=number, type=5 if name.startswith("n") else 9, label=1)
    return schema_of(FoundSchema(1, "PROTOBUF", base64.b64encode(file.SerializeToString()).decode(), ()), None)


def test_plain_fields_that_are_new_within_others_are_compatible_in_either_direction() -> None:
    old, new = orders("sku"), orders("sku", "n")
    for pair in ((old, new), (new, old)):
        found = compared(*(decoder.schema for decoder in pair))
        assert (found.kind, found.reasons) == ("compatible", ())


def test_records_have_the_columns_that_the_schema_says() -> None:
    decoder, message = orders("sku", "n"), b"\0" + b"\x0a\x05" + LINE + b"\x12\x00"
    places = np.array([0]), np.array([len(message)])
    framed = Framed(1, np.frombuffer(message, np.uint8), *places, np.array([0]))
    (found,) = decoder.decode(framed)
    assert found.records.schema.equals(decoder.schema)
    assert found.records.to_pylist() == [{"lines": [{"sku": "a", "n": 2}], "first": {"sku": "", "n": 0}}]
    assert pa.types.is_struct(decoder.schema.field("first").type)

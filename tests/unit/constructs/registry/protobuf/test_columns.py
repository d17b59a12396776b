"""Protobuf messages as columns, without a registry."""

from __future__ import annotations

import base64
import datetime

import numpy as np
import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2

from distcommit.constructs.registry.protobuf.protobuf_decoder import ProtobufDecoder, schema_of
from distcommit.constructs.registry.registry_client import RegisteredSchema
from distcommit.constructs.registry.wire_format import Framed
from distcommit.schemas.evolution import compare_schemas
from distcommit.schemas.schema_size_limits import UnusableSchemaError
from tests.unit.constructs.registry.protobuf.protobuf_values import REJECTED, decoded, text_schema

LINE = b"\x0a\x01a\x10\x02"


def orders(*fields: str) -> ProtobufDecoder:
    """Return the decoder of a message that has a repeated message and one by name; fields that begin with `n` are
    numbers, others text."""
    file = descriptor_pb2.FileDescriptorProto(name="shop.proto", package="shop", syntax="proto3")
    order, line = file.message_type.add(name="Order"), file.message_type.add(name="Line")
    order.field.add(name="lines", number=1, type=11, label=3, type_name=".shop.Line")
    order.field.add(name="first", number=2, type=11, label=1, type_name=".shop.Line")
    for number, name in enumerate(fields, 1):
        line.field.add(name=name, number=number, type=5 if name.startswith("n") else 9, label=1)
    return schema_of(RegisteredSchema(1, "PROTOBUF", base64.b64encode(file.SerializeToString()).decode(), ()), None)


def test_new_plain_fields_of_nested_messages_are_compatible_in_either_direction() -> None:
    old, new = orders("sku"), orders("sku", "n")
    for pair in ((old, new), (new, old)):
        comparison = compare_schemas(*(decoder.schema for decoder in pair))
        assert (comparison.kind, comparison.reasons) == ("compatible", ())


def test_decoded_records_have_the_schema_s_columns() -> None:
    decoder, message = orders("sku", "n"), b"\0" + b"\x0a\x05" + LINE + b"\x12\x00"
    places = np.array([0]), np.array([len(message)])
    framed = Framed(1, np.frombuffer(message, np.uint8), *places, np.array([0]))
    (decoded_batch,) = decoder.decode(framed)
    assert decoded_batch.records.schema.equals(decoder.schema)
    assert decoded_batch.records.to_pylist() == [{"lines": [{"sku": "a", "n": 2}], "first": {"sku": "", "n": 0}}]
    assert pa.types.is_struct(decoder.schema.field("first").type)


def decoder_of(text: str, pinned: str = "") -> ProtobufDecoder:
    """Return a decoder of a schema's text, pinned or not."""
    reader = RegisteredSchema(2, "PROTOBUF", pinned, ()) if pinned else None
    return schema_of(text_schema(text), reader)


def test_group_is_rejected_with_its_field() -> None:
    with pytest.raises(UnusableSchemaError, match="field inner is a group"):
        decoder_of('syntax = "proto2"; message M { optional group Inner = 1 { optional int32 x = 2; } }')


def test_delimited_field_of_an_edition_is_rejected_with_its_name() -> None:
    text = """edition = "2023"; message M { N n = 1 [features.message_encoding = DELIMITED]; }
    message N { int32 x = 1; }"""
    with pytest.raises(UnusableSchemaError, match="field n is a group"):
        decoder_of(text)


def test_edition_2023_is_read_with_its_features() -> None:
    text = """edition = "2023"; enum Kind { A = 0; B = 1; } message M {
    int32 x = 1; int32 y = 2 [features.field_presence = IMPLICIT]; Kind kind = 3; repeated int32 n = 4; }"""
    decoder = decoder_of(text)
    assert decoded(decoder, [b"", b"\x08\x05\x10\x06\x18\x07\x22\x02\x01\x02"]) == [
        {"x": None, "y": 0, "kind": None, "n": []},
        {"x": 5, "y": 6, "kind": "7", "n": [1, 2]},
    ]


def test_nested_message_without_fields_is_its_bytes() -> None:
    text = (
        'syntax = "proto3"; import "google/protobuf/empty.proto"; message M { oneof a { %s no = 1; int32 yes = 2; } }'
    )
    decoder = decoder_of(text % "google.protobuf.Empty")
    assert decoder.schema.field("no").type == pa.binary()
    assert decoded(decoder, [b"\x0a\x00", b"\x10\x07", b""]) == [
        {"no": b"", "yes": None},
        {"no": None, "yes": 7},
        {"no": None, "yes": None},
    ]


def test_message_without_fields_has_a_record_without_columns() -> None:
    decoder = decoder_of('syntax = "proto3"; message M {}')
    assert decoded(decoder, [b"", b"\x08\x05", b"\x08"]) == [{}, {}, REJECTED]


def test_recursive_field_that_the_pinned_schema_lacks_is_skipped() -> None:
    writer = 'syntax = "proto3"; message M { int32 x = 1; M parent = 2; repeated M children = 3; }'
    decoder = decoder_of(writer, 'syntax = "proto3"; message M { int32 x = 1; }')
    assert decoded(decoder, [b"\x08\x05\x12\x02\x08\x06\x1a\x04\x12\x02\x08\x07"]) == [{"x": 5}]


@pytest.mark.parametrize(
    "body",
    [
        b"\x08\x81\x80\x80\x80\x10",
        b"\x12\x07\x08\x81\x80\x80\x80\x80\x20",
        b"\x1a\x08\x08\x81\x80\x80\x80\x10\x12\x00",
    ],
    ids=["field", "within a list", "key of a map"],
)
def test_number_that_the_pinned_type_can_not_hold_is_rejected(body: bytes) -> None:
    text = 'syntax = "proto3"; message M { %s x = 1; repeated M below = 2; map<%s, M> of = 3; }'
    decoder = decoder_of(text % ("int64", "int64"), text % ("int32", "int32"))
    good = {"x": 5, "below": [], "of": {}}
    assert decoded(decoder, [b"\x08\x05", body]) == [good, REJECTED]


def test_field_names_that_differ_only_in_case_are_kept() -> None:
    decoder = decoder_of('syntax = "proto2"; message M { optional int32 id = 1; optional int32 ID = 2; }')
    assert decoded(decoder, [b"\x08\x01\x10\x02"]) == [{"id": 1, "ID": 2}]


def test_message_named_like_google_s_own_with_other_fields_is_a_message() -> None:
    text = 'syntax = "proto3"; package google.type; message M { Date d = 1; } message Date { string year = 1; }'
    assert decoded(decoder_of(text), [b"\x0a\x03\x0a\x01a"]) == [{"d": {"year": "a"}}]


def test_map_of_google_s_own_messages_has_their_values() -> None:
    text = 'syntax = "proto3"; import "google/protobuf/timestamp.proto"; message M { map<string, %s> m = 1; }'
    decoder = decoder_of(text % "google.protobuf.Timestamp")
    epoch = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
    assert decoded(decoder, [b"\x0a\x03\x0a\x01a", b"\x0a\x00"]) == [{"m": {"a": epoch}}, {"m": {"": epoch}}]

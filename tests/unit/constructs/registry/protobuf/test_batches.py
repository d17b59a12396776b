"""Protobuf messages parsed in a batch: each has the same encoding, or the same error, as if parsed alone."""

from __future__ import annotations

import datetime
import itertools
import random
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest
from google.protobuf import descriptor_pb2, message_factory
from google.protobuf.descriptor import Descriptor, FileDescriptor

from distcommit.constructs.registry.protobuf.batches import BatchParser, Envelope, parts
from distcommit.constructs.registry.protobuf.descriptor_files import file_of
from distcommit.constructs.registry.protobuf.message_columns import Columns
from distcommit.constructs.registry.protobuf.message_parser import (
    MessageParser,
    is_date,
    is_duration,
    is_time,
    is_timestamp,
)
from tests.unit.constructs.registry.protobuf.protobuf_values import pool_of, text_schema
from tests.unit.constructs.registry.protobuf.test_differential import damaged, schema, varint, wire

KNOWN = 'import "google/protobuf/timestamp.proto"; import "google/protobuf/duration.proto"; '
KNOWN += 'import "google/type/date.proto"; import "google/type/timeofday.proto"; '
GOOGLE_TYPES = {
    "google/type/date.proto": "message Date { int32 year = 1; int32 month = 2; int32 day = 3; }",
    "google/type/timeofday.proto": "message TimeOfDay { int32 hours = 1; int32 minutes = 2; int32 seconds = 3; "
    "int32 nanos = 4; }",
}
RANGES: dict[str, list[tuple[int, ...]]] = {
    "google.protobuf.Timestamp": [
        (-62_135_596_800, 0),
        (-62_135_596_801, 0),
        (253_402_300_799, 999_999_999),
        (253_402_300_800, 0),
        (-(2**63), 0),
        (2**63 - 1, 0),
        (18_446_744_073_710, 0),
        (0, -1),
        (0, 10**9),
        (0, 2**31 - 1),
    ],
    "google.protobuf.Duration": [
        (315_576_000_000, 999_999_999),
        (-315_576_000_000, -999_999_999),
        (315_576_000_001, 0),
        (-(2**63), 0),
        (1, -1),
        (-1, 1),
        (-1, -1),
        (0, -999_999_999),
        (0, 10**9),
        (0, -(2**31)),
    ],
    "google.type.Date": [
        (1, 1, 1),
        (9999, 12, 31),
        (10_000, 1, 1),
        (2024, 2, 29),
        (2023, 2, 29),
        (1900, 2, 29),
        (2000, 2, 29),
        (2024, 4, 31),
        (2024, 12, 31),
        (2024, 0, 1),
        (2024, 13, 1),
        (2024, 2**31 - 1, 1),
        (-1, 1, 1),
        (0, 0, 0),
    ],
    "google.type.TimeOfDay": [
        (23, 59, 59, 999_999_999),
        (24, 0, 0, 0),
        (0, 60, 0, 0),
        (0, 0, 60, 0),
        (0, 0, 0, 10**9),
        (-1, 0, 0, 0),
        (0, 0, 0, -1),
    ],
}


@cache
def file_with(body: str, syntax: str = "proto3") -> FileDescriptor:
    references = [(name, f'syntax = "proto3"; package google.type; {text}') for name, text in GOOGLE_TYPES.items()]
    return file_of(text_schema(f'syntax = "{syntax}"; {body}', *(references if body.startswith(KNOWN) else ())))


def root_of(file: FileDescriptor) -> Descriptor:
    return file.message_types_by_name["M"]


def parsed_alone(source: Descriptor, bodies: list[bytes]) -> list[bytes | str]:
    parser = MessageParser(source, Columns(source).widths)
    results: list[bytes | str] = []
    for body in bodies:
        try:
            results.append(parser.canonical(body))
        except ValueError as error:
            results.append(str(error))
    return results


def parsed_in_batch(source: Descriptor, bodies: list[bytes]) -> list[bytes | str]:
    results = BatchParser(source, Columns(source).widths).canonical(bodies)
    return [str(result) if isinstance(result, ValueError) else result for result in results]


def frame(number: int, body: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(body)) + body


def envelope(source: Descriptor) -> Envelope:
    return Envelope(source, Columns(source).widths)


ORDINARY = """message L { string sku = 1; int32 count = 2; } message M { int64 id = 1; string name = 2; L line = 3;
repeated L lines = 4; repeated int32 n = 5; map<string, int64> tags = 6; google.protobuf.Timestamp at = 7; }"""
ODD = {
    "empty": b"",
    "truncated number": b"\x08",
    "truncated text": b"\x12\x05ab",
    "end of a group": b"\x0c",
    "end of a group behind a value": b"\x08\x01\x0c",
    "begin of a group": b"\x0b",
    "group": b"\x9b\x01\x9c\x01",
    "end of another group": b"\x9b\x01\xa4\x01",
    "looks like the next frame": b"\x0a\x02\x08\x07",
    "frame that takes in the next": b"\x0a\x7f",
    "length beyond the message": b"\x1a\x10",
    "length of 2 GiB": b"\x12\xff\xff\xff\xff\x07",
    "length that wraps": b"\x12\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
    "tag 0": b"\x00",
    "unfinished tag": b"\x80",
    "text that is not UTF-8": b"\x12\x01\xff",
    "fields in another order": b"\x12\x01a\x08\x01",
    "default that is there": b"\x08\x00",
    "long form of a number": b"\x08\x81\x80\x00",
    "numbers one by one": b"\x28\x01\x28\x02",
    "unknown field": b"\x08\x01\xf8\x01\x05",
    "key twice": b"\x32\x03\x0a\x01a\x32\x05\x0a\x01a\x10\x02",
    "entry with an unknown field": b"\x32\x05\x0a\x01a\x18\x01",
    "keys in another order": b"\x32\x03\x0a\x01b\x32\x03\x0a\x01a",
    "timestamp beyond its range": b"\x3a\x07\x10\xff\xff\xff\xff\x07\x08",
    "nanos beyond their range": b"\x3a\x06\x10\xff\xff\xff\xff\x07",
}


@pytest.mark.parametrize("odd", ODD.values(), ids=ODD)
@pytest.mark.parametrize("size", [1, 3, 40, 1100])
def test_odd_message_does_not_change_its_neighbours(odd: bytes, size: int) -> None:
    source = root_of(file_with(KNOWN + ORDINARY))
    good = b"\x08\x05\x12\x01a"
    expected = parsed_alone(source, [odd, good])
    for place in {0, size // 2, size - 1}:
        bodies = [good] * size
        bodies[place] = odd
        right = [expected[1]] * size
        right[place] = expected[0]
        assert parsed_in_batch(source, bodies) == right


def test_pairs_of_odd_messages_have_the_results_of_single_parsing() -> None:
    source = root_of(file_with(KNOWN + ORDINARY))
    pairs = [*itertools.product(ODD.values(), repeat=2)]
    right = dict(zip(ODD.values(), parsed_alone(source, [*ODD.values()]), strict=True))
    parser = BatchParser(source, Columns(source).widths)
    for pair in pairs:
        results = [
            str(message) if isinstance(message, ValueError) else message for message in parser.canonical([*pair])
        ]
        assert results == [right[message] for message in pair]


@pytest.mark.parametrize("syntax", ["proto2", "proto3", "editions"])
def test_messages_of_any_schema_have_the_results_of_single_parsing(syntax: str) -> None:
    read = 0
    for seed in range(30):
        dice = random.Random(seed)
        source = pool_of(schema(seed, syntax)).message_types_by_name["A"]
        bodies = [wire(dice, source) for _ in range(40)]
        bodies += [damaged(dice, body) for body in bodies]
        right = parsed_alone(source, bodies)
        parser, of_type = BatchParser(source, Columns(source).widths), envelope(source)
        singles = [parser.canonical([body])[0] for body in bodies]
        assert [str(result) if isinstance(result, ValueError) else result for result in singles] == right
        good = [body for body, result in zip(bodies, right, strict=True) if isinstance(result, bytes)]
        assert parser.canonical(good) == [result for result in right if isinstance(result, bytes)]
        for body, result in zip(bodies, right, strict=True):
            canonical = of_type.canonical([body])
            assert canonical in (None, [None], [result])
            read += canonical == [result]
    assert read > 300


def test_ordinary_messages_are_parsed_in_one_batch() -> None:
    source = root_of(file_with(KNOWN + ORDINARY))
    message_class: Any = message_factory.GetMessageClass(source)
    bodies = []
    for number in range(100):
        message = message_class(id=number, name="a" * number * 2, n=[1, 2], tags={"b": 1, "a": number})
        message.line.sku = "x"
        message.lines.add(sku="y", count=5)
        message.at.seconds, message.at.nanos = 1_700_000_000, 5
        bodies.append(message.SerializeToString(deterministic=True))
    assert envelope(source).canonical(bodies) == bodies
    moved = [body[2:] + body[:2] for body in bodies[1:]]
    assert envelope(source).canonical(moved) == bodies[1:]


@pytest.mark.parametrize("known", RANGES)
@pytest.mark.parametrize("place", ["%s x = 1;", "repeated %s x = 1;", "map<int32, %s> x = 1;", "repeated N x = 1;"])
def test_value_beyond_its_range_is_detected_at_any_place(known: str, place: str) -> None:
    field = place % known if "%s" in place else place
    source = root_of(file_with(f"{KNOWN} message M {{ {field} string s = 2; }} message N {{ {known} y = 3; }}"))
    bodies = [b"", b"\x12\x01a"]
    for values in RANGES[known]:
        body = b"".join(varint(number << 3) + varint(value) for number, value in enumerate(values, 1) if value)
        if "map" in place:
            bodies.append(frame(1, b"\x08\x01" + frame(2, body)))
        else:
            bodies.append(frame(1, frame(3, body) if "N x" in place else body))
    right = parsed_alone(source, bodies)
    assert parsed_in_batch(source, bodies) == right
    assert envelope(source).canonical(bodies) == [None if isinstance(result, str) else result for result in right]
    kinds = set()
    for body, result in zip(bodies, right, strict=True):
        canonical = envelope(source).canonical([body])
        assert canonical == [None if isinstance(result, str) else result]
        kinds.add(type(result))
    assert kinds == {bytes, str}


def test_range_checks_of_arrays_equal_those_of_numbers() -> None:
    rules: dict[str, Callable[..., Any]] = dict(zip(RANGES, (is_timestamp, is_duration, is_date, is_time), strict=True))
    for name, rule in rules.items():
        kind = [np.int64 if name.startswith("google.protobuf") and not number else np.int32 for number in range(4)]
        columns = [np.array(column, of) for column, of in zip(zip(*RANGES[name], strict=True), kind, strict=False)]
        assert rule(*columns).tolist() == [bool(rule(*values)) for values in RANGES[name]]


def test_every_date_of_the_calendar_is_accepted_and_no_other() -> None:
    for year in (1, 4, 100, 400, 1900, 2000, 2023, 2024, 9999):
        dates = [(month, day) for month in range(-1, 15) for day in range(-1, 34) if is_date(year, month, day)]
        first = datetime.date(year, 1, 1).toordinal()
        days = [datetime.date.fromordinal(first + number) for number in range(365 + (dates.count((2, 29))))]
        assert dates == [(day.month, day.day) for day in days if day.year == year]
        assert len(dates) == datetime.date(year, 12, 31).timetuple().tm_yday


def test_nesting_up_to_the_parser_s_limit_is_read() -> None:
    source = root_of(file_with("message M { M m = 1; int32 x = 2; }"))
    bodies, body = [b"\x10\x05"], b"\x10\x05"
    for _ in range(110):
        body = frame(1, body)
        bodies.append(body)
    right = parsed_alone(source, bodies)
    assert {type(result) for result in right[90:]} == {bytes, str}
    assert parsed_in_batch(source, bodies) == right
    assert [parsed_in_batch(source, [body])[0] for body in bodies] == right


@pytest.mark.parametrize("levels", [1, 47, 48, 49, 50, 60, 61, 62])
def test_deeply_nested_unknown_enum_value_is_detected(levels: int) -> None:
    chain = " ".join(f"message M{n} {{ optional M{n + 1} m = 1; }}" for n in range(1, levels))
    end = f"enum E {{ A = 0; }} message M{levels} {{ optional E e = 1; }} message M {{ optional M1 m = 1; }}"
    source = root_of(file_with(f"{chain} {end}", "proto2"))
    body = b"\x08\x05"
    for _ in range(levels):
        body = frame(1, body)
    (right,) = parsed_alone(source, [body])
    assert isinstance(right, str)
    assert parsed_in_batch(source, [body]) == [right]


@pytest.mark.parametrize("levels", [1, 47, 60, 61])
def test_deeply_nested_timestamp_beyond_its_range_is_detected(levels: int) -> None:
    chain = " ".join(f"message M{n} {{ M{n + 1} m = 1; }}" for n in range(1, levels))
    end = f"message M{levels} {{ google.protobuf.Timestamp t = 1; }} message M {{ M1 m = 1; }}"
    source = root_of(file_with(f"{KNOWN} {chain} {end}"))
    bodies = [frame(1, b"\x08\x05"), frame(1, b"\x10" + varint(-1))]
    for _ in range(levels):
        bodies = [frame(1, body) for body in bodies]
    right = parsed_alone(source, bodies)
    assert [type(result) for result in right] == [bytes, str]
    assert parsed_in_batch(source, bodies) == right


def test_unknown_enum_value_beside_deep_nesting_is_detected() -> None:
    text = "message M { optional R r = 1; optional E e = 2; optional R s = 3; } message R { optional R r = 1; }"
    source = root_of(file_with(f"enum E {{ A = 0; }} {text}", "proto2"))
    deep = b""
    for _ in range(80):
        deep = frame(1, deep)
    bodies = [frame(1, deep) + b"\x10\x05" + frame(3, deep), frame(1, deep) + b"\x10\x00"]
    right = parsed_alone(source, bodies)
    assert [type(result) for result in right] == [str, bytes]
    assert parsed_in_batch(source, bodies) == right
    assert envelope(source).canonical(bodies) == [None, bodies[1]]


def test_missing_required_field_of_a_nested_message_is_detected() -> None:
    source = root_of(file_with("message M { repeated N n = 1; } message N { required int32 x = 1; }", "proto2"))
    bodies = [b"\x0a\x02\x08\x01", b"\x0a\x00", b""]
    right = parsed_alone(source, bodies)
    assert right == [bodies[0], "a required field is missing", b""]
    assert parsed_in_batch(source, bodies) == right


def test_missing_required_field_of_a_deeply_nested_message_is_detected() -> None:
    text = "message M { optional M m = 1; optional N n = 2; } message N { required int32 x = 1; }"
    source = root_of(file_with(text, "proto2"))
    body, bodies = b"\x12\x00", []
    for _ in range(97):
        body = frame(1, body)
        bodies.append(body)
    right = parsed_alone(source, bodies)
    assert {*right} == {"a required field is missing"}
    assert parsed_in_batch(source, bodies) == right
    assert [envelope(source).canonical([body]) for body in bodies] == [None] * len(bodies)


def test_message_named_as_one_of_google_s_own_types_is_validated() -> None:
    file = descriptor_pb2.FileDescriptorProto(name="t.proto", package="google.protobuf", syntax="proto3")
    message_type = file.message_type.add(name="Timestamp")
    message_type.field.add(name="seconds", number=1, type=3, label=1)
    message_type.field.add(name="nanos", number=2, type=5, label=1)
    from google.protobuf import descriptor_pool

    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    source = pool.FindMessageTypeByName("google.protobuf.Timestamp")
    bodies = [b"\x08\x01", b"\x10" + varint(-1)]
    right = parsed_alone(source, bodies)
    assert [type(result) for result in right] == [bytes, str]
    assert parsed_in_batch(source, bodies) == right


def test_schema_that_uses_the_envelope_s_name_is_read_without_it() -> None:
    name = f"distcommit_envelope_{b'M'.hex()}"
    source = root_of(file_with(f"message M {{ int32 x = 1; }} message {name} {{ string m = 1; }}"))
    assert parsed_in_batch(source, [b"\x08\x05", b"\x08"])[0] == b"\x08\x05"


def test_envelope_of_a_type_can_be_created_again() -> None:
    source = root_of(file_with("message M { int32 x = 1; }"))
    assert [envelope(source).canonical([b"\x08\x05"]) for _ in range(2)] == [[b"\x08\x05"]] * 2


def test_parts_have_at_most_the_given_bytes_or_one_message() -> None:
    bodies = [b"aa", b"", b"bbb", b"c" * 20, b"d", b"eeee", b"f", b""]
    batches = [*parts(bodies, 5)]
    assert batches == [[b"aa", b"", b"bbb"], [b"c" * 20], [b"d", b"eeee"], [b"f", b""]]
    assert [len(batch) for batch in parts([b""] * 2500, 5)] == [1024, 1024, 452]
    assert [*parts([], 5)] == []


def test_values_beyond_their_range_in_nested_lists_are_reported_for_their_messages() -> None:
    existing = "google.protobuf.Timestamp"
    source = root_of(file_with(f"{KNOWN} message M {{ repeated N n = 1; }} message N {{ repeated {existing} t = 1; }}"))
    good, bad = frame(1, b"\x08\x05"), frame(1, b"\x10" + varint(-1))
    dice = random.Random(1)
    bodies = [
        b"".join(
            frame(1, b"".join(dice.choice([good] * 9 + [bad]) for _ in range(dice.randint(0, 3))))
            for _ in range(dice.randint(0, 3))
        )
        for _ in range(200)
    ]
    right = parsed_alone(source, bodies)
    assert envelope(source).canonical(bodies) == [None if isinstance(result, str) else result for result in right]
    assert parsed_in_batch(source, bodies) == right

"""Inputs of the Protobuf converter: schemas and messages, intact, damaged and hostile."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np

from distcommit.constructs.registry.protobuf.protobuf_decoder import schema_of
from distcommit.constructs.registry.registry_client import RegisteredSchema
from distcommit.constructs.registry.wire_format import Framed
from distcommit.schemas.schema_size_limits import UnusableSchemaError
from tests.inputs.case import Case

P3, P2, E23 = 'syntax = "proto3"; ', 'syntax = "proto2"; ', 'edition = "2023"; '
STAMP = 'import "google/protobuf/timestamp.proto"; '
DURATION = 'import "google/protobuf/duration.proto"; '
EMPTY = 'import "google/protobuf/empty.proto"; '
WRAPPERS = 'import "google/protobuf/wrappers.proto"; '
DATE = "package google.type; message M { Date d = 1; } message Date { int32 year = 1; int32 month = 2; int32 day = 3; }"
TIME = (
    "package google.type; message M { TimeOfDay t = 1; } "
    "message TimeOfDay { int32 hours = 1; int32 minutes = 2; int32 seconds = 3; int32 nanos = 4; }"
)


def _observed(text: str, body: bytes, pinned: str, references: tuple[tuple[str, str], ...]) -> str:
    try:
        reader = RegisteredSchema(2, "PROTOBUF", pinned, ()) if pinned else None
        decoder = schema_of(RegisteredSchema(1, "PROTOBUF", text, references), reader)
    except UnusableSchemaError as error:
        return f"rejected: {error}".splitlines()[0]
    data = np.frombuffer(b"\0" + body, np.uint8)
    (piece,) = decoder.decode(Framed(1, data, np.array([0]), np.array([len(data)]), np.array([0])))
    if piece.wrong:
        return f"rejected: {piece.wrong[0]}".partition(": Wire format")[0].partition(": String field")[0]
    return json.dumps(piece.records.to_pylist()[0], default=str)


def read(
    text: str, hexadecimal: str, pinned: str = "", references: tuple[tuple[str, str], ...] = ()
) -> Callable[[Path], str]:
    """Read a message of a schema's text as the product does."""
    return lambda folder: _observed(text, bytes.fromhex(hexadecimal), pinned, references)


def message(given: str, right: str, text: str, hexadecimal: str, pinned: str = "") -> Case:
    """Return a message as a case."""
    return Case("protobuf", given, right, read(text, hexadecimal, pinned))


def named(name: str) -> Callable[[Path], str]:
    """Return a schema that refers to a file of that name."""
    return read(P3 + "message M { int32 x = 1; }", "", "", ((name, P3),))


BAD = "rejected: it is not a message of its type: "
NO_MESSAGE = f"{BAD}Error parsing message with type 'M'"
NO_FILE = "rejected: it refers to a file with an invalid name: "
ONEOF = P3 + "message M { oneof o { int32 a = 1; string b = 2; } }"
PACKED = P3 + "message M { repeated fixed32 n = 1; }"
OPEN = P3 + "enum E { A = 0; B = 1; } message M { E e = 1; }"
CLOSED = P2 + "enum E { A = 0; B = 1; } message M { optional E e = 1; }"
MAP = P3 + "message M { map<string, int32> m = 1; }"
STAMPS = P3 + STAMP + "message M { google.protobuf.Timestamp t = 1; }"
DURATIONS = P3 + DURATION + "message M { google.protobuf.Duration d = 1; }"
RECURSIVE = P3 + "message M { int32 x = 1; M parent = 2; }"

CASES = [
    message(
        "no bytes: fields without presence", '{"x": 0, "s": ""}', P3 + "message M { int32 x = 1; string s = 2; }", ""
    ),
    message("no bytes: optional field", '{"x": null}', P3 + "message M { optional int32 x = 1; }", ""),
    message(
        "no bytes: field with a default", '{"x": null}', P2 + "message M { optional int32 x = 1 [default = 5]; }", ""
    ),
    message(
        "required field that is missing",
        f"{BAD}a required field is missing",
        P2 + "message M { required int32 x = 1; }",
        "",
    ),
    message("edition 2023: explicit presence", '{"x": null}', E23 + "message M { int32 x = 1; }", ""),
    message("edition 2023: a value", '{"x": 5}', E23 + "message M { int32 x = 1; }", "0805"),
    message(
        "edition 2023: implicit presence",
        '{"x": 0}',
        E23 + "message M { int32 x = 1 [features.field_presence = IMPLICIT]; }",
        "",
    ),
    message(
        "edition 2023: delimited field",
        "rejected: field n is a group (an encoding with delimiters), which can't be read",
        E23 + "message M { N n = 1 [features.message_encoding = DELIMITED]; } message N { int32 x = 1; }",
        "",
    ),
    message(
        "group",
        "rejected: field g is a group (an encoding with delimiters), which can't be read",
        P2 + "message M { optional group G = 1 { optional int32 x = 2; } }",
        "0b10050c",
    ),
    message("field twice: the last value", '{"x": 7}', P3 + "message M { int32 x = 1; }", "08050807"),
    message("field that the schema does not have", '{"x": 5}', P3 + "message M { int32 x = 1; }", "08055001"),
    message(
        "int32 field with 2**32 + 1, as the official parser",
        '{"x": 1}',
        P3 + "message M { int32 x = 1; }",
        "088180808010",
    ),
    message(
        "uint64 at its maximum",
        '{"x": 18446744073709551615}',
        P3 + "message M { uint64 x = 1; }",
        "08ffffffffffffffffff01",
    ),
    message("field number 0", NO_MESSAGE, P3 + "message M { int32 x = 1; }", "0005"),
    message("varint of 11 bytes", NO_MESSAGE, P3 + "message M { int32 x = 1; }", "08ffffffffffffffffffffff01"),
    message("varint cut off", NO_MESSAGE, P3 + "message M { int32 x = 1; }", "0880"),
    message("text longer than the message", NO_MESSAGE, P3 + "message M { string s = 1; }", "0a0561"),
    message("end of a group that never began", NO_MESSAGE, P3 + "message M { int32 x = 1; }", "0c"),
    message("text that is not UTF-8", NO_MESSAGE, P3 + "message M { string s = 1; }", "0a01ff"),
    message(
        "text of proto2 that is not UTF-8",
        f"{BAD}failed to decode Protobuf message: invalid UTF-8",
        P2 + "message M { optional string s = 1; }",
        "0a01ff",
    ),
    message("two members of a oneof: the last", '{"a": null, "b": "x"}', ONEOF, "0805120178"),
    message("two members of a oneof, the other way round", '{"a": 5, "b": null}', ONEOF, "1201780805"),
    message("packed field", '{"n": [1, 2]}', PACKED, "0a080100000002000000"),
    message("packed field cut off within a value", NO_MESSAGE, PACKED, "0a03010000"),
    message("packed field that is not packed", '{"n": [1]}', PACKED, "0d01000000"),
    message("value of an open enum without a name", '{"e": "7"}', OPEN, "0807"),
    message("value of a closed enum without a name", f"{BAD}M.e has a value that is not of its type", CLOSED, "0807"),
    message(
        "enum with an alias",
        '{"e": "B"}',
        P3 + "enum E { option allow_alias = true; A = 0; B = 1; C = 1; } message M { E e = 1; }",
        "0801",
    ),
    message("map entry without a value", '{"m": [["a", 0]]}', MAP, "0a030a0161"),
    message("map entry without anything", '{"m": [["", 0]]}', MAP, "0a00"),
    message("map with a key twice: the last value", '{"m": [["a", 2]]}', MAP, "0a050a016110010a050a01611002"),
    message("map entry with a third field", f"{BAD}M.m has a value that is not of its type", MAP, "0a070a016110011801"),
    message(
        "map of timestamps, entry without a value",
        '{"m": [["a", "1970-01-01 00:00:00+00:00"]]}',
        P3 + STAMP + "message M { map<string, google.protobuf.Timestamp> m = 1; }",
        "0a030a0161",
    ),
    message(
        "timestamp of the year 10000",
        f"{BAD}a timestamp of 253402300800 s and 0 ns is not within the years 1 to 9999",
        STAMPS,
        "0a07088083d1ffaf07",
    ),
    message(
        "timestamp of 10**9 nanoseconds",
        f"{BAD}a timestamp of 0 s and 1000000000 ns is not within the years 1 to 9999",
        STAMPS,
        "0a06108094ebdc03",
    ),
    message(
        "duration of two signs",
        f"{BAD}1 s and -1 ns are not a duration of at most 10000 years",
        DURATIONS,
        "0a0d080110ffffffffffffffffff01",
    ),
    message("date without a day", f"{BAD}2023-2-0 is not a full date", P3 + DATE, "0a0508e70f1002"),
    message("date of 30 February", f"{BAD}2023-2-30 is not a full date", P3 + DATE, "0a0708e70f1002181e"),
    message("date", '{"d": "2023-02-28"}', P3 + DATE, "0a0708e70f1002181c"),
    message("time 24:00", f"{BAD}24:0:0 and 0 ns is not a time within a day", P3 + TIME, "0a020818"),
    message(
        "time with a leap second", f"{BAD}23:59:60 and 0 ns is not a time within a day", P3 + TIME, "0a060817103b183c"
    ),
    message(
        "google.protobuf.Empty that is there",
        '{"e": "b\'\'"}',
        P3 + EMPTY + "message M { google.protobuf.Empty e = 1; }",
        "0a00",
    ),
    message(
        "google.protobuf.Empty that is not there",
        '{"e": null}',
        P3 + EMPTY + "message M { google.protobuf.Empty e = 1; }",
        "",
    ),
    message(
        "wrapper with its default",
        '{"w": 0}',
        P3 + WRAPPERS + "message M { google.protobuf.Int32Value w = 1; }",
        "0a00",
    ),
    message("message within itself", '{"x": 1, "parent": "b\'\\\\x08\\\\x02\'"}', RECURSIVE, "080112020802"),
    message(
        "pinned: a recursive field that it lacks",
        '{"x": 1}',
        RECURSIVE,
        "080112020802",
        P3 + "message M { int32 x = 1; }",
    ),
    message(
        "pinned: int64 as int32, in range",
        '{"x": 5}',
        P3 + "message M { int64 x = 1; }",
        "0805",
        P3 + "message M { int32 x = 1; }",
    ),
    message(
        "pinned: int64 as int32, 2**32 + 1",
        f"{BAD}M.x has a value that the pinned x can't hold",
        P3 + "message M { int64 x = 1; }",
        "088180808010",
        P3 + "message M { int32 x = 1; }",
    ),
    message(
        "pinned: int32 as uint32, -1",
        f"{BAD}M.x has a value that the pinned x can't hold",
        P3 + "message M { int32 x = 1; }",
        "08ffffffffffffffffff01",
        P3 + "message M { uint32 x = 1; }",
    ),
    Case("protobuf", "reference named ''", f"{NO_FILE}''", named("")),
    Case("protobuf", "reference named '.'", f"{NO_FILE}'.'", named(".")),
    Case("protobuf", "reference with NUL in its name", f"{NO_FILE}'a\\x00b'", named("a\0b")),
    Case("protobuf", "reference named '../x.proto'", f"{NO_FILE}'../x.proto'", named("../x.proto")),
    Case("protobuf", "reference named '/etc/passwd'", f"{NO_FILE}'/etc/passwd'", named("/etc/passwd")),
    Case("protobuf", "reference named like a module", '{"x": 0}', named("grpc_tools/__init__.py")),
]

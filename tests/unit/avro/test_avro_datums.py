"""Avro datums as columns, compared with the values that fastavro reads."""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Iterator
from datetime import UTC, date, datetime, time
from decimal import Decimal
from itertools import count
from time import perf_counter
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from distcommit.avro import arrays_and_maps
from distcommit.avro.datum_reader import AvroReader, parse
from distcommit.avro.lockstep_decoding import Datums
from distcommit.schemas.evolution import nullable as nullable_columns
from distcommit.schemas.schema_size_limits import UnusableSchemaError

Avro = Any


def record(*fields: tuple[str, Avro]) -> Avro:
    return {"type": "record", "name": "T", "fields": [{"name": name, "type": kind} for name, kind in fields]}


def datum(schema: Avro, value: Any) -> bytes:
    written = io.BytesIO()
    fastavro.schemaless_writer(written, fastavro.parse_schema(schema), value)
    return written.getvalue()


def read(
    schema: Avro, datums: list[bytes], reader: Avro = None, references: tuple[str, ...] = ()
) -> tuple[pa.RecordBatch, dict[int, str]]:
    ends = np.cumsum([7, *map(len, datums)])  # as in the middle of a batch
    data = np.frombuffer(b"\xff" * 7 + b"".join(datums), np.uint8)
    pinned = None if reader is None else parse(json.dumps(reader), [])
    avro_reader = AvroReader(parse(json.dumps(schema), list(references)), pinned, "value")
    with pytest.MonkeyPatch.context() as patch:  # as with many datums: all items in lockstep
        patch.setattr(arrays_and_maps, "MIN_LANES", 1)
        in_lockstep = avro_reader.read(Datums.of(data, ends[:-1], ends[1:]))
    records, wrong = avro_reader.read(Datums.of(data, ends[:-1], ends[1:]))
    assert wrong.keys() == in_lockstep[1].keys()
    assert repr(valid(records, wrong).to_pylist()) == repr(valid(*in_lockstep).to_pylist())
    valid_rows = valid(records, wrong)
    valid_rows.validate(full=True)
    return valid_rows, wrong


def valid(records: pa.RecordBatch, wrong: dict[int, str]) -> pa.RecordBatch:
    return records.filter(pa.array([number not in wrong for number in range(records.num_rows)], pa.bool_()))


def read_one(kind: Avro, value: Any) -> tuple[pa.DataType, Any]:
    schema = record(("x", kind))
    records, wrong = read(schema, [datum(schema, {"x": value})])
    assert not wrong
    return records.schema.field("x").type, records.column("x")[0].as_py()


DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}
TIMES = {
    "millis": {"type": "long", "logicalType": "timestamp-millis"},
    "micros": {"type": "long", "logicalType": "timestamp-micros"},
    "of day": {"type": "int", "logicalType": "time-millis"},
    "micros of day": {"type": "long", "logicalType": "time-micros"},
}
MOMENT = datetime(2024, 2, 29, 12, 30, 1, 500_000, UTC)


@pytest.mark.parametrize(
    ("kind", "value", "arrow", "expected"),
    [
        ("boolean", True, pa.bool_(), True),
        ("int", -(2**31), pa.int32(), -(2**31)),
        ("long", 2**63 - 1, pa.int64(), 2**63 - 1),
        ("float", 1.5, pa.float32(), 1.5),
        ("double", float("inf"), pa.float64(), float("inf")),
        ("bytes", b"\xff\0", pa.binary(), b"\xff\0"),
        ("string", "søt", pa.string(), "søt"),
        ("null", None, pa.null(), None),
        ({"type": "fixed", "name": "F", "size": 3}, b"abc", pa.binary(3), b"abc"),
        ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, "B", pa.string(), "B"),
        (DECIMAL, Decimal("-1.23"), pa.decimal128(10, 2), Decimal("-1.23")),
        ({**DECIMAL, "precision": 60}, Decimal("9" * 58 + ".99"), pa.decimal256(60, 2), Decimal("9" * 58 + ".99")),
        (
            {**DECIMAL, "type": "fixed", "name": "D", "size": 6},
            Decimal("-0.01"),
            pa.decimal128(10, 2),
            Decimal("-0.01"),
        ),
        ({"type": "int", "logicalType": "date"}, date(1969, 12, 31), pa.date32(), date(1969, 12, 31)),
        ({"type": "int", "logicalType": "time-millis"}, time(1, 2, 3, 4000), pa.time32("ms"), time(1, 2, 3, 4000)),
        ({"type": "long", "logicalType": "time-micros"}, time(1, 2, 3, 4), pa.time64("us"), time(1, 2, 3, 4)),
        ({"type": "long", "logicalType": "timestamp-millis"}, MOMENT, pa.timestamp("ms", "UTC"), MOMENT),
        ({"type": "long", "logicalType": "timestamp-micros"}, MOMENT, pa.timestamp("us", "UTC"), MOMENT),
        (
            {"type": "long", "logicalType": "local-timestamp-micros"},
            MOMENT.replace(tzinfo=None),
            pa.timestamp("us"),
            MOMENT.replace(tzinfo=None),
        ),
        ({"type": "string", "logicalType": "uuid"}, "6ba7b810-9dad-11d1-80b4-00c04fd430c8", pa.string(), ...),
        ({"type": "string", "logicalType": "unheard-of"}, "x", pa.string(), "x"),
        (["null", "long"], 5, pa.int64(), 5),
        (["string", "null"], None, pa.string(), None),
        (["long"], 5, pa.int64(), 5),
        (
            ["null", "string", "long"],
            5,
            pa.struct([("member0", pa.string()), ("member1", pa.int64())]),
            {"member0": None, "member1": 5},
        ),
        (["null", "string", "long"], None, pa.struct([("member0", pa.string()), ("member1", pa.int64())]), None),
        (
            {"type": "record", "name": "R", "fields": [{"name": "y", "type": ["null", "int"]}]},
            {"y": None},
            pa.struct([("y", pa.int32())]),
            {"y": None},
        ),
        (
            {"type": "array", "items": ["null", "string"]},
            ["a", None],
            pa.list_(pa.field("item", pa.string())),
            ["a", None],
        ),
        (
            {"type": "map", "values": {"type": "array", "items": "double"}},
            {"a": [1.5], "b": []},
            pa.map_(pa.string(), pa.list_(pa.field("item", pa.float64()))),
            [("a", [1.5]), ("b", [])],
        ),
    ],
    ids=str,
)
def test_avro_type_becomes_its_column(kind: Avro, value: Any, arrow: pa.DataType, expected: Any) -> None:
    assert read_one(kind, value) == (arrow, value if expected is ... else expected)


def test_columns_and_their_nested_fields_may_be_null() -> None:
    inner = record(("y", "int"), ("z", {"type": "array", "items": "int"}), ("m", {"type": "map", "values": "int"}))
    records, _ = read(record(("x", {**inner, "name": "R"})), [])
    assert nullable_columns(records.schema).equals(records.schema)
    (x,) = records.schema
    assert [arrow_field.nullable for arrow_field in (x, *x.type, x.type.field("z").type.value_field)] == [True] * 5


def test_schema_that_is_not_a_record_becomes_a_column_of_its_own() -> None:
    records, _ = read("string", [datum("string", "a"), datum("string", "")])
    assert records.to_pydict() == {"value": ["a", ""]}


def test_array_may_have_several_blocks_that_state_their_length() -> None:
    schema = record(("x", {"type": "array", "items": "int"}), ("y", "int"))
    several = b"\x03\x04\x02\x04" + b"\x02\x06" + b"\x00" + b"\x0e"  # two items in two bytes, then one more
    records, wrong = read(schema, [several, datum(schema, {"x": [], "y": 1})])
    assert not wrong
    assert records.to_pylist() == [{"x": [1, 2, 3], "y": 7}, {"x": [], "y": 1}]


PLAIN = record(("a", "long"), ("b", "string"))
GOOD = datum(PLAIN, {"a": 300, "b": "xyz"})


@pytest.mark.parametrize(
    ("kind", "body", "reason"),
    [
        (PLAIN, GOOD[:-1], "a length is negative, or larger"),
        (PLAIN, GOOD[:1], "it ends before"),
        (PLAIN, b"", "it ends before"),
        (PLAIN, GOOD + b"\0", "bytes are left"),
        (PLAIN, GOOD + GOOD, "bytes are left"),
        (PLAIN, GOOD.replace(b"xyz", b"\xff\xfe\xfd"), "not UTF-8"),
        (PLAIN, b"\xff" * 20, "more than 64 bits"),
        (PLAIN, b"\x02\x05", "a length is negative"),
        (PLAIN, b"\x02" + b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01", "a length is negative, or larger"),
        (record(("x", "int")), b"\xfe\xff\xff\xff\xff\x01", "more than 32 bits"),
        (record(("x", "boolean")), b"\x02", "neither 0 nor 1"),
        (record(("x", "double")), b"\0" * 7, "it ends before"),
        (record(("x", ["null", "string"])), b"\x04", "no such branch"),
        (record(("x", ["null", "string"])), b"\x01", "no such branch"),
        (record(("x", {"type": "enum", "name": "E", "symbols": ["A"]})), b"\x02", "no such symbol"),
        (
            record(("x", {"type": "array", "items": "int"})),
            b"\xfe\xff\xff\xff\x0f\0",
            "a length is negative, or larger",
        ),
        (record(("x", {"type": "array", "items": "int"})), b"\x01" * 9, "it ends before"),
        (record(("x", {"type": "array", "items": "int"})), b"\x04\x02\x80", "it ends before"),
        (record(("x", {**DECIMAL, "precision": 2})), b"\x04\x7f\xff", "more digits than its precision"),
        (record(("x", DECIMAL)), b"\x22\x01" + b"\0" * 16, "more digits than its precision"),
        (record(("x", DECIMAL)), b"\x28" + b"\x01" * 20, "more digits than its precision"),
        (record(("x", {"type": "int", "logicalType": "time-millis"})), b"\x01", "not within a day"),
        (record(("x", {"type": "fixed", "name": "F", "size": 9})), b"12345678", "it ends before"),
    ],
)
def test_invalid_datum_is_rejected_alone(kind: Avro, body: bytes, reason: str) -> None:
    same = {"long": 1, "int": 1, "string": "q", "boolean": True, "double": 0.5}
    values = {schema_field["name"]: same.get(str(schema_field["type"])) for schema_field in kind["fields"]}
    others = [] if None in values.values() else [datum(kind, values)]
    records, wrong = read(kind, [*others, body, *others])
    assert list(wrong) == [len(others)]
    assert reason in wrong[len(others)]
    assert records.to_pylist() == [values] * (2 * len(others))


@pytest.mark.parametrize(
    ("kind", "expected_error"),
    [
        ({"type": "record", "name": "N", "fields": [{"name": "next", "type": ["null", "N"]}]}, "contains itself (N)"),
        (record(("x", {"type": "record", "name": "E", "fields": []})), "field x is a record without fields"),
        (record(("x", {"type": "array", "items": "null"})), "take no bytes"),
        (record(("x", {**DECIMAL, "precision": 77})), "a decimal of 77 digits"),
        (record(("x", "unheard-of")), "not an Avro schema"),
        (record(("x", {"type": "fixed", "name": "F", "size": 0})), "a fixed of 0 bytes"),
        ([], "a union without branches"),
        ({"type": 5}, "not an Avro schema"),
        (record(("x", "int"), ("x", "int")), "the schema has two fields of one name"),
        (record(("r", {**record(("x", "int"), ("x", "string")), "name": "R"})), "field r has two fields of one name"),
    ],
    ids=str,
)
def test_schema_without_columns_is_rejected(kind: Avro, expected_error: str) -> None:
    with pytest.raises(UnusableSchemaError) as caught:
        read(kind, [])
    assert expected_error in str(caught.value)


def test_types_of_other_schemas_may_be_used_in_a_schema() -> None:
    money = record(("amount", "long"))
    money["name"] = "shop.Money"
    writer = record(("price", "shop.Money"), ("paid", ["null", "shop.Money"]))
    whole = record(("price", money), ("paid", ["null", "shop.Money"]))
    body = datum(whole, {"price": {"amount": 5}, "paid": None})
    records, wrong = read(writer, [body], references=(json.dumps(money),))
    assert not wrong
    assert records.to_pylist() == [{"price": {"amount": 5}, "paid": None}]


# -- any schema, and any damage

NAMES = st.just("")  # renamed below


def logical(kind: str, name: str) -> st.SearchStrategy[Avro]:
    return st.just({"type": kind, "logicalType": name})


SCALARS = st.one_of(
    st.sampled_from(["boolean", "int", "long", "float", "double", "bytes", "string"]),
    logical("int", "date"),
    logical("long", "timestamp-micros"),
    logical("int", "time-millis"),
    st.builds(lambda size, name: {"type": "fixed", "size": size, "name": name}, st.integers(1, 20), NAMES),
    st.builds(lambda name: {"type": "enum", "symbols": ["A", "B", "C"], "name": name}, NAMES),
    st.builds(lambda precision: {**DECIMAL, "precision": precision}, st.integers(2, 38)),
)


def nested(inner: st.SearchStrategy[Avro]) -> st.SearchStrategy[Avro]:
    return st.one_of(
        st.builds(lambda item: {"type": "array", "items": item}, inner),
        st.builds(lambda item: {"type": "map", "values": item}, inner),
        st.builds(
            lambda kinds, name: {**record(*((f"f{n}", kind) for n, kind in enumerate(kinds))), "name": name},
            st.lists(inner, min_size=1, max_size=4),
            NAMES,
        ),
    )


def nullable(inner: st.SearchStrategy[Avro]) -> st.SearchStrategy[Avro]:
    return st.one_of(inner, st.builds(lambda kind: ["null", kind], inner), st.just(["null", "string", "long"]))


def named(schema: Avro, numbers: Iterator[int], *, logical: bool) -> Avro:
    """Return the schema with a name for each unnamed type, and without logical types unless `logical` is set."""
    if isinstance(schema, list):
        return [named(part, numbers, logical=logical) for part in schema]
    if not isinstance(schema, dict):
        return schema
    if not logical and schema.get("logicalType"):
        return schema["type"]
    renamed = {key: named(part, numbers, logical=logical) for key, part in schema.items() if key != "name"}
    if "name" in schema:
        is_type = schema.get("type") in ("record", "fixed", "enum")
        renamed["name"] = f"n{next(numbers)}" if is_type and not schema["name"] else schema["name"]
    return renamed


def schemas(*, logical: bool) -> st.SearchStrategy[Avro]:
    kinds = nullable(st.recursive(SCALARS, lambda inner: nested(nullable(inner)), max_leaves=6))
    whole = st.lists(kinds, min_size=1, max_size=6).map(
        lambda all_: record(*((f"c{n}", k) for n, k in enumerate(all_)))
    )
    return whole.map(lambda schema: named(schema, count(), logical=logical))


@st.composite
def bodies(draw: st.DrawFn, kind: Avro) -> bytes:
    """Encode a datum of a type without a library."""
    match kind:
        case list():
            branch = draw(st.integers(0, len(kind) - 1))
            return number(branch) + draw(bodies(kind[branch]))
        case "null":
            return b""
        case "boolean":
            return draw(st.sampled_from([b"\0", b"\1"]))
        case "int":
            return number(draw(st.integers(-(2**31), 2**31 - 1)))
        case "long":
            return number(draw(st.integers(-(2**63), 2**63 - 1)))
        case "float" | "double":
            return struct.pack("<f" if kind == "float" else "<d", draw(st.floats(width=32)))
        case "bytes" | "string":
            held = draw(st.binary(max_size=20) if kind == "bytes" else st.text(max_size=20).map(str.encode))
            return number(len(held)) + held
    match kind["type"], kind.get("logicalType"):
        case "int", "date":
            return number(draw(st.integers(-700_000, 2_900_000)))
        case "int", _:
            return number(draw(st.integers(0, 86_399_999)))
        case "long", _:
            return number(draw(st.integers(-(2**53), 2**53)))
        case "bytes", _:
            most = 10 ** kind["precision"] - 1
            value = draw(st.integers(-most, most))
            held = value.to_bytes((value.bit_length() + 8) // 8, "big", signed=True)
            return number(len(held)) + held
        case "fixed", _:
            return draw(st.binary(min_size=kind["size"], max_size=kind["size"]))
        case "enum", _:
            return number(draw(st.integers(0, 2)))
        case "record", _:
            return b"".join(draw(bodies(schema_field["type"])) for schema_field in kind["fields"])
    is_map = kind["type"] == "map"
    written = b""
    for _ in range(draw(st.integers(0, 2))):
        items = [
            (draw(bodies("string")) if is_map else b"") + draw(bodies(kind["values" if is_map else "items"]))
            for _ in range(draw(st.integers(1, 3)))
        ]
        held = b"".join(items)
        written += (number(-len(items)) + number(len(held)) if draw(st.booleans()) else number(len(items))) + held
    return written + number(0)


def number(value: int) -> bytes:
    value, written = (value << 1) ^ (value >> 63), b""
    while value > 0x7F:
        value, written = value >> 7, written + bytes([value & 0x7F | 0x80])
    return written + bytes([value])


def by_fastavro(schema: Avro, body: bytes) -> Any:
    """Return fastavro's value of the whole datum, or raise `ValueError`."""
    held = io.BytesIO(body)
    options: Any = {"return_record_name": False, "handle_unicode_errors": "strict"}
    try:
        value = fastavro.schemaless_reader(held, fastavro.parse_schema(schema), None, **options)
    except Exception as error:
        raise ValueError(str(error)) from error
    if held.tell() != len(body):
        raise ValueError("bytes are left")
    return value


def as_arrow(kind: Avro, value: Any) -> Any:
    """Convert a value of fastavro to the form in which Arrow returns it to Python."""
    if isinstance(kind, list):
        if value is None or len(kind) == 2:
            return value if value is None else as_arrow(kind[1], value)
        return {
            "member0": value if isinstance(value, str) else None,
            "member1": value if isinstance(value, int) else None,
        }
    match kind["type"] if isinstance(kind, dict) else kind:
        case "record":
            return {
                schema_field["name"]: as_arrow(schema_field["type"], value[schema_field["name"]])
                for schema_field in kind["fields"]
            }
        case "array":
            return [as_arrow(kind["items"], schema_field) for schema_field in value]
        case "map":
            return [(name, as_arrow(kind["values"], schema_field)) for name, schema_field in value.items()]
    return value


def without_repeated_keys(value: Any) -> Any:
    """Keep the last entry of each map key as Python does; Arrow's maps keep all."""
    if isinstance(value, dict):
        return {name: without_repeated_keys(item) for name, item in value.items()}
    if isinstance(value, list) and value and all(isinstance(item, tuple) for item in value):
        return list({name: without_repeated_keys(item) for name, item in value}.items())
    return [without_repeated_keys(item) for item in value] if isinstance(value, list) else value


@pytest.mark.thorough
@given(st.data())
def test_any_datums_are_read_as_by_fastavro(data: st.DataObject) -> None:
    schema = data.draw(schemas(logical=True))
    given_bodies = data.draw(st.lists(bodies(schema), max_size=5))
    records, wrong = read(schema, given_bodies)
    assert not wrong
    expected = [as_arrow(schema, by_fastavro(schema, body)) for body in given_bodies]
    actual = repr([without_repeated_keys(row) for row in records.to_pylist()])
    assert actual.replace("zoneinfo.ZoneInfo(key='UTC')", "datetime.timezone.utc") == repr(expected)


@pytest.mark.thorough
@given(st.data())
def test_damaged_datum_is_rejected_unless_it_is_another_valid_one(data: st.DataObject) -> None:
    schema = data.draw(schemas(logical=False))
    before, body, after = (data.draw(bodies(schema)) for _ in range(3))
    place = data.draw(st.integers(0, len(body)))
    damaged = data.draw(
        st.sampled_from([body[:place], body + b"\0", body[:place] + b"\xff" + body[place + 1 :], body[:place] + body])
    )
    assume(damaged != body)
    records, wrong = read(schema, [before, damaged, after])
    assert 0 not in wrong
    assert 2 not in wrong
    try:
        expected = as_arrow(schema, by_fastavro(schema, damaged))
    except ValueError:
        expected = None
    actual = [without_repeated_keys(row) for row in records.to_pylist()]
    whole = [as_arrow(schema, by_fastavro(schema, row)) for row in (before, after)]
    if 1 in wrong:
        assert repr(actual) == repr(whole)
    else:  # no datum is accepted that fastavro rejects
        assert repr(actual) == repr([whole[0], expected, whole[1]])


# -- a reader's schema


@pytest.mark.parametrize(
    ("writer", "reader", "value", "expected"),
    [
        ("int", "long", 5, 5),
        ("int", "double", 5, 5.0),
        ("long", "float", 5, 5.0),
        ("float", "double", 1.5, 1.5),
        ("string", "bytes", "a", b"a"),
        ("bytes", "string", b"a", "a"),
        ("int", ["null", "long"], 5, 5),
        (["null", "int"], ["null", "long"], 5, 5),
        (["null", "int"], ["null", "long"], None, None),
        (["null", "int"], "long", 5, 5),
        ("long", ["null", "string", "long"], 5, {"member0": None, "member1": 5}),
        (["string", "null"], ["null", "string"], "a", "a"),
        ("int", ["null", "long", "int"], 5, {"member0": None, "member1": 5}),
        ("int", ["null", "string", "long"], 5, {"member0": None, "member1": 5}),
        ({"type": "array", "items": "int"}, {"type": "array", "items": "long"}, [1, 2], [1, 2]),
        ({"type": "map", "values": "int"}, {"type": "map", "values": ["null", "int"]}, {"a": 1}, [("a", 1)]),
        (
            {"type": "enum", "name": "E", "symbols": ["A", "B"]},
            {"type": "enum", "name": "E", "symbols": ["A", "X"], "default": "X"},
            "B",
            "X",
        ),
        ("long", TIMES["micros"], 0, datetime(1970, 1, 1, tzinfo=UTC)),
        (TIMES["millis"], TIMES["millis"], datetime(1970, 1, 1, tzinfo=UTC), datetime(1970, 1, 1, tzinfo=UTC)),
        (TIMES["millis"], "long", datetime(1970, 1, 1, tzinfo=UTC), 0),
    ],
    ids=str,
)
def test_value_is_read_by_the_fixed_reader_schema(writer: Avro, reader: Avro, value: Any, expected: Any) -> None:
    written, reader_schema = record(("x", writer)), record(("x", reader))
    records, wrong = read(written, [datum(written, {"x": value})], reader_schema)
    assert not wrong
    assert records.schema == read(reader_schema, [])[0].schema
    assert records.to_pylist() == [{"x": expected}]


def test_fields_are_matched_by_name_or_alias_and_others_have_their_default() -> None:
    writer = record(("gone", {"type": "array", "items": "string"}), ("b", "int"), ("old", "string"), ("a", "int"))
    reader = record(("a", "long"), ("b", "long"))
    reader["fields"] += [
        {"name": "new", "type": "string", "aliases": ["old"]},
        {"name": "none", "type": ["null", "string"], "default": None},
        {"name": "some", "type": {"type": "array", "items": "int"}, "default": [7]},
        {"name": "raw", "type": "bytes", "default": "\xff"},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}, "default": 1},
    ]
    body = datum(writer, {"gone": ["x"], "b": 2, "old": "o", "a": 1})
    records, wrong = read(writer, [body, body[:-1], body], reader)
    assert wrong == {1: "it ends before its schema does"}
    expected = {"a": 1, "b": 2, "new": "o", "none": None, "some": [7], "raw": b"\xff", "day": date(1970, 1, 2)}
    assert records.to_pylist() == [expected, expected]
    assert records.schema == read(reader, [])[0].schema


@pytest.mark.parametrize(
    ("writer", "reader", "expected_error"),
    [
        (record(("a", "int")), record(("a", "int"), ("b", "int")), "field b is not in the writer's schema"),
        (record(("a", "string")), record(("a", "int")), "field a is string, and the pinned schema has int"),
        (record(("a", "long")), record(("a", "int")), "field a is long"),
        (record(("a", DECIMAL)), record(("a", {**DECIMAL, "scale": 3})), "field a is bytes (decimal)"),
        (record(("a", record(("b", "string")))), record(("a", record(("b", "int")))), "field a.b is string"),
        (record(("a", {"type": "array", "items": "int"})), record(("a", "int")), "field a is array"),
        (record(("a", "int")), record(("a", ["null", "string"])), "field a is int"),
        (record(("a", ["null", "string"])), record(("a", "int")), "field a is"),
        (record(("a", TIMES["micros"])), record(("a", TIMES["millis"])), "field a is long (timestamp-micros)"),
        (
            record(("a", TIMES["millis"])),
            record(("a", ["null", TIMES["micros"]])),
            "(timestamp-millis), and the pinned",
        ),
        (record(("a", TIMES["of day"])), record(("a", TIMES["micros of day"])), "field a is int (time-millis)"),
    ],
)
def test_incompatible_schemas_are_reported_with_the_field(writer: Avro, reader: Avro, expected_error: str) -> None:
    for name, schema in (("R1", writer), ("R2", reader)):
        inner = schema["fields"][0]["type"]
        if isinstance(inner, dict) and inner["type"] == "record":
            inner["name"] = name
    with pytest.raises(UnusableSchemaError) as caught:
        read(writer, [], reader)
    assert expected_error in str(caught.value)


def test_union_branch_absent_from_the_reader_schema_rejects_its_records() -> None:
    writer, reader = record(("a", ["null", "int"])), record(("a", "int"))
    records, wrong = read(writer, [datum(writer, {"a": 1}), datum(writer, {"a": None})], reader)
    assert records.to_pylist() == [{"a": 1}]
    assert list(wrong) == [1]
    assert "branch" in wrong[1]


@pytest.mark.thorough
@given(st.data())
def test_reader_schema_with_more_fields_leaves_the_values_of_common_ones_unchanged(data: st.DataObject) -> None:
    schema = data.draw(schemas(logical=True))
    wider = {**schema, "fields": [*schema["fields"][::-1], {"name": "more", "type": ["null", "int"], "default": None}]}
    given_bodies = data.draw(st.lists(bodies(schema), max_size=3))
    own, _ = read(schema, given_bodies)
    records, wrong = read(schema, given_bodies, wider)
    assert not wrong
    for name in own.schema.names:
        assert repr(records.column(name).to_pylist()) == repr(own.column(name).to_pylist())


LONG = 3 * 65_536 + 1


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda body: body, ""),
        (lambda body: body[:-2], "it ends before its schema does"),
        (lambda body: body[:-3], "a length is negative, or larger"),
        (lambda body: body.replace(b"x", b"\xff", 1), "a string is not UTF-8"),
        (lambda body: body + b"\0", "bytes are left"),
    ],
)
def test_large_arrays_are_read_at_once_and_invalid_items_detected(damage: Any, reason: str) -> None:
    schema = record(("x", {"type": "array", "items": "string"}), ("y", "int"))
    long = number(LONG - 1) + b"\x02a" * (LONG - 1) + number(1) + b"\x02x" + number(0) + b"\x02"
    short = datum(schema, {"x": ["b"], "y": 2})
    reader = AvroReader(parse(json.dumps(schema)), None, "value")
    parts = [short, damage(long), short]
    ends = np.cumsum([0, *map(len, parts)])
    began_s = perf_counter()
    records, wrong = reader.read(Datums.of(np.frombuffer(b"".join(parts), np.uint8), ends[:-1], ends[1:]))
    assert perf_counter() - began_s < 30
    assert [reason in text for text in wrong.values()] == [True] * bool(reason)
    assert valid(records, wrong)["y"].to_pylist() == ([2, 2] if reason else [2, 1, 2])
    if not reason:
        assert [len(value) for value in records["x"]] == [1, LONG, 1]

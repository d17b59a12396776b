"""Declared columns, and which schemas are compatible with them."""

from __future__ import annotations

import pyarrow as pa
import pytest

from distcommit.constructs.declared import is_narrower, misfits, type_named

NARROWER = [
    (pa.int32(), "int64"),
    (pa.uint32(), "int64"),
    (pa.uint8(), "uint16"),
    (pa.float32(), "double"),
    (pa.float16(), "float"),
    (pa.null(), "string"),
    (pa.large_string(), "string"),
    (pa.string(), "large_string"),
    (pa.string_view(), "string"),
    (pa.large_binary(), "binary"),
    (pa.dictionary(pa.int8(), pa.string()), "string"),
    (pa.decimal128(5, 2), "decimal128(10, 2)"),
    (pa.timestamp("ms"), "timestamp[us]"),
    (pa.timestamp("ms", "Europe/Berlin"), "timestamp[us, tz=UTC]"),
    (pa.time32("ms"), "time64[us]"),
    (pa.duration("s"), "duration[ms]"),
    (pa.list_(pa.int8()), "any"),
]
OTHERS = [
    (pa.int64(), "int32"),
    (pa.uint64(), "int64"),
    (pa.int8(), "uint16"),
    (pa.uint8(), "int8"),
    (pa.int64(), "double"),
    (pa.float64(), "float"),
    (pa.binary(), "string"),
    (pa.string(), "binary"),
    (pa.bool_(), "int8"),
    (pa.date32(), "timestamp[us]"),
    (pa.timestamp("ns"), "timestamp[us]"),
    (pa.timestamp("us"), "timestamp[us, tz=UTC]"),
    (pa.timestamp("us", "UTC"), "timestamp[us]"),
    (pa.decimal128(10, 2), "decimal128(5, 2)"),
    (pa.decimal128(10, 3), "decimal128(10, 2)"),
    (pa.list_(pa.int8()), "int8"),
]


@pytest.mark.parametrize(("kind", "declared"), NARROWER)
def test_a_narrower_type_is_compatible(kind: pa.DataType, declared: str) -> None:
    assert not list(misfits(pa.schema([("a", kind)]), {"a": declared}, "refused"))


@pytest.mark.parametrize(("kind", "declared"), OTHERS)
def test_another_type_is_told(kind: pa.DataType, declared: str) -> None:
    assert list(misfits(pa.schema([("a", kind)]), {"a": declared}, "allowed")) == [f"a is {kind}, not {declared}"]


@pytest.mark.parametrize("text", [declared for _, declared in NARROWER + OTHERS if declared != "any"])
def test_a_type_has_its_own_name(text: str) -> None:
    kind = type_named(text)
    assert is_narrower(kind, kind)
    assert type_named(str(kind)) == kind


def test_columns_that_are_not_there_or_twice_or_not_declared_are_told() -> None:
    schema = pa.schema([("a", pa.int8()), ("b", pa.int8()), ("b", pa.int8()), ("c", pa.int8())])
    found = list(misfits(schema, {"b": "any", "d": "any", "a": "int8"}, "refused"))
    assert found == ["b is there 2 times", "d is missing", "c is not declared"]
    assert list(misfits(schema, {"a": "int8"}, "allowed")) == []


@pytest.mark.parametrize("text", ["", "intt", "list<int8>", "timestamp[xs, tz=UTC]", "decimal128(99, 2)"])
def test_what_names_no_type_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"type|precision"):
        type_named(text)

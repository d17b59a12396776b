"""Declared columns, and the schemas that are compatible with them."""

from __future__ import annotations

import pyarrow as pa
import pytest

from distcommit.schemas.check_declared_columns import describe_columns, misfits
from distcommit.schemas.evolution import is_narrower

UTC = pa.timestamp("us", "UTC")
STRUCT = pa.struct([("a", pa.int64()), ("b", pa.list_(pa.string()))])
NARROWER = [
    (pa.int32(), pa.int64()),
    (pa.uint32(), pa.int64()),
    (pa.uint8(), pa.uint16()),
    (pa.float32(), pa.float64()),
    (pa.float16(), pa.float32()),
    (pa.null(), pa.string()),
    (pa.null(), STRUCT),
    (pa.large_string(), pa.string()),
    (pa.string(), pa.large_string()),
    (pa.string_view(), pa.string()),
    (pa.large_binary(), pa.binary()),
    (pa.dictionary(pa.int8(), pa.string()), pa.string()),
    (pa.decimal128(5, 2), pa.decimal128(10, 2)),
    (pa.timestamp("ms"), pa.timestamp("us")),
    (pa.timestamp("ms", "Europe/Berlin"), UTC),
    (pa.time32("ms"), pa.time64("us")),
    (pa.duration("s"), pa.duration("ms")),
    (pa.large_list(pa.int8()), pa.list_(pa.int64())),
    (pa.list_(pa.int8(), 3), pa.list_(pa.int64())),
    (pa.map_(pa.string(), pa.int8()), pa.map_(pa.string(), pa.int64())),
    (pa.struct([("c", pa.int8()), ("b", pa.list_(pa.null())), ("a", pa.int8())]), STRUCT),
]
OTHERS = [
    (pa.int64(), pa.int32()),
    (pa.uint64(), pa.int64()),
    (pa.int8(), pa.uint16()),
    (pa.uint8(), pa.int8()),
    (pa.int64(), pa.float64()),
    (pa.float64(), pa.float32()),
    (pa.binary(), pa.string()),
    (pa.string(), pa.binary()),
    (pa.bool_(), pa.int8()),
    (pa.date32(), pa.timestamp("us")),
    (pa.timestamp("ns"), pa.timestamp("us")),
    (pa.timestamp("us"), UTC),
    (UTC, pa.timestamp("us")),
    (pa.decimal128(10, 2), pa.decimal128(5, 2)),
    (pa.decimal128(10, 3), pa.decimal128(10, 2)),
    (pa.list_(pa.int8()), pa.int8()),
    (pa.list_(pa.string()), pa.list_(pa.int8())),
    (pa.map_(pa.string(), pa.string()), pa.map_(pa.string(), pa.int8())),
    (pa.map_(pa.int8(), pa.int8()), pa.map_(pa.string(), pa.int8())),
    (pa.struct([("a", pa.int64())]), STRUCT),
    (pa.struct([("a", pa.int64())]), pa.struct([("a", pa.int64()), ("b", pa.int64())])),
    (pa.struct([("a", pa.string()), ("b", pa.list_(pa.string()))]), STRUCT),
]


@pytest.mark.parametrize(("kind", "declared"), NARROWER)
def test_narrower_type_is_compatible(kind: pa.DataType, declared: pa.DataType) -> None:
    assert is_narrower(kind, declared)


@pytest.mark.parametrize(("kind", "declared"), OTHERS)
def test_other_type_is_not_compatible(kind: pa.DataType, declared: pa.DataType) -> None:
    assert not is_narrower(kind, declared)


@pytest.mark.parametrize("kind", [kind for pair in NARROWER + OTHERS for kind in pair])
def test_type_is_compatible_with_itself(kind: pa.DataType) -> None:
    assert is_narrower(kind, kind)


def test_columns_that_do_not_fit_are_listed() -> None:
    schema = pa.schema([("a", pa.int64()), ("b", pa.int8()), ("b", pa.int8()), ("c", pa.int8())])
    problems = list(misfits(schema, {"b": "int64", "d": "string", "a": "int32"}, "refused"))
    assert problems == ["b exists 2 times", "d is missing", "a is int64, not int32", "c is not declared"]
    assert list(misfits(schema, {"c": "int32"}, "allowed")) == []


def test_columns_are_described_as_arrow_shows_them() -> None:
    assert describe_columns({"a": "decimal(9, 2)", "b": ["date"]}) == "a decimal128(9, 2), b list<item: date32[day]>"

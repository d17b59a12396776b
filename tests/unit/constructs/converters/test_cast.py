"""Casts at the limits of their types: the right value, or a rejection that names the column."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from distcommit.constructs.converters.cast import Cast
from distcommit.constructs.json_decoding.json_reader import JsonReader
from distcommit.constructs.record_converter import Record, RecordConverter
from distcommit.core.interfaces.constructs import Converted
from distcommit.core.work_units import WorkUnit
from distcommit.testing.fakes.convert_batch import convert_batch

REJECTED = "rejected"
FIRST, LAST = datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, 23, 59, 59, 999_999, UTC)
US = pa.timestamp("us", "UTC")
NS_BERLIN = pa.timestamp("ns", "Europe/Berlin")

CASTS: Sequence[tuple[pa.DataType, str, Any, Any]] = [
    (pa.string(), "float64", "1e400", REJECTED),
    (pa.string(), "float64", "-1e400", REJECTED),
    (pa.string(), "float64", "1.7976931348623159e308", REJECTED),
    (pa.string(), "float64", "1.7976931348623157e308", 1.7976931348623157e308),
    (pa.string(), "float64", "1e-400", REJECTED),
    (pa.string(), "float64", "0e-400", 0.0),
    (pa.string(), "float64", "5e-324", 5e-324),
    (pa.string(), "float64", "inf", float("inf")),
    (pa.string(), "float64", "-Infinity", float("-inf")),
    (pa.string(), "float64", "0.1", 0.1),
    (pa.string(), "float64", "9007199254740992", 9007199254740992.0),
    (pa.string(), "float64", "9007199254740993", REJECTED),
    (pa.string(), "float64", "10000000000000000000000", 1e22),
    (pa.string(), "float64", "1" + "0" * 400, REJECTED),
    (pa.binary(), "float64", b"1e400", REJECTED),
    (pa.string(), "int64", "9223372036854775807", 2**63 - 1),
    (pa.string(), "int64", "9223372036854775808", REJECTED),
    (pa.string(), "int64", "0x10", REJECTED),
    (pa.string(), "int32", "0xFFFFFFFF", REJECTED),
    (pa.string(), "int64", "007", 7),
    (pa.string(), "date", "2024-02-29", date(2024, 2, 29)),
    (pa.string(), "date", "2023-02-29", REJECTED),
    (pa.string(), "date", "0000-01-01", REJECTED),
    (pa.string(), "timestamp", "0001-01-01T00:00:00Z", FIRST),
    (pa.string(), "timestamp", "0001-01-01T00:00:00+14:00", REJECTED),
    (pa.string(), "timestamp", "9999-12-31T23:59:59.999999Z", LAST),
    (pa.string(), "timestamp", "9999-12-31T23:59:59-14:00", REJECTED),
    (pa.string(), "timestamp", "0000-01-01T00:00:00Z", REJECTED),
    (pa.float64(), "int64", 2.0**63, REJECTED),
    (pa.float64(), "int64", -(2.0**63), -(2**63)),
    (pa.float64(), "int64", float("nan"), REJECTED),
    (pa.float64(), "decimal(18, 2)", float("nan"), REJECTED),
    (pa.float64(), "decimal(18, 2)", 1e16, REJECTED),
    (pa.float64(), "bool", float("nan"), REJECTED),
    (pa.float64(), "bool", 0.5, REJECTED),
    (pa.float64(), "bool", 1.0, True),
    (pa.int64(), "bool", 2, REJECTED),
    (pa.int64(), "bool", 0, False),
    (pa.int64(), "float64", 2**53 + 1, REJECTED),
    (pa.int64(), "int32", 2**31, REJECTED),
    (pa.int64(), "decimal(18, 2)", 1, Decimal("1.00")),
    (pa.int64(), "decimal(18, 2)", 10**16 - 1, Decimal(10**16 - 1)),
    (pa.int64(), "decimal(18, 2)", 10**16, REJECTED),
    (pa.int64(), "decimal(38, 38)", 0, Decimal(0)),
    (pa.int64(), "decimal(38, 38)", 1, REJECTED),
    (pa.uint64(), "decimal(38, 2)", 2**64 - 1, Decimal(2**64 - 1)),
    (pa.uint64(), "int64", 2**64 - 1, REJECTED),
    (pa.int64(), "timestamp", 253402300799999999, LAST),
    (pa.int64(), "timestamp", 253402300800000000, REJECTED),
    (pa.int64(), "timestamp", -62135596800000001, REJECTED),
    (pa.int64(), "timestamp", 2**63 - 1, REJECTED),
    (pa.int32(), "date", 2932896, date(9999, 12, 31)),
    (pa.int32(), "date", 2932897, REJECTED),
    (pa.timestamp("s"), "timestamp", 253402300800, REJECTED),
    (pa.timestamp("s"), "timestamp", -(2**62), REJECTED),
    (pa.timestamp("ms", "UTC"), "timestamp", 2**63 - 1, REJECTED),
    (pa.timestamp("ms", "UTC"), "string", 2**63 - 1, REJECTED),
    (pa.timestamp("ms", "UTC"), "date", 2**63 - 1, REJECTED),
    (pa.timestamp("ms", "UTC"), "int64", 2**63 - 1, 2**63 - 1),
    (pa.timestamp("ns", "UTC"), "timestamp", 1, REJECTED),
    (NS_BERLIN, "date", 2**63 - 1, REJECTED),
    (NS_BERLIN, "date", -1, date(1970, 1, 1)),
    (pa.date32(), "timestamp", 2**31 - 1, REJECTED),
    (pa.date32(), "string", 2**31 - 1, REJECTED),
    (pa.date64(), "date", 2**62, REJECTED),
    (pa.date64(), "date", 86_400_001, REJECTED),
    (pa.decimal128(38, 2), "int64", Decimal("99999999999999999999.00"), REJECTED),
    (pa.decimal128(38, 2), "int64", Decimal("1.50"), REJECTED),
    (pa.decimal128(38, 2), "decimal(5, 1)", Decimal("1.20"), Decimal("1.2")),
    (pa.binary(), "string", b"\xff", REJECTED),
]


def array_of(kind: pa.DataType, values: Sequence[Any]) -> pa.Array:
    """Return an array of values, including times that Python can't represent."""
    if pa.types.is_temporal(kind):
        return pa.array(values, pa.int32() if kind.bit_width == 32 else pa.int64()).view(kind)
    return pa.array(values, kind)


def cast_to(written: str, column: pa.Array) -> Converted:
    (result,) = convert_batch(Cast(type="cast", columns={"amount": written}), pa.record_batch([column], ["amount"]))
    return result


@pytest.mark.parametrize(("kind", "written", "value", "right"), CASTS, ids=lambda value: str(value)[:30])
def test_cast_returns_the_right_value_or_rejects_its_record(
    kind: pa.DataType, written: str, value: Any, right: Any
) -> None:
    result = cast_to(written, array_of(kind, [value, None]))
    if right == REJECTED:
        assert result.records.column("amount").to_pylist() == [None]
        assert "amount" in result.rejected[0]
    else:
        assert result.records.column("amount").to_pylist() == [right, None]
        assert not result.rejected


def test_only_the_bad_records_of_a_batch_are_rejected_and_each_reason_names_column_and_value() -> None:
    column = array_of(US, [0, 2**63 - 1, 1, -(2**63), 2])
    result = cast_to("date", column)
    assert result.records.column("amount").to_pylist() == [date(1970, 1, 1)] * 3
    assert sorted(result.rejected) == [1, 3]
    assert "column 'amount'" in result.rejected[1]
    assert str(2**63 - 1) in result.rejected[1]


def test_reason_names_the_failed_column_among_several() -> None:
    batch = pa.record_batch([pa.array(["1"]), pa.array(["x"])], ["a", "b"])
    (result,) = convert_batch(Cast(type="cast", columns={"a": "int64", "b": "int64"}), batch)
    assert "column 'b'" in result.rejected[0]
    assert "column 'a'" not in result.rejected[0]


@pytest.mark.parametrize("text", ["9999-12-31T23:59:59-14:00", "0001-01-01T00:00:00+14:00"])
@pytest.mark.parametrize("kind", [US, pa.list_(US), pa.map_(pa.string(), US), pa.struct([("at", US)])])
def test_json_times_outside_the_calendar_in_utc_are_rejected(text: str, kind: pa.DataType) -> None:
    of = pa.types
    shape = {of.is_list: f'["{text}"]', of.is_map: f'{{"k":"{text}"}}', of.is_struct: f'{{"at":"{text}"}}'}
    written = next((shape[is_it] for is_it in shape if is_it(kind)), f'"{text}"')
    read = JsonReader(pa.schema([("at", kind)])).read(pa.array([f'{{"at":{written}}}', "{}"]))
    assert list(read.rejected) == [0]
    assert "years 1 to 9999" in read.rejected[0]
    assert read.columns[0].to_pylist() == [None]


class _Same(RecordConverter):
    def convert_schema(self, schema: pa.Schema, unit: WorkUnit | None) -> pa.Schema:
        return schema

    def convert_record(self, output_schema: pa.Schema, record: Record, unit: WorkUnit) -> Record:
        return record


@pytest.mark.parametrize("kind", [US, pa.date32(), pa.timestamp("s")])
def test_record_whose_time_python_can_not_represent_is_rejected_alone(kind: pa.DataType) -> None:
    column = array_of(kind, [0, 2**31 - 1 if kind == pa.date32() else 2**63 - 1, 1])
    (result,) = convert_batch(_Same(), pa.record_batch([column], ["at"]))
    assert result.records.num_rows == 2
    assert list(result.rejected) == [1]

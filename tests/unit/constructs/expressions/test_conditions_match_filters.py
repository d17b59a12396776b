"""A condition of a job file, evaluated on a batch, selects the same rows as a reader's filter, evaluated on a file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from distcommit.app.reading.row_filters import parsed_filters
from distcommit.constructs.expressions.condition import Condition
from distcommit.constructs.expressions.literals import convert_literal, literal_of
from distcommit.core.errors import ConfigurationError
from distcommit.fs.local_disk.local_file_system import LocalFileSystem
from distcommit.sinks.files.footer import read_batches

NAN = float("nan")
TIMES = [None, datetime(1960, 1, 1), datetime(2026, 3, 1), datetime(2026, 3, 2, 0, 0, 0, 1)]
COLUMNS: Mapping[str, tuple[pa.Array, list[Any]]] = {
    "a.b": (pa.array([None, -1, 0, 127], pa.int8()), [-1, 0, 1.0]),
    "unsigned": (pa.array([None, 0, 2**63, 2**64 - 1], pa.uint64()), [0, 2**63, 2**64 - 1]),
    "double": (pa.array([None, NAN, -0.0, 1.5]), [0, 0.0, -0.0, 1.5]),
    "float": (pa.array([None, NAN, -0.0, 1.5], pa.float32()), [0, -0.0, 1.5]),
    "decimal": (
        pa.array([None, Decimal("-1.00"), Decimal("1.50"), Decimal("9.99")], pa.decimal128(3, 2)),
        [1.5, "1.50"],
    ),
    "text": (pa.array([None, "", "10", "9"]), ["", "10"]),
    "flag": (pa.array([None, True, False, True]), [True, False]),
    "local": (pa.array(TIMES, pa.timestamp("us")), ["2026-03-01T00:00:00"]),
    "zoned": (pa.array(TIMES, pa.timestamp("ms", "Europe/Berlin"), safe=False), ["2026-03-01T00:00:00Z"]),
    "day": (pa.array([None, date(1960, 1, 1), date(2026, 3, 1), date(2026, 3, 2)]), ["2026-03-01"]),
}
OPERATORS = {"==": "=", "!=": "!=", "<": "<", "<=": "<=", ">": ">", ">=": ">="}
BATCH = pa.record_batch({**{name: column for name, (column, _) in COLUMNS.items()}, "row": pa.array(range(4))})


def rows_of_condition(condition: dict[str, Any]) -> list[int]:
    mask = Condition.model_validate(condition).is_true(BATCH, "filter").to_pylist()
    return [row for row, is_selected in enumerate(mask) if is_selected]


def rows_of_filter(folder: Path, *row_filter: Any) -> list[int]:
    """Write each row to its own row group, so that statistics exclude what they can. Return the selected rows."""
    path, filters = folder / "rows.parquet", parsed_filters(json.dumps([row_filter]))
    if not path.exists():
        pq.write_table(pa.table(BATCH), path, row_group_size=1)
    exact, fs = filters.expression(BATCH.schema), LocalFileSystem(durable=False)
    assert exact is not None
    read = read_batches(fs, str(path), {*filters.columns, "row"}, filters.of_file)
    return [row for batch in read for row in batch.filter(exact)["row"].to_pylist()]


@pytest.mark.parametrize("column", COLUMNS)
def test_condition_and_filter_select_the_same_rows(column: str, tmp_path: Path) -> None:
    values = COLUMNS[column][1]
    for value in values:
        for op, compared in OPERATORS.items():
            condition = {"column": column, "op": op, "value": value}
            assert rows_of_condition(condition) == rows_of_filter(tmp_path, column, compared, value), (op, value)
    for some in (values, values[:1]):
        among = {"column": column, "op": "in", "values": some}
        assert rows_of_condition(among) == rows_of_filter(tmp_path, column, "in", some)
        assert rows_of_condition({"not": among}) == rows_of_filter(tmp_path, column, "not in", some)


@pytest.mark.parametrize("column", COLUMNS)
def test_condition_s_literal_is_converted_as_a_filter_s_value(column: str) -> None:
    kind = BATCH.schema.field(column).type
    for value in COLUMNS[column][1]:
        converted = convert_literal(Decimal(str(value)) if pa.types.is_decimal(kind) else value, kind)
        assert literal_of(value, kind, "filter", column).equals(converted)


@pytest.mark.parametrize(
    ("value", "kind", "expected"),
    [
        (datetime(2026, 3, 1), pa.timestamp("ms", "Europe/Berlin"), datetime(2026, 3, 1, tzinfo=UTC)),
        (datetime(2026, 3, 1, tzinfo=UTC), pa.timestamp("us"), datetime(2026, 3, 1)),
        (date(2026, 3, 1), pa.timestamp("s"), datetime(2026, 3, 1)),
        (0.1, pa.float32(), 0.10000000149011612),
        (2**53 + 1, pa.float64(), 2.0**53),
    ],
)
def test_time_without_zone_is_utc_and_float_is_rounded_in_a_condition(
    value: Any, kind: pa.DataType, expected: Any
) -> None:
    assert literal_of(value, kind, "filter", "x").as_py() == expected


@pytest.mark.parametrize(("column", "value"), [("a.b", "1"), ("text", 10), ("flag", 1), ("local", 0), ("double", True)])
def test_condition_rejects_literals_of_another_type_which_filters_convert(column: str, value: Any) -> None:
    with pytest.raises(ConfigurationError, match="not valid for the column"):
        rows_of_condition({"column": column, "op": "==", "value": value})
    assert parsed_filters(json.dumps([[column, "=", value]])).expression(BATCH.schema) is not None


def test_nested_columns_are_rejected_by_both() -> None:
    schema = pa.schema([("x", pa.struct([("y", pa.int64())]))])
    with pytest.raises(ConfigurationError):
        Condition.model_validate({"column": "x", "op": "==", "value": 1}).check_schema(schema, "filter")
    with pytest.raises(ConfigurationError):
        parsed_filters('[["x", "=", 1]]').expression(schema)


@pytest.mark.parametrize("column", ["a.b", "double", "text", "local", "flag"])
def test_filter_value_beyond_64_bits_is_rejected_and_excludes_no_file(column: str) -> None:
    filters = parsed_filters(json.dumps([[column, "=", 2**64]]))
    with pytest.raises(ConfigurationError, match="not of its column's type"):
        filters.expression(BATCH.schema)
    assert filters.of_file(BATCH.schema) is None

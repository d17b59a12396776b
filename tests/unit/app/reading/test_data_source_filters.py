"""Filters of the Spark data source compare the requested values, whatever types the files have."""

from __future__ import annotations

import decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from distcommit.app.reading.row_filters import parsed_filters
from distcommit.app.reading.spark_data_source import _with_schema
from distcommit.core.errors import ConfigurationError
from distcommit.fs.local_disk.local_file_system import LocalFileSystem
from distcommit.sinks.files.footer import read_batches


def _read(folder: Path, tables: list[pa.Table], filters: str) -> list[object]:
    """Read and filter tables in the same way as `_Reader.read`."""
    fs, row_filters = LocalFileSystem(durable=False), parsed_filters(filters)
    schema = pa.unify_schemas([table.schema for table in tables], promote_options="permissive")
    condition, values = row_filters.expression(schema), list[object]()
    assert condition is not None
    for number, table in enumerate(tables):
        path = folder / f"{number}.parquet"
        pq.write_table(table, path)
        for batch in read_batches(fs, str(path), row_filters.columns, row_filters.of_file):
            values += _with_schema(batch, schema).filter(condition).column(0).to_pylist()
    return values


def test_decimal_column_is_compared_with_the_exact_filter_value(tmp_path: Path) -> None:
    prices = pa.table({"p": pa.array([decimal.Decimal("1.00"), decimal.Decimal("1.24")], pa.decimal128(10, 2))})
    assert _read(tmp_path, [prices], '[["p", ">", 1.239]]') == [decimal.Decimal("1.24")]
    assert _read(tmp_path, [prices], '[["p", "<", 1.005]]') == [decimal.Decimal("1.00")]


def test_row_groups_of_narrower_floats_are_filtered_by_the_exact_value(tmp_path: Path) -> None:
    narrow = pa.table({"x": pa.array([0.1], pa.float32())})
    wide = pa.table({"x": pa.array([5.0], pa.float64())})
    # 0.1 as a 32-bit float is 0.10000000149, which is above 0.1, so the row must be read as from a wide file
    assert len(_read(tmp_path, [narrow.cast(wide.schema), wide], '[["x", ">", 0.1]]')) == 2
    assert len(_read(tmp_path, [narrow, wide], '[["x", ">", 0.1]]')) == 2


def test_row_groups_of_times_in_other_units_are_filtered_by_the_exact_value(tmp_path: Path) -> None:
    at_ms = 1_700_000_000_000
    coarse = pa.table({"t": pa.array([at_ms], pa.timestamp("ms"))})
    fine = pa.table({"t": pa.array([at_ms * 1000], pa.timestamp("us"))})
    assert len(_read(tmp_path, [coarse, fine], f'[["t", ">=", {at_ms * 1000}]]')) == 2


def test_filter_values_outside_the_column_type_are_compared_exactly(tmp_path: Path) -> None:
    prices = pa.table({"p": pa.array([decimal.Decimal("1.00"), decimal.Decimal("9.24"), None], pa.decimal128(3, 2))})
    assert _read(tmp_path, [prices], '[["p", "<", 100]]') == [decimal.Decimal("1.00"), decimal.Decimal("9.24")]
    assert _read(tmp_path, [prices], '[["p", "in", [9.24, 1.001, 500]]]') == [decimal.Decimal("9.24")]
    assert _read(tmp_path, [prices], '[["p", "not in", [9.24, 1.001]]]') == [decimal.Decimal("1.00")]
    narrow = pa.table({"x": pa.array([0.1, 0.5, None], pa.float32())})
    assert len(_read(tmp_path, [narrow], '[["x", ">", 0.1]]')) == 2
    assert _read(tmp_path, [narrow], '[["x", "in", [0.5]]]') == [0.5]


@pytest.mark.parametrize("value", ['"dear"', "NaN", "true", "1e70"])
def test_filter_value_of_another_type_than_the_column_is_refused(value: str) -> None:
    schema = pa.schema([("p", pa.decimal128(10, 8))])
    with pytest.raises(ConfigurationError, match="not of its column's type"):
        parsed_filters(f'[["p", "=", {value}]]').expression(schema)

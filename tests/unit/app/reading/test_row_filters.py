"""Reader filters: selected records, file statistics, and refused filters."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from distcommit.app.reading.row_filters import RowFilters, parsed_filters
from distcommit.core.errors import ConfigurationError

TABLE = pa.table(
    {
        "n": pa.array([1, 2, None, 4], pa.int32()),
        "name": ["a", "b", "c", None],
        "at": pa.array([0, 86_400_000_000, None, 0], pa.timestamp("us", "UTC")),
        "x": [1.5, float("nan"), None, 2.0],
        "list": [[1], [2], [3], [4]],
    }
)


def filters(*conditions: Any) -> RowFilters:
    return parsed_filters(json.dumps(conditions))


@pytest.mark.parametrize(
    ("conditions", "rows"),
    [
        ([["n", "=", 2]], [1]),
        ([["n", "!=", 2]], [0, 3]),
        ([["n", "<", 4], ["name", ">", "a"]], [1]),
        ([["n", ">=", 2], ["n", "<=", 4]], [1, 3]),
        ([["name", "in", ["a", "c"]]], [0, 2]),
        ([["n", "not in", [1]]], [1, 3]),
        ([["at", ">", "1970-01-01T12:00:00Z"]], [1]),
        ([["x", "!=", 1.5]], [1, 3]),
        ([], [0, 1, 2, 3]),
    ],
)
def test_filters_select_the_records_for_which_all_conditions_are_true(conditions: list[Any], rows: list[int]) -> None:
    condition = filters(*conditions).expression(TABLE.schema)
    numbered = TABLE.append_column("row", pa.array(range(4)))
    selected = numbered if condition is None else numbered.filter(condition)
    assert selected["row"].to_pylist() == rows


@pytest.mark.parametrize(
    "text",
    ["n > 2", "{}", '[["n"]]', '[["n", "~", 1]]', '[["n", "=", null]]', '[["n", "in", []]]', '[["n", "in", 1]]'],
)
def test_invalid_filter_list_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match="not a list of filters"):
        parsed_filters(text)


def test_filter_that_does_not_fit_the_columns_is_refused() -> None:
    for condition, reason in (
        (["m", "=", 1], "no column of that name"),
        (["n", "=", 5_000_000_000], "not of its column's type"),
        (["at", "=", "yesterday"], "not of its column's type"),
        (["list", "=", 1], "not of its column's type"),
    ):
        with pytest.raises(ConfigurationError, match=reason):
            filters(condition).expression(TABLE.schema)


def test_file_with_narrower_columns_is_not_pruned_and_file_without_the_column_is() -> None:
    narrow = pa.schema([("n", pa.int8()), ("list", pa.list_(pa.int8()))])
    for condition in (["n", "=", 1000], ["n", "!=", 1], ["list", "=", 1]):
        assert filters(condition).of_file(narrow) is None
    nothing = filters(["m", "=", 1]).of_file(narrow)
    assert narrow.empty_table().append_column("k", pa.array([], pa.int8())).filter(nothing).num_rows == 0
    assert str(nothing) == "false"

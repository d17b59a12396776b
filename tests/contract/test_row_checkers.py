"""The built-in row checkers fulfill the row checker contract."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from distcommit.app.job_file.built_in_types import types_of, validated
from distcommit.core.interfaces.constructs import RowChecker
from distcommit.schemas.known_columns import find_column
from distcommit.testing.contracts import RowCheckerContract


class Even(RowChecker):
    """A custom row checker."""

    def __init__(self, column: str) -> None:
        self.column = column

    def check(self, batch: pa.RecordBatch) -> pa.BooleanArray:
        self.check_schema(batch.schema)
        return pc.equal(pc.bit_wise_and(batch[self.column], 1), 0)

    def check_schema(self, schema: pa.Schema) -> None:
        find_column(schema, self.column, "even", pa.types.is_integer, "integers")

    def describe(self) -> str:
        return f"{self.column} is even"


Case = tuple[Mapping[str, Any], Mapping[str, Any], Mapping[str, Any]]
CASES: Mapping[str, Case] = {
    "not_null": ({"columns": ["a", "b"]}, {"a": [1, 0], "b": ["", "x"]}, {"a": [1, None], "b": [None, "x"]}),
    "range": ({"column": "a", "min": 1, "max": 2.5}, {"a": [1.0, 2.5, None]}, {"a": [0.9, 2.6, float("nan")]}),
    "in_set": ({"column": "a", "values": ["x", "y"]}, {"a": ["x", None, "y"]}, {"a": ["", "X"]}),
    "regex": ({"column": "a", "pattern": "^[a-z]+$"}, {"a": ["x", None, "yz"]}, {"a": ["", "X"]}),
    "schema": ({"columns": {"a": "int64"}}, {"a": [1, None], "b": ["", ""]}, {"a": ["1", None], "b": ["", ""]}),
    "python": ({"class": f"{__name__}:Even", "options": {"column": "a"}}, {"a": [2, 4]}, {"a": [1, None]}),
}


def test_every_built_in_row_checker_is_tested_by_the_contract() -> None:
    assert CASES.keys() == set(types_of("row_checker"))


@pytest.mark.parametrize("name", CASES)
class TestBuiltIn(RowCheckerContract):
    @pytest.fixture(autouse=True)
    def _of_that_type(self, name: str) -> None:
        settings, passing, failing = CASES[name]
        self.settings, self.batches = {"type": name, **settings}, (passing, failing)

    def make_checker(self) -> RowChecker:
        instance: RowChecker = validated("row_checker", self.settings)
        return instance

    def passing(self) -> pa.RecordBatch:
        return pa.record_batch(self.batches[0])

    def failing(self) -> pa.RecordBatch:
        return pa.record_batch(self.batches[1])

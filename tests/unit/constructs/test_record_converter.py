"""Converters that process one record at a time: a record that does not fit the declared schema is rejected."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from distcommit.constructs.record_converter import Record, RecordConverter
from distcommit.core.work_units import WorkUnit
from distcommit.testing.fakes.convert_batch import convert_batch

LINE = pa.struct([pa.field("sku", pa.string(), nullable=False), ("n", pa.int32())])
SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        ("note", pa.string()),
        ("lines", pa.list_(LINE)),
        ("by_name", pa.map_(pa.string(), pa.field("value", pa.int32(), nullable=False))),
    ]
)


class Given(RecordConverter):
    """A converter that returns a given object for its second record."""

    def __init__(self, given_object: Any) -> None:
        self.made = given_object

    def convert_schema(self, schema: pa.Schema, unit: WorkUnit | None) -> pa.Schema:
        return SCHEMA

    def convert_record(self, output_schema: pa.Schema, record: Record, unit: WorkUnit) -> Any:
        return self.made if record["id"] == 1 else {"id": record["id"]}


def converted(given_object: Any) -> tuple[list[Any], dict[int, str]]:
    (result,) = convert_batch(Given(given_object), pa.record_batch({"id": [0, 1, 2]}))
    result.records.validate(full=True)
    return result.records.select(["id"]).to_pylist(), dict(result.rejected)


@pytest.mark.parametrize(
    ("given_object", "why"),
    [
        ({"id": 1, "nots": "x"}, "nots is not in the converter's schema"),
        ({"note": "x"}, "id must not be null or missing"),
        ({"id": None}, "id must not be null or missing"),
        ([{"id": 1}, {"id": 1, "more": 1}], "more is not in the converter's schema"),
        ({"id": 1, "lines": [{"sku": "a"}, {"n": 1}]}, "lines[].sku must not be null or missing"),
        ({"id": 1, "lines": [{"sku": "a", "m": 1}]}, "lines[].m is not in the converter's schema"),
        ({"id": 1, "by_name": {"k": None}}, "by_name.k must not be null or missing"),
        ({"id": 1, "by_name": [("k", None)]}, "by_name.k must not be null or missing"),
        ({"ib": 1}, "ib is not in the converter's schema; id must not be null or missing"),
    ],
)
def test_record_that_does_not_fit_is_rejected_alone(given_object: Any, why: str) -> None:
    assert converted(given_object) == ([{"id": 0}, {"id": 2}], {1: why})


@pytest.mark.parametrize(
    "given_object",
    [
        {"id": 1},
        {"id": 1, "note": None, "lines": [None, {"sku": "a"}], "by_name": {"k": 1}},
        {"id": 1, "lines": [], "by_name": [("k", 1)]},
    ],
)
def test_missing_nullable_column_of_a_record_is_null(given_object: Any) -> None:
    assert converted(given_object) == ([{"id": 0}, {"id": 1}, {"id": 2}], {})

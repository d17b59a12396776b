"""Converters that take records one at a time: what does not fit the schema that they say is turned away."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from distcommit.constructs.by_record import Record, RecordConverter

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
    """Makes of its second record what it is given."""

    def __init__(self, made: Any) -> None:
        self.made = made

    def schema_of(self, schema: pa.Schema) -> pa.Schema:
        return SCHEMA

    def convert_record(self, record: Record) -> Any:
        return self.made if record["id"] == 1 else {"id": record["id"]}


def converted(made: Any) -> tuple[list[Any], dict[int, str]]:
    (found,) = Given(made).convert(pa.record_batch({"id": [0, 1, 2]}))
    found.records.validate(full=True)
    return found.records.select(["id"]).to_pylist(), dict(found.rejected)


@pytest.mark.parametrize(
    ("made", "why"),
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
def test_a_record_that_does_not_fit_is_turned_away_and_the_others_are_not(made: Any, why: str) -> None:
    assert converted(made) == ([{"id": 0}, {"id": 2}], {1: why})


@pytest.mark.parametrize(
    "made",
    [
        {"id": 1},
        {"id": 1, "note": None, "lines": [None, {"sku": "a"}], "by_name": {"k": 1}},
        {"id": 1, "lines": [], "by_name": [("k", 1)]},
    ],
)
def test_what_a_record_does_not_have_is_null_where_that_may_be(made: Any) -> None:
    assert converted(made) == ([{"id": 0}, {"id": 1}, {"id": 2}], {})

"""The columns of published files, and the types of new records that readers can join with them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pytest
from distcommit.app.reading.joined_table import joined_schema

from distcommit.core.errors import ConfigurationError, CorruptError
from distcommit.schemas.published_columns import PublishedColumns

UTC = pa.timestamp("us", "UTC")


@dataclass
class Store:
    """A store of schemas in memory."""

    stored: dict[int, Mapping[str, Any]] = field(default_factory=dict)

    def schema(self, schema_id: int) -> Mapping[str, Any]:
        if schema_id not in self.stored:
            raise CorruptError("lost", id="SCHEMA_HISTORY_LOST")
        return self.stored[schema_id]

    def put_next(self, after: int, schema: Mapping[str, Any]) -> tuple[int, Mapping[str, Any]]:
        return after + 1, self.stored.setdefault(after + 1, schema)


def columns(store: Store, *ids: int) -> PublishedColumns:
    published = PublishedColumns("json, cast")
    published.history.store = store
    published.history.load_ids(ids)
    return published


@pytest.mark.parametrize(
    ("before", "now"),
    [
        (pa.int32(), pa.int64()),
        (pa.int64(), pa.int32()),
        (pa.float32(), pa.float64()),
        (pa.int64(), pa.float64()),
        (pa.int64(), pa.decimal128(38, 0)),
        (pa.null(), pa.string()),
        (pa.string(), pa.dictionary(pa.int32(), pa.string())),
        (pa.timestamp("ms", "UTC"), UTC),
        (pa.struct([("x", pa.int64())]), pa.struct([("x", pa.int64()), ("y", pa.string())])),
    ],
)
def test_type_that_readers_can_join_is_accepted_in_the_next_run(before: pa.DataType, now: pa.DataType) -> None:
    store = Store()
    first = columns(store)
    first.admit(pa.schema([("a", before)]))
    assert first.history.ids == [1]
    columns(store, 1).admit(pa.schema([("a", now), ("new", pa.string())]))


@pytest.mark.parametrize(
    ("before", "now"),
    [
        (pa.string(), UTC),
        (pa.int64(), pa.string()),
        (pa.date32(), UTC),
        (pa.timestamp("us"), UTC),
        (pa.list_(pa.int64()), pa.list_(pa.string())),
        (pa.struct([("x", pa.int64())]), pa.struct([("x", pa.string())])),
    ],
)
def test_type_that_no_reader_can_join_is_refused_with_both_types(before: pa.DataType, now: pa.DataType) -> None:
    schemas = [pa.schema([("id", pa.int64()), ("a", kind)]) for kind in (before, now)]
    with pytest.raises(ConfigurationError):
        joined_schema(schemas)
    store = Store()
    columns(store).admit(schemas[0])
    with pytest.raises(ConfigurationError, match="COLUMN_TYPE_CHANGED") as raised:
        columns(store, 1).admit(schemas[1])
    text = str(raised.value)
    assert "column=a" in text
    assert "converters=json, cast" in text
    assert " here, and " in text
    assert "--set paths.output=NEW" in text
    assert list(store.stored) == [1], "nothing is stored of refused records"


def test_column_that_the_newest_records_lack_keeps_its_type() -> None:
    store = Store()
    columns(store).admit(pa.schema([("a", pa.string()), ("b", pa.int64())]))
    second = columns(store, 1)
    second.admit(pa.schema([("b", pa.int64())]))
    assert second.history.ids == [1]
    with pytest.raises(ConfigurationError, match="a is int64 here, and string before"):
        columns(store, 1).admit(pa.schema([("a", pa.int64())]))


def test_lost_columns_are_replaced_by_those_of_the_next_records() -> None:
    store = Store()
    published = columns(store, 1)
    published.admit(pa.schema([("a", UTC)]))
    assert published.history.ids == [1, 2]
    with pytest.raises(ConfigurationError, match="COLUMN_TYPE_CHANGED"):
        columns(store, 1, 2).admit(pa.schema([("a", pa.string())]))
